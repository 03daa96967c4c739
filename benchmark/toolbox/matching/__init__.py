from benchmark.toolbox.matching import select
from benchmark.toolbox.matching.attack import SearchAttack
from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.loop import Found, search
from benchmark.toolbox.matching.objectives import (
    AbsoluteDistance,
    CosineDistance,
    Distance,
    Objective,
    SquaredDistance,
    Sum,
)
from benchmark.toolbox.matching.optimisers import LBFGS, Adam, Optimiser
from benchmark.toolbox.matching.schedules import (
    After,
    Constant,
    CosineDecay,
    Schedule,
    Steps,
    Warmup,
)
from benchmark.toolbox.matching.search import (
    LabelledPrior,
    LabelledTerm,
    Prior,
    Registration,
    Search,
    Term,
)
from benchmark.toolbox.matching.trace import Tracer

__all__ = [
    "LBFGS",
    "AbsoluteDistance",
    "Adam",
    "After",
    "Constant",
    "CosineDecay",
    "CosineDistance",
    "Distance",
    "Found",
    "LabelledPrior",
    "LabelledTerm",
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
