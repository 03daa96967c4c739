"""The bag of words of an update: which tokens it was computed on, and how often each.

The gradient of the decoder's row v is the mean over predicted places of (p_v - [label = v]) h, h
its input, and that of its bias the same without h. Rows of tokens that do not occur are nothing
but p_v times the mean of h: from them that mean is read, with it p, and with p every label counts
itself. The rows of the token table add, where a token is read, the gradient of its embedding.

Source: Fowl et al. (ICLR 2023, Decepticons), section 3.1, appendix C and algorithms 2 and 3, after
Melis et al. (2019) and Wainakh et al. (2021). Differences: a tied table is cleared of the decoder's
part before its rows are told apart by their norms, which then needs no loss on either side, and
labels are counted along the mean of h instead of by the norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmark.errors import NotApplicable
from benchmark.toolbox.counts import nearest_counts
from benchmark.victims import TextAnatomy, TextVictim, weights

_QUIET = 1.5  # standard deviations of log-norms above the mean, the paper's cut-off
_PASSES = 3  # of the mean of h and the probabilities there; they settle in two
_LEAST = 0.5  # of a label's least share, 1 over all tokens
_HALVINGS = 60
_NORMAL = 1.4826  # a normal distribution's standard deviation, in median absolute deviations


def check_bag(update: Mapping[str, Tensor], model: nn.Module) -> None:
    """Raise, from shapes alone, where an update holds nothing to count words by.

    Raises:
        NotApplicable: the model reads no text, or a gradient is missing.
    """
    parts = TextVictim.of(model).anatomy
    wanted = {parts.token_embedding, parts.decoder.weight.name}
    if parts.decoder.bias is not None:
        wanted.add(parts.decoder.bias.name)
    if missing := sorted(wanted - set(update)):
        raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")


def bag(
    update: Mapping[str, Tensor],
    model: nn.Module,
    count: int,
    *,
    sequences: int = 1,
    cut: float = 5.0,
) -> Tensor:
    """Return all tokens of an update with their multiplicities, ascending, (count,) int64.

    A causal model counts every token but the first of each sequence as a label; of the first ones
    those are known that are no label anywhere, and the others are drawn to the frequent words. A
    masked model counts the masked tokens so; those it reads are counted along the mean gradient of
    their embeddings.

    Args:
        update: gradients by name.
        model: the victim as the server knows it.
        count: tokens of all sequences together.
        sequences: how many there are.
        cut: how many standard deviations of the log-norms of absent rows a row must stand out.
    """
    parts = TextVictim.of(model).anatomy
    decoded = _decoded(update, model, parts, cut)
    present = _present(update, parts, decoded, cut)
    if not present.any():
        present = torch.ones_like(present)
    if parts.masked:
        counts = _masked(update, model, decoded, present, count)
    else:
        predicted = count - sequences
        shares = decoded.shares * present
        labels = _counted(shares / shares.sum() * predicted, present, predicted)
        firsts = _counted(labels * (sequences / max(predicted, 1)), present, sequences, labels < 1)
        counts = labels + firsts
    return torch.arange(len(counts)).repeat_interleave(counts)


@dataclass(frozen=True)
class _Decoded:
    """What the decoder's gradient tells.

    Attributes:
        feature: (width,), the mean of h over predicted places.
        shares: (vocabulary,), of each label among them.
        rest: (vocabulary, width), the weight's gradient less that of a token which is no label.
    """

    feature: Tensor
    shares: Tensor
    rest: Tensor


def _decoded(
    update: Mapping[str, Tensor], model: nn.Module, parts: TextAnatomy, cut: float
) -> _Decoded:
    """Return what the decoder's gradient tells, from rows of tokens that do not occur."""
    weight, bias = parts.decoder.weight, parts.decoder.bias
    gradient, table = weight.of(update), weight.of(weights(model))
    sizes = gradient.norm(dim=1).clamp_min(torch.finfo(gradient.dtype).tiny).log()
    absent = sizes <= sizes.mean() + _QUIET * sizes.std()
    slope = None if bias is None else bias.of(update)
    chance = torch.full_like(sizes, 1 / len(sizes))
    for _ in range(_PASSES):
        mass = (chance if slope is None else slope)[absent].sum()
        feature = gradient[absent].sum(0) / mass
        logits = table @ feature
        chance = (logits if bias is None else logits + bias.of(weights(model))).softmax(0)
        rest = gradient - torch.outer(chance, feature)
        absent = ~_outstanding(rest, cut)
    shares = -(rest @ feature) / feature.square().sum() if slope is None else chance - slope
    return _Decoded(feature.nan_to_num(), shares.nan_to_num(), rest.nan_to_num())


