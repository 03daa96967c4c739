from benchmark.toolbox.priors.batchnorm import BatchNormStatistics
from benchmark.toolbox.priors.classes import ClassLoss
from benchmark.toolbox.priors.images import (
    EuclideanNorm,
    PatchBoundary,
    TotalVariation,
)
from benchmark.toolbox.priors.registration import register

__all__ = [
    "BatchNormStatistics",
    "ClassLoss",
    "EuclideanNorm",
    "PatchBoundary",
    "TotalVariation",
    "register",
]
