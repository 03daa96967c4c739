"""The malicious server's half: parameters whose gradients hold single tokens.

Source: Fowl et al. (ICLR 2023, Decepticons), section 3 and appendices A, D and E. Differences and
what the paper leaves open are listed in `attack.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from benchmark.api import TextAnatomy, TextVictim, Victim, weights
from benchmark.toolbox.text.imprinting import given_to, is_smooth, measuring, silence
from submissions.attacks.decepticon_published.layout import Layout

_SKEW = 1e8  # of the softmax, appendix A
_MIXING = 10.0  # of a masked model's last attention, appendix E.1
_MAGNIFIED = 1e6  # of the measurement before a GELU, appendix E.2 without a number: by hand
_TOGETHER = 8  # sequences measured at a time, for memory


def imprint(model: Victim, sample: Tensor, generator: torch.Generator, noise: float = 0.0) -> None:
    """Rewrite a language victim's parameters in place.

    Args:
        model: a language victim.
        sample: (sequences, length) int64, whose measurements place the bins.
        generator: draws the measurement, and BERT's table of tokens.
        noise: on each row of the measurement, in sizes of its entries.

    Raises:
        NotApplicable: the model is no language victim, or too small.
    """
    parts = TextVictim.of(model).anatomy
    layout, known = Layout.of(parts), weights(model)
    with torch.no_grad():
        silence(parts, known)
        size = _clear_reserved(parts, layout, known, generator)
        _mark(parts, layout, known, size)
        if parts.masked:
            _mix_last(parts, known)
        _measure(model, parts, layout, sample, noise, generator)


def _clear_reserved(
    parts: TextAnatomy,
    layout: Layout,
    known: Mapping[str, Tensor],
    generator: torch.Generator,
) -> float:
    """Clear the reserved entries of tokens and positions; return the size of the others."""
    tokens, positions = known[parts.token_embedding], known[parts.position]
    if parts.masked:
        tokens.copy_(positions.std() * torch.randn(tokens.shape, generator=generator))
    tokens[:, : layout.reserved] = 0
    if parts.position_trained:
        positions[:, : layout.reserved] = 0
    return float(tokens[:, layout.reserved :].std())


def _mark(parts: TextAnatomy, layout: Layout, known: Mapping[str, Tensor], size: float) -> None:
    """Let the first attention look at the first position alone and copy entries of its token.

    One head is enough: its key reads the first position's direction, its query is constant.
    """
    block, own = parts.blocks[0], layout.reserved
    assert block.query.bias is not None
    block.key.weight.of(known)[0] = known[parts.position][0]
    block.query.bias.of(known)[0] = _SKEW
    entries = torch.arange(own)
    block.value.weight.of(known)[entries, own + entries] = 1
    # behind a norm, entries are larger than in the residual stream to which they are added
    block.projection.weight.of(known)[entries, entries] = size if parts.pre_norm else 1.0


def _mix_last(parts: TextAnatomy, known: Mapping[str, Tensor]) -> None:
    """Let the last attention share the last entry equally, so that all tokens have gradient."""
    block = parts.blocks[-1]
    block.value.weight.of(known)[0, -1] = 1
    block.projection.weight.of(known)[-1, 0] = _MIXING


def _measure(
    model: Victim,
    parts: TextAnatomy,
    layout: Layout,
    sample: Tensor,
    noise: float,
    generator: torch.Generator,
) -> None:
    """Give every first MLP layer the same measurement and ascending edges of equal mass (eq. 3)."""
    known, blocks = weights(model), parts.blocks[: measuring(parts)]
    direction = torch.randn(parts.width, generator=generator)
    found = torch.cat(
        [
            given_to(model, blocks[0].first.weight.name, some) @ direction
            for some in torch.split(sample, _TOGETHER)
        ]
    )
    magnified = _MAGNIFIED if is_smooth(model) else 1.0
    rows = [len(block.first.weight.of(known)) for block in blocks]
    shares = torch.arange(1, sum(rows) + 1).double() / (sum(rows) + 1)
    edges = (float(found.mean()) + float(found.std()) * torch.special.ndtri(shares)).float()
    for block, here in zip(blocks, torch.split(edges, rows), strict=True):
        assert block.first.bias is not None
        weight = block.first.weight.of(known)
        weight.copy_(direction.expand(len(here), -1))
        if noise:
            weight.add_(noise * torch.randn(weight.shape, generator=generator))
        weight.mul_(magnified)
        block.first.bias.of(known).copy_(-magnified * here)
    for block in parts.blocks:
        block.second.weight.of(known)[-1] = layout.flow / magnified
