from benchmark.toolbox.matching import select
from benchmark.toolbox.matching.attack import SearchAttack
from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.loop import search
from benchmark.toolbox.matching.objectives import (
    AbsoluteDistance,
    Cosine,
    Distance,
    Objective,
    SquaredDistance,
    Sum,
)
from benchmark.toolbox.matching.optimisers import LBFGS, Adam, Optimiser
from benchmark.toolbox.matching.schedules import After, Constant, Linear, Schedule, Steps, Warmup
from benchmark.toolbox.matching.schedules import Cosine as CosineDecay
from benchmark.toolbox.matching.search import Prior, Registration, Search, Term
from benchmark.toolbox.matching.trace import Tracer

__all__ = [
    "LBFGS",
    "AbsoluteDistance",
    "Adam",
    "After",
    "Constant",
    "Cosine",
    "CosineDecay",
    "Distance",
    "Linear",
    "Objective",
    "Optimiser",
    "Prior",
    "Registration",
    "Schedule",
    "Search",
    "SearchAttack",
    "SquaredDistance",
    "Steps",
    "Sum",
    "Target",
    "Term",
    "Tracer",
    "Warmup",
    "search",
    "select",
]
