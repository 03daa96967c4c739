"""What an attack was given: the facts it reads, its server, and its paper's budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmark.contract import Attack
from benchmark.errors import PluginError
from benchmark.registry import Registry, Submission
from benchmark.toolbox.matching import SearchAttack


@dataclass(frozen=True)
class Given:
    """What the registry says of an attack; empty of one that is not registered here.

    Attributes:
        needs: facts that it reads, by the names of the grants.
        malicious: whether it also chooses the parameters that are sent.
        deviations: what differs from the paper.
        paper_gradients: gradients of a trial in the paper, or by data set.
        rate: learning rate of a search that has one.
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
        """Return what a manifest says, and the attack that is built of it.

        Raises:
            PluginError: it cannot be built.
        """
        manifest = submission.manifest
        attack: Attack = submission.build()
        return Given(
            manifest.title,
            manifest.paper,
            tuple(sorted(map(str, attack.needs))),
            manifest.server == "malicious",
            manifest.deviations,
            manifest.paper_gradients,
            getattr(attack, "rate", None) if isinstance(attack, SearchAttack) else None,
            submission.version,
            manifest.adaptive_to,
            not submission.outside,
        )

    def in_paper(self, data: str) -> int | None:
        """Return the gradients that its paper spends on a trial of such data, where known."""
        if isinstance(self.paper_gradients, dict):
            return self.paper_gradients.get(data)
        return self.paper_gradients


def given(labels: Iterable[str], registry: Registry) -> dict[str, Given]:
    """Return what is known of each attack; one that cannot be found or built says nothing."""
    found = {}
    for label in labels:
        try:
            name, _, arguments = label.partition(",")
            (submission,) = registry.find("attack", f"{name},{arguments or 'defaults'}")
            found[label] = Given.of(submission)
        except PluginError:
            found[label] = Given()
    return found
