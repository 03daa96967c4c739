"""`gradleak.guard`: audits updates in a client's training loop, before they are sent."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from benchmark.errors import BenchmarkError
from benchmark.registry import Registry
from benchmark.toolbox.matching import SearchAttack
from gradleak.auditing import audit
from gradleak.report import Report
from gradleak.updates import Sent

_LOG = logging.getLogger("gradleak")


class LeakError(BenchmarkError):
    """An update gives away more than was allowed.

    Attributes:
        report: what was read of it.
    """

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class Guard:
    """Audits every so many updates of a model; made by `guard`.

    Attributes:
        updates: how many it was shown.
        audited: how many of them it audited.
        seconds: what that took in all.
    """

    def __init__(
        self,
        model: nn.Module,
        limit: float | None,
        every: int,
        action: Literal["raise", "log"],
        options: Mapping[str, Any],
    ) -> None:
        self.updates, self.audited, self.seconds = 0, 0, 0.0
        self._model, self._limit, self._every = model, limit, every
        self._action, self._options = action, dict(options)

    def __call__(
        self,
        truth: Tensor | None = None,
        update: Sent | None = None,
        **given: Any,  # noqa: ANN401  (audit's)
    ) -> Report | None:
        """Look at an update before it is sent, and audit it if its turn has come.

        Args:
            truth: the client's own batch, as `audit` wants it; without it a leak is told by how
                well the reconstruction explains the update.
            update: as `audit` takes it; the model's `.grad` where neither it nor `after` is given.
            given: other arguments of `audit` that change with the update, such as `labels`.

        Returns:
            What the audit found; None where it was not this update's turn.

        Raises:
            LeakError: the update gives away more than the limit, unless the guard only logs.
            NotApplicable: the model is not understood.
            BenchmarkError: names, shapes or arguments that do not fit.
        """
        turn = self.updates
        self.updates += 1
        if turn % self._every:
            return None
        if update is None and "after" not in given:
            update = self._model
        report = audit(self._model, update, truth=truth, **{**self._options, **given})
        self.audited += 1
        self.seconds += report.seconds
        if leaks(report, self._limit):
            said = f"update {turn + 1}: {report.headline}"
            if self._action == "raise":
                raise LeakError(said, report)
            _LOG.warning(said)
        return report


def guard(
    model: nn.Module,
    *,
    limit: float | None = None,
    every: int = 10,
    action: Literal["raise", "log"] = "raise",
    seconds: float = 10.0,
    attacks: Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401  (audit's)
) -> Guard:
    """Return a guard for a client's training loop, to be called where the update is ready.

        guard = gradleak.guard(model, limit=30.0)
        for images, labels in batches:
            cross_entropy(model(normalise(images)), labels).backward()
            guard(images, labels=labels)  # raises LeakError before anything is sent
            send(model)

    Args:
        model: the client's, as `audit` takes it; its `.grad` is read at each call.
        limit: PSNR in dB, or share of tokens in their places, above which an update leaks; None:
            where a verdict is `exact` or `partly`. A number wants the truth at each call.
        every: the first update and every so many after it are audited.
        action: what a leak does: `raise` a LeakError, or `log` a warning of the logger `gradleak`.
        seconds: for all attacks on one update.
        attacks: labels as `gradleak list attacks` names them; None is all but searches.
        options: what else `audit` takes and all updates share, such as `mean`, `std`, `tokenizer`.

    Raises:
        BenchmarkError: an argument that does not fit.
    """
    if every < 1:
        raise BenchmarkError(f"every is {every}; wanted 1 or more")
    if action not in ("raise", "log"):
        raise BenchmarkError(f"action is {action!r}; wanted 'raise' or 'log'")
    chosen = _direct() if attacks is None else list(attacks)
    return Guard(model, limit, every, action, {**options, "seconds": seconds, "attacks": chosen})


def leaks(report: Report, limit: float | None) -> bool:
    """Tell whether a report says more than a limit allows; see `guard`.

    Raises:
        BenchmarkError: the limit is a number, and the report has no scores.
    """
    if limit is None:
        return report.verdict in ("exact", "partly")
    best = report.best
    if best is None:
        return False
    score = best.scores.get("psnr", best.scores.get("total_accuracy"))
    if score is None:
        raise BenchmarkError(f"limit {limit:g} is of scores; wanted the truth, to compute them")
    return score > limit


def _direct() -> list[str]:
    """Return the attacks of an honest server that compute their answer, and do not search it."""
    return [
        each.label
        for each in Registry().all("attack")
        if not (each.manifest.control or each.outside)
        and each.manifest.server == "honest_but_curious"
        and not isinstance(each.build(), SearchAttack)
    ]
