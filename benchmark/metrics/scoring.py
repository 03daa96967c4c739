"""The metrics in their order, and the scoring of one trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from benchmark.errors import PluginError, ProtocolError
from benchmark.metrics.base import Metric
from benchmark.metrics.fft2d import FFT2D
from benchmark.metrics.iip import IIP, Candidates
from benchmark.metrics.labels import LABEL_ACCURACY
from benchmark.metrics.lpips import LPIPS, LPIPS_SQUEEZE, LPIPS_VGG
from benchmark.metrics.mse import MSE, NORMALISED_MSE
from benchmark.metrics.pairing import assignment
from benchmark.metrics.psnr import PSNR
from benchmark.metrics.residual import RESIDUAL
from benchmark.metrics.ssim import SSIM
from benchmark.metrics.text import TOKEN_METRICS
from benchmark.metrics.text_overlap import OVERLAP_METRICS

if TYPE_CHECKING:
    from torch import Tensor

_FIRST = (PSNR, SSIM, MSE, NORMALISED_MSE, FFT2D, LPIPS)
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_FIRST,
        *(LPIPS_VGG, LPIPS_SQUEEZE, IIP, LABEL_ACCURACY),
        *TOKEN_METRICS,
        *OVERLAP_METRICS,
        RESIDUAL,
    )
}
IMAGE_METRICS = tuple(metric.name for metric in _FIRST)
"""What a protocol on images measures that names no metrics; part of digests, so never changed."""
TEXT_METRICS = tuple(name for name, metric in METRICS.items() if metric.of == "tokens")
"""What a protocol on text measures that names no metrics."""

OF_INPUT = "_input"
"""Ends the name of a score against what a defense made of the truth, and the client computed on."""


def metric(name: str) -> Metric:
    """Return a metric by its name, or raise ProtocolError naming those there are."""
    try:
        return METRICS[name]
    except KeyError:
        raise ProtocolError(f"metric {name!r} is unknown; known: {', '.join(METRICS)}") from None


def refuse_others(names: Iterable[str], *of: str) -> None:
    """Raise ProtocolError where a metric is unknown, or is of something else."""
    for name in names:
        if metric(name).of not in of:
            wanted = ", ".join(known for known in METRICS if METRICS[known].of in of)
            raise ProtocolError(f"metric {name} is of {metric(name).of}; wanted one of {wanted}")


@dataclass(frozen=True)
class Scorer:
    """Scores reconstructions of one victim's batches.

    Attributes:
        of: what its metrics are of.
        metrics: names, in the order of the answer; ProtocolError for one of something else.
    """

    of: ClassVar[tuple[str, ...]]
    metrics: tuple[str, ...]

    def __post_init__(self) -> None:
        refuse_others(self.metrics, *self.of)

    def given(self, chosen: Metric) -> dict[str, Any]:
        """Return what a metric takes besides truth and answer."""
        return {name: getattr(self, name) for name in chosen.given}


@dataclass(frozen=True)
class ImageScorer(Scorer):
    """Scores reconstructions of images, of their labels, and what a search tells of itself.

    Attributes:
        std: (channel,), of the victim's normalisation; its mean cancels in every difference.
        lpips_files: torchvision's weights by LPIPS's backbones; without them LPIPS is None.
        candidates: among which IIP seeks; without them it is None.
    """

    of: ClassVar = ("images", "labels", "search")
    std: tuple[float, ...]
    lpips_files: Mapping[str, Path] = field(default_factory=dict)
    candidates: Candidates | None = None

    def score(
        self,
        truth: Tensor,
        images: Tensor,
        labels: tuple[Tensor, Tensor] | None = None,
        residual: float | None = None,
    ) -> dict[str, float | None]:
        """Return each metric's mean over the batch, its images clipped to [0, 1] and paired.

        Args:
            truth: (batch, channel, height, width), pixels in [0, 1].
            images: as truth, in any order and on any device.
            labels: the true ones and those named, (batch,) int64; None where none were inferred.
            residual: what a search tells; None of other attacks.

        Returns:
            Name to number; None where the metric cannot be had.

        Raises:
            PluginError: the images have another shape than the truth, or are not finite.
            ProtocolError: the victim's normalisation has another number of channels.
        """
        self._check(truth, images)
        truth, images = truth.detach().cpu().double(), images.detach().cpu().double().clamp(0, 1)
        pairs = list(zip(truth, images[assignment(truth, images)], strict=True))
        scored: dict[str, Sequence[tuple[Any, ...]]] = {
            "images": pairs,
            "labels": [] if labels is None else [labels],
            "search": [] if residual is None else [(residual,)],
        }
        return {name: self._mean(metric(name), scored[metric(name).of]) for name in self.metrics}

    def _mean(self, chosen: Metric, pairs: Sequence[tuple[Any, ...]]) -> float | None:
        scores = [chosen.score(*pair, **self.given(chosen)) for pair in pairs]
        numbers = [score for score in scores if score is not None]
        return fmean(numbers) if numbers and len(numbers) == len(scores) else None

    def _check(self, truth: Tensor, images: Tensor) -> None:
        if images.shape != truth.shape:
            raise PluginError(
                f"reconstruction has shape {tuple(images.shape)}; wanted {tuple(truth.shape)}"
            )
        if not images.isfinite().all():
            raise PluginError("reconstruction holds NaN or infinity; wanted finite pixels")
        if len(self.std) != truth.shape[1]:
            raise ProtocolError(
                f"std has {len(self.std)} channels; wanted {truth.shape[1]}, as the images"
            )
