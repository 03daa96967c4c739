"""What Masked Jigsaw Puzzles (Liu et al., arXiv 2205.12551) add to a network: MJP.

A position that masked patches share (their UNK), a second table of positions (IDX), and dense
absolute localisation (DAL): the positions of the patches that are not masked are mapped to the
rows and columns of the grid, and the L1 error is part of the loss.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.victims.anatomy import ImageAnatomy
from benchmark.victims.spec import Jigsaw

UNKNOWN, INDEX, LOCALISER = "unknown_position", "index_embed", "localiser"
"""Names in the network of what is added."""
_PASSES = 5  # of power iteration, as the paper has it


def add_jigsaw(network: nn.Module, jigsaw: Jigsaw, parts: ImageAnatomy) -> None:
    """Add to a network what a jigsaw asks for; layers start as torch's do, tables at zero."""
    position: Tensor = attrgetter(parts.position)(network)
    width = parts.width
    if jigsaw.unknown:
        network.register_parameter(UNKNOWN, nn.Parameter(position.new_zeros(1, 1, width)))
    if jigsaw.index:
        network.register_parameter(INDEX, nn.Parameter(torch.zeros_like(position)))
    if jigsaw.localisation in ("linear", "mlp"):
        hidden = 2 if jigsaw.localisation == "mlp" else 0
        layers = [layer for _ in range(hidden) for layer in (nn.Linear(width, width), nn.ReLU())]
        network.add_module(LOCALISER, nn.Sequential(*layers, nn.Linear(width, 2)))


def draw_unknown(network: nn.Module, parts: ImageAnatomy, draws: torch.Generator) -> None:
    """Draw the unknown position from a normal distribution as wide as that of the others."""
    others: Tensor = attrgetter(parts.position)(network)[0, parts.position_offset :].detach()
    unknown: Any = getattr(network, UNKNOWN)
    start = torch.randn(unknown.shape, generator=draws)
    unknown.data.copy_(start.to(others) * others.square().mean().sqrt())


def jigsaw_positions(
    network: nn.Module, jigsaw: Jigsaw, parts: ImageAnatomy, masked: Tensor | None
) -> Tensor:
    """Return the positions of each image's tokens, (batch or 1, tokens, width).

    Args:
        network: with what `add_jigsaw` added.
        jigsaw: what that was.
        parts: of the network.
        masked: (batch, patches) bool; None where no patch is.
    """
    table: Tensor = attrgetter(parts.position)(network)
    if jigsaw.index:
        table = table + getattr(network, INDEX)
    if not jigsaw.unknown or masked is None:
        return table
    kept = masked.new_zeros(len(masked), parts.position_offset)  # the class token's is its own
    return torch.where(
        torch.cat([kept, masked], dim=1)[..., None], getattr(network, UNKNOWN), table
    )


def localisation_error(
    network: nn.Module, jigsaw: Jigsaw, parts: ImageAnatomy, masked: Tensor | None
) -> Tensor:
    """Return the mean L1 distance between where patches are and where their positions say (eq. 4).

    A patch of row i and column j is at (i, j), counted from 1; those that are masked do not count.

    Args:
        network: with what `add_jigsaw` added.
        jigsaw: says the mapping from positions to places.
        parts: of the network.
        masked: (batch, patches) bool; None where no patch is.
    """
    table: Tensor = attrgetter(parts.position)(network)[0, parts.position_offset :]
    steps = torch.arange(1, parts.size // parts.patch + 1, dtype=table.dtype, device=table.device)
    places = torch.cartesian_prod(steps, steps)
    if jigsaw.localisation == "pca":
        found = table @ _principal(table.detach(), places)
    else:
        found = network.get_submodule(LOCALISER)(table)
    errors = (found - places).abs().sum(1)
    if masked is None:
        return errors.mean()
    counted = (~masked).to(errors)
    return (counted @ errors / counted.sum(1).clamp_min(1)).mean()


def _principal(table: Tensor, places: Tensor) -> Tensor:
    """Return the two directions (width, 2) of largest variance, by power iteration.

    It starts from the directions that say most of the places, so that signs and order are theirs.
    """
    centred = table - table.mean(0)
    found = torch.linalg.qr(centred.T @ (places - places.mean(0)))[0]
    for _ in range(_PASSES):
        found = torch.linalg.qr(centred.T @ (centred @ found))[0]
    return found
