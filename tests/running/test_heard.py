"""What submissions print is kept for their authors: bounded, and safe to show."""

import os
import sys

import pytest

from benchmark.running.heard import MOST_BYTES, Ear, Heard, safe
from benchmark.running.inprocess import InProcess
from benchmark.running.wall import trouble


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07gone", "]0;titlegone"),
        ("a\rb", "a\nb"),
        ("\u202eevil\u2066", "evil"),
        ("tab\tand\x00null", "tab andnull"),
    ],
)
def test_what_moves_a_cursor_is_taken_out(said, shown):
    assert safe(said) == shown


def test_ear_keeps_the_beginning_of_much_and_goes_on_after_it():
    ear = Ear()
    os.write(ear.fileno(), b"x" * (MOST_BYTES + 1))
    assert ear.take() == "x" * MOST_BYTES + "\n… more was said, and is not kept"
    os.write(ear.fileno(), b"then \xff")
    assert ear.take() == "then \ufffd"
    os.ftruncate(ear.fileno(), 0)
    assert ear.take() == ""
    ear.close()


def test_heard_of_one_cell_is_bounded():
    heard = Heard()
    for _ in range(3):
        heard.add("x" * MOST_BYTES)
    assert len(heard.take()) <= MOST_BYTES + 100
    assert heard.take() == ""


def test_prints_warnings_and_tracebacks_of_this_process_are_heard(plugin, bench):
    heard, worker = Heard(), InProcess(tells=True)
    made = bench(plugin("mine", "print('here'); return seen.update['tail']"))
    with heard.listening():
        made.run("mine", worker=worker, trials=1)
        print("UserWarning: odd", file=sys.stderr)
        print("y" * 2 * MOST_BYTES)
    said = heard.take()
    assert said.startswith("here\nTraceback")
    assert "return seen.update['tail']" in said
    assert "attack.py" in said
    assert "UserWarning: odd" in said
    assert len(said) <= MOST_BYTES + 100


@pytest.mark.parametrize(
    "option", ["--traceback", pytest.param("--verbose", marks=pytest.mark.slow)]
)
def test_run_shows_the_line_of_a_failed_trial_and_keeps_it(
    gradleak, plugin, tiny, tmp_path, option
):
    if said := trouble():
        pytest.skip(said)
    folder = plugin("mine", "print('\\x1b[2Jhere'); return seen.update['tail']")
    results = tmp_path / "results"
    words = ("--attack", "mine", "--defense", "none", "--results", results, "--trials", 1)
    ended = gradleak("run", tiny(), "--plugins", folder, *words, option)
    assert ended.code == 2
    assert "  here\n" in ended.out
    assert "return seen.update['tail']" in ended.out
    log = results / "tiny" / "logs" / "none" / "mine.0.log"
    assert log.read_text().startswith("here\nTraceback")
    assert log.stat().st_size < 2 * MOST_BYTES
