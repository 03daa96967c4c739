"""Which words make one sequence, and in what order, by the gradients of the first attention alone.

A token is a word plus a position, over a scale. Known words and positions are a basis, in which
the gradients of queries and keys fall apart into `dq_v` and `dk_v`, a pair of vectors a word. With
G the gradient at a head's logits, all words of one sequence make `Q G K'`, by queries and by keys:

    sum over its words of  q_v dq_v' - dk_v k_v'  =  0          in every head

So the indicators of sequences are the null vectors of one matrix with a column a word. What
several sequences share, positions and some words, is projected out of both sides. The position's
own gradient is the sum of those of the words that stand there: least squares tell which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from scipy.linalg import qr
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from benchmark.errors import NotApplicable
from benchmark.toolbox.closedform.solve import exact, least_squares
from benchmark.toolbox.text.spans import TextEntrance
from benchmark.victims import LinearLayer, TextVictim, weights

_APART = 0.1  # the last null eigenvalue over the next: up to 0.05 seen of sequences told apart
_SET_ASIDE = 8  # words, one after the other; real text shares dozens, and does not come apart
_PART = 0.3  # of a position's gradient, the least that a word of it makes up
_SURE = 0.1  # how far from 0 and 1 a word's shares in sequences and positions may lie


@dataclass(frozen=True)
class Sequences:
    """Sequences read, and which of their tokens are beyond doubt, both (sequences, length)."""

    tokens: Tensor
    certain: Tensor


def check_sequences(update: Mapping[str, Tensor], model: nn.Module, length: int) -> None:
    """Raise, from shapes alone, where the first attention cannot tell sequences apart.

    Raises:
        NotApplicable: positions fill the heads, or the gradient of a bias is missing.
    """
    parts = TextVictim.of(model).anatomy
    rows, places = parts.width // parts.heads, length - (not parts.masked)
    if places + 2 > rows:
        raise NotApplicable(f"{places} positions fill heads of {rows}")
    block = parts.blocks[0]
    biases = {part.bias.name for part in (block.query, block.key, block.value) if part.bias}
    if missing := sorted(biases - set(update)):
        raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")


def sequences_of_words(
    update: Mapping[str, Tensor],
    model: nn.Module,
    words: Tensor,
    sequences: int,
    length: int,
) -> Sequences | None:
    """Return the sequences that words make, in any order; None where they are not told apart.

    Args:
        update: gradients by name, of the first attention's weights and biases.
        model: the victim as the server knows it.
        words: (n,) int64, all that are in the batch, each once.
        sequences: in the batch, two or more.
        length: places of a sequence that send gradient.
    """
    parts = WordParts.of(update, model, words, length)
    if parts is None:
        return None
    mask = TextVictim.of(model).spec.mask_token
    found = _told_apart(parts, words == (-1 if mask is None else mask), sequences)
    if found is None:
        return None
    shared, shares = found
    return _placed(words, parts.places(), shared, shares)


@dataclass(frozen=True)
class WordParts:
    """Each head's queries, keys and gradients by words and by positions, (heads, rows, any)."""

    query: Tensor
    key: Tensor
    query_gradient: Tensor
    key_gradient: Tensor
    value_gradient: Tensor
    words: int

    @staticmethod
    def of(
        update: Mapping[str, Tensor], model: nn.Module, words: Tensor, length: int
    ) -> WordParts | None:
        """Return the parts; None where words and positions depend on each other."""
        anatomy, known = TextVictim.of(model).anatomy, weights(model)
        entrance, block = TextEntrance.of(model, length), anatomy.blocks[0]
        summands = torch.cat(entrance.summands(words))  # (words + length, width)
        end = torch.cat([entrance.shift, entrance.shift.new_ones(1)])  # of every token
        basis = torch.cat([torch.nn.functional.pad(summands, (0, 1)), end[None]])
        if len(basis) > basis.shape[1]:
            return None
        # positions may depend on each other, as fixed ones of low rank do
        duals = torch.linalg.pinv(basis)
        if float((basis @ duals).diagonal()[: len(words)].min()) < 1 - 1e-6:
            return None

        def read(linear: LinearLayer, tensors: Mapping[str, Tensor], columns: Tensor) -> Tensor:
            return torch.unflatten(_biased(linear, tensors) @ columns, 0, (anatomy.heads, -1))

        return WordParts(
            query=read(block.query, known, basis.T),
            key=read(block.key, known, basis.T),
            query_gradient=read(block.query, update, duals),
            key_gradient=read(block.key, update, duals),
            value_gradient=read(block.value, update, duals),
            words=len(words),
        )

    def without(self, common: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return q, dq, dk, k of every word, what is common (any,) projected out of both sides."""
        left = _off(self.query[..., common])
        right = _off(self.key[..., common])
        own = slice(self.words)
        return (
            left @ self.query[..., own],
            right @ self.query_gradient[..., own],
            left @ self.key_gradient[..., own],
            right @ self.key[..., own],
        )

    def places(self) -> Tensor:
        """Return how much each word's gradients are part of each position's, (words, length)."""
        parts = torch.cat([self.query_gradient, self.key_gradient, self.value_gradient])
        parts = parts.flatten(0, 1)
        return least_squares(parts[:, : self.words], parts[:, self.words : -1])


def _told_apart(parts: WordParts, shared: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    """Return which words are shared (words,), and the others' shares (words, count), 0 or 1.

    Words that sequences share join them. One after the other is set aside, always that which
    explains most of what the equations leave, until as many null vectors are left as sequences.
    """
    n, rows = parts.words, parts.query.shape[1]
    shared = shared.clone()
    for _ in range(_SET_ASIDE + 1):
        own = (~shared).nonzero()[:, 0]
        common = torch.cat([shared.nonzero()[:, 0], torch.arange(n, parts.query.shape[2])])
        free = rows - len(common)
        if free < 1 or len(parts.query) * free**2 < len(own) or len(own) <= count:
            return None
        sides = parts.without(common)
        values, vectors = _spectrum(*(side[..., own] for side in sides))
        nearly = vectors[:, :count]
        if float(values[count - 1]) < _APART * float(values[count]):
            # a word of each sequence, as far from the others' as can be
            examples = qr(nearly.T.numpy(), mode="r", pivoting=True)[1][:count]
            shares = torch.zeros(n, count, dtype=torch.float64)
            shares[own] = nearly @ torch.linalg.inv(nearly[examples])
            return shared, shares
        q, dq, dk, k = (side[..., own] for side in sides)
        shared[own[_joining(q, dq, dk, k, nearly)]] = True
    return None


def _spectrum(q: Tensor, dq: Tensor, dk: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the equations' squared singular values, ascending, and right vectors in columns.

    Their Gram matrix comes from inner products of the factors; heads and words count alike.
    """
    gram = (q.mT @ q) * (dq.mT @ dq) + (dk.mT @ dk) * (k.mT @ k)
    crossed = (q.mT @ dk) * (dq.mT @ k)
    gram = gram - crossed - crossed.mT
    tiny = torch.finfo(gram.dtype).tiny
    gram = (gram / gram.diagonal(dim1=1, dim2=2).sum(1).clamp_min(tiny)[:, None, None]).sum(0)
    scale = gram.diagonal().clamp_min(tiny).rsqrt()
    values, vectors = torch.linalg.eigh(scale[:, None] * gram * scale)
    return values.clamp_min(tiny), scale[:, None] * vectors


def _joining(q: Tensor, dq: Tensor, dk: Tensor, k: Tensor, nearly: Tensor) -> int:
    """Return the word that explains most of what nearly null vectors (words, any) leave."""
    sides = (torch.einsum("hrv,vi->hirv", part, nearly) for part in (q, dk))
    left, right = sides
    rest = left @ dq.mT[:, None] - right @ k.mT[:, None]  # (heads, any, rows, rows)
    rest = rest / (q.norm(dim=(1, 2)) * dq.norm(dim=(1, 2)))[:, None, None, None]
    unit_q, unit_k = (part / part.norm(dim=1, keepdim=True) for part in (q, k))
    by_query, by_key = rest.mT @ unit_q[:, None], rest @ unit_k[:, None]
    both = (by_query * unit_k[:, None]).sum(2)
    explained = by_query.square().sum(2) + by_key.square().sum(2) - both.square()
    return int(explained.sum((0, 1)).argmax())


def _placed(words: Tensor, places: Tensor, shared: Tensor, shares: Tensor) -> Sequences:
    """Return sequences of words, a word a place; where none of their own fits, a shared one."""
    tokens, certain = [], []
    for own in shares.T:
        mine = (own > 0.5).nonzero()[:, 0]
        rows, columns = linear_sum_assignment(places[mine].numpy(), maximize=True)
        placed, at = mine[rows], torch.from_numpy(columns)
        clear = (places[placed, at] - 1).abs() < _SURE
        again = own > 0.5  # a word that stands at two places is a part of each
        again[placed[clear]] = False
        fits = torch.where(again[:, None] & (places > _PART), places, -torch.inf)
        fits[shared] = places[shared].clamp(max=_PART)
        chosen = fits.argmax(0)
        sure = torch.zeros(places.shape[1], dtype=torch.bool)
        good = places[placed, at] > _PART
        chosen[at[good]] = placed[good]
        sure[at] = clear & ((shares[placed] - shares[placed].round()).abs().amax(1) < _SURE)
        tokens.append(words[chosen])
        certain.append(sure)
    return Sequences(torch.stack(tokens), torch.stack(certain))


def _off(columns: Tensor) -> Tensor:
    """Return the projector (heads, rows, rows) off some columns (heads, rows, any)."""
    left, values, _ = torch.linalg.svd(columns, full_matrices=False)
    left = left * (values > 1e-9 * values[:, :1])[:, None]
    return torch.eye(columns.shape[1], dtype=columns.dtype) - left @ left.mT


def _biased(linear: LinearLayer, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return a weight or its gradient (out, in + 1), the bias as its last column."""
    assert linear.bias is not None
    return torch.cat(
        [exact(linear.weight.of(tensors)), exact(linear.bias.of(tensors))[:, None]], dim=1
    )
