from benchmark.toolbox.closedform.forms import (
    patches_from_embeddings,
    patches_from_positions,
    patches_from_span,
    tokens_from_attention,
)
from benchmark.toolbox.closedform.solve import least_squares, row_space, solve_gradient

__all__ = [
    "least_squares",
    "patches_from_embeddings",
    "patches_from_positions",
    "patches_from_span",
    "row_space",
    "solve_gradient",
    "tokens_from_attention",
]
