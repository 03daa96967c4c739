"""Gaussian noise on the update (APRIL, Lu et al., CVPR 2022, section 4.2, Fig. 6).

For images and text. The code, and the difference from the paper, are those of
`benchmark.toolbox.noise`.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.toolbox.noise import NoiseDefense, gaussian


@dataclass(frozen=True)
class GaussianNoise(NoiseDefense):
    """Independent noise of one standard deviation on every parameter."""

    draw = staticmethod(gaussian)
