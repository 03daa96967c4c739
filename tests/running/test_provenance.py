import subprocess

import torch

from benchmark.running import provenance as module
from benchmark.running.provenance import provenance

CPU = torch.device("cpu")


def repository(path, monkeypatch):
    monkeypatch.setattr(module, "ROOT", path)
    (path / "code.py").write_text("1")
    (path / "results").mkdir()
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b.c commit -qm first"):
        subprocess.run(["git", "-C", str(path), *words.split()], check=True)


def test_commit_and_its_changes_are_named(tmp_path, monkeypatch):
    repository(tmp_path, monkeypatch)
    clean = provenance(CPU)
    (tmp_path / "code.py").write_text("2")
    changed = provenance(CPU)
    assert len(clean.commit) == 40
    assert (clean.dirty, changed.dirty) == (False, True)
    assert changed.commit == clean.commit


def test_results_and_board_do_not_make_the_code_dirty(tmp_path, monkeypatch):
    repository(tmp_path, monkeypatch)
    (tmp_path / "results/new.jsonl").write_text("1")
    (tmp_path / "leaderboard.md").write_text("1")
    assert provenance(CPU).dirty is False


def test_outside_a_repository_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    made = provenance(CPU)
    assert (made.commit, made.dirty) == (None, None)


def test_versions_and_hardware_are_named():
    made = provenance(CPU)
    assert made.versions["torch"] == torch.__version__.split("+")[0]
    assert {"python", "gradleak", "timm", "numpy"} <= set(made.versions)
    assert made.hardware.endswith(torch.backends.cpu.get_cpu_capability())
    assert made.threads == torch.get_num_threads()
