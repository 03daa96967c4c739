from benchmark.contract.answers import fault, is_count, text_fault
from benchmark.contract.attack import Attack, MaliciousAttack
from benchmark.contract.defense import Defense
from benchmark.contract.threat import Server, ThreatModel, observe
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
    TextBatch,
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
    "MaliciousAttack",
    "Observation",
    "Reconstruction",
    "Server",
    "Stack",
    "TextBatch",
    "ThreatModel",
    "Update",
    "fault",
    "is_count",
    "observe",
    "text_fault",
]
