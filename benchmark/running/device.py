"""The device that a run lives on, and what makes its numbers the same each time."""

from __future__ import annotations

import os

import torch

from benchmark.errors import BenchmarkError


def device_named(name: str) -> torch.device:
    """Return the device a user named.

    Raises:
        BenchmarkError: no such device here.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise BenchmarkError(f"--device {name!r}: wanted auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise BenchmarkError("--device cuda: no CUDA device here; wanted auto or cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return settled(name)


def settled(name: str) -> torch.device:
    """Return a device on which this process sums in one order, in whole float32.

    On the CPU that is so. On CUDA kernels whose sums hang on the order of threads are replaced
    where there is another (where there is none, torch warns), and none is chosen by a trial of
    speed; TensorFloat-32, which convolutions would use, is left out.
    """
    device = torch.device(name)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before its first product
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return device
