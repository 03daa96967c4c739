import pytest
import torch

from benchmark.errors import BenchmarkError
from benchmark.running.device import device_named, settled


@pytest.fixture
def flags():
    """Put back what a device sets."""
    was = torch.are_deterministic_algorithms_enabled()
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(was)
    products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def test_gpu_sums_in_one_order_and_in_whole_float32(flags, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert settled("cuda") == torch.device("cuda")
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.benchmark


def test_processor_is_left_as_it_is(flags):
    settled("cpu")
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("name", "said"), [("tpu", "wanted auto, cpu or cuda")])
def test_device_that_there_is_not_ends_in_one_line(name, said):
    with pytest.raises(BenchmarkError, match=said):
        device_named(name)


def test_gpu_that_is_not_here_ends_in_one_line(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BenchmarkError, match="no CUDA device here"):
        device_named("cuda")
