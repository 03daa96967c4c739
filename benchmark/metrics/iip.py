"""Image identifiability precision of Yin et al. (CVPR 2021) and GradViT (Hatamizadeh et al., 2022).

Whether a reconstruction gives away which of many known images it is of. GradViT's appendix takes
one image each of 15,000 people of MS-Celeb-1M and the features of a ResNet-50. The papers name no
distance: it is the Euclidean one here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MOST_CANDIDATES = 15_000
"""GradViT's number of people; of a smaller split every image is a candidate."""
_SAME = 1e-4  # of a feature's length: nearer is the truth itself, or a copy, rounded otherwise
_AT_ONCE = 64  # images embedded
_PIXELS = 32  # side to which `pixels` averages


class Candidates:
    """The images among which a reconstruction is sought, held as features.

    Args:
        images: rows to (rows, channel, height, width), pixels in [0, 1]; asked for each row once,
            when the first reconstruction is sought.
        rows: (candidates,) int64.
        embed: images to features, (n, channel, height, width) to (n, features).
    """

    def __init__(
        self, images: Callable[[Tensor], Tensor], rows: Tensor, embed: Callable[[Tensor], Tensor]
    ) -> None:
        self._images, self._rows, self._embed = images, rows, embed

    def features(self, images: Tensor) -> Tensor:
        """Return the features of images, (n, features) float32 on the CPU."""
        return self._embed(images.float()).cpu().float()

    @cached_property
    def known(self) -> Tensor:
        """The candidates' features, (candidates, features) float32."""
        import torch

        parts = torch.split(self._rows, _AT_ONCE)
        return torch.cat([self.features(self._images(part)) for part in parts])


def candidate_rows(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Draw which images of a split are candidates: an image of each label first, then others.

    Args:
        labels: (N,) int64, of the split.
        generator: of the draw.

    Returns:
        (at most 15,000,) int64, indices in rising order.
    """
    import numpy as np
    import torch

    order = torch.randperm(len(labels), generator=generator).numpy()
    first = np.sort(np.unique(labels.numpy()[order], return_index=True)[1])
    drawn = np.concatenate([order[first], np.delete(order, first)])[:MOST_CANDIDATES]
    return torch.from_numpy(np.sort(drawn))


def pixels(images: Tensor) -> Tensor:
    """Return images as features of their own: the pixels, averaged to sides of 32 at most."""
    from torch.nn.functional import adaptive_avg_pool2d

    height, width = (min(side, _PIXELS) for side in images.shape[2:])
    return adaptive_avg_pool2d(images, (height, width)).flatten(1)


def iip(truth: Tensor, image: Tensor, candidates: Candidates | None) -> float | None:
    """Return 1 where no candidate but the truth is nearest to the reconstruction, else 0.

    The truth is a candidate whether it was drawn or not; a tie with another is no match.

    Args:
        truth: (channel, height, width), pixels in [0, 1].
        image: as truth.
        candidates: of the protocol's private split, in the protocol's embedding.

    Returns:
        0 or 1; None where the protocol states no embedding, or its weights cannot be had.
    """
    if candidates is None:
        return None
    own, found = candidates.features(truth[None]), candidates.features(image[None])
    others = candidates.known[_distances(own, candidates.known) > _SAME * own.norm()]
    return float((_distances(found, others) > _distances(found, own)).all())


def _distances(one: Tensor, many: Tensor) -> Tensor:
    """Return (many,) distances of features, not by a product, which would cancel near ones."""
    import torch

    return torch.cdist(one, many, compute_mode="donot_use_mm_for_euclid_dist")[0]


IIP = Metric(
    "iip",
    "",
    "higher",
    "share of images nearest to their own reconstruction, of at most 15,000 (GradViT's IIP)",
    iip,
    given=("candidates",),
    note=(
        "GradViT seeks among 15,000 people by the features of a ResNet-50. Here candidates are of "
        "the private split (200 images of ORL) and, where the protocol's embedding is `pixels`, "
        "features are the pixels averaged to 32 x 32: an easier search, and another number."
    ),
)
