"""Attacks on one observation, the cheapest first, until the time is spent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from torch import Tensor

from benchmark.contract import Attack, Grant, Observation, Reconstruction, Stack, fault, text_fault
from benchmark.errors import BenchmarkError
from benchmark.registry import Submission
from benchmark.running.inprocess import attempt, verdict
from benchmark.seeds import generator
from benchmark.toolbox.matching import SearchAttack
from benchmark.victims import ImageVictim, TextVictim
from gradleak.judging import (
    Verdict,
    judge_images,
    judge_mismatch,
    judge_tokens,
    mismatch_of,
    prior_answer,
    score_images,
    score_tokens,
)
from gradleak.report import Finding

_A_STEP = 6  # gradients' time that a step of a search takes: its derivative, and bookkeeping


class Runner:
    """Runs attacks on one observation.

    Args:
        seen: what the server saw.
        truth: the batch behind it; None where it is unknown.
        deadline: of `time.perf_counter`, for all attacks together.
    """

    def __init__(self, seen: Observation, truth: Tensor | None, deadline: float) -> None:
        self.seen, self.truth, self.deadline = seen, truth, deadline

    def run(self, chosen: Sequence[Submission]) -> Iterator[Finding]:
        """Yield what became of each attack: closed forms first, then searches by their steps."""
        built = [(each, each.build()) for each in chosen]
        direct = [(s, attack) for s, attack in built if not isinstance(attack, SearchAttack)]
        searches = [(s, attack) for s, attack in built if isinstance(attack, SearchAttack)]
        searches.sort(key=lambda pair: _steps(pair[1], self.seen))
        exact = False
        for submission, attack in direct:
            finding = self._one(submission, attack, self._left, 0)
            exact |= finding.verdict == "exact"
            yield finding
        for place, (submission, attack) in enumerate(searches):
            if exact:
                yield _not_run(submission, "not run: the batch was read exactly already")
                continue
            share = self._left / (len(searches) - place)
            steps = 0 if share <= 0 else max(int(share / (_A_STEP * self._prior_mismatch[1])), 1)
            finding = self._one(submission, attack, self._left, steps)
            exact |= finding.verdict == "exact"
            yield finding

    def _one(self, submission: Submission, attack: Attack, seconds: float, steps: int) -> Finding:
        if seconds <= 0:
            return _not_run(submission, "not run: the time was spent")
        if submission.manifest.server == "malicious":
            return _not_run(
                submission, "needs a server that chooses the weights before they are sent"
            )
        draws = generator(0, "audit", submission.label)
        budget = replace(self.seen.budget, seconds=seconds, gradient_evaluations=steps)
        seen = replace(self.seen, budget=budget, generator=draws)
        asked = verdict(attack, seen)
        if asked.status != "applies":
            said = asked.reason or asked.status
            if Grant.LENGTH in asked.missing and seen.model.track == "vision":
                said = "reads text; the model reads images"
            said = said.replace("which the protocol does not grant", "which was not given")
            return _not_run(submission, said)
        outcome = attempt(attack, Stack([seen]))[0]
        answer = outcome.reconstruction
        reason = outcome.reason if answer is None else self._fault(answer, seen)
        if answer is None or reason is not None:
            return replace(
                _not_run(submission, reason or "no answer"), ran=True, seconds=outcome.seconds
            )
        return self._judged(submission, answer, outcome.seconds)

    def _judged(self, submission: Submission, answer: Reconstruction, seconds: float) -> Finding:
        mismatch = mismatch_of(self.seen, answer)
        scores: dict[str, float | None] = {}
        track = self.seen.model.track
        judged: Verdict
        if self.truth is None:
            judged = judge_mismatch(mismatch, self._prior_mismatch[0], track)
        elif answer.tokens is not None:
            scores = score_tokens(self.truth, answer.tokens)
            judged = judge_tokens(scores, self._prior_scores)
        else:
            assert answer.images is not None
            scores = score_images(
                self.truth, answer.images, ImageVictim.of(self.seen.model).spec.std
            )
            judged = judge_images(scores, self._prior_scores)
        return Finding(
            attack=submission.label,
            title=submission.manifest.title,
            ran=True,
            reason=None,
            verdict=judged,
            scores=scores,
            mismatch=mismatch,
            seconds=seconds,
            images=None if answer.images is None else answer.images.detach().cpu().clamp(0, 1),
            tokens=None if answer.tokens is None else answer.tokens.detach().cpu(),
        )

    def _fault(self, answer: Reconstruction, seen: Observation) -> str | None:
        model = seen.model
        if isinstance(model, TextVictim):
            shape = (seen.batch_size, seen.length)
            return text_fault(
                answer, shape=shape, vocabulary=model.spec.vocabulary, budget=seen.budget
            )
        spec = ImageVictim.of(model).spec
        whole = (seen.batch_size, spec.channels, spec.size, spec.size)
        return fault(answer, shape=whole, classes=spec.classes, budget=seen.budget)

    @property
    def _left(self) -> float:
        return self.deadline - time.perf_counter()

    @cached_property
    def _prior_mismatch(self) -> tuple[float | None, float]:
        """The distance of an answer that reads no update, and the seconds of its gradient."""
        started = time.perf_counter()
        found = mismatch_of(self.seen, prior_answer(self.seen))
        return found, max(time.perf_counter() - started, 1e-3)

    @cached_property
    def _prior_scores(self) -> dict[str, float | None]:
        prior = prior_answer(self.seen)
        assert self.truth is not None
        if prior.tokens is not None:
            return score_tokens(self.truth, prior.tokens)
        assert prior.images is not None
        return score_images(self.truth, prior.images, ImageVictim.of(self.seen.model).spec.std)


def _not_run(submission: Submission, reason: str) -> Finding:
    return Finding(
        submission.label, submission.manifest.title, False, reason, "not testable", {}, None, 0.0
    )


def _steps(attack: SearchAttack, seen: Observation) -> int:
    """Return the gradients that a search plans; one that has no plan here will say why."""
    try:
        plan = attack.plan(seen)
    except BenchmarkError:
        return 0
    return plan.steps * plan.restarts * plan.optimiser.most
