"""Tokens and whole sequences read off the spans of the first two attentions' gradients.

The rows of an attention's q, k and v gradients are sums of its inputs, so every input that sends
gradient lies in their row space. An input of the first attention is a function of one token and
its position alone, and an input of the second a function of the sequence: each can be tested
against the span, without any search in the tokens' values.

Sources: mathematics derived for this benchmark; Petrov et al. (NeurIPS 2024, DAGER), who test
whole sequences at the second attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.errors import NotApplicable
from benchmark.toolbox.closedform.solve import exact, row_space
from benchmark.victims import LinearLayer, TextBlock, TextVictim, layer_inputs, weights

CLEAR = 0.1
"""A residual is beyond doubt below this share of the best one known to be wrong."""
_EXPLAINED = 0.5  # halfway between a row that is no label and one that is
_ROWS = 8192  # of the vocabulary at a time: some 50 MB in float64


def reads_whole(model: nn.Module) -> bool:
    """Tell whether every place of the model sees the whole sequence, as in an encoder."""
    return TextVictim.of(model).anatomy.masked


def label_places(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return which tokens (batch, length) the model reads nothing of: they are labels alone.

    The last ones of a causal model, and those that stand masked.
    """
    if reads_whole(model):
        model = TextVictim.of(model)
        assert model.spec.mask_token is not None
        return tokens == model.spec.mask_token
    places = torch.zeros_like(tokens, dtype=torch.bool)
    places[:, -1] = True
    return places


def predicted_places(model: nn.Module, batch: int, length: int) -> int:
    """Return how many places of a batch send gradient into the first attention at most."""
    return batch * (length if reads_whole(model) else length - 1)


def check_spans(
    update: Mapping[str, Tensor], model: nn.Module, batch: int, length: int, blocks: int
) -> None:
    """Raise, from shapes alone, where the spans of the first blocks tell nothing.

    Raises:
        NotApplicable: the span is the whole space, or a gradient or a block is missing.
    """
    parts, rank = TextVictim.of(model).anatomy, predicted_places(model, batch, length)
    if rank < 1:
        raise NotApplicable(f"sequences of {length} token predict nothing")
    if rank >= parts.width:
        raise NotApplicable(f"{rank} places span the whole width of {parts.width}")
    if len(parts.blocks) < blocks:
        raise NotApplicable(f"{len(parts.blocks)} block; sequences are told apart by the second")
    read = [linear for block in parts.blocks[:blocks] for linear in _attention(block)]
    wanted = {linear.weight.name for linear in (*read, parts.decoder)}
    if missing := sorted(wanted - set(update)):
        raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")


def attention_gradient(update: Mapping[str, Tensor], model: nn.Module, block: int) -> Tensor:
    """Return the gradients of one attention's query, key and value, (3 width, width)."""
    linears = _attention(TextVictim.of(model).anatomy.blocks[block])
    return torch.cat([linear.weight.of(update) for linear in linears])


def attention_span(
    update: Mapping[str, Tensor],
    model: nn.Module,
    block: int,
    rank: int,
    generator: torch.Generator,
) -> Tensor:
    """Return an orthonormal basis (width, r) in float64 of one attention's inputs, r <= rank."""
    return row_space(attention_gradient(update, model, block), rank, generator)


def off_span(span: Tensor, inputs: Tensor) -> Tensor:
    """Return what inputs (..., width), scaled to norm 1, leave off a span, (..., width)."""
    inputs = functional.normalize(exact(inputs), dim=-1)
    return inputs - (inputs @ span) @ span.T


def token_candidates(
    model: nn.Module, span: Tensor, length: int, keep: int
) -> tuple[Tensor, Tensor]:
    """Return each position's `keep` tokens nearest to the first attention's span, and how near.

    Every pair of vocabulary and position is judged. A norm of `token + position` is a scale of a
    sum, so all squares come from inner products of the two parts, before and after projection: one
    (vocabulary x width) by (width x rank) product, and no pair is ever formed.

    Returns:
        tokens (length, keep) int64 and residuals (length, keep) ascending, shares of the norm.
    """
    entrance = TextEntrance.of(model, length)
    table = entrance.table
    parts = (table[start : start + _ROWS] for start in range(0, len(table), _ROWS))
    found = torch.cat([entrance.residuals(rows, span) for rows in parts])
    nearest = found.topk(min(keep, len(table)), dim=0, largest=False)
    return nearest.indices.T, nearest.values.T.sqrt()


