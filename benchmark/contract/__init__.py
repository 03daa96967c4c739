from benchmark.contract.answers import fault, is_count
from benchmark.contract.attack import Attack
from benchmark.contract.defense import Defense
from benchmark.contract.threat import ThreatModel, observe
from benchmark.contract.types import (
    CONTROL_GRANTS,
    Batch,
    Budget,
    DataStatistics,
    Grant,
    Knowledge,
    Observation,
    Reconstruction,
    Stack,
    Update,
)

__all__ = [
    "CONTROL_GRANTS",
    "Attack",
    "Batch",
    "Budget",
    "DataStatistics",
    "Defense",
    "Grant",
    "Knowledge",
    "Observation",
    "Reconstruction",
    "Stack",
    "ThreatModel",
    "Update",
    "fault",
    "is_count",
    "observe",
]
