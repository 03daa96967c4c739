"""How far a number may move on another machine and still be the same answer.

On the same hardware, libraries and threads, and in a stack of the same trials, none may move at
all. Elsewhere sums are taken in another order, and what follows from the last bit of a float32 is
no change of the method. Every tolerance is here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmark.metrics import OF_INPUT


@dataclass(frozen=True)
class Tolerance:
    """A number may move by `absolute`, or by `relative` times itself, whichever is more."""

    absolute: float
    relative: float = 0.0

    def allows(self, recorded: float, again: float) -> bool:
        """Tell whether two numbers are one answer."""
        size = max(abs(recorded), abs(again))
        return abs(recorded - again) <= max(self.absolute, self.relative * size)


_ERROR = Tolerance(1e-6, 0.05)
"""A mean squared error; 1e-6 is that of 60 dB, beyond which rounding is most of what is left. Total
variation of a noisy photograph moved it by 4 % between two processors."""
_SHARE = Tolerance(1e-9)
"""A share of tokens or labels: they are the same or they are not."""
_SSIM_LOW, _LOW = Tolerance(0.03), 0.7
"""Of images that are not read: where little is determined, as of four images by a form for one,
kernels moved it by 0.022, and PSNR by 0.21 dB."""
_PSNR_UNREAD, _UNREAD = Tolerance(0.3), 20.0
_PSNR_BELOW, _PSNR_ABOVE, _EXACT = Tolerance(0.2), Tolerance(12.0), 60.0
_PSNR_ERROR = Tolerance(1e-7)
"""The same as a mean squared error: 0.4 dB at 60, where 16 bits round one way or the other."""
TOLERANCES = {
    # Searches of 100 steps moved it by 2.5e-4 between two processors, total variation of a noisy
    # photograph by 8e-4 between one thread and two.
    "ssim": Tolerance(1e-3),
    "mse": _ERROR,
    "normalised_mse": Tolerance(1e-5, 0.05),
    "fft2d": _ERROR,
    "lpips": Tolerance(1e-3),
    "lpips_vgg": Tolerance(1e-3),
    "lpips_squeeze": Tolerance(1e-3),
    # What is vouched for lies above a threshold: at its edge stood two tokens of 512.
    "certified_share": Tolerance(0.01),
    "certified_precision": Tolerance(0.01),
}
"""By metric; one of none of these moves by no more than the last bits of a mean."""


_CHAOTIC = {
    "psnr": Tolerance(8.0),
    "tokens_leaked": Tolerance(2.0, 0.5),
    "bleu": Tolerance(40.0),
}
_CHAOTIC_ERROR, _CHAOTIC_SHARE = Tolerance(1e-6, 0.9), Tolerance(0.4)
"""Where rounding decides, a search ends elsewhere on another machine: only that it still works can
be told from one trial. Idlg moved by 6.7 dB between two processors, TAG by one token of 16."""


def chaotic(metric: str, recorded: float | None, again: float | None) -> bool:
    """Tell whether two numbers may be of one method whose answers hang on the last bit."""
    if recorded is None or again is None:
        # a search that keeps its start names no labels
        return metric.removesuffix(OF_INPUT) == "label_accuracy" or recorded is again
    metric = metric.removesuffix(OF_INPUT)
    if metric == "psnr" and min(recorded, again) >= _EXACT:
        return True  # both have found the image; how far beyond is rounding's
    of_error = metric in ("mse", "normalised_mse", "fft2d")
    usual = _CHAOTIC_ERROR if of_error else _CHAOTIC_SHARE
    return _CHAOTIC.get(metric, usual).allows(recorded, again)


def allowed(metric: str, recorded: float | None, again: float | None) -> bool:
    """Tell whether a metric's two numbers are one answer on different machines."""
    if recorded is None or again is None:
        return recorded is again
    metric = metric.removesuffix(OF_INPUT)
    if metric == "psnr":  # 0.2 dB below 60 dB; above, the size of rounding itself, fourfold
        if min(recorded, again) >= _EXACT:
            return _PSNR_ABOVE.allows(recorded, again)
        if max(recorded, again) < _UNREAD:
            return _PSNR_UNREAD.allows(recorded, again)
        errors = (10 ** (-number / 10) for number in (recorded, again))
        return _PSNR_BELOW.allows(recorded, again) or _PSNR_ERROR.allows(*errors)
    if metric == "ssim" and max(recorded, again) < _LOW:
        return _SSIM_LOW.allows(recorded, again)
    return TOLERANCES.get(metric, _SHARE).allows(recorded, again)


def equal(metric: str, recorded: float | None, again: float | None) -> bool:
    """Tell whether two numbers are the same to the last bit."""
    return recorded == again


def distance(recorded: float | None, again: float | None) -> float:
    """Return how far apart two numbers are; infinity where only one is there."""
    if recorded is None or again is None:
        return 0.0 if recorded is again else math.inf
    return abs(recorded - again)
