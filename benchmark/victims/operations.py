"""What a victim computes, counted and not computed."""

from __future__ import annotations

from functools import cache

import torch

from benchmark.victims.architectures import make_network
from benchmark.victims.language import TextSpec, TextVictim
from benchmark.victims.spec import ImageSpec
from benchmark.victims.victim import ImageVictim


@cache
def operations(spec: ImageSpec | TextSpec, length: int | None = None) -> int:
    """Count the floating-point operations of a forward pass on one image, or one sequence.

    The victim is made of shapes without values, in a second or so; no file of weights is read.

    Args:
        spec: the victim in full.
        length: tokens of the sequence; all that it can read where not given.

    Raises:
        ProtocolError: as `build`.
    """
    from torch._subclasses import FakeTensorMode  # slow to import
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    spec = spec.model_copy(update={"weights": "random"})
    with torch.device("meta"):
        victim: ImageVictim | TextVictim
        if isinstance(spec, TextSpec):
            victim = TextVictim(spec.kind.network(spec, None), spec)
            inputs = torch.zeros(1, length or spec.length, dtype=torch.int64)
        else:
            victim = ImageVictim(make_network(spec, None), spec)
            inputs = torch.zeros(1, spec.channels, spec.size, spec.size)
    # fake tensors, for the library's GPT-2 asks others for values, of which the device has none
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True), counter:
        victim.eval()(inputs)
    return counter.get_total_flops()
