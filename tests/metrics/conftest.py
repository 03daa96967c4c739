import pytest
import torch
from torch import Tensor


@pytest.fixture
def truth() -> Tensor:
    """(3, 24, 32): colour, not square, smooth enough that noise is no part of it."""
    rows, columns = torch.linspace(0, 1, 24)[:, None], torch.linspace(0, 1, 32)[None]
    return torch.stack([rows * columns, (rows - columns).abs(), (rows + columns) / 2])


@pytest.fixture
def noisier(truth: Tensor) -> list[Tensor]:
    """Return the truth under ever more of the same noise, the first without any."""
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    return [(truth + scale * noise).clamp(0, 1) for scale in (0, 0.001, 0.01, 0.05, 0.1, 0.3, 1)]
