"""What searching four small images together saves, against one after another, attack by attack."""

import time

import pytest

from benchmark.contract import Attack
from benchmark.registry import Registry

ROUNDS = 3
STACKED = [
    submission
    for submission in Registry().all("attack")
    if type(submission.build()).reconstruct_stack is not Attack.reconstruct_stack
]


@pytest.mark.parametrize("submission", STACKED, ids=lambda submission: submission.label)
@pytest.mark.benchmark(group="a stack of four trials")
def test_stack_against_its_trials_alone(benchmark, quick, seen_by, submission):
    stack = seen_by(quick("quick_digits_search"), submission.label, trials=4)
    if stack is None:
        pytest.skip(f"{submission.label} does not fit, or its weights are not here")
    attack, alone = submission.build(), []

    def one_by_one():
        started = time.perf_counter()
        for seen in stack:
            attack.reconstruct(seen)
        alone.append(time.perf_counter() - started)

    benchmark.pedantic(
        attack.reconstruct_stack, (stack,), setup=one_by_one, rounds=ROUNDS, warmup_rounds=1
    )
    benchmark.extra_info["seconds_stack"] = benchmark.stats.stats.min
    benchmark.extra_info["ratio_alone_to_stack"] = min(alone) / benchmark.stats.stats.min
