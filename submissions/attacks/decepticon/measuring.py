"""The measurement: one random direction, and the bins into which all first MLP layers sort by it.

The biases of a block's first layer are the edges of its bins, so that a row's gradient is the sum
of the vectors above its edge. A block's bins begin at the edge at which those of the one before
end, so that every bin lies within one block, whose rows share each token's gradient to the last
bit. Source: as `imprint.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmark.api import TextVictim, Victim, weights
from benchmark.toolbox.text.imprinting import given_to, is_smooth, measuring
from submissions.attacks.decepticon.layout import Layout, exit_norm
from submissions.attacks.decepticon.thresholds import CHOSEN


def measure(
    model: Victim,
    layout: Layout,
    sample: Tensor,
    size: float,
    noise: float,
    generator: torch.Generator,
) -> None:
    """Set the first layers to one measurement and its bins, and the second ones to carry gradient.

    Args:
        model: a language victim, imprinted otherwise; written in place.
        layout: which entries and units serve for what.
        sample: (sequences, length) int64, text whose measurements place the edges.
        size: of the token table's entries.
        noise: of each row of the measurement, in sizes of its entries.
        generator: draws the measurement.
    """
    parts, known = TextVictim.of(model).anatomy, weights(model)
    blocks = parts.blocks[: measuring(parts)]
    direction = _direction(layout, generator)
    smooth = is_smooth(model)
    if not parts.position_trained:
        _level(model, layout, sample[:1], size)
    inputs = given_to(model, blocks[0].first.weight.name, sample)
    _amplify(model, layout, float(inputs[..., layout.tail].abs().max()))
    found = inputs @ direction
    mean, spread = float(found.mean()), float(found.std())
    sharp = CHOSEN.sharp if smooth else CHOSEN.soft
    flow = CHOSEN.flow * parts.width / sharp if smooth else 1.0
    flow *= size if parts.pre_norm else 1.0
    sizes = [len(block.first.weight.of(known)) - layout.dead for block in blocks]
    for block, edges in zip(blocks, _edges(mean, spread, sizes), strict=True):
        assert block.first.bias is not None
        assert block.second.bias is not None
        rows = block.first.weight.of(known)[: len(edges)]
        rows.copy_(sharp * direction.expand(len(rows), -1))
        if noise:
            entries = torch.randn(rows.shape, generator=generator)
            rows.add_(sharp * noise / parts.width**0.5 * entries)
        block.first.bias.of(known)[: len(edges)] = -sharp * edges
        # what + - - + adds up to does not grow with the number of bins
        signs = torch.tensor([1.0, -1.0, -1.0, 1.0]).repeat(len(rows) // 4 + 1)[: len(rows)]
        block.second.weight.of(known)[layout.tail, : len(edges)] = flow * signs
        # the long first bin's part, which every token has alike
        usual = sharp * (mean - edges).clamp_min(0) @ (flow * signs)
        block.second.bias.of(known)[layout.tail] = -usual


def _direction(layout: Layout, generator: torch.Generator) -> Tensor:
    """Return the direction (width,) that is measured, of norm 1 and blind to the mean."""
    direction = torch.randn(layout.width, generator=generator)
    seen = direction[: layout.blind.start]
    seen -= seen.mean()
    direction[layout.blind.start :] = 0  # nothing measured comes back into the carriers
    return direction / direction.norm()


def _edges(mean: float, spread: float, sizes: list[int]) -> Iterator[Tensor]:
    """Yield the edges of each block, (rows,), such that all bins together hold equal shares."""
    number = sum(size - 1 for size in sizes) + 1
    edges = mean + spread * torch.special.ndtri((torch.arange(number).double() + 0.5) / number)
    edges[0] = mean - CHOSEN.lowest_edge * spread
    edges, start = edges.float(), 0
    for size in sizes:
        yield edges[start : start + size]
        start += size - 1


def _level(model: Victim, layout: Layout, sample: Tensor, size: float) -> None:
    """Bring the carriers, where the waves of fixed positions are high, to the others' mean.

    What stands there changes how much gradient a norm lets through, and that from token to
    token. The first projection's bias moves it, by as much as one trial says.
    """
    parts = TextVictim.of(model).anatomy
    block, tail = parts.blocks[0], layout.tail
    assert block.projection.bias is not None
    bias, found = block.projection.bias.of(weights(model))[tail], []
    for trial in (0.0, size):
        bias.fill_(trial)
        found.append(float(given_to(model, block.first.weight.name, sample)[..., tail].mean()))
    bias.fill_(-found[0] * size / (found[1] - found[0]))


def _amplify(model: Victim, layout: Layout, largest: float) -> None:
    """Make what the decoder reads as large as the decoy allows, for gradient is as large.

    Without a bias, labels are counted in a column where gradient of the lookup is in the way.
    """
    parts, known = TextVictim.of(model).anatomy, weights(model)
    limit = CHOSEN.label_logit if parts.decoder.bias is not None else CHOSEN.label_logit / 10
    codes = float(parts.decoder.weight.of(known)[:, layout.tail].abs().max())
    largest = max(largest, 0.05) * (1 + CHOSEN.masked_mixing * parts.masked)
    gain = limit / (codes * largest * layout.carriers)
    known[f"{exit_norm(parts)}.weight"][layout.tail] = gain
