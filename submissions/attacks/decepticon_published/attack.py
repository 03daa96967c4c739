"""Decepticons as published: imprint by biases, correlations, assignments (Fowl et al., ICLR 2023).

Algorithms 1 to 3; `decepticon` is this benchmark's own method after the same idea. What differs
from the paper, or is our reading of it:

- The first d' entries of both tables are cleared (appendix A), so that there is nothing to copy in
  them (section 3): the first attention copies the next d' into them. Its one head scores by the
  inner product with the first position in a single row of its key, where the paper has the whole
  identity, of which a head of several sees a part; behind a norm the copy is scaled to the tables.
- d' is 6 and the last entry's scale 1e-6 up to a width of 96, else 32 and 1e-8, as for the paper's
  models. Quantiles are l / (M + 1), l from 1: the paper's l = 0 is infinite.
- Differences are within a block: what lies between two blocks' edges is lost. A bias difference is
  not zero above rounding, and no more embeddings are taken than tokens send gradient.
- The measurement before a GELU is 1e6 times as large; the paper prints no factor. The second
  layers are as much smaller.
- Of a masked model the last block holds no bins, for only masked tokens send gradient there; the
  table of tokens is drawn at the size of the positions, which the paper does not print; token types
  are zero. Labels fill the places of mask tokens in no order.
- Norms are made plain, so that trained victims serve as well. Fixed positions cannot be cleared.
- The last token of a causal model sends no gradient; its place is filled like an unmatched one.
- Algorithms 2 and 3 are as `benchmark.toolbox.text.greedy_bag` reads them; the whole vocabulary in
  place of the bag is not tried.
- Noise on an update is not averaged out by matching pursuit (appendix G).
- A token is certain if it and its position explain its embedding (attack confidence, section 4),
  to 1e-3 of a correlation; whether its sequence is right is not asked.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.api import (
    Knowledge,
    NotApplicable,
    Observation,
    Reconstruction,
    TextVictim,
    Victim,
    weights,
)
from benchmark.toolbox.text.bag import check_bag
from benchmark.toolbox.text.greedy_bag import by_decoder_bias, greedy_bag
from benchmark.toolbox.text.imprinting import Imprinting, measuring
from submissions.attacks.decepticon_published.breached import breached
from submissions.attacks.decepticon_published.imprint import imprint
from submissions.attacks.decepticon_published.layout import Layout
from submissions.attacks.decepticon_published.matching import (
    clusters,
    correlations,
    named,
    placed,
)

_SEQUENCES = 100  # measured, appendix D
_EXPLAINED = 1e-3  # of a correlation: what an embedding explained may miss, by hand


@dataclass(frozen=True)
class DecepticonPublished(Imprinting):
    """One measurement in bins over all blocks; embeddings matched by correlations."""

    def corrupt(self, model: Victim, known: Knowledge, generator: torch.Generator) -> Victim:
        sample = self.sample(model, known, _SEQUENCES, generator)
        imprint(model, sample, generator, self.noise)
        return model

    def applies(self, seen: Observation) -> None:
        parts = TextVictim.of(seen.model).anatomy
        Layout.of(parts)
        check_bag(seen.update, seen.model)
        if not parts.masked and seen.length < 2:
            raise NotApplicable("sequences of one token predict nothing")
        read = [block.first for block in parts.blocks[: measuring(parts)]]
        wanted = {part.name for first in read for part in (first.weight, first.bias) if part}
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        batch, length = seen.batch_size, seen.length
        victim = TextVictim.of(seen.model)
        parts, known = victim.anatomy, weights(seen.model)
        own = Layout.of(parts).reserved
        places = length if parts.masked else length - 1
        found = breached(seen.update, parts, batch * places)
        seed = int(torch.randint(2**31 - 1, (1,), generator=seen.generator))
        owner = clusters(found[:, :own], batch, places, seed)
        positions = known[parts.position][:length, own:]
        vectors = found.new_zeros(batch, length, positions.shape[1])
        matched = torch.zeros(batch, length, dtype=torch.bool)
        for i in torch.unique(owner).tolist():
            here = found[owner == i, own:]
            which, matched[i] = placed(correlations(here, positions), places)
            vectors[i] = here[which]
        words = greedy_bag(seen.update, seen.model, batch * length)
        if not len(words):
            return Reconstruction(tokens=torch.full((batch, length), -1), certain=matched & False)
        table = known[parts.token_embedding][:, own:]
        stands = positions.repeat(batch, 1)
        tokens = words[named(vectors.flatten(0, 1), stands, table[words])]
        certain = _explained(vectors.flatten(0, 1), stands + table[tokens])
        tokens, certain = tokens.view(batch, length), certain.view(batch, length) & matched
        if parts.masked:
            certain &= tokens != victim.spec.mask_token
            tokens = _unmasked(tokens, seen)
        return Reconstruction(tokens=tokens, certain=certain)


def _explained(vectors: Tensor, sums: Tensor) -> Tensor:
    """Return whether each vector is its sum up to a norm, (n,) bool, the last entry apart."""
    one, other = (rows[:, :-1] - rows[:, :-1].mean(1, keepdim=True) for rows in (vectors, sums))
    return torch.cosine_similarity(one, other) > 1 - _EXPLAINED


def _unmasked(tokens: Tensor, seen: Observation) -> Tensor:
    """Return tokens with those of the decoder's bias where mask tokens were read."""
    victim = TextVictim.of(seen.model)
    bias = victim.anatomy.decoder.bias
    assert bias is not None
    assert victim.spec.mask_token is not None
    masked = tokens == victim.spec.mask_token
    slope, count = bias.of(seen.update), int(masked.sum())
    labels = by_decoder_bias(slope, slope.new_zeros(len(slope), 1), count)
    return tokens.masked_scatter(masked, labels) if len(labels) else tokens
