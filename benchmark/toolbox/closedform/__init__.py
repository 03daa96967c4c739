from benchmark.toolbox.closedform.batch import BatchAnswer, patches_of_batch
from benchmark.toolbox.closedform.entrance import Entrance, check_entrance
from benchmark.toolbox.closedform.forms import (
    patches_from_embeddings,
    patches_from_positions,
    patches_from_span,
    tokens_from_attention,
)
from benchmark.toolbox.closedform.solve import least_squares, row_space, solve_gradient

__all__ = [
    "BatchAnswer",
    "Entrance",
    "check_entrance",
    "least_squares",
    "patches_from_embeddings",
    "patches_from_positions",
    "patches_from_span",
    "patches_of_batch",
    "row_space",
    "solve_gradient",
    "tokens_from_attention",
]
