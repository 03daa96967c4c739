import pytest

from benchmark.records import Provenance, Record, append, cell_path, write_protocol

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


class Folder:
    """A results folder, filled by hand."""

    def __init__(self, path):
        self.path = path
        self.output = path.parent / "leaderboard.md"

    def protocol(self, name="vit", metrics=("psnr", "mse"), primary="psnr", **fields):
        named = {"name": name, "digest": "d1", "metrics": list(metrics), "primary": primary}
        write_protocol(self.path, name, {**SETTING, **named, **fields})
        return self

    def cell(self, attack, *scores, defense="none", protocol="vit", verdict=None, **fields):
        """Append a trial for each score (psnr, or all metrics by name), or one verdict."""
        trials = [(None, {})] if verdict else enumerate(scores)
        records = [
            Record(
                **{
                    "protocol": protocol,
                    "protocol_digest": "d1",
                    "defense": defense,
                    "defense_arguments": {},
                    "defense_digest": "x",
                    "attack": attack,
                    "attack_arguments": {},
                    "attack_digest": "x",
                    "control": False,
                    "threat": "open server",
                    "seed": 0,
                    "trial": trial,
                    "status": verdict or "completed",
                    "reason": None,
                    "metrics": score if isinstance(score, dict) else {"psnr": score, "mse": 0.5},
                    "seconds": None if verdict else 2.0,
                    "gradient_evaluations": None,
                    "peak_bytes": None,
                    "provenance": Provenance(
                        commit="0123456789abcdef",
                        dirty=True,
                        versions={"torch": "2.11"},
                        hardware="a processor",
                    ),
                    **fields,
                }
            )
            for trial, score in trials
        ]
        append(cell_path(self.path, protocol, defense, attack), records)
        return self


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "results")
