import json
from dataclasses import replace

import pandas as pd
import pytest

from benchmark.leaderboard import board, telling
from benchmark.leaderboard.given import given
from benchmark.records import Table

SETTING = {
    "version": 1,
    "title": "ViT on CIFAR-10",
    "description": "One image.",
    "track": "vision",
    "data": {"name": "cifar10", "split": "test", "size": 32},
    "victim": {"architecture": "vit_small", "weights": "random"},
    "federation": {"algorithm": "fedsgd", "batch_size": 1},
    "threat": {"server": "honest_but_curious", "grants": ["labels"]},
    "trials": 4,
    "seeds": [0],
}
ROW = {
    "protocol_digest": "d1",
    "defense_version": 1,
    "description": "{}",
    "attack_version": 1,
    "control": False,
    "threat": "open server",
    "seed": 0,
    "kind": None,
    "reason": None,
    "gradient_evaluations": None,
    "commit": "0123456789abcdef",
    "dirty": False,
    "hardware": "a processor",
    "threads": 1,
    "versions": "torch 2.11",
    "has_excerpt": False,
}


class Folder:
    """A results folder, filled by hand: its table is in memory, its files are empty."""

    def __init__(self, path):
        self.path = path
        self.output = path.parent / "leaderboard.md"
        self.rows, self.damaged, self.excerpts = [], [], []
        path.mkdir()

    def protocol(self, name="vit", metrics=("psnr", "mse"), primary="psnr", **fields):
        named = {"name": name, "digest": "d1", "metrics": list(metrics), "primary": primary}
        (self.path / name).mkdir(exist_ok=True)
        self.frozen(name).write_text(json.dumps({**SETTING, **named, **fields}, sort_keys=True))
        return self

    def frozen(self, name="vit"):
        return self.path / name / "protocol.json"

    def file(self, attack, protocol="vit"):
        return self.path / protocol / f"{attack}.jsonl"

    def cell(self, attack, *scores, defense="none", protocol="vit", verdict=None, **fields):
        """Add a trial for each score (psnr, or all metrics by name), or one verdict."""
        self.file(attack, protocol).touch()
        for trial, score in [(-1, {})] if verdict else enumerate(scores):
            self.rows.append(
                {
                    **ROW,
                    "protocol": protocol,
                    "defense": defense,
                    "attack": attack,
                    "trial": trial,
                    "status": verdict or "completed",
                    "seconds": None if verdict else 2.0,
                    **(score if isinstance(score, dict) else {"psnr": score, "mse": 0.5}),
                    **fields,
                }
            )
        return self

    def table(self):
        frame = pd.DataFrame(self.rows)
        words = {*ROW, "protocol", "defense", "attack", "status", "trial"}
        numbers = {"gradient_evaluations", *frame.columns} - (words - {"gradient_evaluations"})
        return Table(frame.astype(dict.fromkeys(numbers & set(frame), float)), self.damaged)

    def write(self, **given):
        return board.write_board(self.path, self.output, **given)

    def text(self, **given):
        """Write the board and return its text, with plain spaces."""
        self.write(**given)
        return plain(self.output)

    def page(self, name="vit", **given):
        """Write the board and return a protocol's page, with plain spaces."""
        self.write(**given)
        return plain(self.output.with_suffix("") / f"{name}.md")


def plain(path):
    return path.read_text(encoding="utf-8").replace("\u00a0", " ")


def known(labels, registry):
    """Tell of attacks as the registry does; those not called outside are the repository's."""
    found = given(labels, registry).items()
    return {name: replace(one, own="outside" not in name) for name, one in found}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = Folder(tmp_path / "results")
    monkeypatch.setattr(board, "given", known)
    monkeypatch.setattr(board, "believed", lambda *_: made.table())
    monkeypatch.setattr(
        telling, "read_excerpts", lambda _, name: [r for r in made.excerpts if r.protocol == name]
    )
    return made
