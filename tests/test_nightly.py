import re
import shlex
from pathlib import Path

import pytest
import yaml

from benchmark.nightly import start as nightly
from benchmark.nightly.changes import Snapshot, report
from benchmark.protocol import SuitePart, load_protocol, load_suite
from benchmark.running import order
from benchmark.verify import start as verifying

ROOT = Path(__file__).parents[1]


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def night(tiny, gradleak, results, monkeypatch):
    """Spend a few seconds of a night on a suite of two attacks."""
    chosen = {"attacks": ("random", "prior_only"), "defenses": ("none",)}
    part = SuitePart((load_protocol(str(tiny())),), **chosen)
    for module in (order, nightly, verifying):
        monkeypatch.setattr(module, "load_suite", lambda *_: [part])

    def spend(hours=0.01):
        board = results.parent / "board.md"
        words = ["--hours", hours, "--results", results, "--output", board]
        return gradleak("nightly", *words)

    return spend


def test_workflow_s_command_is_one_that_the_command_line_takes(night, results, gradleak):
    workflow = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    (job,) = workflow["jobs"].values()
    said = next(s["run"] for s in job["steps"] if s.get("id") == "night")
    line = next(line for line in said.splitlines() if "gradleak" in line).split("||")[0]
    words = shlex.split(line.replace("$HOURS", "0"))[2:]  # what follows uv run
    assert words.pop(0) == "gradleak"
    night()
    board = results.parent / "board.md"
    assert gradleak(*words, "--results", results, "--output", board).code == 0
    suites = {row["suite"] for row in job["strategy"]["matrix"]["include"]}
    assert all(load_suite(name) for name in suites)


def changes(results):
    return sorted((results / "changes").glob("*.md"))


def test_a_night_tells_what_is_new_and_a_second_one_that_nothing_changed(night, results):
    first = night()
    assert first.code == 0
    (page,) = changes(results)
    assert "| tiny | 2 |" in page.read_text()
    assert (results.parent / "board.md").is_file()
    assert (results.parent / "reproduction.md").is_file()
    second = night()
    assert (second.code, changes(results)) == (0, [page])
    assert "nothing changed" in second.out


def test_an_answer_that_drifted_ends_in_code_3_and_is_told(night, results):
    night()
    path = results / "tiny/random.jsonl"
    path.write_text(re.sub(r'"scores":\[[\d.]+', '"scores":[99.0', path.read_text()))
    ended = night()
    assert ended.code == 3
    assert "## Drift" in changes(results)[-1].read_text()


def test_a_night_without_time_begins_nothing(night, results):
    ended = night(hours=0)
    assert "0 records written" in ended.out
    assert not (results / "tiny").exists()


def test_scores_that_moved_are_told_with_whether_that_is_more_than_noise():
    from benchmark.stats import CellSummary, Estimate

    def taken(mean, spread, n=10, failed=0):
        score = Estimate(mean, 1.0, mean - spread, mean + spread, n)
        cell = CellSummary(
            "vit", "none", "mine", False, None, n, failed, 1.0, 0, {"psnr": score}, None,
            None, None, None,
        )  # fmt: skip
        return Snapshot({("vit", "none", "mine"): cell}, {"vit": "psnr"}, {("vit", "mine"): 1})

    assert report(taken(20, 1), taken(20, 1), drift=False, when="now") is None
    sure = report(taken(20, 1), taken(30, 1, failed=2), drift=False, when="now")
    assert "| 10 to 10 | yes |" in sure
    assert "## New failures" in sure
    assert "| 10 to 10 | no |" in report(taken(20, 2), taken(21, 2), drift=False, when="now")
