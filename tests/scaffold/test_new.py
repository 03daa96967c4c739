"""What `gradleak new` writes passes `gradleak check` at once, and does something real."""

import statistics

import pytest

from benchmark.conformance.examination import examine
from benchmark.registry import Registry
from tests.conftest import Bench

KINDS = {
    "attack": (),
    "attack --search": ("--search",),
    "attack --track text": ("--track", "text"),
    "attack --track text --search": ("--track", "text", "--search"),
    "attack --malicious": ("--malicious",),
    "defense": (),
}
HERE = "quick_pydoc_transformer3"


@pytest.fixture
def new(tmp_path, monkeypatch, gradleak):
    """Write one and return its folder."""
    monkeypatch.chdir(tmp_path)

    def write(kind, *options, name="mine"):
        ended = gradleak("new", kind, name, *options)
        assert (ended.code, ended.err) == (0, "")
        assert f"gradleak check ./{name}" in ended.out
        return tmp_path / name

    return write


def cases():
    """Return the kinds; those of text take as long as all others, and differ in little."""
    marks = {kind: pytest.mark.slow if "text" in kind else () for kind in KINDS}
    return [pytest.param(kind, marks=marked) for kind, marked in marks.items()]


@pytest.mark.parametrize("kind", cases())
def test_every_promise_is_kept_at_once(new, kind):
    folder = new(kind.split()[0], *KINDS[kind])
    registry = Registry([folder])
    (written,) = registry.find(kind.split()[0], "mine")
    rows = list(examine(written, registry))
    assert len(rows) > 8
    assert [row for row in rows if row.answer == "fail"] == []
    assert (folder / "test_mine.py").is_file()


@pytest.mark.slow
def test_check_of_what_was_written_says_that_it_passes(new, gradleak):
    ended = gradleak("check", new("defense"))
    assert ended.code == 0, ended.out
    assert "no promise broken" in ended.out


@pytest.fixture
def median(provenance):
    """Return the median of a metric over an attack's trials in a protocol."""

    def of(protocol, attack, metric, plugins):
        records = Bench(protocol, plugins, provenance).run(attack, trials=2)
        assert {record.status for record in records} == {"completed"}
        return statistics.median(record.metrics[metric] for record in records)

    return of


def test_attack_on_images_is_exact_where_patches_are_fewer_than_the_width(new, median, tiny):
    assert median(tiny(), "mine", "psnr", new("attack")) > 60


def test_attack_on_text_reads_most_words(new, median):
    folder = new("attack", "--track", "text")
    assert median(HERE, "mine", "unique_token_recall", folder) > 0.9


def test_malicious_server_reads_words_where_they_stand(new, median):
    read = median(HERE, "mine", "total_accuracy", new("attack", "--malicious"))
    assert read > 3 * median(HERE, "random", "total_accuracy", None)
    assert read > 0.3


def test_class_is_named_after_the_submission(new):
    folder = new("defense", name="quiet_noise_2")
    (found,) = Registry([folder]).find("defense", "quiet_noise_2")
    assert type(found.build()).__name__ == "QuietNoise2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("attack", "Mine"), "'Mine': wanted a name of lower-case letters"),
        (("attack", "../mine"), "'../mine': wanted a name"),
        (("attack", "mine", "--search", "--malicious"), "wanted one of them"),
        (("attack", "mine", "--malicious", "--track", "images"), "wanted text"),
        (("attack", "mine", "--track", "sound"), "sound"),
    ],
)
def test_what_cannot_be_written_is_refused(gradleak, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    ended = gradleak("new", *words)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_there_is_left_alone(new, gradleak):
    folder = new("attack")
    (folder / "attack.py").write_text("kept")
    ended = gradleak("new", "attack", "mine")
    assert (ended.code, (folder / "attack.py").read_text()) == (2, "kept")
