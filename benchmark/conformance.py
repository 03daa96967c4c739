"""What every submission must pass; the tests run it on all that are registered."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmark.contract import (
    Attack,
    Defense,
    Grant,
    Observation,
    Reconstruction,
    Stack,
    fault,
    text_fault,
)
from benchmark.errors import PluginError
from benchmark.federation import DefendedRound, Round
from benchmark.registry import Submission
from benchmark.victims import ImageVictim, TextVictim

_RELATIVE, _ABSOLUTE = 1e-3, 1e-4  # pixels; float64 solves of float32 gradients


def check_attack(submission: Submission, stack: Stack) -> list[Reconstruction]:
    """Check that an attack keeps the contract on a stack that fits it, and return its answers.

    It is frozen, needs what can be granted, takes its numbers from the observation's generator
    alone, answers a stack as it answers each trial, leaves the observation as it is, and gives
    answers that can be scored, within its budget of gradients.

    Raises:
        PluginError: the first promise it broke.
    """
    attack: Attack = submission.build()
    _check_frozen(attack, submission)
    if strange := set(attack.needs) - set(Grant):
        raise PluginError(f"{submission.label}: needs {strange}; wanted {', '.join(Grant)}")
    torch.manual_seed(1)
    states = [seen.generator.get_state() for seen in stack]
    before = stack.versions()
    together = attack.reconstruct_stack(stack)
    _rewind(stack, states)
    torch.manual_seed(2)  # the global stream must not matter
    alone = [attack.reconstruct(seen) for seen in stack]
    _rewind(stack, states)
    if len(together) != len(stack):
        raise PluginError(f"{submission.label}: {len(together)} answers to {len(stack)} trials")
    if stack.versions() != before:
        raise PluginError(f"{submission.label}: changed the observation in place")
    for one, other, seen in zip(together, alone, stack, strict=True):
        _check_answer(one, seen, submission)
        _check_answer(other, seen, submission)
        if not (
            torch.allclose(_there(one).float(), _there(other).float(), _RELATIVE, _ABSOLUTE)
            and _sorted(one.labels) == _sorted(other.labels)
            and one.gradient_evaluations == other.gradient_evaluations
        ):
            raise PluginError(f"{submission.label}: a stack and its trials differ")
    return together


def check_defense(submission: Submission, plain: Round, trials: Sequence[int]) -> None:
    """Check that a defense keeps the contract on a round.

    It is frozen, draws from the given generators alone, leaves victim, batch and undefended update
    as they are, sends finite tensors shaped as parameters, and describes itself in plain words.

    Raises:
        PluginError: the first promise it broke.
    """
    defense: Defense = submission.build()
    _check_frozen(defense, submission)
    weights = {
        name: tensor.clone() for name, tensor in dict(plain.victim.named_parameters()).items()
    }
    clean = {t: {n: g.clone() for n, g in plain.update(t).items()} for t in trials}
    torch.manual_seed(1)
    first = DefendedRound(plain, defense, submission.label)
    updates = [first.update(trial) for trial in trials]
    torch.manual_seed(2)  # the global stream must not matter
    again = DefendedRound(plain, defense, submission.label)
    for trial, update in zip(trials, updates, strict=True):
        for name, tensor in again.update(trial).items():
            if not torch.equal(tensor, update[name]):
                raise PluginError(f"{submission.label}: the same seed sends another {name}")
        if any(not torch.equal(g, plain.update(trial)[n]) for n, g in clean[trial].items()):
            raise PluginError(f"{submission.label}: changed the undefended update in place")
    if any(
        not torch.equal(w, dict(plain.victim.named_parameters())[n]) for n, w in weights.items()
    ):
        raise PluginError(f"{submission.label}: changed the victim in place")
    allowed = (str, int, float, bool, type(None))
    if any(not isinstance(value, allowed) for value in defense.describe().values()):
        raise PluginError(f"{submission.label}: describes itself in more than plain words")


def _check_frozen(instance: Attack | Defense, submission: Submission) -> None:
    parameters = getattr(type(instance), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        raise PluginError(f"{submission.label}: {type(instance).__name__} is no frozen dataclass")


def _check_answer(answer: Reconstruction, seen: Observation, submission: Submission) -> None:
    model, batch = seen.model, seen.knowledge.batch_size
    if model.track == "text":
        shape = (batch or len(_there(answer)), seen.knowledge.length or _there(answer).shape[1])
        tokens = TextVictim.of(model).spec.vocabulary
        wrong = text_fault(answer, shape=shape, vocabulary=tokens, budget=seen.budget)
    else:
        spec = ImageVictim.of(model).spec
        pixels = (batch or len(_there(answer)), spec.channels, spec.size, spec.size)
        wrong = fault(answer, shape=pixels, classes=spec.classes, budget=seen.budget)
    if wrong is not None:
        raise PluginError(f"{submission.label}: {wrong}")


def _there(answer: Reconstruction) -> torch.Tensor:
    """Return an answer's images, or its tokens."""
    given = answer.tokens if answer.images is None else answer.images
    return torch.empty(0, 0) if given is None else given


def _sorted(labels: torch.Tensor | None) -> list[int] | None:
    return None if labels is None else sorted(labels.tolist())


def _rewind(stack: Stack, states: list[torch.Tensor]) -> None:
    for seen, state in zip(stack, states, strict=True):
        seen.generator.set_state(state)
