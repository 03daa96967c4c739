"""What an attack was given: the facts it reads, its server, and its paper's budget."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmark.contract import Attack, Grant
from benchmark.errors import PluginError
from benchmark.listing import stated_class
from benchmark.registry import Registry, Submission
from benchmark.toolbox.matching import SearchAttack


@dataclass(frozen=True)
class Given:
    """What the registry says of an attack; empty of one that is not registered here.

    Attributes:
        needs: facts that it reads, by the names of the grants; of one from outside, those that
            stand in its source, for it is not imported.
        malicious: whether it also chooses the parameters that are sent.
        deviations: what differs from the paper.
        paper_gradients: gradients of a trial in the paper, or by data set.
        rate: learning rate of a search of the repository's that has one.
        version: of its code.
        adaptive_to: names of the defenses that it knows how to meet.
        own: whether it is the repository's.
    """

    title: str = ""
    paper: str | None = None
    needs: tuple[str, ...] = ()
    malicious: bool = False
    deviations: str | None = None
    paper_gradients: int | dict[str, int] | None = field(default=None, hash=False)
    rate: float | None = None
    version: str = ""
    adaptive_to: tuple[str, ...] = ()
    own: bool = False

    @staticmethod
    def of(submission: Submission) -> Given:
        """Return what a manifest says, and the attack that is built of it, or its source.

        Raises:
            PluginError: it cannot be built, or read.
        """
        manifest = submission.manifest
        needs, rate = _stated(submission) if submission.outside else _built(submission)
        return Given(
            manifest.title,
            manifest.paper,
            tuple(sorted(map(str, needs))),
            manifest.server == "malicious",
            manifest.deviations,
            manifest.paper_gradients,
            rate,
            submission.version,
            manifest.adaptive_to,
            not submission.outside,
        )

    def in_paper(self, data: str) -> int | None:
        """Return the gradients that its paper spends on a trial of such data, where known."""
        if isinstance(self.paper_gradients, dict):
            return self.paper_gradients.get(data)
        return self.paper_gradients


def _built(submission: Submission) -> tuple[Iterable[Grant], float | None]:
    attack: Attack = submission.build()
    return attack.needs, getattr(attack, "rate", None) if isinstance(attack, SearchAttack) else None


def _stated(submission: Submission) -> tuple[Iterable[Grant], None]:
    """Return the grants that the class names where it says what it needs."""
    made = stated_class(submission)
    said = [each for each in (made.body if made else ()) if _names(each) == "needs"]
    words = {one.attr for each in said for one in ast.walk(each) if isinstance(one, ast.Attribute)}
    return [grant for grant in Grant if grant.name in words], None


def _names(statement: ast.stmt) -> str | None:
    """Return what a statement of a class gives a value, or a method, to."""
    match statement:
        case ast.FunctionDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def given(labels: Iterable[str], registry: Registry) -> dict[str, Given]:
    """Return what is known of each attack; one that cannot be found, built or read says nothing."""
    found = {}
    for label in labels:
        try:
            name, _, arguments = label.partition(",")
            (submission,) = registry.find("attack", f"{name},{arguments or 'defaults'}")
            found[label] = Given.of(submission)
        except PluginError:
            found[label] = Given()
    return found
