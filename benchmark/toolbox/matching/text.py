"""TextUnknowns as unknowns: the tokens' embeddings, and which word is predicted where.

Embeddings are searched in the units of the victim's own table, (embedding - mean) / deviation, so
that a start and a learning rate mean what they mean for normalised images. Tokens are the nearest
rows of the table. The label of a place is the next token, which is as unknown: it is searched by
logits, as DLG does (Zhu et al., 2019), over the vocabulary where a plan's labels are `searched`.
Where they are `given`, logits are over the words which the update itself tells, with how often each
occurs (`toolbox.text.bag`): what stands where is still searched. The last token, which a causal
model never reads, is its likeliest label. The gradient of the table is not matched, since an
embedding that is searched is looked up nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmark.contract import Observation, Reconstruction
from benchmark.errors import NotApplicable
from benchmark.toolbox.matching.search import Search
from benchmark.toolbox.matching.trace import Loss
from benchmark.toolbox.text.bag import bag, check_bag
from benchmark.victims import TextVictim


@dataclass(frozen=True)
class TextUnknowns:
    """A row is (batch * length * width + predicted * labels,); see `Unknowns`.

    There are batch * (length - 1) predicted places. What may stand there is the vocabulary, or the
    batch * length words that the update tells: it does not tell which is the first, and no label.

    Attributes:
        victim: its network is read, never changed.
        batch: sequences a row.
        length: tokens of a sequence.
        searched: whether labels may be all of the vocabulary.
        table: (vocabulary, width), every token's embedding.
        mean: (width,), of the table.
        deviation: standard deviation of the table's entries.
    """

    victim: TextVictim
    batch: int
    length: int
    searched: bool
    table: Tensor
    mean: Tensor
    deviation: Tensor

    @staticmethod
    def of(seen: Observation, *, searched: bool) -> TextUnknowns:
        """Return the unknown text of a trial."""
        victim = TextVictim.of(seen.model)
        with torch.no_grad():
            everything = torch.arange(victim.spec.vocabulary, device=victim.device)
            table = victim.embed(everything[None])[0]
        mean = table.mean(0)
        spread = (table - mean).std()
        return TextUnknowns(victim, seen.batch_size, seen.length, searched, table, mean, spread)

    @property
    def numel(self) -> int:
        """Values a row."""
        return self._embedded + self.batch * (self.length - 1) * self._labels

    @property
    def reads(self) -> Callable[[Tensor], Tensor]:
        """The network from its embeddings on."""
        return self.victim.from_embeddings

    def inputs(self, values: Tensor) -> Tensor:
        """Return the embeddings, (rows, batch, length, width)."""
        embedded = values[:, : self._embedded]
        return self.mean + self.deviation * embedded.view(
            -1, self.batch, self.length, len(self.mean)
        )

    def loss(self, values: Tensor, labels: Tensor | None) -> Loss:
        """Return the mean cross-entropy, with labels among the words (rows, words) int64 or all."""
        return partial(self._cross_entropy, self._logits(values).softmax(3), labels)

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """None: an embedding may lie anywhere."""
        endless = torch.full_like(self.deviation, torch.inf)
        return -endless, endless

    def answer(self, values: Tensor, labels: Tensor | None) -> Reconstruction:
        """Return tokens (batch, length): the nearest embeddings, and the labels of last places."""
        embeddings = self.inputs(values[None])[0]
        tokens = torch.cdist(embeddings.flatten(0, 1), self.table).argmin(1)
        tokens = tokens.view(self.batch, self.length)
        last = self._logits(values[None])[0, :, -1].argmax(1)
        tokens[:, -1] = last if labels is None else labels.to(last)[last]
        return Reconstruction(tokens=tokens.cpu())

    def values(self, answer: Tensor) -> Tensor:
        """Raise: a row of text holds logits of labels too."""
        raise ValueError("a search for text starts from normal draws alone")

    def blank(self) -> Reconstruction:
        """Return no token at any place."""
        return Reconstruction(tokens=torch.full((self.batch, self.length), -1))

    @property
    def _embedded(self) -> int:
        return self.batch * self.length * len(self.mean)

    @property
    def _labels(self) -> int:
        return len(self.table) if self.searched else self.batch * self.length

    def _logits(self, values: Tensor) -> Tensor:
        """Return the labels' logits, (rows, batch, length - 1, labels)."""
        places = (self.batch, self.length - 1)
        return values[:, self._embedded :].reshape(-1, *places, self._labels)

    def _cross_entropy(
        self, chance: Tensor, words: Tensor | None, logits: Tensor, which: slice
    ) -> Tensor:
        """Return losses (trials,), from probabilities (rows, batch, length - 1, labels)."""
        chance = chance[which]
        logits = logits.view(-1, self.batch, *logits.shape[1:])[:, :, :-1]
        found = logits
        if words is not None:
            found = logits.gather(3, words[which, None, None].expand_as(chance))
        return (logits.logsumexp(3) - (chance * found).sum(3)).flatten(1).mean(1)


def words_from_update(seen: Observation) -> Tensor:
    """Return the words of one trial, (batch * length,) int64, ascending, as the update tells."""
    count = seen.batch_size * seen.length
    return bag(seen.update, seen.model, count, sequences=seen.batch_size)


def check_text(seen: Observation, plan: Search) -> None:
    """Raise, from shapes alone, where text cannot be searched; for an attack's `applies`.

    Raises:
        NotApplicable: a plan that is for images alone, a masked model, or an update that holds
            nothing to tell words by.
        WithheldError: batch size or length are not granted.
    """
    if plan.terms or plan.clamp or plan.registration is not None:
        raise NotApplicable("its priors are of images; the victim reads text")
    if plan.objective is None:
        raise NotApplicable("searches text by its gradient alone, and matches none")
    if TextVictim.of(seen.model).anatomy.masked:
        raise NotApplicable("searches text of a causal model; which places are masked is not known")
    if seen.batch_size * (seen.length - 1) < 1:
        raise NotApplicable(f"sequences of {seen.length} token predict nothing")
    if plan.labels == "given":
        check_bag(seen.update, seen.model)
