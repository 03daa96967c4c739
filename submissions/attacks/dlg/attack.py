"""Deep Leakage from Gradients (Zhu, Liu and Han, NeurIPS 2019), as APRIL ran it.

Differences from the paper, all APRIL's (Lu et al., CVPR 2022, section 4): Adam for L-BFGS, and
labels that are known, or inferred from the head's gradient where they are not granted. `dlg_lbfgs`
is the method as first published. Of text, too, embeddings are searched as in the paper, but labels
only among the words that the update tells, unless `words` are searched: `toolbox.matching.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from benchmark.api import Grant, Observation
from benchmark.toolbox.matching import Adam, Search, SearchAttack, SquaredDistance


@dataclass(frozen=True)
class DLG(SearchAttack):
    """Squared distance of all gradients, by Adam."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})
    text: ClassVar = True

    steps: int = 1500
    """APRIL's for CIFAR-10; it takes 800 for MNIST and 5000 for ImageNet."""
    rate: float = 0.2
    """Chosen on sixteen images of MNIST's public split, 800 steps: mean normalised MSE 1.1e-5
    against 5.3e-4 at 0.1, where a few images are still on their way when the steps end."""

    words: Literal["given", "searched"] = "given"
    """Of text: those that the update tells, or searched among the vocabulary, as the paper does."""

    def plan(self, seen: Observation) -> Search:
        labels = self.words if seen.model.track == "text" else "given"
        return Search(SquaredDistance(), self.steps, Adam(), self.rate, labels=labels)
