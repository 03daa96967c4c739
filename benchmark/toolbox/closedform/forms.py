"""Closed forms that read patches out of one update's gradients, for a batch of one image.

For a larger batch the gradients are sums over the images, and each form returns one proxy for
all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmark.toolbox.closedform.solve import (
    clear_equations,
    exact,
    least_squares,
    likely,
    rounding_off,
    row_space,
    solve_gradient,
)


def patches_from_positions(position_gradient: Tensor, embedding_gradient: Tensor) -> Tensor:
    """Return the patches (patches, pixels) from the gradient of their positions.

    A position is added to its patch's embedding, so its gradient is the embedding's output
    gradient, and the embedding's weight gradient is `position_gradient.T @ patches`. Whatever
    follows (norms, residuals, depth, training) plays no part. Exact where patches <= width and
    the position gradients are independent.

    Args:
        position_gradient: (patches, width), the rows of the patches alone.
        embedding_gradient: (width, pixels), of the patch embedding's weight.
    """
    return solve_gradient(position_gradient.T, embedding_gradient)


def tokens_from_attention(
    input_gradient: Tensor, weights: list[Tensor], gradients: list[Tensor]
) -> Tensor:
    """Return the inputs (tokens, width) of a self-attention whose input gradient is known.

    Theorem 3.1 of APRIL (Lu et al., CVPR 2022): `input_gradient.T @ tokens` is the sum of
    `weight.T @ gradient` over q, k and v.

    Args:
        input_gradient: (tokens, width).
        weights: of q, k and v, each (width, width).
        gradients: of the same, each (width, width).
    """
    products = (exact(w).T @ exact(g) for w, g in zip(weights, gradients, strict=True))
    return solve_gradient(input_gradient.T, torch.stack(list(products)).sum(0))


def patches_from_embeddings(embeddings: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the patches (patches, pixels) of linear embeddings (patches, width).

    Args:
        embeddings: (patches, width), without positions.
        weight: (width, pixels).
        bias: (width,).
    """
    return least_squares(weight, (exact(embeddings) - exact(bias)).T).T


def patches_from_span(
    attention_gradient: Tensor,
    embedding_gradient: Tensor,
    *,
    tokens: int,
    weight: Tensor,
    offsets: Tensor,
    norm: tuple[Tensor, Tensor] | None,
    generator: torch.Generator,
) -> Tensor:
    """Return the patches (patches, pixels) without any gradient of the positions.

    The rows of the first attention's gradient span its inputs, and the rows of the embedding's
    gradient span the raw patches. An input off the span must vanish:
    `P norm(weight x + offset) = 0`, P the projector off the span; a layer norm is a centring and
    a scale that is unknown but free, so the equation is linear in x. Exact for one image where
    the unknowns (the rank of the patches) and the span's rank together stay below the width. Of
    one image, equations that are no more than rounding are left out, and what is open then is
    answered by the likeliest patches; the proxies of several are what their rounding makes them.

    Args:
        attention_gradient: (rows, width), the gradients of q, k and v above each other.
        embedding_gradient: (width, pixels).
        tokens: tokens of the whole batch, prefix included: the rank of the span.
        weight: (width, pixels) of the patch embedding.
        offsets: (patches, width), the embedding's bias plus each patch's position.
        norm: scale and shift, each (width,), of the layer norm before the attention; None where
            the attention reads the embeddings themselves.
        generator: draws the sketches of the spans.
    """
    span = row_space(attention_gradient, tokens, generator)
    basis = row_space(embedding_gradient, min(tokens - 1, embedding_gradient.shape[1]), generator)
    unknown, known = exact(weight) @ basis, exact(offsets).T  # (width, rank), (width, patches)
    if norm is not None:
        scale, shift = (exact(tensor)[:, None] for tensor in norm)
        unknown = scale * (unknown - unknown.mean(0))
        known = scale * (known - known.mean(0))
        if shift.any():  # norm(z) = scale * centred / s + shift: the factor s is one unknown more
            unknown = torch.cat([unknown, shift], dim=1)
    metric = torch.eye(unknown.shape[1], dtype=unknown.dtype)
    rounding = rounding_off(attention_gradient, span) @ (span.T @ unknown)
    unknown, known = (part - span @ (span.T @ part) for part in (unknown, known))
    if tokens < 2 * len(offsets):  # one image
        clear = clear_equations(unknown, rounding)
        unknown, known = clear.T @ unknown, clear.T @ known
        rank = basis.shape[1]
        metric[:rank, :rank] = likely(exact(embedding_gradient) @ basis)
    solution = -metric @ least_squares(unknown @ metric, known)
    return (basis @ solution[: basis.shape[1]]).T
