"""Parameters that make a language model spell out what it reads: the malicious server's half.

The first attention copies a few entries of each sequence's first tokens into reserved entries of
every token, its marks; all other attentions are silent, so that every MLP is given the same vector:
token, position and marks. All first MLP layers measure that vector along one random direction,
their biases a ladder of thresholds over all blocks together, so that a row's gradient is the sum of
the vectors above its threshold. The second layers write to the last entries alone, the carriers,
and the decoder reads nothing else.

Source: Fowl et al. (ICLR 2023, Decepticons, section 3 and appendices A, D and E). The differences
are listed in `submissions/attacks/decepticon/attack.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.toolbox.text.layout import CODES, Layout, layout, measured
from benchmark.victims import TextAnatomy, TextVictim, weights

_MASKED_CODES = 3.0  # tokens of a masked model share their gradient anyway: codes farther apart
_SKEW = 1e8  # of the first attention's scores: its softmax is a choice of one position
_SPREAD = 10.0  # weight of a masked model's last attention: gradient for tokens not predicted
_SHARP = 1e6  # size of the measurement before a smooth activation: it then cuts like ReLU
_SOFT = 1e-3  # and before ReLU, which has no scale: the second layers' gradient is then small
_FLOW = 4e-4  # size of the second layers before a smooth activation, an entry of the width
_TIED = 0.005  # of the codes in a table that is also read from, in sizes of its other entries
_DECOY = 40.0  # logit of the one token that every place predicts: the softmax is then known
_LABELS = 5.0  # largest logit of any other token
_CONSTANT = 10.0  # what a decoder without bias reads everywhere in the first entry
_CODE = 3.0  # of the anchors' positions in a trained table, in sizes of its other entries
_LOWEST = 6.0  # standard deviations below the mean where the ladder begins
_ROWS = 4096  # of the token table, which show the size of all


def imprint(
    model: nn.Module, sample: Tensor, generator: torch.Generator, noise: float = 0.0
) -> None:
    """Rewrite a language victim's parameters in place.

    Args:
        model: a language victim.
        sample: (sequences, length) int64, text whose measurements place the thresholds.
        generator: draws the measurement, the labels' codes, and tables that are drawn anew.
        noise: of each row of the measurement, in sizes of its entries; 0 leaves rank one.

    Raises:
        NotApplicable: the model is no language victim, or too small.
    """
    parts = TextVictim.of(model).anatomy
    with torch.no_grad():
        task = _Imprint(model, parts, layout(parts), weights(model), generator)
        task.clear()
        size = task.tables()
        task.mark(size)
        task.decode(size)
        task.measure(sample, size, noise)


@dataclass(frozen=True)
class _Imprint:
    model: nn.Module
    parts: TextAnatomy
    place: Layout
    known: Mapping[str, Tensor]
    generator: torch.Generator

    def clear(self) -> None:
        """Make every norm plain and every attention's and MLP's output zero."""
        parts, known = self.parts, self.known
        norms = [parts.embedding_norm, parts.final_norm, parts.head_norm]
        for block in parts.blocks:
            norms += [block.attention_norm, block.mlp_norm]
            for linear in (block.query, block.key, block.value, block.projection, block.second):
                linear.weight.of(known).zero_()
                if linear.bias is not None:
                    linear.bias.of(known).zero_()
        for norm in filter(None, norms):
            known[f"{norm}.weight"].fill_(1)
            known[f"{norm}.bias"].zero_()
        if parts.token_types is not None:
            known[parts.token_types].zero_()

    def tables(self) -> float:
        """Clear the reserved entries of tokens and positions; return the size of the others."""
        parts, place = self.parts, self.place
        tokens, positions = self.known[parts.token_embedding], self.known[parts.position]
        if parts.masked:  # the paper draws BERT's anew
            tokens.copy_(torch.randn(tokens.shape, generator=self.generator))
        size = float(tokens[:_ROWS, place.content].square().mean().sqrt())
        tables = [tokens]
        if parts.position_trained:
            positions.copy_(size * torch.randn(positions.shape, generator=self.generator))
            tables.append(positions)
        for table in tables:
            table[:, : place.free] = 0
            table[:, place.tail] = 0
            content = table[:, place.free : place.tail.start]
            content -= content.mean(1, keepdim=True)  # a norm leaves the carriers at zero, then
        if parts.position_trained:
            for i, anchor in enumerate(place.anchors):
                positions[0, i * place.share] = _CODE * size / 2  # where the anchor is not seen
                positions[anchor : anchor + 1, i * place.share] = _CODE * size
        return size

    def mark(self, size: float) -> None:
        """Let head i of the first attention copy entries of anchor i to all that see it.

        The query is the same for every token; the key is the direction in which the anchor's
        position stands out from all others, on entries that hold nothing of a token.
        """
        parts, place, known = self.parts, self.place, self.known
        block, head = parts.blocks[0], parts.width // parts.heads
        assert block.query.bias is not None
        query, key = block.query.bias.of(known), block.key.weight.of(known)
        value, projection = block.value.weight.of(known), block.projection.weight.of(known)
        entries, directions = self._directions()
        one = torch.arange(place.share)
        for i, direction in enumerate(directions):
            key[i * head, entries] = direction
            query[i * head] = _SKEW
            value[i * head + one, place.free + one] = 1
            # behind a norm, entries are larger than in the residual stream
            strength = size if parts.pre_norm else 1.0
            projection[i * place.share + one, i * head + one] = strength
            projection[place.tail, i * head : i * head + place.share] = strength / place.tail.start
        if parts.masked:
            last, one = parts.blocks[-1], torch.arange(place.carriers)
            last.value.weight.of(known)[one, place.tail.start + one] = 1
            last.projection.weight.of(known)[place.tail.start + one, one] = _SPREAD

    def _directions(self) -> tuple[Tensor, Tensor]:
        """Return entries (n,) without tokens, and directions (anchors, n) in them.

        A direction is positive at its anchor and negative at all other positions, whatever a norm
        makes of mean and scale.
        """
        place = self.place
        everything = torch.arange(place.width)
        entries = torch.cat([everything[: place.free], everything[place.tail]])
        positions = self.known[self.parts.position][:, entries].double()
        if self.parts.position_trained:
            marks = torch.arange(len(place.anchors))
            return entries, torch.eye(len(entries))[marks * place.share]
        anchors = torch.tensor(place.anchors)
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
        other's and unlike it, and of one sign, so that vectors on one rung never cancel.
        """
        parts, place, known = self.parts, self.place, self.known
        decoder, tail = parts.decoder.weight.of(known), torch.arange(place.width)[place.tail]
        reach = _MASKED_CODES if parts.masked else CODES
        codes = 1 + reach * torch.rand(parts.vocabulary, generator=self.generator)
        codes[-1] = 0
        if not parts.tied:
            decoder.zero_()
        decoder[:, place.tail] = codes[:, None] * (_TIED * size if parts.tied else 1)
        norm = known[f"{self._exit()}.weight"]
        norm.zero_()
        norm[tail] = 1  # until the measurement shows how much there is to amplify
        if parts.decoder.bias is not None:
            bias = parts.decoder.bias.of(known)
            bias.zero_()
            bias[-1] = _DECOY
        else:  # an entry that all places have alike serves as well
            known[f"{self._exit()}.bias"][0] = _CONSTANT
            decoder[-1, 0] = _DECOY / _CONSTANT
        if parts.head_transform is not None:
            assert parts.head_transform.bias is not None
            transform = parts.head_transform.weight.of(known)
            transform.zero_()
            transform[tail, tail] = 1
            offsets = parts.head_transform.bias.of(known)
            offsets.copy_(10 + 2 * (-1.0) ** torch.arange(place.width))
            offsets[tail] = 10  # far from any bend, and in the middle of the others

    def measure(self, sample: Tensor, size: float, noise: float) -> None:
        """Set the first layers to one measurement and a ladder of thresholds, block after block.

        A block's ladder begins at the threshold at which the one before it ends, so that every
        rung lies within one block, whose rows share each token's gradient to the last bit.
        """
        parts, known = self.parts, self.known
        direction = torch.randn(parts.width, generator=self.generator)
        direction[: self.place.tail.start] -= direction[: self.place.tail.start].mean()
        direction[self.place.tail] = 0  # so that nothing measured comes back into the carriers
        direction /= direction.norm()
        blocks = parts.blocks[: measured(parts)]
        smooth = self._smooth()
        if not parts.position_trained:
            self._level(sample[:1], size)
        inputs = given(self.model, blocks[0].first.weight.name, sample)
        self._amplify(float(inputs[..., self.place.tail].abs().max()))
        found = inputs @ direction
        mean, spread = float(found.mean()), float(found.std())
        rungs = sum(len(block.first.weight.of(known)) - 1 for block in blocks) + 1
        ladder = mean + spread * torch.special.ndtri((torch.arange(rungs).double() + 0.5) / rungs)
        ladder[0] = mean - _LOWEST * spread
        ladder, start = ladder.float(), 0
        sharp = _SHARP if smooth else _SOFT
        flow = (_FLOW * parts.width / sharp if smooth else 1.0) * (size if parts.pre_norm else 1.0)
        for block in blocks:
            assert block.first.bias is not None
            assert block.second.bias is not None
            rows = block.first.weight.of(known)
            here = ladder[start : start + len(rows)]
            start += len(rows) - 1
            rows.copy_(sharp * direction.expand(len(rows), -1))
            if noise:
                entries = torch.randn(rows.shape, generator=self.generator)
                rows.add_(sharp * noise / parts.width**0.5 * entries)
            block.first.bias.of(known).copy_(-sharp * here)
            # what + - - + adds up to does not grow with the ladder
            signs = torch.tensor([1.0, -1.0, -1.0, 1.0]).repeat(len(rows) // 4 + 1)[: len(rows)]
            block.second.weight.of(known)[self.place.tail] = flow * signs
            # the long first rung's part, which every token has alike
            usual = sharp * (mean - here).clamp_min(0) @ (flow * signs)
            block.second.bias.of(known)[self.place.tail] = -usual

    def _level(self, sample: Tensor, size: float) -> None:
        """Bring the carriers, where the waves of fixed positions are high, to the others' mean.

        What stands there changes how much gradient a norm lets through, and that from token to
        token. The first projection's bias moves it, by as much as one trial says.
        """
        block = self.parts.blocks[0]
        assert block.projection.bias is not None
        bias, found = block.projection.bias.of(self.known)[self.place.tail], []
        for trial in (0.0, size):
            bias.fill_(trial)
            found.append(
                float(
                    given(self.model, block.first.weight.name, sample)[..., self.place.tail].mean()
                )
            )
        bias.fill_(-found[0] * size / (found[1] - found[0]))

    def _amplify(self, largest: float) -> None:
        """Make what the decoder reads as large as the decoy allows, for gradient is as large.

        Without a bias, labels are counted in a column where gradient of the lookup is in the way.
        """
        parts, tail = self.parts, self.place.tail
        limit = _LABELS if parts.decoder.bias is not None else _LABELS / 10
        codes = float(parts.decoder.weight.of(self.known)[:, tail].abs().max())
        largest = max(largest, 0.05) * (1 + _SPREAD * parts.masked)
        gain = limit / (codes * largest * self.place.carriers)
        self.known[f"{self._exit()}.weight"][tail] = gain

    def _exit(self) -> str:
        """Return the prefix of the norm whose output the decoder reads."""
        return self.parts.head_norm or self.parts.final_norm or self.parts.blocks[-1].mlp_norm

    def _smooth(self) -> bool:
        """Tell whether the activation lets through what is below zero, as GELU does."""
        block = self.parts.blocks[0]
        assert block.first.bias is not None
        block.first.weight.of(self.known).zero_()
        block.first.bias.of(self.known).fill_(-1)
        token = torch.zeros(1, 1, dtype=torch.int64)
        return bool(given(self.model, block.second.weight.name, token).any())


class _Reached(Exception):  # noqa: N818  (no fault: it ends a forward pass)
    pass


def given(model: nn.Module, weight: str, tokens: Tensor) -> Tensor:
    """Return what the layer of a weight is given when the victim reads tokens, without dropout.

    Args:
        model: a language victim.
        weight: the parameter's name.
        tokens: (batch, length) int64.

    Returns:
        (batch, length, width of the layer's input).
    """
    model = TextVictim.of(model)
    found: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        found.append(inputs[0])
        raise _Reached  # nothing behind the layer is wanted

    layer = model.network.get_submodule(weight.rpartition(".")[0])
    handle, training = layer.register_forward_pre_hook(keep), model.training
    try:
        with torch.no_grad():
            model.eval()(tokens.to(next(model.parameters()).device))
    except _Reached:
        pass
    finally:
        model.train(training)
        handle.remove()
    return found[0]
