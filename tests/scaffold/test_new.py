"""What `gradleak new` writes passes `gradleak check` at once, and does something real."""

import statistics

import pytest

from benchmark.records import load_results
from benchmark.registry import Registry

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
def test_every_promise_is_kept_at_once(new, gradleak, kind):
    folder = new(kind.split()[0], *KINDS[kind])
    ended = gradleak("check", folder)
    assert ended.code == 0, ended.out
    assert "no promise broken" in ended.out
    assert (folder / "test_mine.py").is_file()


@pytest.fixture
def median(gradleak, tmp_path):
    """Return the median of a metric over an attack's trials in a protocol."""

    def of(protocol, attack, metric, *options):
        where = ("--results", tmp_path / "results", "--trials", 2, "--seeds", 0)
        ended = gradleak("run", protocol, "--attack", attack, "--defense", "none", *options, *where)
        assert ended.code == 0, ended.err
        found = load_results(tmp_path / "results").query("attack == @attack")
        return statistics.median(found[metric])

    return of


def test_attack_on_images_is_exact_where_patches_are_fewer_than_the_width(new, median, tiny):
    new("attack")
    assert median(tiny(), "mine", "psnr", "--plugins", "mine") > 60


def test_attack_on_text_reads_most_words(new, median):
    new("attack", "--track", "text")
    assert median(HERE, "mine", "unique_token_recall", "--plugins", "mine") > 0.9


def test_malicious_server_reads_words_where_they_stand(new, median):
    new("attack", "--malicious")
    read = median(HERE, "mine", "total_accuracy", "--plugins", "mine")
    assert read > 3 * median(HERE, "random", "total_accuracy")
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
