from benchmark.toolbox.priors.batchnorm import BatchNormStatistics
from benchmark.toolbox.priors.images import (
    EuclideanNorm,
    PatchBoundary,
    TotalVariation,
)
from benchmark.toolbox.priors.registration import register

__all__ = [
    "BatchNormStatistics",
    "EuclideanNorm",
    "PatchBoundary",
    "TotalVariation",
    "register",
]