def _present(
    update: Mapping[str, Tensor], parts: TextAnatomy, decoded: _Decoded, cut: float
) -> Tensor:
    """Return which tokens occur, (vocabulary,) bool."""
    found = _outstanding(decoded.rest, cut)
    return found if parts.tied else found | _outstanding(update[parts.token_embedding], cut)


def _outstanding(rows: Tensor, cut: float) -> Tensor:
    """Return which rows stand out of the most by their norms; where most are zero, all others."""
    sizes = rows.norm(dim=1).clamp_min(torch.finfo(rows.dtype).tiny).log()
    middle = sizes.median()
    return sizes > middle + cut * _NORMAL * (sizes - middle).abs().median()


def _masked(
    update: Mapping[str, Tensor],
    model: nn.Module,
    decoded: _Decoded,
    present: Tensor,
    count: int,
) -> Tensor:
    """Return how often each token occurs, masked or not, (vocabulary,) int64.

    The gradient of all embeddings together is that of the token types. Along its mean every row
    counts itself, roughly. Rows that hold no label do so better by their squares, to which the mean
    adds with the square of the number, and what differs from place to place with the number
    itself. Rows of labels are not cleared of the decoder's part wholly and share what is left.
    """
    model = TextVictim.of(model)
    mask = model.spec.mask_token
    read = present.clone()
    read[mask] = False
    shares = decoded.shares * read
    shares = torch.where(shares > _LEAST / count, shares, 0)
    once = float(shares[shares > 0].min()) if shares.any() else 1.0  # of a token masked once
    labels = (shares / once).round()
    predicted = min(count - 1, int(labels.sum()))
    embedded = decoded.rest + torch.outer(labels / max(predicted, 1), decoded.feature)
    types = TextVictim.of(model).anatomy.token_types
    assert types is not None
    left = count - predicted
    mean = (update[types][0] - embedded[mask]) / left
    strength = mean.square().sum()
    numbers = (embedded @ mean / strength).nan_to_num()
    alone, labelled = read & (labels < 1), read & (labels > 0)
    sure = float(numbers[alone].sum().clamp(0, left))
    numbers[alone] = _by_squares(embedded[alone].square().sum(1) / strength, sure)
    guessed = numbers[labelled].clamp_min(0)
    numbers[labelled] = guessed * ((left - sure) / guessed.sum())
    inputs = _counted(numbers.nan_to_num(), read, left, alone)
    return labels.long().cpu() + inputs


def _by_squares(squares: Tensor, total: float) -> Tensor:
    """Return the n of `squares = n^2 + b n`, b >= 0 such that they sum to the total if they can."""
    low, high = 0.0, 1.0 + float(squares.sum())
    for _ in range(_HALVINGS):
        b = (low + high) / 2
        numbers = ((b * b + 4 * squares).sqrt() - b) / 2
        low, high = (b, high) if float(numbers.sum()) > total else (low, b)
    return numbers


def _counted(quotas: Tensor, among: Tensor, total: int, least: Tensor | None = None) -> Tensor:
    """Return the counts nearest to quotas in squares, (vocabulary,) int64.

    Args:
        quotas: (vocabulary,) float.
        among: (vocabulary,) bool, the tokens that may be counted.
        total: the sum of the counts.
        least: (vocabulary,) bool, which of them occur once at least, as far as the total goes.
    """
    chosen = among.nonzero()[:, 0]
    wanted = quotas[chosen].double().cpu()
    if least is not None:
        wanted = wanted.where(~least[chosen].cpu(), wanted.clamp_min(1))
    whole = torch.zeros(len(quotas), dtype=torch.int64)
    whole[chosen.cpu()] = nearest_counts(wanted, total)
    return whole