@dataclass(frozen=True)
class TextEntrance:
    """What makes an input of the first attention of a token and a position.

    Attributes:
        table: (vocabulary, width), tokens before position and norm.
        offsets: (length, width), positions and, where there are any, the first token type.
        scale: (width,) of the norm; None where the attention reads plain sums.
        shift: (width,) of the norm, zero without one.
        epsilon: of the norm.
    """

    table: Tensor
    offsets: Tensor
    scale: Tensor | None
    shift: Tensor
    epsilon: float

    @staticmethod
    def of(model: nn.Module, length: int) -> TextEntrance:
        """Read a victim's, in float64 but for the table."""
        model = TextVictim.of(model)
        parts, known = model.anatomy, weights(model)
        with torch.no_grad():
            everything = torch.arange(parts.vocabulary, device=known[parts.token_embedding].device)
            table = model.embed(everything[None])[0]
        offsets = exact(known[parts.position][:length])
        if parts.token_types is not None:
            offsets = offsets + exact(known[parts.token_types][0])
        name = parts.blocks[0].attention_norm if parts.pre_norm else parts.embedding_norm
        if name is None:
            return TextEntrance(table, offsets, None, offsets.new_zeros(parts.width), 0.0)
        norm: Any = model.network.get_submodule(name)
        return TextEntrance(table, offsets, exact(norm.weight), exact(norm.bias), norm.eps)

    def inputs(self, tokens: Tensor) -> Tensor:
        """Return what tokens (length, k) make the attention read, (length, k, width) float64."""
        summed = exact(self.table[tokens]) + self.offsets[:, None]
        if self.scale is None:
            return summed + self.shift
        summed = summed - summed.mean(2, keepdim=True)
        spread = (summed.square().mean(2, keepdim=True) + self.epsilon).sqrt()
        return summed / spread * self.scale + self.shift

    def summands(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """Return what words (n,) and positions add to an input, (n, width) and (length, width).

        The norm divides their sum by a scale of its own for each pair, and adds its shift.
        """
        a, b = exact(self.table[words]), self.offsets
        if self.scale is None:
            return a, b
        a, b = (self.scale * (part - part.mean(1, keepdim=True)) for part in (a, b))
        return a, b

    def residuals(self, rows: Tensor, span: Tensor) -> Tensor:
        """Return the squared residuals (rows, length) of some rows of the table."""
        a, b, c = exact(rows), self.offsets, self.shift
        spread = torch.ones((), dtype=a.dtype)
        if self.scale is not None:
            a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
            spread = (_squares(a, b, 0 * c, spread) / len(c) + self.epsilon).sqrt()
            a, b = a * self.scale, b * self.scale
        whole = _squares(a, b, c, spread)
        inside = _squares(a @ span, b @ span, c @ span, spread)
        return ((whole - inside) / whole).clamp(0, 1)


def _squares(a: Tensor, b: Tensor, c: Tensor, spread: Tensor) -> Tensor:
    """Return |(a_v + b_t) / spread_vt + c|^2 for every v and t."""
    summed = a.square().sum(1)[:, None] + b.square().sum(1) + 2 * a @ b.T
    return summed / spread.square() + 2 * ((a @ c)[:, None] + b @ c) / spread + c @ c


def label_scores(
    update: Mapping[str, Tensor], model: nn.Module, tokens: Tensor, wanted: Tensor
) -> Tensor:
    """Return how much each token looks like the label of each place that is a label alone.

    The gradient of the decoder's row v is the mean over predicted places of (p_v - [label = v]) h,
    h the decoder's input. Inputs and probabilities are those of the model on the tokens read, so
    what remains after them is a sum of known features, one a place, and least squares tells
    whose: 1 for the label, 0 for others. In a tied table the rows of tokens read add the gradient
    of their embedding, which no feature explains: theirs are near 1 or 0, and 0 where another
    row explains the place.

    Args:
        update: gradients by name.
        model: the victim as the server knows it.
        tokens: (batch, length), what the victim reads; a causal one does not heed the last.
        wanted: (batch, length) bool, the places whose tokens are labels alone.

    Returns:
        (vocabulary, places) float64, places in the order of `wanted`.
    """
    model = TextVictim.of(model)
    decoder = model.anatomy.decoder
    features, logits = _decoded(model, tokens)
    if reads_whole(model):
        predicted, labels, asked = wanted, tokens, wanted
    else:
        predicted, labels = torch.ones_like(tokens[:, 1:], dtype=torch.bool), tokens[:, 1:]
        features, logits, asked = features[:, :-1], logits[:, :-1], wanted[:, 1:]
    chosen = asked[predicted]
    features, logits, labels = features[predicted], logits[predicted], labels[predicted]
    inverse = torch.linalg.pinv(exact(features[chosen]))  # (width, asked)
    shares = exact(features) @ inverse  # (predicted, asked): each place's h in the asked ones
    score = exact(logits.softmax(1).T @ shares.to(logits))
    score.index_add_(0, labels[~chosen].cpu(), -shares[~chosen])
    gradient = decoder.weight.of(update)
    score -= len(shares) * exact(gradient @ inverse.to(gradient))
    if model.spec.mask_token is not None:
        score[model.spec.mask_token] = 0.0  # never a label, and its embedding's gradient is large
    if model.anatomy.tied:
        doubtful = torch.zeros(len(score), dtype=torch.bool)
        doubtful[tokens[~wanted]] = True
        score[doubtful[:, None] & (score[~doubtful].amax(0) > _EXPLAINED)] = 0.0
    return score


def _decoded(model: TextVictim, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the decoder's inputs (batch, length, width) and the logits."""
    table = model.network.get_parameter(model.anatomy.decoder.weight.name)
    linears = (part for part in model.network.modules() if isinstance(part, nn.Linear))
    decoder = next(part for part in linears if part.weight is table)
    with torch.no_grad(), layer_inputs(decoder) as read:
        logits = model(tokens.to(table.device))
    return read[0], logits


def _attention(block: TextBlock) -> Iterator[LinearLayer]:
    yield from (block.query, block.key, block.value)
