from typing import TYPE_CHECKING

from benchmark.contract.grants import CONTROL_GRANTS, Grant, Server
from benchmark.lazy import lazily

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
__getattr__ = lazily(
    __name__,
    {
        ".answers": ("fault", "first_not_finite", "is_count", "text_fault", "update_fault"),
        ".attack": ("Attack", "MaliciousAttack"),
        ".batch": ("Batch", "ImageBatch", "TextBatch"),
        ".defense": ("Defense",),
        ".threat": ("ThreatModel", "observe"),
        ".types": (
            "Budget",
            "DataStatistics",
            "Knowledge",
            "LocalTraining",
            "Observation",
            "Reconstruction",
            "Stack",
            "Update",
        ),
        ".victim": ("Anatomy", "Victim"),
    },
)
