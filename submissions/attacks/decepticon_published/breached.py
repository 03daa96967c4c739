"""Input embeddings out of an update: equation 3."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from benchmark.api import TextAnatomy
from benchmark.toolbox.text.imprinting import measuring

_ROUNDING = 8.0  # units in the last place of a bias gradient: less is no difference, by hand


def breached(update: Mapping[str, Tensor], parts: TextAnatomy, most: int) -> Tensor:
    """Return what bins hold, (n, width), n at most `most`: those with the largest differences.

    Weight differences of consecutive rows over bias differences. A bin with several tokens gives
    a weighted mean of them.

    Args:
        update: gradients by name.
        parts: the victim's.
        most: number of tokens that send gradient.
    """
    blocks, weight, bias = parts.blocks[: measuring(parts)], [], []
    for block in blocks:
        assert block.first.bias is not None
        rows, shifts = block.first.weight.of(update), block.first.bias.of(update)
        if block is blocks[-1]:  # above the highest edge comes nothing
            rows, shifts = torch.cat([rows, 0 * rows[:1]]), torch.cat([shifts, 0 * shifts[:1]])
        rounding = _ROUNDING * torch.finfo(shifts.dtype).eps * shifts.abs().max()
        lost = shifts[:-1] - shifts[1:]
        held = lost.abs() > rounding
        weight.append((rows[:-1] - rows[1:])[held])
        bias.append(lost[held])
    weights, biases = torch.cat(weight), torch.cat(bias)
    kept = biases.abs().topk(min(most, len(biases))).indices.sort().values
    return weights[kept] / biases[kept, None]
