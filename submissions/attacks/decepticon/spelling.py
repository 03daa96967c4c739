"""From rungs to tokens in place: whose each reading is, and which label its gradient names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from benchmark.api import TextAnatomy, TextVictim, weights
from benchmark.toolbox.text.layout import CODES, Layout, layout
from benchmark.toolbox.text.readout import EXACT, Pairs, Readings, is_noised
from benchmark.toolbox.text.sequences import SAME, combinations, distances, size_of

_SIGMAS = 6.0
_MANY = 256  # tokens above the noise; with fewer, all of the vocabulary can be tried
_NEAR = 4.0  # times the distance at which marks are the same
_RARE = 0.25  # of the readings of a place's commonest token
_LEAST = 0.1  # share of places read in a group that is one
_TWINS = 4 * EXACT  # of a factor; farther apart, tokens in each other's place leave something
_SHARP = 0.1  # of what a sum may miss; a right one misses less


@dataclass(frozen=True)
class Tables:
    """What the server knows of the inputs before it looks: tokens in use, positions, layout.

    Attributes:
        parts: the victim's.
        place: which entries serve for what.
        known: its parameters.
        words: (candidates,) int64, ids of the tokens that the update says were read.
        tokens: (candidates, width).
        positions: (places, width), of the places that send gradient.
        codes: (vocabulary,), of labels, in [1, 1 + CODES].
        noised: whether the update is.
    """

    parts: TextAnatomy
    place: Layout
    known: Mapping[str, Tensor]
    words: Tensor
    tokens: Tensor
    positions: Tensor
    codes: Tensor
    noised: bool

    @staticmethod
    def of(update: Mapping[str, Tensor], model: nn.Module, length: int) -> Tables:
        """Return the tables for sequences of a length."""
        parts, known = TextVictim.of(model).anatomy, weights(model)
        place = layout(parts)
        reached = length if parts.masked else length - 1  # a causal model's last is a label alone
        tokens, positions = known[parts.token_embedding], known[parts.position]
        noised = is_noised(update, model)
        words = read_words(update, parts, place, noised=noised)
        codes = parts.decoder.weight.of(known)[:, place.tail.start]
        return Tables(
            parts=parts,
            place=place,
            known=known,
            words=words,
            tokens=tokens[words],
            positions=positions[:reached],
            codes=codes / codes[:-1].min(),
            noised=noised,
        )

    def pairs(self) -> Pairs:
        """Return tokens and positions as the rungs hold them, centred on the content entries."""
        content = self.place.content
        return Pairs(centred(self.tokens[:, content]), centred(self.positions[:, content]))

    def visible(self, position: Tensor) -> Tensor:
        """Return which marks tokens at positions carry, (n, marks) bool."""
        anchors = torch.tensor(self.place.anchors).repeat_interleave(self.place.share)
        return (position[:, None] >= anchors) | self.parts.masked

    def inputs(self, position: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return what enters the first block (n, width), and the scale it was divided by (n,)."""
        sums = self.positions[position] + self.tokens[token]
        if self.parts.embedding_norm is None:
            return sums, sums.new_ones(len(sums))
        scale = sums.std(1, correction=0)
        return centred(sums) / scale[:, None], scale

    def anchor_marks(self, anchor: int) -> Tensor:
        """Return the marks that each candidate leaves as the token at an anchor, (words, share)."""
        everything = torch.arange(len(self.words))
        inputs, _ = self.inputs(torch.full_like(everything, anchor), everything)
        if self.parts.pre_norm:
            inputs = centred(inputs) / inputs.std(1, correction=0, keepdim=True)
        strength = self.parts.blocks[0].projection.weight.of(self.known)[: self.place.marks.stop]
        return strength.max() * inputs[:, self.place.free : self.place.free + self.place.share]


def centred(rows: Tensor) -> Tensor:
    """Return rows less their means."""
    return rows - rows.mean(1, keepdim=True)


def read_words(
    update: Mapping[str, Tensor], parts: TextAnatomy, place: Layout, *, noised: bool
) -> Tensor:
    """Return the ids of the tokens whose embedding has gradient, beyond noise where there is any.

    The decoder reads nothing of the content entries, so that even a tied table has gradient there
    from the tokens looked up alone. Where noise hides some of a few, any token may be.
    """
    size = update[parts.token_embedding][:, place.content].norm(dim=1)
    found = (size > (above_noise(size) if noised else 0)).nonzero()[:, 0]
    return torch.arange(len(size)) if noised and len(found) < _MANY else found


def above_noise(values: Tensor) -> float:
    """Return what values, most of which are noise, exceed by more than chance."""
    middle = values.median()
    return float(middle + _SIGMAS * 1.4826 * (values - middle).abs().median())


