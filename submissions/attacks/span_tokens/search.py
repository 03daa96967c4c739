"""Which of the tokens found at each position belong to one sequence: the second span tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmark.toolbox.text.spans import CLEAR, off_span
from submissions.attacks.span_tokens.block import FirstBlock

_PASSES = 3  # over the sequences not found yet
_ROUNDS = 10  # of grouping; two or three settle it
_PAIRED = 24  # the best single changes, of which two are tried together
_GAIN = 0.999  # a smaller gain is rounding
_AT_ONCE = 4096  # places run through the first block together


@dataclass(frozen=True)
class Found:
    """Sequences and which of their tokens are beyond doubt, both (sequences, length)."""

    tokens: Tensor
    certain: Tensor


def grow(block: FirstBlock, span: Tensor, choices: list[Tensor], sequences: int) -> Found:
    """Extend prefixes by every candidate of the next position, and keep the best.

    A causal model's input of the second attention depends on the tokens up to it alone, so a
    prefix stands or falls by itself. A true one leaves nothing off the span, and there are
    `sequences` at most: keeping as many loses none.

    Args:
        block: of a causal model.
        span: of the second attention, (width, rank).
        choices: candidates of each position, (candidates,) int64, more than `sequences` each.
        sequences: in the batch.
    """
    tokens, certain = choices[0].new_empty(1, 0), torch.empty(1, 0, dtype=torch.bool)
    keys = values = block.attended(block.embed(tokens, tokens))[1]  # (1, 0, head, width / heads)
    for position, nexts in enumerate(choices):
        entered = block.embed(nexts, torch.tensor(position))
        q, k, v = block.attended(entered)  # each (candidate, head, width / heads)
        itself = (q * k).sum(-1).expand(len(tokens), -1, -1)[..., None]
        scores = torch.cat([torch.einsum("chd,pthd->pcht", q, keys), itself], dim=3).softmax(3)
        context = torch.einsum("pcht,pthd->pchd", scores[..., :-1], values) + scores[..., -1:] * v
        left = block.leave(entered.expand(len(tokens), -1, -1), context)
        off = off_span(span, left).norm(dim=2).flatten()
        ranked = off.sort()
        kept = ranked.indices[:sequences]
        prefix, chosen = kept // len(nexts), kept % len(nexts)
        clear = ranked.values[:sequences] < CLEAR * ranked.values[sequences]
        certain = torch.cat([certain[prefix], clear[:, None]], dim=1)
        tokens = torch.cat([tokens[prefix], nexts[chosen, None]], dim=1)
        keys = torch.cat([keys[prefix], k[chosen, None]], dim=1)
        values = torch.cat([values[prefix], v[chosen, None]], dim=1)
    return Found(tokens, certain)


class Settler:
    """Finds the sequences of an encoder, whose every place heeds the whole sequence.

    What a place attends to is first taken to be the mean over all candidates of all places. That
    is near enough to tell a token that belongs at its place from one that does not, and what it
    leaves off the span then points from that mean to the token's own sequence: tokens of one
    sequence leave alike. Sequences grouped so are put right by descent: what a whole sequence
    leaves off the span vanishes for a true one alone.

    Args:
        block: of an encoder.
        span: of the second attention, (width, rank).
        candidates: (length, k) int64.
        possible: (length, k) bool, which of them the first span admits.
        sequences: in the batch.
    """

    def __init__(
        self, block: FirstBlock, span: Tensor, candidates: Tensor, possible: Tensor, sequences: int
    ) -> None:
        self._block, self._span, self._sequences = block, span, sequences
        self._take(candidates, possible)
        for most in (2 * sequences, sequences):  # the second averages over the first one's choice
            self._thin(most)

    def settle(self) -> Found:
        """Return as many sequences as there are, in any order, those beyond doubt first."""
        found: dict[tuple[int, ...], Tensor] = {}  # two groups may end at one sequence
        fresh = self._possible
        for _ in range(_PASSES):
            missing = self._sequences - sum(bool(places.all()) for places in found.values())
            for start in self._grouped(fresh, missing) if missing > 0 else ():
                choice, places = self._descend(start)
                found[tuple(choice.tolist())] = places
                if bool(places.all()):  # its tokens are spoken for, where others are left
                    rest = fresh.scatter(1, choice[:, None], False)
                    fresh = torch.where(rest.any(1, keepdim=True), rest, fresh)
        best = sorted(found, key=lambda choice: -int(found[choice].sum()))[: self._sequences]
        best += best[-1:] * (self._sequences - len(best))
        tokens = self._tokens.gather(1, torch.tensor(best).T).T
        return Found(tokens, torch.stack([found[choice] for choice in best]))

    def _take(self, tokens: Tensor, possible: Tensor) -> None:
        self._tokens, self._possible = tokens, possible
        self._entered = self._block.embed(tokens, torch.arange(len(tokens))[:, None])
        self._q, self._k, self._v = self._block.attended(self._entered)  # (length, k, head, d)

    def _thin(self, most: int) -> None:
        """Keep the candidates of each position that go best with the mean of all others'."""
        off = torch.stack([part.norm(dim=1) for part in self._left_by_mean()])
        nearest = off.sort(1).indices[:, :most]
        self._take(self._tokens.gather(1, nearest), torch.ones_like(nearest, dtype=torch.bool))

    def _left_by_mean(self) -> Iterator[Tensor]:
        """Yield, place by place, what each candidate leaves off the span (k, width)."""
        weight = (self._possible / self._possible.sum(1, keepdim=True)).log().to(self._k)
        for place, (q, k, v) in enumerate(zip(self._q, self._k, self._v, strict=True)):
            scores = torch.einsum("chd,jkhd->chjk", q, self._k) + weight
            scores[:, :, place] = -torch.inf  # at its own place a candidate sees itself alone
            scores[:, :, place, 0] = (q * k).sum(-1)
            shares = scores.flatten(2).softmax(2).view_as(scores)
            itself = shares[:, :, place, 0, None].clone()
            shares[:, :, place] = 0
            context = torch.einsum("chjk,jkhd->chd", shares, self._v) + itself * v
            yield off_span(self._span, self._block.leave(self._entered[place], context))

    def _grouped(self, fresh: Tensor, groups: int) -> Tensor:
        """Return a choice of fresh candidates for each group, (groups, length)."""
        left = torch.stack(list(self._left_by_mean()))
        # begin where there is one candidate a group, and the worst of them (below 1) goes best
        place = ((fresh.sum(1) - groups).abs() + (left.norm(dim=2) * fresh).amax(1)).argmin()
        left = functional.normalize(left - left[fresh].mean(0), dim=2)
        centres = left[place][fresh[place]][:groups]
        chosen = torch.zeros(0, len(left), dtype=torch.int64)
        for _ in range(_ROUNDS):
            likeness = torch.einsum("gw,lkw->glk", centres, left)
            chosen = likeness.masked_fill(~fresh, -torch.inf).argmax(2)
            centres = left[torch.arange(len(left)), chosen].mean(1)
        return chosen

    def _off(self, choices: Tensor) -> Tensor:
        """Return what sequences of candidates (n, length) leave off the span, squared, (n,)."""
        places, found = torch.arange(choices.shape[1]), []
        size = max(1, _AT_ONCE // len(places))
        for start in range(0, len(choices), size):
            some = choices[start : start + size]
            q, k, v = (part[places, some] for part in (self._q, self._k, self._v))
            shares = torch.einsum("nihd,njhd->nhij", q, k).softmax(3)
            context = torch.einsum("nhij,njhd->nihd", shares, v)
            left = off_span(self._span, self._block.leave(self._entered[places, some], context))
            found.append(left.square().sum((1, 2)))
        return torch.cat(found)

    def _descend(self, choice: Tensor) -> tuple[Tensor, Tensor]:
        """Return a choice of candidates (length,) that no change betters, and its clear places.

        Each step changes one place, or every place to its best, or, where neither is better, two.
        """
        places, others = self._possible.nonzero(as_tuple=True)
        cost = float(self._off(choice[None]))
        while True:
            singles = _changed(choice, places[:, None], others[:, None])
            costs = self._off(singles)
            table = torch.full(self._possible.shape, torch.inf, dtype=costs.dtype)
            table[places, others] = costs
            clear = cost < CLEAR**4 * table.scatter(1, choice[:, None], torch.inf).amin(1)
            proposals = torch.stack([table.argmin(1), singles[costs.argmin()]])
            gains = self._off(proposals)
            if float(gains.min()) > _GAIN * cost and not bool(clear.all()):
                best = costs.argsort()[:_PAIRED]
                pairs = best[torch.combinations(torch.arange(len(best)))]
                proposals = _changed(choice, places[pairs], others[pairs])
                gains = self._off(proposals)
            if float(gains.min()) > _GAIN * cost:
                return choice, clear
            choice, cost = proposals[gains.argmin()], float(gains.min())


def _changed(choice: Tensor, places: Tensor, others: Tensor) -> Tensor:
    """Return copies (n, length) of a choice with others at some places, both (n, changes)."""
    return choice.repeat(len(places), 1).scatter(1, places, others)
