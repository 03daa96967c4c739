"""Commands that only look at submissions import no outside code in the harness."""

import sys

import pytest

IMPORTS = "import sys\nsys.modules['imported_in_harness'] = sys\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list", "attacks"), 0),
        (("list", "defenses"), 0),
        (("show", "evil"), 0),
        (("run", "quick_digits_b", "--plan", "--attack", "evil", "--defense", "evil_too"), 0),
        (("picture", "quick_digits_b", "--output", "x.png", "--attack", "evil"), 2),
        (("train", "quick_digits_b", "--inverter", "evil_too"), 2),
        (("tune", "quick_digits_b", "--attack", "evil"), 2),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else None,
)
def test_command_imports_nothing_from_outside(gradleak, plugin, tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)
    plugin("evil", source=IMPORTS)
    folder = plugin("evil_too", source=IMPORTS, kind="defense")
    monkeypatch.setenv("GRADLEAK_PLUGINS", str(folder))
    if words[0] == "run":
        words = (*words, "--results", tmp_path / "results")
    ended = gradleak(*words)
    assert ended.code == code, ended.err
    assert len(ended.err.splitlines()) == (code != 0)
    assert "imported_in_harness" not in sys.modules
