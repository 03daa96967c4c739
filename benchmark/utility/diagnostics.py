"""How much a victim hangs on positions, as Masked Jigsaw Puzzles measures it (arXiv 2205.12551).

Of images and their shuffled counterparts: Diff. Norm and Consistency (their section 5.1). Of the
table of positions: explained variance and accumulated eigenvalues (Table 7, Fig. 3), and how well
a linear map finds a patch's place (Table 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmark.contract import Defense, ImageBatch
from benchmark.seeds import generator
from benchmark.victims import ImageVictim, layer_inputs, weights

_FOLDS = 5
_DIMENSIONS = range(3, 8)  # that shares of variance are told of


def diagnose(
    victim: ImageVictim, batch: ImageBatch, shuffler: Defense, draws: np.random.Generator
) -> dict[str, float]:
    """Return all of them by name, of a trained victim; of one that diverged none.

    Args:
        victim: the victim.
        batch: images it was not trained on.
        shuffler: a defense that shuffles them.
        draws: of the shuffler.
    """
    shuffled = shuffler.protect_batch(batch, victim, draws)
    assert isinstance(shuffled, ImageBatch)
    found = compare_shuffled(victim, batch, shuffled)
    if not math.isfinite(found.difference):
        return {}
    told = {"consistency": found.consistency, "difference": found.difference}
    if not patch_positions(victim).any():  # a victim that knows no places
        return told
    variance, values = explained_variance(victim), accumulated_eigenvalues(victim)
    for count in (n for n in _DIMENSIONS if n <= len(variance)):
        told[f"explained_variance_{count}"] = float(variance[count - 1])
        told[f"accumulated_eigenvalues_{count}"] = float(values[count - 1])
    return told | {f"position_error_{d}d": position_error(victim, d) for d in (1, 2)}


@dataclass(frozen=True)
class Shuffled:
    """What shuffling changes.

    Attributes:
        difference: squared L2 norm of what it does to the features that the head reads, the class
            token's, averaged over images: Diff. Norm.
        consistency: share of images whose label stays.
    """

    difference: float
    consistency: float


def compare_shuffled(victim: ImageVictim, batch: ImageBatch, shuffled: ImageBatch) -> Shuffled:
    """Compare what a victim makes of images and of their counterparts.

    Args:
        victim: the victim.
        batch: the images.
        shuffled: the same, shuffled, with their masks where the victim has an unknown position.
    """
    features, labels = zip(*(_read(victim, each) for each in (batch, shuffled)), strict=True)
    apart = (features[0] - features[1]).square().sum(1).mean()
    return Shuffled(float(apart), float((labels[0] == labels[1]).double().mean()))


def accumulated_eigenvalues(victim: ImageVictim) -> Tensor:
    """Return the share (n,) of the leading singular values of the patches' positions in all.

    The positions are taken as they are; see `explained_variance` for those about their mean.
    """
    values = torch.linalg.svdvals(patch_positions(victim))
    return values.cumsum(0) / values.sum()


def explained_variance(victim: ImageVictim) -> Tensor:
    """Return the share (n,) of the positions' variance in so many principal directions."""
    table = patch_positions(victim)
    variance = torch.linalg.svdvals(table - table.mean(0)).square()
    return variance.cumsum(0) / variance.sum()


def position_error(victim: ImageVictim, dimensions: int) -> float:
    """Return the mean absolute error of patches' places by a linear map, in five-fold validation.

    Args:
        victim: the victim.
        dimensions: 1, the place in reading order, or 2, the row and the column; in patches.
    """
    table = patch_positions(victim).numpy()
    side = round(len(table) ** 0.5)
    places = np.arange(len(table), dtype=np.float64)[:, None]
    if dimensions == 2:
        places = np.concatenate([places // side, places % side], axis=1)
    order = torch.randperm(len(table), generator=generator(0, "folds")).numpy()
    errors = [
        _misses(table, places, np.setdiff1d(order, held), held)
        for held in np.array_split(order, _FOLDS)
    ]
    return float(np.concatenate(errors).mean())


def patch_positions(victim: ImageVictim) -> Tensor:
    """Return the positions of the patches, (patches, width) float64."""
    parts = victim.anatomy
    return weights(victim)[parts.position][0, parts.position_offset :].cpu().double()


def _misses(
    table: NDArray[np.float64],
    places: NDArray[np.float64],
    fitted: NDArray[np.int64],
    held: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return absolute errors on rows held out of a least-squares fit with an intercept."""
    centre, origin = table[fitted].mean(0), places[fitted].mean(0)
    found = np.linalg.lstsq(table[fitted] - centre, places[fitted] - origin, rcond=None)[0]
    return np.asarray(np.abs((table[held] - centre) @ found + origin - places[held]))


def _read(victim: ImageVictim, batch: ImageBatch) -> tuple[Tensor, Tensor]:
    """Return the features (batch, width) that the head reads, and the labels it tells."""
    masked = None if batch.masked is None else batch.masked.to(victim.device)
    head = victim.network.get_submodule(victim.head)
    with torch.inference_mode(), layer_inputs(head) as read:
        labels = victim(batch.images.to(victim.device), masked).argmax(1)
    return read[0].cpu().double(), labels.cpu()
