import time
from dataclasses import dataclass

import pytest
import torch
from torch.overrides import TorchFunctionMode

from benchmark.contract import Attack, Reconstruction
from benchmark.running.inprocess import OutOfTime, attempt

SMALL = {"architecture": "april_b", "width": 32, "depth": 1, "patch": 4}


@dataclass(frozen=True)
class Draws(Attack):
    """Answers with noise, trial by trial."""

    def reconstruct(self, seen):
        return Reconstruction(torch.rand(1, 1, 8, 8, generator=seen.generator))


@dataclass(frozen=True)
class CrashesTogether(Draws):
    """Draws the same numbers, but fails on more than one trial."""

    def reconstruct_stack(self, stack):
        answers = [self.reconstruct(seen) for seen in stack]
        if len(stack) > 1:
            raise RuntimeError("together")
        return answers


@dataclass(frozen=True)
class Answers(Draws):
    """Answers a stack with whatever it holds."""

    answer: object

    def reconstruct_stack(self, stack):
        return self.answer


def images(outcomes):
    return torch.stack([outcome.reconstruction.images for outcome in outcomes])


def test_mode_of_torch_that_an_attack_never_left_is_left_for_it(bench, seen_by):
    class Stays(Draws):
        def reconstruct(self, seen):
            torch.set_grad_enabled(False)
            Watching().__enter__()
            raise OutOfTime

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} is watched")

    outcomes = attempt(Stays(), seen_by(bench(), "random"))
    assert [outcome.status for outcome in outcomes] == ["timed_out"] * 2
    assert torch.is_grad_enabled()
    assert torch.ones(2).sum() == 2


def test_failed_stack_is_run_again_trial_by_trial_on_the_same_draws(bench, seen_by):
    again = attempt(CrashesTogether(), seen_by(bench(), "random"))
    once = attempt(Draws(), seen_by(bench(), "random"))
    assert [outcome.status for outcome in again] == ["completed"] * 2
    assert torch.equal(images(again), images(once))


def test_trial_without_an_answer_is_not_run_again_nor_are_its_neighbours(bench, seen_by):
    class GivesUp(Draws):
        def reconstruct_stack(self, stack):
            sizes.append(len(stack))
            return [Reconstruction(torch.empty(0), failure="diverged"), self.reconstruct(stack[1])]

    sizes = []
    outcomes = attempt(GivesUp(), seen_by(bench(), "random"))
    assert sizes == [2]
    assert [outcome.reconstruction.failure for outcome in outcomes] == ["diverged", None]


def test_networks_get_their_modes_back(bench, seen_by):
    class Trains(Draws):
        def reconstruct(self, seen):
            for network in (seen.model, seen.public_network):
                network.train().requires_grad_(network is seen.public_network)
            return super().reconstruct(seen)

    granted = {"threat": {"grants": ["batch_size", "public_network"]}}
    stack = seen_by(bench(**granted, public_network=SMALL), "random")
    (outcome, _) = attempt(Trains(), stack)
    assert outcome.status == "completed"
    assert not any(network.training for network in stack.networks)
    assert all(weight.requires_grad for weight in stack.model.parameters())
    assert not any(weight.requires_grad for weight in stack[0].public_network.parameters())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "returned 0 for 1 trials"),
        ((1, 2), "returned tuple for 1 trials"),
        ([None] * 2, "returned 2 for 1 trials"),
        (["image"], "returned a str; wanted a Reconstruction"),
    ],
)
def test_stack_answers_are_checked(bench, seen_by, answer, said):
    (outcome,) = attempt(Answers(answer), seen_by(bench(), "random")[:1])
    assert outcome.status == "failed"
    assert outcome.reason.startswith(said)


def test_limit_cannot_be_swallowed_by_the_method(bench, seen_by):
    class Stubborn(Draws):
        def reconstruct(self, seen):
            while True:
                try:
                    time.sleep(0.01)
                except Exception:
                    continue

    stack = seen_by(bench(budget={"seconds": 0.2, "memory_mib": 1}), "random")[:1]
    (outcome,) = attempt(Stubborn(), stack)
    assert outcome.status == "timed_out"
    assert 0.15 < outcome.seconds < 1
    assert not issubclass(OutOfTime, Exception)


def test_seconds_are_those_of_the_trial(bench, seen_by):
    class Slower(Draws):
        def reconstruct(self, seen):
            time.sleep(0.1 if slow.pop() else 0)
            return super().reconstruct(seen)

    slow = [True, False]
    seconds = [outcome.seconds for outcome in attempt(Slower(), seen_by(bench(), "random"))]
    assert seconds[1] > 0.1 > seconds[0]


def test_alarm_is_given_back(bench, seen_by):
    import signal

    def mine(number, frame): ...

    before = signal.signal(signal.SIGALRM, mine)
    try:
        attempt(Draws(), seen_by(bench(), "random"))
        assert signal.getsignal(signal.SIGALRM) is mine
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)
