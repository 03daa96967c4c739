from benchmark.toolbox.priors.batchnorm import BatchNormStatistics
from benchmark.toolbox.priors.images import (
    EuclideanNorm,
    PatchBoundary,
    SquaredNorm,
    TotalVariation,
)
from benchmark.toolbox.priors.registration import GroupConsistency, registered

__all__ = [
    "BatchNormStatistics",
    "EuclideanNorm",
    "GroupConsistency",
    "PatchBoundary",
    "SquaredNorm",
    "TotalVariation",
    "registered",
]
