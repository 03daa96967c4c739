from benchmark.contract.answers import fault, first_not_finite, is_count, text_fault, update_fault
from benchmark.contract.attack import Attack, MaliciousAttack
from benchmark.contract.batch import Batch, ImageBatch, TextBatch
from benchmark.contract.defense import Defense
from benchmark.contract.threat import Server, ThreatModel, observe
from benchmark.contract.types import (
    CONTROL_GRANTS,
    Budget,
    DataStatistics,
    Grant,
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
