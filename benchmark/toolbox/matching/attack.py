"""What the papers' searches share as attacks: a plan, labels, and trials that advance together."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from benchmark.contract import Attack, Observation, Reconstruction, Stack
from benchmark.errors import NotApplicable
from benchmark.toolbox.labels import check_labels, infer_labels
from benchmark.toolbox.matching.loop import search
from benchmark.toolbox.matching.search import Search
from benchmark.toolbox.matching.text import check_text, words_from_update
from benchmark.victims import TextVictim


class SearchAttack(Attack):
    """An attack that is a search: a submission says which, and how it comes by labels.

    Attributes:
        text: whether it also searches for text, by embeddings; its plan has no image priors then.
    """

    text: ClassVar[bool] = False

    @abstractmethod
    def plan(self, seen: Observation) -> Search:
        """Return what to do; the same for every trial of a stack."""

    def labels(self, seen: Observation) -> Tensor | None:
        """Return the labels, int64: those granted, else those the update tells.

        One an image, (batch,); of text the words among which they are, (batch * length,).
        """
        return words_from_update(seen) if _is_text(seen) else infer_labels(seen)

    def matched(self, seen: Observation) -> frozenset[str]:
        """Return the names of the parameters to match; of text, all but the tokens' table."""
        if _is_text(seen):
            return frozenset(seen.update) - {TextVictim.of(seen.model).anatomy.token_embedding}
        return frozenset(seen.update)

    def applies(self, seen: Observation) -> None:
        """Decline where no step is granted, nothing was sent to match, or labels cannot be had."""
        if _is_text(seen) and not self.text:
            raise NotApplicable("searches for images; the victim reads text")
        plan = self.plan(seen)
        if _is_text(seen):
            check_text(seen, plan)
        matches = plan.objective is not None
        if matches and not self.matched(seen) & frozenset(seen.update):
            raise NotApplicable("searches: the update holds none of the parameters it matches")
        if plan.reads_labels and not _is_text(seen):
            check_labels(seen)
        if not matches:
            return
        granted, wanted = seen.budget.gradient_evaluations, plan.restarts * plan.optimiser.most
        if granted < wanted:
            raise NotApplicable(
                f"searches: needs {wanted} gradient evaluations, the budget is {granted}"
            )

    def reconstruct(self, seen: Observation) -> Reconstruction:
        """Reconstruct one trial."""
        return self.reconstruct_stack(Stack([seen]))[0]

    def reconstruct_stack(self, stack: Stack) -> list[Reconstruction]:
        """Reconstruct the trials of a stack together."""
        plan = self.plan(stack[0])
        labels = [self._labels(seen) if plan.reads_labels else None for seen in stack]
        return [*search(stack, plan, labels, self.matched(stack[0]))]

    def _labels(self, seen: Observation) -> Tensor | None:
        try:
            return self.labels(seen)
        except ValueError:  # not finite: the trial fails, its neighbours do not
            return None


def _is_text(seen: Observation) -> bool:
    return seen.model.track == "text"
