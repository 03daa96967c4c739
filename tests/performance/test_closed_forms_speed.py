"""Seconds an attack needs for one trial, and what its shortcuts save."""

import time

import pytest
import torch

from benchmark.registry import Registry
from benchmark.toolbox.closedform import row_space

REGISTRY = Registry()
CASES = [
    ("quick_digits_a", "april_closed_form"),
    ("quick_digits_b", "position_closed_form"),
    ("quick_digits_b", "span_closed_form"),
]


def fastest(work, rounds=5):
    """Return the seconds of the fastest of some calls."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


@pytest.mark.parametrize(("protocol", "attack"), CASES)
@pytest.mark.benchmark(group="closed form, one trial")
def test_closed_form(benchmark, quick, seen_by, protocol, attack):
    stack = seen_by(quick(protocol), attack)
    built = REGISTRY.find("attack", attack)[0].build()
    answer = benchmark(built.reconstruct, stack[0])
    assert answer.images.isfinite().all()


@pytest.mark.benchmark(group="row space of the first attention's gradient")
def test_sketched_row_space_against_the_full_decomposition(benchmark, quick, seen_by):
    seen = seen_by(quick("quick_digits_b"), "span_closed_form")[0]
    parts = seen.model.anatomy
    first = parts.blocks[0]
    qkv = [part.of(seen.update) for part in (first.query, first.key, first.value)]
    matrix = torch.cat(qkv).double()
    draws = torch.Generator().manual_seed(0)
    benchmark(row_space, matrix, parts.tokens, draws)
    sketched = fastest(lambda: row_space(matrix, parts.tokens, draws))
    full = fastest(lambda: torch.linalg.svd(matrix, full_matrices=False))
    benchmark.extra_info["ratio_full_to_sketch"] = full / sketched
