"""Decepticons: corrupted transformers spell out what they read (Fowl et al., ICLR 2023).

The server's weights make the gradients of all first MLP layers sums over the tokens in bins, each
with its position and marks of its sequence. What differs from the paper:

- A bin is read by least squares over all pairs of token and position, not by correlations, and
  several tokens in one bin are told apart. What is explained to the last digits is certified,
  where it would not be as well with tokens in each other's place, or in another sequence.
- The first three or four tokens mark a sequence, one attention head each (the paper: the first).
- The decoder gives every label its own gradient, so that each token read names its successor:
  tokens whose bin failed, the last ones, which are labels alone, and masked ones are read so.
- Where dropout behind the activations takes the bins apart, a token is read from its own row of
  the embedding's gradient, position and marks too (`lookups.py`).
- Public text shows mean and spread on the corrupted model itself; a block's bins begin where the
  last one's end. The measurement covers the marks too, or equal tokens would always collide.
- A reserved entry shows labels' counts, and the content entries of a tied table its lookups alone.
- Signs of the second layers alternate, so that they may be large: most of a clipped gradient is
  signal. Clusters of equal size (k-means-constrained) are needed only where marks are not exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import (
    Grant,
    Knowledge,
    NotApplicable,
    Observation,
    Reconstruction,
    TextVictim,
    Victim,
)
from benchmark.toolbox.text.imprinting import Imprinting
from submissions.attacks.decepticon.bins import Bins
from submissions.attacks.decepticon.filling import (
    count_labels,
    fill_anchors,
    fill_labels,
    fill_rest,
)
from submissions.attacks.decepticon.guessing import BestPairs, guess
from submissions.attacks.decepticon.imprint import imprint
from submissions.attacks.decepticon.layout import Layout
from submissions.attacks.decepticon.lookups import dropped, look_up
from submissions.attacks.decepticon.readout import read
from submissions.attacks.decepticon.sheet import Sheet
from submissions.attacks.decepticon.spelling import spell
from submissions.attacks.decepticon.tables import Tables
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class Decepticon(Imprinting):
    """Bins over all blocks, read one by one."""

    hidden: ClassVar[bool] = False
    """Whether entries and units are spared for what shall hide the parameters."""

    def corrupt(self, model: Victim, known: Knowledge, generator: torch.Generator) -> Victim:
        sequences = max(1, CHOSEN.sample_tokens // int(known.require(Grant.LENGTH)))
        sample = self.sample(model, known, sequences, generator)
        imprint(model, sample, generator, self.noise, hidden=self.hidden)
        return model

    def applies(self, seen: Observation) -> None:
        parts = TextVictim.of(seen.model).anatomy
        Layout.of(parts, hidden=self.hidden)
        if not parts.masked and seen.length < 2:
            raise NotApplicable("sequences of one token predict nothing")
        wanted = {block.first.weight.name for block in parts.blocks}
        wanted |= {parts.token_embedding, parts.decoder.weight.name}
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        return self.read(seen, Tables.of(seen.update, seen.model, seen.length))

    def read(self, seen: Observation, tables: Tables) -> Reconstruction:
        """Return the sequences of an update, by what the server knows of what it holds."""
        bins = Bins.of(seen.update, tables, seen.batch_size * len(tables.positions))
        sheet = Sheet.empty(seen.batch_size, seen.length)
        counts = count_labels(seen.update, tables, sheet)
        if len(bins) and len(tables.words):
            pairs = tables.pairs()
            scores = pairs.scores(bins.content)
            readings = read(bins, pairs, scores, masked=tables.parts.masked)
            if readings.enough_exact:
                exact = readings.where(readings.exact)
                sheet, marks = spell(sheet, bins, exact, tables)
                sheet = fill_anchors(sheet, marks, tables)
                counts = count_labels(seen.update, tables, sheet)  # by the masks read
                sheet = fill_labels(sheet, counts, tables)
                rest = bins.where(readings.bin[~readings.exact])
                if len(rest):
                    best = BestPairs.of(rest, pairs.scores(rest.content), tables)
                    sheet = guess(sheet, best, pairs, tables, marks)
            else:
                best = BestPairs.of(bins, scores, tables)
                if dropped(seen.update, tables) and not best.spelled:
                    sheet = look_up(sheet, seen.update, tables)
                else:
                    sheet = guess(sheet, best, pairs, tables)
        sheet = fill_rest(sheet, counts, tables)
        return Reconstruction(tokens=sheet.tokens, certain=sheet.certain)
