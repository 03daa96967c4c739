"""Decepticons: corrupted transformers spell out what they read (Fowl et al., ICLR 2023).

The server's weights make the gradients of all first MLP layers a ladder of sums over tokens, each
with its position and marks of its sequence. What differs from the paper:

- A rung is read by least squares over all pairs of token and position, not by correlations, and
  several tokens on one rung are told apart. What is explained to the last digits is certified,
  where it would not be as well with tokens in each other's place, or in another sequence.
- The first three or four tokens mark a sequence, one attention head each (the paper: the first).
- The decoder gives every label its own gradient, so that each token read names its successor:
  tokens whose rung failed, the last ones, which are labels alone, and masked ones are read so.
- Where dropout behind the activations takes the ladder apart, a token is read from its own row of
  the embedding's gradient, position and marks too (`lookups.py`).
- Public text shows mean and spread on the corrupted model itself; a block's ladder begins where
  the last one ends. The measurement covers the marks too, or equal tokens would always collide.
- A reserved entry shows labels' counts, and the content entries of a tied table its lookups alone.
- Signs of the second layers alternate, so that they may be large: most of a clipped gradient is
  signal. Clusters of equal size (k-means-constrained) are needed only where marks are not exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from benchmark.api import (
    Grant,
    Knowledge,
    MaliciousAttack,
    NotApplicable,
    Observation,
    Reconstruction,
    TextVictim,
)
from benchmark.toolbox.text.imprint import imprint
from benchmark.toolbox.text.layout import layout
from benchmark.toolbox.text.readout import read, rungs
from submissions.attacks.decepticon.filling import (
    Sheet,
    fill_anchors,
    fill_labels,
    fill_masked,
    fill_rest,
    label_counts,
    spell,
)
from submissions.attacks.decepticon.guessing import guess, spelled
from submissions.attacks.decepticon.lookups import dropped, look_up
from submissions.attacks.decepticon.spelling import Tables, centred

_SAMPLE = 2048  # tokens: their mean is known to 2 % of their spread
_EXACT = 0.05  # least share of readings that are exact; with dropout or noise none is


@dataclass(frozen=True)
class Decepticon(MaliciousAttack):
    """A ladder of thresholds over all blocks, read rung by rung."""

    measure: Literal["public_text", "random_tokens"] = "public_text"
    """What places the thresholds."""
    noise: float = 0.0
    """On each row of the measurement, in sizes of its entries, against inspection of ranks."""

    @property
    def needs(self) -> frozenset[Grant]:
        sample = {Grant.PUBLIC_TEXT} if self.measure == "public_text" else set()
        return frozenset({Grant.BATCH_SIZE, Grant.LENGTH} | sample)

    def corrupt(self, model: nn.Module, known: Knowledge, generator: torch.Generator) -> nn.Module:
        length = int(known.require(Grant.LENGTH))
        sequences = max(1, _SAMPLE // length)
        if self.measure == "public_text":
            sample = known.require(Grant.PUBLIC_TEXT)[:sequences]
        else:
            vocabulary = TextVictim.of(model).anatomy.vocabulary
            sample = torch.randint(vocabulary, (sequences, length), generator=generator)
        imprint(model, sample, generator, self.noise)
        return model

    def applies(self, seen: Observation) -> None:
        parts = TextVictim.of(seen.model).anatomy
        layout(parts)
        if not parts.masked and seen.length < 2:
            raise NotApplicable("sequences of one token predict nothing")
        wanted = {block.first.weight.name for block in parts.blocks}
        wanted |= {parts.token_embedding, parts.decoder.weight.name}
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        batch, tables = seen.batch_size, Tables.of(seen.update, seen.model, seen.length)
        sheet, reached = Sheet.empty(batch, seen.length), len(tables.positions)
        predicted = 1 if tables.parts.masked else batch * (seen.length - 1)
        counts = label_counts(seen.update, tables, predicted)
        vectors, blocks = rungs(seen.update, seen.model, batch * reached)
        if len(vectors) and len(tables.words):
            pairs = tables.pairs()
            content = centred(vectors[:, tables.place.content])
            # sequences of a masked model differ in gradient as in the number of masks
            readings = read(content, blocks, pairs, least=0.2 if tables.parts.masked else 0.4)
            exact = readings.where(readings.exact)
            marks, hidden = None, mask_token(seen.model)
            if len(exact) > _EXACT * len(readings) and bool((exact.count == 1).any()):
                marks = spell(sheet, vectors, blocks, exact, tables)
                fill_anchors(sheet, marks, tables)
                if hidden is None:
                    fill_labels(sheet, counts, tables)
                else:
                    read_masks = int((sheet.tokens == hidden).sum())
                    counts = label_counts(seen.update, tables, max(1, read_masks))
                    fill_masked(sheet, counts, tables, hidden)
                vectors = vectors[readings.rung[~readings.exact]]
            elif dropped(seen.update, tables) and not spelled(vectors, readings, tables):
                look_up(sheet, seen.update, tables)
                vectors = vectors[:0]
            if len(vectors):
                guess(sheet, vectors, pairs, tables, marks)
            if hidden is not None:
                sheet.tokens[sheet.tokens == hidden] = -1  # its label was not read
        fill_rest(sheet, counts)
        return Reconstruction(tokens=sheet.tokens, certain=sheet.certain)


def mask_token(model: nn.Module) -> int | None:
    """Return the token that hides others; None of a model that guesses every next one."""
    model = TextVictim.of(model)
    return model.spec.mask_token if model.masked else None
