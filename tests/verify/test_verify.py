"""What a change of the source does to records, on a copy of the repository."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from benchmark.identity import ROOT
from benchmark.records import load_results
from benchmark.running.order import Order
from benchmark.running.start import carry_out

SEARCHED = {
    "name": "tiny",
    "version": 1,
    "title": "Tiny",
    "description": "Cells in milliseconds.",
    "data": {"name": "digits", "size": 16},
    "victim": {"architecture": "april_b", "width": 32, "depth": 1, "patch": 4},
    "threat": {"grants": ["batch_size", "data_statistics", "labels"]},
    "trials": 2,
    "seeds": [0],
    "budget": {"seconds": 30, "memory_mib": 256, "gradient_evaluations": 6},
    "metrics": ["psnr", "mse"],
}
CHOSEN = ("--attack", "dlg", "--attack", "random", "--defense", "none")
RUN = """
import json, sys
from benchmark.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try: main()
    except SystemExit as last: code = last.code
sys.exit(code)
"""
LOOP = "benchmark/toolbox/matching/loop.py"


@dataclass
class Copy:
    """A copy of the repository, its tiny protocol, and its records."""

    root: Path

    def run(self, *commands, code=0):
        """Run commands there, in one process; return what they printed, if the last ends so."""
        done = subprocess.run(
            [sys.executable, "-c", RUN, json.dumps(commands)],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def change(self, file, was, now):
        """Replace the one place of a text in a file."""
        path = self.root / file
        text = path.read_text()
        assert text.count(was) >= 1, f"{file}: no {was!r}"
        path.write_text(text.replace(was, now))

    def attested(self):
        path = self.root / "results/attestations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    root = tmp_path_factory.mktemp("copy")
    for part in ("benchmark", "submissions"):
        shutil.copytree(ROOT / part, root / part)  # bytecode too, which tells when it is stale
    (root / "protocols/suites").mkdir(parents=True)
    (root / "protocols/__init__.py").touch()
    (root / "protocols/tiny.yaml").write_text(yaml.safe_dump(SEARCHED))
    (root / "protocols/suites/quick.yaml").write_text("name: quick\ntitle: q\nprotocols: [tiny]\n")
    tiny, results = str(root / "protocols/tiny.yaml"), root / "results"
    asked = Order(tiny, results, attacks=("dlg", "random"), defenses=("none",))
    assert carry_out(asked, only_plan=False) == 0  # by this process: the source is the same
    return root


@pytest.fixture
def copy(recorded, tmp_path):
    """Return a copy of its own for each test."""
    return Copy(Path(shutil.copytree(recorded, tmp_path / "copy")))


def test_words_and_a_renamed_local_make_nothing_due_and_are_cleared(copy):
    first = next(
        line.split(" = ")[0].strip()
        for line in (copy.root / LOOP).read_text().splitlines()
        if line.startswith("    ") and line.split(" = ")[0].strip().isidentifier() and " = " in line
    )
    text = (copy.root / LOOP).read_text()
    (copy.root / LOOP).write_text(f"# a comment\n{text}\n'''A docstring.'''\n")
    copy.change(LOOP, first, f"{first}_renamed")
    said = copy.run(("run", "quick", *CHOSEN, "--plan"), ("verify", "quick", "--changed"))
    assert "0 due" in said
    assert "2 of 4 records unverified: the source of attack dlg has moved" in said
    assert "1 cells came out the same, 0 did not" in said
    (one,) = copy.attested()
    assert (one["part"], one["name"], one["trials"]) == ("attack", "dlg", 1)


def test_changed_constant_of_the_engine_is_caught(copy):
    copy.change("benchmark/toolbox/matching/optimisers.py", "0.999", "0.9")
    said = copy.run(("verify", "quick", "--changed"), code=3)
    assert "differs: tiny x none x dlg" in said
    assert "raise the version of attack dlg" in said
    assert not (copy.root / "results/attestations.jsonl").exists()


def test_metric_that_moves_by_a_thousandth_is_caught(copy):
    metric = copy.root / "benchmark/metrics/mse.py"
    text = metric.read_text()
    assert text.count("    return float(") == 1
    metric.write_text(text.replace("    return float(", "    return 1e-3 + float("))
    said = copy.run(("verify", "quick"), code=3)
    assert "mse" in said
    assert "raise the version of harness" in said


def test_records_of_an_older_version_fail_a_verification_until_they_are_made_anew(
    tiny, gradleak, tmp_path, monkeypatch
):
    results, board = tmp_path / "results", tmp_path / "board.md"
    words = (tiny(), "--results", results)
    chosen = ("--attack", "random", "--defense", "none")
    gradleak("run", *words, *chosen)
    monkeypatch.setattr("benchmark.identity.HARNESS", 2)
    told = "3 records are of an older version, due again, because of harness\n"
    ended = gradleak("verify", *words, "--sample", 0)
    assert (ended.code, told in ended.out, "unverified" in ended.out) == (3, True, False)
    assert told in gradleak("run", *words, *chosen, "--plan").out
    gradleak("leaderboard", "--results", results, "--output", board)
    assert "3 record(s) are of an older version, due again" in board.read_text()
    gradleak("run", *words, *chosen)
    assert gradleak("verify", *words, "--sample", 0).code == 0
    assert "older version" not in gradleak("run", *words, *chosen, "--plan").out


def test_default_that_changes_under_the_same_digest_is_told(tiny, gradleak, tmp_path):
    results = tmp_path / "results"
    words = (tiny(), "--results", results)
    gradleak("run", *words, "--attack", "random", "--defense", "none")
    frozen = results / "tiny/protocol.json"
    assert gradleak("verify", *words, "--sample", 0).code == 0
    frozen.write_text(frozen.read_text().replace('"batch_size": 1', '"batch_size": 2'))
    ended = gradleak("verify", *words, "--sample", 0)
    assert ended.code == 3
    assert f"drifted: {frozen}: federation is" in ended.out
    assert "raise the protocol's version" in ended.out


def test_records_of_two_machines_are_compared_without_a_run(tiny, gradleak, tmp_path):
    mine, yours = tmp_path / "mine", tmp_path / "yours"
    for results in (mine, yours):
        gradleak("run", tiny(), "--results", results, "--attack", "random", "--defense", "none")
    words = ("verify", tiny(), "--results", mine, "--against", yours, "--sample", 3)
    assert gradleak(*words).code == 0
    file = yours / "tiny/random.jsonl"
    first = load_results(yours)["psnr"].iloc[0]
    file.write_text(file.read_text().replace(str(first), str(first + 1)))
    ended = gradleak(*words)
    assert ended.code == 3
    assert "seed 0 trial 0: psnr" in ended.out
    assert not (mine / "attestations.jsonl").exists()
