"""What the equations leave open, filled by the least total variation of the whole image.

The most likely image under a `Posterior` and under Laplace's distribution of the pixels' gradients:
convex, and solved by reweighted least squares (scipy's conjugate gradients within).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from benchmark.toolbox.closedform.posterior import Posterior
from benchmark.victims import ImageVictim

_REWEIGHTINGS = 10
_ITERATIONS = 40  # of each
_TOLERANCE = 1e-3
_STILL = 1e-4  # mean change at which it ends, pixels of 0 to 1
_SMOOTH = 2e-3  # half a level: below it a gradient counts as none
_LENIENT = 4.0  # the scale of gradients over the mean's; 2 takes contrast, seen on test images
# first; then chosen among 2, 4 and 8 on nine public updates


@dataclass(frozen=True)
class Frame:
    """How patches (patches, pixels), normalised, stand in an image (channel, size, size)."""

    side: int
    patch: int
    scale: Tensor
    """(channel,), standard deviations of normalisation."""
    offset: Tensor
    """(channel,), means."""

    @classmethod
    def of(cls, victim: ImageVictim) -> Frame:
        """Return a victim's, whose patches do not overlap."""
        parts = victim.anatomy
        scale, offset = (
            part.detach().cpu().double().flatten() for part in (victim.std, victim.mean)
        )
        return cls(parts.size // parts.patch, parts.patch, scale, offset)

    def image(self, patches: Tensor) -> Tensor:
        """Return patches as an image, scaled and not shifted."""
        split = patches.view(self.side, self.side, len(self.scale), self.patch, self.patch)
        size = self.side * self.patch
        joined = split.permute(2, 0, 3, 1, 4).reshape(-1, size, size)
        return joined * self.scale[:, None, None]

    def patches(self, image: Tensor) -> Tensor:
        """Return the transpose of `image`, applied to an image."""
        scaled = image * self.scale[:, None, None]
        split = scaled.view(-1, self.side, self.patch, self.side, self.patch)
        return split.permute(1, 3, 0, 2, 4).reshape(self.side**2, -1)

    def pixels(self, patches: Tensor) -> Tensor:
        """Return patches (patches, pixels) as pixels of 0 to 1, still in patches."""
        return patches * self.each(self.scale) + self.each(self.offset)

    def normalised(self, pixels: Tensor) -> Tensor:
        """Return the inverse of `pixels`."""
        return (pixels - self.each(self.offset)) / self.each(self.scale)

    def each(self, channels: Tensor) -> Tensor:
        """Return channels (channel,) by the pixels of a patch, (pixels,)."""
        return channels.repeat_interleave(self.patch**2)


def complete(posterior: Posterior, frame: Frame, settled: Tensor | None = None) -> Tensor:
    """Return the likeliest patches (patches, pixels), by total variation within their posterior.

    The total variation is isotropic and joins the channels. Its scale is the image's own, as the
    posterior's mean has it: no image decides it, public or private.

    Args:
        posterior: of the patches.
        frame: how they make an image.
        settled: (patches, pixels) bool, pixels that stay at the mean.
    """
    posterior = posterior.open()
    free = torch.ones_like(posterior.mean) if settled is None else (~settled).double()
    first = frame.pixels(posterior.mean).clamp(0, 1)
    lengths = _lengths(_gradient(frame.image(frame.normalised(first))))
    scale = _LENIENT * lengths.mean().clamp_min(_SMOOTH) / len(frame.scale)
    draws, answer = torch.zeros_like(posterior.mean), posterior.mean
    for _ in range(_REWEIGHTINGS):
        lengths = (_lengths(_gradient(frame.image(answer))).square() + _SMOOTH**2).sqrt()
        draws = _least_squares(posterior, frame, 1 / (scale * lengths), free, draws)
        before, answer = answer, posterior.mean + free * posterior.errors(draws)
        if frame.image(answer - before).abs().mean() < _STILL:
            break
    return answer


def _least_squares(
    posterior: Posterior, frame: Frame, weights: Tensor, free: Tensor, draws: Tensor
) -> Tensor:
    """Return the draws of least square sum and least weighted square sum of gradients together."""

    def pull(patches: Tensor) -> Tensor:
        back = _divergence(weights * _gradient(frame.image(patches)))
        return posterior.errors(free * frame.patches(back))

    def normal(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        some = torch.from_numpy(flat).view_as(draws)
        return (some + pull(free * posterior.errors(some))).flatten().numpy()

    operator = LinearOperator((draws.numel(),) * 2, normal, dtype=np.float64)
    right, start = -pull(posterior.mean).flatten().numpy(), draws.flatten().numpy()
    found, _ = cg(operator, right, start, rtol=_TOLERANCE, maxiter=_ITERATIONS)
    return torch.from_numpy(found).view_as(draws)


def _gradient(image: Tensor) -> Tensor:
    """Return (2, channel, size, size): differences to the right and below, 0 at the edge."""
    found = image.new_zeros(2, *image.shape)
    found[0, :, :, :-1], found[1, :, :-1] = image.diff(dim=2), image.diff(dim=1)
    return found


def _divergence(gradient: Tensor) -> Tensor:
    """Return the transpose of `_gradient`, applied to one."""
    right, below = gradient[0, :, :, :-1], gradient[1, :, :-1]
    image = torch.zeros_like(gradient[0])
    image[:, :, 1:] += right
    image[:, :, :-1] -= right
    image[:, 1:] += below
    image[:, :-1] -= below
    return image


def _lengths(gradient: Tensor) -> Tensor:
    """Return the length of every pixel's gradient, over both directions and all channels."""
    return gradient.square().sum((0, 1)).sqrt()
