"""Labels read off the gradient of a victim's head, without reconstructing anything.

For logits `W h_i + b` and the mean cross-entropy of a batch of B images, with p_ic the predicted
probabilities, the head's gradients are

    bias_c = mean_i (p_ic - [y_i = c]) = p_c - count_c / B,    p_c = mean_i p_ic
    weight_c = mean_i (p_ic - [y_i = c]) h_i

A rule takes the gradients of one update by name and the head's prefix (`model.head`), and
returns sorted labels, (batch,) int64. Every rule raises NotApplicable where the update lacks what
it reads, and ValueError where that is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from benchmark.contract import Observation
from benchmark.errors import NotApplicable
from benchmark.toolbox.counts import nearest_counts
from benchmark.victims import ImageVictim, layer_inputs, weights

_PASSES = 3  # the counts of undefended updates settle in two or three; noise grows with more


def infer_labels(seen: Observation) -> Tensor:
    """Return the labels of one trial, sorted, (batch,) int64: granted, or else inferred.

    One image: `sign_rule`; more: `count_rule`.

    Raises:
        NotApplicable: the update or the victim is none to read labels from.
        WithheldError: neither labels nor batch size are granted.
        ValueError: the head's gradients are not finite.
    """
    check_labels(seen)
    if seen.knowledge.labels is not None:
        return seen.labels.sort().values
    head = ImageVictim.of(seen.model).head
    if seen.batch_size == 1:
        return sign_rule(seen.update, head, 1)
    return count_rule(seen.update, head, seen.batch_size, weights(seen.model))


def check_labels(seen: Observation) -> None:
    """Raise, from shapes alone, what `infer_labels` would; for an attack's `applies`.

    Raises:
        NotApplicable: the update or the victim is none to read labels from.
        WithheldError: neither labels nor batch size are granted.
    """
    if seen.knowledge.labels is not None:
        return
    victim = ImageVictim.of(seen.model)
    if seen.batch_size == 1:
        _one_image(seen.update, victim.head)
        return
    if "dist_token" in victim.weights():
        raise NotApplicable("the logits are the mean of two heads; wanted one head to count labels")
    for name in ("weight", "bias"):
        _held(seen.update, f"{victim.head}.{name}")


def sign_rule(update: Mapping[str, Tensor], head: str, batch_size: int) -> Tensor:
    """Return the label of one image: exact, as only its own class has a negative entry.

    Zhao et al. (2020, iDLG): the negative entry of the bias gradient; without it the row of the
    weight gradient whose inner products with the other rows are negative.
    """
    if batch_size != 1:
        raise NotApplicable(f"a batch of {batch_size}; the sign rule wants one image")
    name = _one_image(update, head)
    gradient = _finite(update, name)
    if name.endswith(".bias"):
        return gradient.argmin(dim=0, keepdim=True)
    return (gradient @ gradient.T < 0).sum(1).argmax(dim=0, keepdim=True)


def minimum_rule(update: Mapping[str, Tensor], head: str, batch_size: int) -> Tensor:
    """Return distinct labels by the least entries of the weight gradient's rows.

    Yin et al. (2021, GradInversion): the classes with the smallest minimum over the features. The
    paper argues from features behind a ReLU: where h >= 0, only the row of a true class can be
    negative. A transformer's features have both signs, so every row has negative entries, of the
    size of p_c |h| for an absent class and of (1 / B - p_c) |h| for a true one: right where
    probabilities are far below 1 / (2 B), as in an untrained victim of 1000 classes, and little
    better than chance for 10 classes on Architecture B.
    """
    return _smallest(_finite(update, f"{head}.weight").min(dim=1).values, batch_size)


def count_rule(
    update: Mapping[str, Tensor], head: str, batch_size: int, known: Mapping[str, Tensor]
) -> Tensor:
    """Return labels, repeated ones too, by `count_c = B (p_c - bias_c)` with p_c estimated.

    Weight and bias gradients are sums of the same coefficients, so the quotient of their sums over
    any classes is a weighted mean of the batch's own features; over the classes of positive bias
    entries (or, the same, of the negative ones) the weights are nearly equal. The head's
    prediction there estimates p; counts are its nearest integers with sum B. Then, in turn,
    counts give each true class a mean feature, `(mean_i p_ic h_i - weight_c) B / count_c`, and
    predictions on those a better p (Ma et al., 2023, iLRG, read class features likewise).
    Good where features of one class predict alike, as random weights do; a trained victim that is
    sure of its images leaves next to no gradient, and counts that are often wrong.

    Args:
        update: gradients by name.
        head: the head's prefix.
        batch_size: images in the batch.
        known: the server's weights by name, of which those of the head are read.
    """
    gradient, bias_gradient = (
        _finite(update, f"{head}.{name}").double() for name in ("weight", "bias")
    )
    weight, bias = (known[f"{head}.{name}"].to(gradient) for name in ("weight", "bias"))
    positive = bias_gradient > 0
    mass = bias_gradient[positive].sum().clamp_min(torch.finfo(torch.float64).tiny)
    feature = gradient[positive].sum(0) / mass  # (width,)
    mean = (weight @ feature + bias).softmax(0)  # (classes,)
    weighted = torch.outer(mean, feature)  # mean_i p_ic h_i, (classes, width)
    counts = nearest_counts(batch_size * (mean - bias_gradient), batch_size)
    for _ in range(_PASSES):
        true = counts.nonzero()[:, 0]
        share = counts[true, None] / batch_size
        features = (weighted[true] - gradient[true]) / share  # (true classes, width)
        predicted = (features @ weight.T + bias).softmax(1)  # (true classes, classes)
        mean, weighted = (share * predicted).sum(0), predicted.T @ (share * features)
        counts = nearest_counts(batch_size * (mean - bias_gradient), batch_size)
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts)


def labels_of_images(seen: Observation, images: Tensor) -> Tensor:
    """Return each image's own label (batch,) int64, where the images are known but for a little.

    What the head reads of them, h_i, is then known too, and of `weight_c = sum_i d_ic h_i` the
    coefficients `d_ic = (p_ic - [y_i = c]) / B` alone are not: a least-squares solve. Only an
    image's own class has a negative one.

    Args:
        seen: an observation of their update.
        images: (batch, channel, size, size), pixels in [0, 1].
    """
    victim = ImageVictim.of(seen.model)
    head = victim.network.get_submodule(victim.anatomy.head)
    with torch.no_grad(), layer_inputs(head, stop=True) as read:
        victim(images.to(victim.mean))
    gradient = _finite(seen.update, f"{victim.anatomy.head}.weight").double()
    found = torch.linalg.lstsq(read[0].double().T, gradient.T, driver="gelsd").solution
    return found.argmin(dim=1)


def _smallest(scores: Tensor, batch_size: int) -> Tensor:
    if batch_size > len(scores):
        raise NotApplicable(f"{batch_size} distinct labels wanted of {len(scores)} classes")
    return scores.topk(batch_size, largest=False).indices.sort().values


def _one_image(update: Mapping[str, Tensor], head: str) -> str:
    """Return the name of the gradient that tells the label of one image."""
    if f"{head}.bias" in update:
        return f"{head}.bias"
    if len(_held(update, f"{head}.weight")) == 2:
        raise NotApplicable(f"without {head}.bias the rows of two classes are alike")
    return f"{head}.weight"


def _held(update: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in update:
        raise NotApplicable(f"the update holds no {name}; labels are read from the head's gradient")
    return update[name]


def _finite(update: Mapping[str, Tensor], name: str) -> Tensor:
    gradient = _held(update, name)
    if not bool(gradient.isfinite().all()):
        raise ValueError(f"the update's {name} is not finite; labels cannot be inferred")
    return gradient
