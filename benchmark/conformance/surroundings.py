"""What a submission must leave as it found it: torch's settings, the process's, and randomness."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_TORCHS_OWN = "TORCHINDUCTOR_CACHE_DIR"  # which it sets when a part of it is first imported
_Setting = tuple[Callable[[], Any], Callable[[Any], object]]


def _write_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


_SETTINGS: dict[str, _Setting] = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "torch's deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "torch's matmul precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "torch's default device": (torch.get_default_device, torch.set_default_device),
    "torch's anomaly detection": (
        torch.is_anomaly_enabled,
        torch.autograd.anomaly_mode.set_detect_anomaly,
    ),
    "numpy's handling of errors": (np.geterr, lambda each: np.seterr(**each)),
    "the working directory": (os.getcwd, os.chdir),
    "the environment": (
        lambda: {name: value for name, value in os.environ.items() if name != _TORCHS_OWN},
        _write_environment,
    ),
}


@contextmanager
def watched(moved: set[str]) -> Iterator[None]:
    """Put back every setting that is not as it was, and add its name to those that moved."""
    before = {name: read() for name, (read, _) in _SETTINGS.items()}
    try:
        yield
    finally:
        for name, (read, write) in _SETTINGS.items():
            if read() != before[name]:
                moved.add(name)
                write(before[name])


@contextmanager
def seeded(seed: int) -> Iterator[dict[str, bytes]]:
    """Seed the global generators of torch, numpy and random, and put them back afterwards.

    What is yielded holds, once the block has ended, their states: of two blocks of unlike seeds
    they differ, unless someone seeded in between.
    """
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    states: dict[str, bytes] = {}
    try:
        yield states
    finally:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
        states["numpy"] = repr(np.random.get_state()).encode()
        states["random"] = repr(random.getstate()).encode()
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])
        random.setstate(kept[2])


def reseeded(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """Return whose global generator was seeded, from the states that two blocks ended in."""
    return [name for name in one if one[name] == other[name]]
