"""Decepticons under noise that the defense describes (Fowl et al., ICLR 2023, appendix G).

The parameters are `decepticon`'s, made for a lone sequence and for noise: no token marks others, so
that what each adds to the gradient is known ahead; and where noise would hide all of a sequence,
only as many of its first places send gradient as it leaves room for, by the universal level of
Donoho and Johnstone (1994), since a clipped gradient has one norm to share. What is sent is then
read by orthogonal matching pursuit over the embedding table (`pursuit.py`). The last token is a
label alone; it, and the places that are silent, are filled with public text's commonest token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from benchmark.api import (
    Grant,
    Knowledge,
    MaliciousAttack,
    NotApplicable,
    Observation,
    Reconstruction,
    TextVictim,
    Victim,
    weights,
)
from submissions.attacks.decepticon.imprint import imprint
from submissions.attacks.decepticon.layout import Layout
from submissions.attacks.decepticon.thresholds import CHOSEN
from submissions.attacks.decepticon_denoised.atoms import Atoms, running_sums
from submissions.attacks.decepticon_denoised.noise import noise_of, noise_share
from submissions.attacks.decepticon_denoised.pursuit import Pursuit

_SILENT = 1e3  # a silent position, in sizes of all others: its measurement alone is left


@dataclass(frozen=True)
class DecepticonDenoised(MaliciousAttack):
    """Bins of one sequence without marks, read by matching pursuit."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.LENGTH, Grant.PUBLIC_TEXT})

    def corrupt(self, model: Victim, known: Knowledge, generator: torch.Generator) -> Victim:
        parts, length = TextVictim.of(model).anatomy, int(known.require(Grant.LENGTH))
        sample = known.require(Grant.PUBLIC_TEXT)[: max(1, CHOSEN.sample_tokens // length)]
        imprint(model, sample, generator)
        named, number = weights(model), _speaking(model, known)
        with torch.no_grad():
            parts.blocks[0].projection.weight.of(named).zero_()
            if number < length and parts.position_trained:
                direction = parts.blocks[0].first.weight.of(named)[0]
                positions = named[parts.position]
                size = positions.std() * len(direction) ** 0.5
                positions[number:] = -_SILENT * size * direction / direction.norm()
        return model

    def applies(self, seen: Observation) -> None:
        parts = TextVictim.of(seen.model).anatomy
        Layout.of(parts)
        noise_share(seen.defense, seen.batch_size, 1)
        if seen.batch_size > 1:
            raise NotApplicable("the pursuit reads a lone sequence")
        if parts.masked or seen.length < 2:
            raise NotApplicable("it reads sequences whose every next token is predicted")
        bytes_ = 4 * (seen.length - 1) * parts.vocabulary * (parts.width + 1)
        if bytes_ > seen.budget.memory_bytes:
            raise NotApplicable(f"its table of atoms takes {bytes_ >> 20} MiB")
        first = [block.first for block in parts.blocks]
        wanted = {part.name for layer in first for part in (layer.weight, layer.bias) if part}
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        entries = sum(each.numel() for each in seen.update.values())
        share = noise_share(seen.defense, 1, entries)
        noise = noise_of(share, seen.update.norm(), entries)
        vocabulary = TextVictim.of(seen.model).anatomy.vocabulary
        counts = torch.bincount(seen.public_text.flatten(), minlength=vocabulary).double()
        tokens = torch.full((1, seen.length), int(counts.argmax()))
        certain = torch.zeros_like(tokens, dtype=torch.bool)
        if noise == 0:  # not even noise was sent
            return Reconstruction(tokens=tokens, certain=certain)
        atoms = Atoms.of(seen.model, _speaking(seen.model, seen.knowledge))
        common = ((counts + 0.1) / (counts + 0.1).sum()).log()
        pursuit = Pursuit.of(atoms, running_sums(seen.update, seen.model) / noise, common)
        found = pursuit.read(_usual_factor(atoms, seen.public_text) / share)
        tokens[0, : len(found)] = found
        return Reconstruction(tokens=tokens, certain=certain)


def _speaking(model: Victim, known: Knowledge) -> int:
    """Return how many first places send gradient.

    A clipped gradient has its norm alone to share among them, in units of the noise, and the most
    that noise alone explains by any of n tokens is about 2 log n.
    """
    places = int(known.require(Grant.LENGTH)) - 1
    parts, named = TextVictim.of(model).anatomy, weights(model)
    if not parts.position_trained:
        return places
    entries = sum(each.numel() for each in named.values())
    share = noise_share(known.defense, int(known.require(Grant.BATCH_SIZE)), entries)
    room = int(share**-2 / (2 * math.log(parts.vocabulary)))
    return min(places, max(1, room))


def _usual_factor(atoms: Atoms, text: Tensor) -> float:
    """Return the factor of atoms in a gradient of norm 1; text is (sequences, length)."""
    places = len(atoms.vectors)
    squares = [float(atoms.products(one[:places]).sum()) for one in text[:64]]
    return (len(squares) / sum(squares)) ** 0.5
