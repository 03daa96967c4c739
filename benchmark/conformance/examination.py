"""One submission asked for all its promises, from its manifest to its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from benchmark.conformance import attacks, defenses
from benchmark.conformance.fitting import FOR_ATTACKS, VICTIMS, plain_round, views
from benchmark.conformance.rows import Broken, Row, ask
from benchmark.conformance.words import words
from benchmark.contract import Stack
from benchmark.registry import Registry, Submission


def examine(
    submission: Submission,
    registry: Registry,
    victims: Sequence[str] = VICTIMS,
    device: torch.device | None = None,
) -> Iterator[Row]:
    """Ask a submission for every promise; imports its code.

    Args:
        submission: with its arguments.
        registry: knows the defenses that it may know how to meet.
        victims: names or files of protocols, small ones.
        device: where the victims live; the processor where none is said.
    """
    broken = False
    for row in words(submission):
        broken |= row.promise == "loads" and row.answer == "fail"
        yield row
    if broken:
        return
    place = device or torch.device("cpu")
    if submission.manifest.kind == "defense":
        rounds = [plain_round(name, place) for name in victims if name not in FOR_ATTACKS]
        yield from defenses.Asked(submission, rounds).rows()
        return
    found: dict[str, Stack] = {}
    find = partial(_fit, submission, registry, victims, place, found)
    yield ask("fits a victim", find, submission.folder, None)
    for stack in found.values():
        of = f", of {stack.model.track}" if len(found) > 1 else ""
        for row in attacks.Asked(submission, stack).rows():
            yield row.model_copy(update={"promise": row.promise + of})


def _fit(
    submission: Submission,
    registry: Registry,
    victims: Sequence[str],
    device: torch.device,
    found: dict[str, Stack],
) -> str:
    """Find the first victim and defense of each track that an attack fits."""
    fitting: list[str] = []
    declined: list[str] = []
    for name, verdict, stack in views(submission, registry, victims, device):
        if stack is not None:
            if stack.model.track not in found:
                fitting.append(name)
            found.setdefault(stack.model.track, stack)
            continue
        declined.append(f"{name}: {verdict.reason}")
        if verdict.status == "failed":
            raise Broken(declined[-1])
    if not found:
        raise Broken("; ".join(declined))
    return ", ".join(fitting)
