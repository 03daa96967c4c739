import pytest

from benchmark.leaderboard.markdown import Links, anchor, interval, prose, spread
from benchmark.stats import Estimate


@pytest.mark.parametrize(
    ("mean", "std", "written"),
    [
        (131.2345, 3.98, "131.2 ± 4.0"),
        (0.91324, 0.0412, "0.913 ± 0.041"),
        (58.2, 9.96, "58 ± 10"),
        (160.0, 0.0, "160.0 ± 0.0"),
        (0.0032, 0.0148, "0.0032 ± 0.0148"),
        (1.3e-5, 2.1e-6, "1.3e-05 ± 2.1e-06"),
        (0.0, 0.0, "0 ± 0"),
        (-1e-6, 0.5, "0.0000 ± 0.5000"),
        (21.0, None, "21.00"),
    ],
)
def test_numbers_show_the_digits_that_mean_something(mean, std, written):
    score = Estimate(mean, std, None, None, 4)
    assert spread(score).replace("\u00a0", " ") == written


def test_interval_is_written_to_the_place_of_its_mean():
    score = Estimate(131.2345, 3.98, 129.111, 133.96, 4)
    assert interval(score).replace("\u00a0", " ") == r"\[129.1, 134.0\]"


def test_foreign_text_cannot_write_markdown():
    assert prose("a|b\n<b>*x*</b> & [y](z)") == (
        r"a\|b &lt;b>\*x\*&lt;/b> &amp; \[y\](z)"  # one line, no tag, no link
    )


def test_anchor_is_the_one_github_makes():
    assert anchor("ViT-S on CIFAR-10, batch 8 (vit_s)") == "vit-s-on-cifar-10-batch-8-vit_s"


def test_link_keeps_its_label_whatever_stands_before_it(tmp_path):
    names = [f"{i}.jsonl" for i in range(400)]  # some digests begin alike
    for name in names:
        (tmp_path / name).touch()
    links = Links(tmp_path)
    shown = {name: links.to("1.0", tmp_path / name) for name in names}
    assert len(set(shown.values())) == len(names)
    assert Links(tmp_path).to("1.0", tmp_path / names[0]) == shown[names[0]]
    assert set(links.definitions().splitlines()) == {
        f"{link.removeprefix('[1.0]')}: {name}" for name, link in shown.items()
    }
