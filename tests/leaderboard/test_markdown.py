import pytest

from benchmark.leaderboard.markdown import (
    Footnotes,
    Links,
    interval,
    percent,
    prose,
    ranged,
    spread,
    stacked,
)
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


@pytest.mark.parametrize(
    ("share", "written"),
    [(0.02, "2 %"), (0.125, "12 %"), (1 / 1200, "0.08 %"), (0.2, "20 %"), (0.0033, "0.33 %")],
)
def test_share_has_the_digits_that_tell_it_apart(share, written):
    assert percent(share).replace("\u00a0", " ") == written


def test_range_of_equal_ends_is_one_number():
    assert ranged(["1.0", "1.0"]) == "1.0"
    assert ranged(["1.0", "2.0"]).replace("\u00a0", " ") == "1.0 to 2.0"


def test_head_of_a_column_breaks_within_names_and_at_arguments():
    assert stacked("my_noise,scale=1") == (
        "<code>my_<wbr>noise</code><br><code>scale=<wbr>1</code>"
    )


def test_footnote_is_told_once_however_often_it_is_marked():
    notes = Footnotes()
    assert notes.mark("dlg", "by Adam") == notes.mark("dlg", "by Adam") == "[^dlg]"
    assert notes.mark("ig", None) == ""
    assert notes.definitions() == "[^dlg]: by Adam"