@dataclass(frozen=True)
class Marked:
    """Readings and the marks they carry.

    Attributes:
        readings: of rungs, all or some.
        rungs: (rungs, marks), weighted sums over each rung's readings.
        weight: (readings,), of each in them.
        seen: (readings, marks) bool, which marks a token at that position carries.
        share: entries of a mark.
    """

    readings: Readings
    rungs: Tensor
    weight: Tensor
    seen: Tensor
    share: int

    @staticmethod
    def of(vectors: Tensor, readings: Readings, tables: Tables) -> Marked:
        """Return marks: what a rung's vector has beyond its readings and the norm's shift."""
        place = tables.place
        sums = tables.tokens[readings.token] + tables.positions[readings.position]
        sums = readings.factor[:, None] * sums
        rest = vectors - torch.zeros_like(vectors).index_add_(0, readings.rung, sums)
        marks = rest[:, place.marks] - rest[:, place.content].mean(1, keepdim=True)
        _, scale = tables.inputs(readings.position, readings.token)
        seen = tables.visible(readings.position)
        return Marked(readings, marks, readings.factor * scale, seen, place.share)

    @property
    def own(self) -> Tensor:
        """Each reading's marks (readings, marks), as if alone on its rung; nan where unseen."""
        marks = self.rungs[self.readings.rung] / self.weight[:, None]
        return marks.where(self.seen, torch.nan)

    @property
    def plain(self) -> Tensor:
        """Which readings are alone on their rung and carry all marks, (readings,) bool."""
        plain = self.readings.exact & (self.readings.count == 1)
        full = plain & self.seen.all(1)
        return full if bool(full.any()) else plain

    def grouped(self, known: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
        """Return the group of each reading (readings,), -1 where none fits; and whether it is sure.

        Tokens alone on their rung have their group's marks. Those that share one go where the sum
        is right: to groups that lack a token at the position, or have this very one. First go
        those of which only one sum is right, which leaves fewer to the others.

        Args:
            known: (groups, marks).
            batch: number of sequences.
            length: places that send gradient.
        """
        if batch == 1:
            return torch.zeros(len(self.weight), dtype=torch.int64), ~self.twins
        lines, least = self.readings, SAME * size_of(self.own[self.plain])
        nearest, group = distances(self.own, known).min(1)
        found = torch.where((lines.count == 1) & (nearest < _NEAR * least), group, -1)
        had = found >= 0
        sure = had.clone()
        keys = torch.unique(torch.stack([lines.position[had], found[had], lines.token[had]]), dim=1)
        taken = torch.zeros(length, len(known), dtype=torch.int64)
        taken.index_put_((keys[0], keys[1]), torch.tensor(1), accumulate=True)
        free = taken.amax(0).clamp_min(1) - taken

        def allowed(here: Tensor) -> Tensor:
            position, token = lines.position[here], lines.token[here]
            places = free[position] > 0
            same = (keys[0] == position[:, None]) & (keys[2] == token[:, None])
            line, key = same.nonzero(as_tuple=True)
            places[line, keys[1, key]] = True
            return places

        def write(here: Tensor, chosen: Tensor, *, only: bool) -> None:
            found[here], sure[here] = chosen, only
            free[lines.position[here], chosen] -= 1

        open_: list[tuple[Tensor, Tensor, Tensor]] = []
        for count in torch.unique(lines.count[lines.count > 1]).tolist():
            for here in torch.split((lines.count == count).nonzero()[:, 0], count):
                own, told = self.of_groups(known, here)
                marks, weight = self.rungs[lines.rung[here[0]]][told], self.weight[here]
                sums = combinations(marks, weight, own[:, :, told], allowed(here), least)
                open_.append((here, *sums))
            settled = True
            while settled:
                settled, left, open_ = False, open_, []
                for here, choices, miss in left:
                    possible = allowed(here).gather(1, choices.T).all(0)
                    choices, miss = choices[possible], miss[possible]
                    if len(choices) == 1 and float(miss[0]) < _SHARP:
                        write(here, choices[0], only=True)
                        settled = True
                    elif len(choices):
                        open_.append((here, choices, miss))
        for here, choices, _ in open_:
            possible = allowed(here).gather(1, choices.T).all(0)
            if bool(possible.any()):
                write(here, choices[possible][0], only=False)
        return found, sure & ~self.twins

    @property
    def twins(self) -> Tensor:
        """Which readings have on their rung another of the same factor, (readings,) bool.

        The sum is then the same with the tokens in each other's place.
        """
        lines = self.readings
        twins = torch.zeros(len(lines), dtype=torch.bool)
        for apart in range(1, int(lines.count.max())):
            factor, other = lines.factor[apart:], lines.factor[:-apart]
            same = lines.rung[apart:] == lines.rung[:-apart]
            same &= (factor - other).abs() < _TWINS * factor.abs()
            twins[apart:] |= same
            twins[:-apart] |= same
        return twins

    def of_groups(self, known: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """Return the marks that readings would have in each group, and which of them are told.

        A head that does not see its anchor shows some token before it: the first one shows itself.

        Args:
            known: (groups, marks).
            here: (k,) int64, readings.

        Returns:
            (k, groups, marks), and (marks,) bool.
        """
        first = (self.readings.position[here] == 0)[:, None]
        copied = known[:, torch.arange(known.shape[1]) % self.share]
        own = known.where(self.seen[here][:, None], copied)
        return own, (self.seen[here] | first).all(0)


@dataclass(frozen=True)
class Items:
    """Tokens in place, each once however many rungs it was read on.

    Attributes:
        position: (items,) int64.
        token: (items,) int64, by row of the tables.
        group: (items,) int64.
        block: (items,) int64, where it was read.
        code: (items,), of the label, or the sum of those of equal items of several sequences.
        copies: (items,) int64, how many of them.
        sure: (items,) bool, whether it can be of no other group.
    """

    position: Tensor
    token: Tensor
    group: Tensor
    block: Tensor
    code: Tensor
    copies: Tensor
    sure: Tensor

    @staticmethod
    def of(
        marked: Marked, group: Tensor, sure: Tensor, known: Tensor, blocks: Tensor, tables: Tables
    ) -> Items:
        """Return the readings that have a group; what one token leaves on several rungs adds up.

        Args:
            marked: the readings.
            group: (readings,), -1 for none.
            sure: (readings,) bool.
            known: (groups, marks).
            blocks: (rungs,).
            tables: what the server knows.
        """
        kept = group >= 0
        lines, group, sure = marked.readings.where(kept), group[kept], sure[kept]
        alone = (lines.count == 1)[:, None]
        inputs, scale = tables.inputs(lines.position, lines.token)
        own = marked.rungs[lines.rung] / marked.weight[kept][:, None]
        inputs[:, tables.place.marks] += torch.where(alone, own, known[group])
        spread = inputs.std(1, correction=0)
        # the norm before the MLP divides by the spread; where norms stand before, the last too
        raw = -lines.factor * scale * spread * (spread if tables.parts.pre_norm else 1)
        keys = torch.stack([lines.position, lines.token, group, blocks[lines.rung]])
        keys, inverse = torch.unique(keys, dim=1, return_inverse=True)
        code = raw.new_zeros(keys.shape[1]).index_add_(0, inverse, raw)
        usual = 1 + CODES / 2
        for block in torch.unique(keys[3]):  # the gradient loses a little at every norm it passes
            here = keys[3] == block
            code[here] *= usual / code[here].median()
        copies = (code / usual).round().long().clamp_min(1)
        copies = torch.ones_like(copies) if tables.parts.masked else copies
        often = torch.bincount(inverse[sure], minlength=len(code))
        place = keys[2] * (int(keys[0].max()) + 1) + keys[0]
        most = often.new_zeros(int(place.max()) + 1).scatter_reduce_(0, place, often, "amax")
        certain = (often > 0) & (often >= _RARE * most[place])
        return Items(*[*keys, code, copies, certain])

    def where(self, chosen: Tensor) -> Items:
        """Return some items, by mask or index."""
        return Items(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def sizes(self, number: int, batch: int) -> Tensor:
        """Return how many sequences each group has, (groups,) int64, `batch` at most in all."""
        table = self._table(number, int(self.position.max()) + 1)
        sizes = table.quantile(0.9, dim=1).round().long().clamp_min(1)
        while int(sizes.sum()) > batch:
            sizes[sizes.argmax()] -= 1
        return sizes

    def doubted(self, sizes: Tensor, batch: int, tables: Tables) -> Items:
        """Return the items, none sure where more of the sure stand than sequences can hold.

        Nor is any other of that group then, for its marks may be those of several sequences, or a
        sum; nor of one that holds little. First tokens do not tell: those of other groups may be
        the same.

        Args:
            sizes: (groups,) int64, of sequences.
            batch: number of sequences; a lone one has no other's tokens.
            tables: what the server knows.

        Returns:
            Those that were sure last, which so overrule others when written.
        """
        items = self.where(self.sure.long().argsort(stable=True))
        everywhere = torch.arange(int(items.position.max()) + 1)
        table = items.where(items.sure)._table(len(sizes), len(everywhere))
        telling = tables.visible(everywhere).all(1)
        crowded = (table > sizes[:, None]) & telling
        sound = ~crowded[items.group, items.position]
        if batch > 1:
            held = (table > 0).float().mean(1) > _LEAST
            sound &= (held & ~crowded.any(1))[items.group]
        return replace(items, sure=items.sure & sound)

    def _table(self, number: int, places: int) -> Tensor:
        """Return how many items stand at each place of each group, (groups, places)."""
        table = torch.zeros(number, places)
        return table.index_put_((self.group, self.position), self.copies.float(), accumulate=True)
