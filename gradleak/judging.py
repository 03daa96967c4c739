"""What a reconstruction comes to: scores beside the truth, else how it explains the update.

    exact                      every pixel to a level of 8 bits, every token in its place
    partly                     more than an answer without the update
    nothing beyond the prior   no more than that
    not testable               the attack did not run, or nothing tells how good its answer is

No verdict says that a model is safe: another attack may read what these did not.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm

from benchmark.contract import Batch, ImageBatch, Observation, Reconstruction, TextBatch
from benchmark.errors import NotApplicable
from benchmark.federation import Client, fedsgd
from benchmark.metrics import ImageScorer, TextScorer
from benchmark.seeds import generator
from benchmark.toolbox.labels import labels_of_images
from benchmark.victims import ImageVictim, TextVictim

Verdict = Literal["exact", "partly", "nothing beyond the prior", "not testable"]

LEVEL = 20 * math.log10(255)
"""dB of PSNR at which the error is that of one level of 8 bits: 48.13."""
LEAD = 1.0
"""dB over the prior that the board calls a leak."""
SHARE = 0.05
"""Of tokens over the prior that the board calls a leak."""
CONSISTENT = 1e-2
"""Of the update's norm: a distance that rounding of weights and gradients leaves."""


def score_images(truth: Tensor, images: Tensor, std: tuple[float, ...]) -> dict[str, float | None]:
    """Return PSNR in dB and SSIM of images in any order, (batch, channel, height, width)."""
    return ImageScorer(("psnr", "ssim"), std).score(truth, images)


def score_tokens(truth: Tensor, tokens: Tensor) -> dict[str, float | None]:
    """Return the shares of tokens right in id and place, and of those found anywhere."""
    scorer = TextScorer(("total_accuracy", "token_accuracy"), lambda ids: " ".join(map(str, ids)))
    return scorer.score(truth, tokens)


def judge_images(scores: dict[str, float | None], prior: dict[str, float | None]) -> Verdict:
    """Return the verdict on images beside the truth."""
    psnr, floor = scores["psnr"] or 0.0, prior["psnr"] or 0.0
    if psnr >= LEVEL:
        return "exact"
    return "partly" if psnr > floor + LEAD else "nothing beyond the prior"


def judge_tokens(scores: dict[str, float | None], prior: dict[str, float | None]) -> Verdict:
    """Return the verdict on tokens beside the truth."""
    if scores["total_accuracy"] == 1:
        return "exact"
    leads = [(scores[name] or 0.0) - (prior[name] or 0.0) for name in scores]
    return "partly" if max(leads) > SHARE else "nothing beyond the prior"


def judge_mismatch(mismatch: float | None, prior: float | None, track: str) -> Verdict:
    """Return the verdict where there is no truth, from distances of gradients to the update.

    Words without their places explain no update, so of text a large distance tells nothing.

    Args:
        mismatch: of the reconstruction, a share of the update's norm; None is unknown.
        prior: of an answer without the update.
        track: `vision` or `text`.
    """
    if mismatch is None:
        return "not testable"
    if mismatch <= CONSISTENT:
        return "exact"
    if prior is not None and mismatch < prior / 2:
        return "partly"
    return "nothing beyond the prior" if track == "vision" else "not testable"


def prior_answer(seen: Observation) -> Reconstruction:
    """Return an answer that reads no update: grey images, tokens drawn at random."""
    victim = seen.model
    if victim.track == "text":
        words, shape = TextVictim.of(victim).spec.vocabulary, (seen.batch_size, seen.length)
        draws = generator(0, "audit", "prior")
        return Reconstruction(tokens=torch.randint(words, shape, generator=draws))
    spec = ImageVictim.of(victim).spec
    grey = torch.full((seen.batch_size, spec.channels, spec.size, spec.size), 0.5)
    return Reconstruction(grey)


def mismatch_of(seen: Observation, answer: Reconstruction) -> float | None:
    """Return how far the update that an answer would make is from the one sent, over its norm.

    None where it cannot be told: labels cannot be had, tokens are missing, or the places that a
    masked model had to guess are unknown.
    """
    batch = _batch(seen, answer)
    return None if batch is None else distance(seen, batch)


def distance(seen: Observation, batch: Batch) -> float:
    """Return how far a batch's own update is from the one sent, over its norm."""
    client = Client(local=seen.knowledge.local)
    made = client.update(seen.model, batch, fedsgd, generator(0, "audit", "order"))
    apart = (made[name] - each for name, each in seen.update.items())
    norms = [float(vector_norm(each, dtype=torch.float64)) for each in apart]
    return math.hypot(*norms) / max(seen.update.norm(), 1e-30)


def _batch(seen: Observation, answer: Reconstruction) -> Batch | None:
    if answer.tokens is not None:
        masked = TextVictim.of(seen.model).masked
        return None if masked or (answer.tokens < 0).any() else TextBatch(answer.tokens)
    assert answer.images is not None
    images = answer.images.clamp(0, 1)
    try:
        labels = seen.knowledge.labels
        labels = labels_of_images(seen, images) if labels is None else labels
    except (NotApplicable, ValueError, KeyError, RuntimeError):
        return None
    return ImageBatch(images, labels)
