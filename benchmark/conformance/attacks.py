"""What every attack promises of its answers, asked on a stack that fits it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from benchmark.conformance.rows import Broken, NotAsked, Row, ask, described, line_of, place_of
from benchmark.conformance.surroundings import reseeded, seeded, watched
from benchmark.contract import (
    Attack,
    Grant,
    MaliciousAttack,
    Observation,
    Reconstruction,
    Stack,
    Update,
    fault,
    is_count,
    text_fault,
)
from benchmark.errors import NotApplicable, WithheldError
from benchmark.registry import Submission
from benchmark.running.inprocess import modes_kept
from benchmark.victims import ImageVictim, TextVictim

_RELATIVE, _ABSOLUTE = 1e-3, 1e-4  # pixels; float64 solves of float32 gradients
_FIRST_STEPS = 2  # in which a search's rounding has not grown yet


class Asked:
    """An attack on a stack: each promise once, `rows` all of them.

    Args:
        submission: the attack.
        stack: two trials or more that it fits.
    """

    def __init__(self, submission: Submission, stack: Stack) -> None:
        self.submission, self.stack = submission, stack
        self.attack = _first_steps(submission.build(), stack[0].budget.gradient_evaluations)
        """A search cut to as many steps as the victim's budget has gradients."""
        self.moved: set[str] = set()
        """Settings of torch and the process that any of the runs left otherwise."""
        self._states = {seen.generator: seen.generator.get_state() for seen in stack}
        self._before = [tensor.clone() for tensor in _given(stack)]
        self._place = line_of(
            type(self.attack), submission.folder, "reconstruct_stack", "reconstruct", "plan"
        )

    def rows(self) -> Iterator[Row]:
        """Ask every promise."""
        promises = {
            "answers in shape, type and range": self.fits,
            "keeps to its budget of gradients": self.thrifty,
            "same seed, same bits": self.repeats,
            "same answer alone and in a stack": self.independent,
            "declares all that it needs": self.declares,
            "answers an update of zeros": self.of_nothing,
            "changes nothing that it sees": self.leaves_observation,
            "leaves torch and the process as they were": self.leaves_settings,
        }
        for promise, kept in promises.items():
            yield ask(promise, kept, self.submission.folder, self._place)

    @cached_property
    def answers(self) -> list[Reconstruction]:
        """What it answers to the stack."""
        answers, self._after = self._run(self.attack, self.stack, 1)
        return answers

    def fits(self) -> None:
        """Hold each answer against the batch's shape and what pixels or tokens can be."""
        if not isinstance(self.answers, list) or len(self.answers) != len(self.stack):
            came = len(self.answers) if isinstance(self.answers, list) else type(self.answers)
            raise Broken(f"{came} answers to {len(self.stack)} trials")
        for answer, seen in zip(self.answers, self.stack, strict=True):
            _check(answer, seen, heeding_budget=False)

    def thrifty(self) -> str:
        """Hold the gradients that it says it spent against the budget."""
        for answer, seen in zip(self._answered(), self.stack, strict=True):
            _check(answer, seen)
        _, stack = self._begun
        for answer, seen in zip(self._begun_answers, stack, strict=True):
            few, took = seen.budget.gradient_evaluations, answer.gradient_evaluations
            if is_count(took) and took > few:
                raise Broken(f"spent {took} gradient evaluations; the budget was cut to {few}")
        spent = max(answer.gradient_evaluations for answer in self.answers)
        return f"{spent} of {self.stack[0].budget.gradient_evaluations}"

    def repeats(self) -> None:
        """Run it again with the global generators seeded otherwise: not a bit may move."""
        first = self._answered()
        again, after = self._run(self.attack, self.stack, 2)
        if seeds := reseeded(self._after, after):
            raise Broken(f"seeds the global generator of {', '.join(seeds)}")
        for one, other in zip(first, again, strict=True):
            if not _same(one, other):
                raise Broken(
                    "the same seed gave another answer; only seen.generator may be drawn from"
                )
        if isinstance(self.attack, MaliciousAttack):
            self._corrupts_alike()

    def independent(self) -> None:
        """Compare a stack's answers with each trial's alone; of a search, its first steps."""
        self._answered()
        attack, stack = self._begun
        for i, one in enumerate(self._begun_answers):
            (alone,), _ = self._run(attack, stack[i : i + 1], 2, alone=True)
            if not (
                torch.allclose(_there(one).float(), _there(alone).float(), _RELATIVE, _ABSOLUTE)
                and _sorted(one.labels) == _sorted(alone.labels)
                and one.gradient_evaluations == alone.gradient_evaluations
            ):
                raise Broken("a stack and its trials differ")

    def declares(self) -> str:
        """Withhold, one at a time, each fact that it does not say it needs."""
        needs = {*self.attack.needs, *self.submission.manifest.grants}
        if strange := needs - set(Grant):
            raise Broken(f"needs {strange}; wanted {', '.join(Grant)}")
        self._answered()
        attack, stack = self._begun
        known = stack[0].knowledge
        idle = [g for g in Grant if g not in needs and getattr(known, g.value) is not None]
        for grant in idle:
            self._without(attack, stack[0], grant)
        return f"needs {', '.join(sorted(needs)) or 'nothing'}; tried without {len(idle)} others"

    def of_nothing(self) -> None:
        """An update of zeros tells nothing: the answer is finite, and certain of nothing."""
        self._answered()
        if Grant.TRUTH in self.submission.manifest.grants:
            raise NotAsked("it is told the truth")
        attack, stack = self._begun
        seen = stack[0]
        zero = Update({name: torch.zeros_like(each) for name, each in seen.update.items()})
        known = seen.knowledge
        if known.other_update is not None:
            known = replace(known, other_update=zero)
        seen = replace(seen, update=zero, knowledge=known)
        ((answer, *_), _) = self._run(attack, Stack([seen]), 1)
        if answer.failure is None:  # to have no answer is an answer to nothing
            _check(answer, seen, heeding_budget=False)  # which has a promise of its own
        if answer.certain is not None and answer.certain.any():
            raise Broken("is certain of tokens that an update of zeros cannot tell")

    def leaves_observation(self) -> None:
        """Compare every tensor of update and networks with a copy made before the first run."""
        for before, now in zip(self._before, _given(self.stack), strict=True):
            if not torch.equal(before, now):
                raise Broken("changed the update or a network in place")

    def leaves_settings(self) -> None:
        """Name what any run left otherwise than it found it."""
        if self.moved:
            raise Broken(f"changed {', '.join(sorted(self.moved))}")

    def _answered(self) -> list[Reconstruction]:
        """Return the answers, where they can be asked anything."""
        try:
            self.fits()
        except (Exception, SystemExit):
            raise NotAsked("it gave no answer that fits") from None
        return self.answers

    def _run(
        self, attack: Attack, stack: Stack, seed: int, *, alone: bool = False
    ) -> tuple[list[Reconstruction], dict[str, bytes]]:
        """Return the answers to a stack, and the states that the global generators ended in."""
        for seen in stack:
            seen.generator.set_state(self._states[seen.generator])
        with modes_kept(stack), watched(self.moved), seeded(seed) as states:
            together = attack.reconstruct_stack
            answers = [attack.reconstruct(seen) for seen in stack] if alone else together(stack)
        return answers, states

    @cached_property
    def _begun(self) -> tuple[Attack, Stack]:
        """Return attack and stack with a search cut to its first steps; others as they are."""
        few = min(_FIRST_STEPS, self.stack[0].budget.gradient_evaluations)
        budget = replace(self.stack[0].budget, gradient_evaluations=few)
        stack = Stack([replace(seen, budget=budget) for seen in self.stack])
        return _first_steps(self.attack, _FIRST_STEPS), stack

    @cached_property
    def _begun_answers(self) -> list[Reconstruction]:
        """What it answers to the stack in its first steps."""
        return self._run(*self._begun, 1)[0]

    def _without(self, attack: Attack, seen: Observation, grant: Grant) -> None:
        nothing: dict[str, Any] = {grant.value: None}
        without = replace(seen, knowledge=replace(seen.knowledge, **nothing))
        try:
            attack.applies(replace(without, update=without.update.shapes))
        except (NotApplicable, WithheldError):
            return  # it says so ahead, which makes the cell not applicable
        try:
            if isinstance(attack, MaliciousAttack):
                draws = torch.Generator().manual_seed(0)
                attack.corrupt(copy.deepcopy(seen.model), without.knowledge, draws)
            ((answer, *_), _) = self._run(attack, Stack([without]), 1)
        except (Exception, SystemExit) as error:
            place = place_of(error, self.submission.folder)
            raise Broken(f"without {grant.value}: {described(error)}", place) from error
        _check(answer, without, heeding_budget=False)

    def _corrupts_alike(self) -> None:
        attack, seen = self.attack, self.stack[0]
        assert isinstance(attack, MaliciousAttack)
        sent = []
        for seed in (1, 2):
            with watched(self.moved), seeded(seed):
                draws = torch.Generator().manual_seed(0)
                made = attack.corrupt(copy.deepcopy(seen.model), seen.knowledge, draws)
                sent.append(made.weights())
        for name, weight in sent[0].items():
            if not torch.equal(weight, sent[1][name]):
                place = line_of(type(attack), self.submission.folder, "corrupt")
                raise Broken(f"corrupt: the same seed gave another {name}", place)


