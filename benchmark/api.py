"""All that a submission may import, beside `benchmark.toolbox`."""

from benchmark.contract import (
    Attack,
    Batch,
    Budget,
    DataStatistics,
    Defense,
    Grant,
    Knowledge,
    Observation,
    Reconstruction,
    Stack,
    ThreatModel,
    Update,
)
from benchmark.errors import DataUnavailable, NotApplicable, PluginError, WithheldError
from benchmark.victims import (
    Anatomy,
    Part,
    Victim,
    anatomy,
    images_from_patches,
    to_images,
    to_patches,
    weights,
)

__all__ = [
    "Anatomy",
    "Attack",
    "Batch",
    "Budget",
    "DataStatistics",
    "DataUnavailable",
    "Defense",
    "Grant",
    "Knowledge",
    "NotApplicable",
    "Observation",
    "Part",
    "PluginError",
    "Reconstruction",
    "Stack",
    "ThreatModel",
    "Update",
    "Victim",
    "WithheldError",
    "anatomy",
    "images_from_patches",
    "to_images",
    "to_patches",
    "weights",
]
