"""Which group each reading is of: a group is the sequences whose first tokens are the same.

Tokens alone in their bin have their group's marks. Those that share one go where the sum is right:
to groups that lack a token at the position, or have this very one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from submissions.attacks.decepticon.certify import twins
from submissions.attacks.decepticon.marks import Marked
from submissions.attacks.decepticon.sequences import combinations, distances, size_of
from submissions.attacks.decepticon.thresholds import CHOSEN


def group(marked: Marked, known: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Return the group of each reading (readings,), -1 where none fits; and whether it is sure.

    Of tokens that share a bin those go first of which only one sum is right, which leaves fewer to
    the others.

    Args:
        marked: the readings.
        known: (groups, marks).
        batch: number of sequences.
        length: places that send gradient.
    """
    lines = marked.readings
    if batch == 1:
        return torch.zeros(len(lines), dtype=torch.int64), ~twins(lines)
    grouping, open_ = _Grouping(marked, known, length), list[_Sums]()
    for count in torch.unique(lines.count[lines.count > 1]).tolist():
        shared = torch.split((lines.count == count).nonzero()[:, 0], count)
        open_ = grouping.settle(open_ + [grouping.weigh(here) for here in shared])
    for sums in map(grouping.narrow, open_):
        grouping.write(sums, sure=False)
    return grouping.group, grouping.sure & ~twins(lines)


@dataclass(frozen=True)
class _Sums:
    """What the readings of one bin may be.

    Attributes:
        here: (k,) int64, the readings.
        choices: (n, k) int64, their groups, the best first.
        miss: (n,), of what a sum may miss.
    """

    here: Tensor
    choices: Tensor
    miss: Tensor


class _Grouping:
    """The groups of readings while they are found, and which are still free at each position."""

    def __init__(self, marked: Marked, known: Tensor, length: int) -> None:
        """Begin with the tokens alone in their bin.

        Args:
            marked: the readings.
            known: (groups, marks).
            length: places that send gradient.
        """
        self.marked, self.known, self.lines = marked, known, marked.readings
        self.least = CHOSEN.same * size_of(marked.own[marked.plain])
        nearest, found = distances(marked.own, known).min(1)
        near = (self.lines.count == 1) & (nearest < CHOSEN.near * self.least)
        self.group, self.sure = torch.where(near, found, -1), near.clone()
        keys = [self.lines.position[near], found[near], self.lines.token[near]]
        self.keys = torch.unique(torch.stack(keys), dim=1)  # position, group and token
        taken = torch.zeros(length, len(known), dtype=torch.int64)
        taken.index_put_((self.keys[0], self.keys[1]), torch.tensor(1), accumulate=True)
        self.free = taken.amax(0).clamp_min(1) - taken

    def allowed(self, here: Tensor) -> Tensor:
        """Return the groups of which readings (k,) may still be, (k, groups) bool."""
        position, token = self.lines.position[here], self.lines.token[here]
        allowed = self.free[position] > 0
        same = (self.keys[0] == position[:, None]) & (self.keys[2] == token[:, None])
        line, key = same.nonzero(as_tuple=True)
        allowed[line, self.keys[1, key]] = True
        return allowed

    def weigh(self, here: Tensor) -> _Sums:
        """Return all sums that are right for the readings of a bin (k,)."""
        own, told = self.marked.of_groups(self.known, here)
        marks, weight = self.marked.sums[self.lines.bin[here[0]]][told], self.marked.weight[here]
        allowed = self.allowed(here)
        return _Sums(here, *combinations(marks, weight, own[:, :, told], allowed, self.least))

    def narrow(self, sums: _Sums) -> _Sums:
        """Return those that are still allowed."""
        possible = self.allowed(sums.here).gather(1, sums.choices.T).all(0)
        return _Sums(sums.here, sums.choices[possible], sums.miss[possible])

    def write(self, sums: _Sums, *, sure: bool) -> None:
        """Give readings the best of their sums, if there is any."""
        if len(sums.choices):
            best = sums.choices[0]
            self.group[sums.here], self.sure[sums.here] = best, sure
            self.free[self.lines.position[sums.here], best] -= 1

    def settle(self, open_: list[_Sums]) -> list[_Sums]:
        """Write what only one sum is right for, while there is any; return the others."""
        settled = True
        while settled:
            settled, due, open_ = False, open_, []
            for sums in map(self.narrow, due):  # one at a time: what is written narrows the next
                if len(sums.choices) == 1 and float(sums.miss[0]) < CHOSEN.sharp_sum:
                    self.write(sums, sure=True)
                    settled = True
                elif len(sums.choices):
                    open_.append(sums)
        return open_