def _first_steps(attack: Any, most: int) -> Attack:  # noqa: ANN401  (of any class)
    """Return an attack with fewer steps, where it has a field of that name."""
    if most and any(field.name == "steps" for field in dataclasses.fields(attack)):
        attack = replace(attack, steps=min(attack.steps, most))
    return attack


def _given(stack: Stack) -> list[Tensor]:
    """Return every tensor that attacks share."""
    sent = [each for seen in stack for each in (seen.update, *seen.later)]
    return [*stack.network_tensors(), *(t for update in sent for t in update.values())]


def _check(answer: object, seen: Observation, *, heeding_budget: bool = True) -> None:
    """Raise Broken where an answer cannot be scored."""
    if not isinstance(answer, Reconstruction):
        raise Broken(f"returned a {type(answer).__name__}; wanted a Reconstruction")
    model, batch = seen.model, seen.knowledge.batch_size
    budget = seen.budget if heeding_budget else replace(seen.budget, gradient_evaluations=2**62)
    if model.track == "text":
        shape = (batch or len(_there(answer)), seen.knowledge.length or _there(answer).shape[1])
        tokens = TextVictim.of(model).spec.vocabulary
        wrong = text_fault(answer, shape=shape, vocabulary=tokens, budget=budget)
    else:
        spec = ImageVictim.of(model).spec
        pixels = (batch or len(_there(answer)), spec.channels, spec.size, spec.size)
        wrong = fault(answer, shape=pixels, classes=spec.classes, budget=budget)
    if wrong is not None:
        raise Broken(wrong)


def _same(one: Reconstruction, other: Reconstruction) -> bool:
    """Tell whether two answers agree to the last bit."""
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)]
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        for a, b in pairs
    )


def _there(answer: Reconstruction) -> Tensor:
    """Return an answer's images, or its tokens."""
    given = answer.tokens if answer.images is None else answer.images
    return torch.empty(0, 0) if not isinstance(given, Tensor) else given


def _sorted(labels: Tensor | None) -> list[int] | None:
    return None if labels is None else sorted(labels.tolist())
