import importlib
from typing import TYPE_CHECKING

from benchmark.contract.grants import CONTROL_GRANTS, Grant, Server

if TYPE_CHECKING:
    from benchmark.contract.answers import (
        fault,
        first_not_finite,
        is_count,
        text_fault,
        update_fault,
    )
    from benchmark.contract.attack import Attack, MaliciousAttack
    from benchmark.contract.batch import Batch, ImageBatch, TextBatch
    from benchmark.contract.defense import Defense
    from benchmark.contract.threat import ThreatModel, observe
    from benchmark.contract.types import (
        Budget,
        DataStatistics,
        Knowledge,
        LocalTraining,
        Observation,
        Reconstruction,
        Stack,
        Update,
    )
    from benchmark.contract.victim import Anatomy, Victim

__all__ = [
    "CONTROL_GRANTS",
    "Anatomy",
    "Attack",
    "Batch",
    "Budget",
    "DataStatistics",
    "Defense",
    "Grant",
    "ImageBatch",
    "Knowledge",
    "LocalTraining",
    "MaliciousAttack",
    "Observation",
    "Reconstruction",
    "Server",
    "Stack",
    "TextBatch",
    "ThreatModel",
    "Update",
    "Victim",
    "fault",
    "first_not_finite",
    "is_count",
    "observe",
    "text_fault",
    "update_fault",
]

# torch is imported when a noun that holds tensors is first asked for, not to list submissions.
_HOMES = {
    "fault": "answers",
    "first_not_finite": "answers",
    "is_count": "answers",
    "text_fault": "answers",
    "update_fault": "answers",
    "Attack": "attack",
    "MaliciousAttack": "attack",
    "Batch": "batch",
    "ImageBatch": "batch",
    "TextBatch": "batch",
    "Defense": "defense",
    "ThreatModel": "threat",
    "observe": "threat",
    "Budget": "types",
    "DataStatistics": "types",
    "Knowledge": "types",
    "LocalTraining": "types",
    "Observation": "types",
    "Reconstruction": "types",
    "Stack": "types",
    "Update": "types",
    "Anatomy": "victim",
    "Victim": "victim",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
