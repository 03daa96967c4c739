"""Parameters that make a language model spell out what it reads: the malicious server's half.

The first attention copies a few entries of each sequence's first tokens into reserved entries of
every token, its marks; all other attentions are silent, so that every MLP is given the same vector:
token, position and marks. All first MLP layers measure that vector along one random direction and
sort it into bins (`measuring.py`). The second layers write to the last entries alone, the carriers,
and the decoder reads nothing else.

Source: Fowl et al. (ICLR 2023, Decepticons, section 3 and appendices A, D and E). The differences
are listed in `attack.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.api import TextAnatomy, TextVictim, Victim, weights
from benchmark.toolbox.text.imprinting import silence
from submissions.attacks.decepticon.layout import Layout, exit_norm
from submissions.attacks.decepticon.measuring import measure
from submissions.attacks.decepticon.thresholds import CHOSEN


def imprint(
    model: Victim,
    sample: Tensor,
    generator: torch.Generator,
    noise: float = 0.0,
    *,
    hidden: bool = False,
) -> None:
    """Rewrite a language victim's parameters in place.

    Args:
        model: a language victim.
        sample: (sequences, length) int64, text whose measurements place the bins.
        generator: draws the measurement, the labels' codes, and tables that are drawn anew.
        noise: of each row of the measurement, in sizes of its entries; 0 leaves rank one.
        hidden: whether to spare entries and units for what shall hide the imprint.

    Raises:
        NotApplicable: the model is no language victim, or too small.
    """
    parts = TextVictim.of(model).anatomy
    with torch.no_grad():
        layout = Layout.of(parts, hidden=hidden)
        task = _Imprint(parts, layout, weights(model), generator)
        silence(parts, task.known)
        size = task.draw_tables()
        task.mark(size)
        task.decode(size)
        measure(model, layout, sample, size, noise, generator)


@dataclass(frozen=True)
class _Imprint:
    parts: TextAnatomy
    layout: Layout
    known: Mapping[str, Tensor]
    generator: torch.Generator

    def draw_tables(self) -> float:
        """Clear the reserved entries of tokens and positions; return the size of the others."""
        parts, layout = self.parts, self.layout
        tokens, positions = self.known[parts.token_embedding], self.known[parts.position]
        if parts.masked:  # the paper draws BERT's anew
            tokens.copy_(torch.randn(tokens.shape, generator=self.generator))
        size = float(tokens[: CHOSEN.size_rows, layout.content].square().mean().sqrt())
        tables = [tokens]
        if parts.position_trained:
            positions.copy_(size * torch.randn(positions.shape, generator=self.generator))
            tables.append(positions)
        for table in tables:
            table[:, : layout.free] = 0
            table[:, layout.blind.start :] = 0
            content = table[:, layout.free : layout.blind.start]
            content -= content.mean(1, keepdim=True)  # a norm leaves the carriers at zero, then
        if parts.position_trained:
            high = CHOSEN.anchor_height
            for i, anchor in enumerate(layout.anchors):
                positions[0, i * layout.share] = high * size / 2  # where the anchor is not seen
                positions[anchor : anchor + 1, i * layout.share] = high * size
        return size

    def mark(self, size: float) -> None:
        """Let head i of the first attention copy entries of anchor i to all that see it.

        The query is the same for every token; the key is the direction in which the anchor's
        position stands out from all others, on entries that hold nothing of a token.
        """
        parts, layout, known = self.parts, self.layout, self.known
        block, head = parts.blocks[0], parts.width // parts.heads
        assert block.query.bias is not None
        query, key = block.query.bias.of(known), block.key.weight.of(known)
        value, projection = block.value.weight.of(known), block.projection.weight.of(known)
        entries, directions = self._directions()
        one = torch.arange(layout.share)
        for i, direction in enumerate(directions):
            key[i * head, entries] = direction
            query[i * head] = CHOSEN.attention_scale
            value[i * head + one, layout.free + one] = 1
            # behind a norm, entries are larger than in the residual stream
            strength = size if parts.pre_norm else 1.0
            copies = slice(i * head, i * head + layout.share)
            projection[i * layout.share + one, i * head + one] = strength
            projection[layout.tail, copies] = strength / layout.tail.start
        if parts.masked:
            last, one = parts.blocks[-1], torch.arange(layout.carriers)
            last.value.weight.of(known)[one, layout.tail.start + one] = 1
            last.projection.weight.of(known)[layout.tail.start + one, one] = CHOSEN.masked_mixing

    def _directions(self) -> tuple[Tensor, Tensor]:
        """Return entries (n,) without tokens, and directions (anchors, n) in them.

        A direction is positive at its anchor and negative at all other positions, whatever a norm
        makes of mean and scale.
        """
        layout = self.layout
        everything = torch.arange(layout.width)
        entries = torch.cat([everything[: layout.free], everything[layout.tail]])
        positions = self.known[self.parts.position][:, entries].double()
        if self.parts.position_trained:
            marks = torch.arange(len(layout.anchors))
            return entries, torch.eye(len(entries))[marks * layout.share]
        anchors = torch.tensor(layout.anchors)
        wanted = (torch.arange(len(positions))[:, None] == anchors).double()
        wanted = torch.cat([wanted, torch.ones_like(wanted[:, :1])], dim=1)
        # a sum of zero is blind to the mean; the slowest waves, in the tail, are the constant
        normed = self.parts.pre_norm or self.parts.embedding_norm is not None
        blind = torch.full_like(positions[:1], len(positions) * normed)
        found = torch.linalg.lstsq(
            torch.cat([positions, blind]), torch.cat([wanted, torch.zeros_like(wanted[:1])])
        ).solution
        reached, chosen = (positions @ found)[:, :-1], wanted[:, :-1] > 0
        own = reached.where(chosen, -torch.inf).amax(0)
        other = reached.where(~chosen, -torch.inf).amax(0)
        return entries, (found[:, :-1] - found[:, -1:] * (own + other) / 2).T.float()

    def decode(self, size: float) -> None:
        """Let the decoder read the carriers alone, and every place predict the last token.

        The gradient that enters the carriers is then one number a label, its code: near any
        other's and unlike it, and of one sign, so that vectors in one bin never cancel.
        """
        parts, known = self.parts, self.known
        decoder = parts.decoder.weight.of(known)
        tail = torch.arange(self.layout.width)[self.layout.tail]
        reach = CHOSEN.codes_masked if parts.masked else CHOSEN.codes
        codes = 1 + reach * torch.rand(parts.vocabulary, generator=self.generator)
        codes[-1] = 0
        if not parts.tied:
            decoder.zero_()
        decoder[:, self.layout.tail] = codes[:, None] * (
            CHOSEN.codes_tied * size if parts.tied else 1
        )
        norm = known[f"{exit_norm(parts)}.weight"]
        norm.zero_()
        norm[tail] = 1  # until the measurement shows how much there is to amplify
        if parts.decoder.bias is not None:
            bias = parts.decoder.bias.of(known)
            bias.zero_()
            bias[-1] = CHOSEN.decoy_logit
        else:  # an entry that all places have alike serves as well
            known[f"{exit_norm(parts)}.bias"][0] = CHOSEN.constant
            decoder[-1, 0] = CHOSEN.decoy_logit / CHOSEN.constant
        if parts.head_transform is not None:
            assert parts.head_transform.bias is not None
            transform = parts.head_transform.weight.of(known)
            transform.zero_()
            transform[tail, tail] = 1
            offsets = parts.head_transform.bias.of(known)
            offsets.copy_(10 + 2 * (-1.0) ** torch.arange(self.layout.width))
            offsets[tail] = 10  # far from any bend, and in the middle of the others
