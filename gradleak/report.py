"""What an audit found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmark.errors import BenchmarkError
from gradleak.judging import Verdict

_ORDER: tuple[Verdict, ...] = ("exact", "partly", "nothing beyond the prior", "not testable")
_SAID = {
    "exact": "This update gives the whole batch away, exactly",
    "partly": "This update gives a part of the batch away",
    "nothing beyond the prior": "These attacks read nothing beyond the prior; others may",
    "not testable": "Nothing could be told; that says nothing of what the update gives away",
}

_UNITS = {
    "psnr": "{:.1f} dB",
    "ssim": "SSIM {:.3f}",
    "total_accuracy": "{:.1%} in place",
    "token_accuracy": "{:.1%} of words",
}


@dataclass(frozen=True)
class Finding:
    """What became of one attack.

    Attributes:
        attack: its label.
        title: what it does.
        ran: whether it answered, or failed at it.
        reason: why there is no answer.
        verdict: what its answer came to.
        scores: by metric; PSNR in dB, shares of tokens in [0, 1]; empty without the truth.
        mismatch: distance of the answer's own update to the one sent, over its norm.
        seconds: of the attack alone.
        images: (batch, channel, height, width) in [0, 1].
        tokens: (batch, length) int64; -1 where it names none.
    """

    attack: str
    title: str
    ran: bool
    reason: str | None
    verdict: Verdict
    scores: dict[str, float | None]
    mismatch: float | None
    seconds: float
    images: Tensor | None = None
    tokens: Tensor | None = None

    @property
    def scored(self) -> str:
        """The scores in a line; empty without the truth."""
        found = self.scores.items()
        return ", ".join(_UNITS[name].format(score) for name, score in found if score is not None)

    @property
    def consistency(self) -> str:
        """How far the answer's own gradient is from the update, in a line; empty where unknown."""
        if self.mismatch is None:
            return ""
        return f"own gradient {self.mismatch:.1e} from the update"

    @property
    def measured(self) -> str:
        """The scores, and how consistent the answer is with the update, in a line."""
        return ", ".join(filter(None, [self.scored, self.consistency]))


@dataclass(frozen=True)
class Report:
    """What an update gives away: the strongest answer, and what became of every attack.

    Attributes:
        model: class of the audited module.
        parameters: number of its weights.
        granted: what the attacks were given, a line a fact.
        notes: what a reader must know.
        findings: one an attack, in the order in which they ran.
        truth: the batch, where it was given.
        tokenizer: has `decode`; None where tokens stay numbers.
        seconds: of the whole audit.
    """

    model: str
    parameters: int
    granted: tuple[str, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    truth: Tensor | None
    tokenizer: Any
    seconds: float

    @property
    def best(self) -> Finding | None:
        """The finding whose verdict is worst for the client; of equals the best scored."""
        answered = [
            each for each in self.findings if each.images is not None or each.tokens is not None
        ]
        return min(answered, key=_rank, default=None)

    @property
    def verdict(self) -> Verdict:
        """The strongest attack's verdict."""
        return "not testable" if self.best is None else self.best.verdict

    @property
    def headline(self) -> str:
        """The verdict in a sentence."""
        best, said = self.best, _SAID[self.verdict]
        if best is None or self.verdict not in ("exact", "partly"):
            return f"{said}."
        return f"{said}: {best.attack} in {best.seconds:.2g} s ({best.scored or best.consistency})."

    @property
    def images(self) -> Tensor | None:
        """The strongest attack's images, (batch, channel, height, width) in [0, 1]."""
        return None if self.best is None else self.best.images

    @property
    def tokens(self) -> Tensor | None:
        """The strongest attack's tokens, (batch, length) int64."""
        return None if self.best is None else self.best.tokens

    @property
    def text(self) -> list[str] | None:
        """The strongest attack's tokens as the tokenizer decodes them, a string a sequence."""
        if self.tokens is None or self.tokenizer is None:
            return None
        rows = self.tokens.tolist()
        return [self.tokenizer.decode([token for token in row if token >= 0]) for row in rows]

    def save(self, path: str | Path) -> None:
        """Write the report as one HTML file that needs nothing else.

        Raises:
            BenchmarkError: the file cannot be written.
        """
        save([self], path)

    def __str__(self) -> str:
        lines = [f"{self.model}: {self.headline}"]
        for each in self.findings:
            told = each.reason or f"{each.measured}, {each.seconds:.2g} s"
            lines.append(f"  {each.attack:36} {each.verdict:24} {told}")
        return "\n".join([*lines, *self.notes])


def save(reports: Sequence[Report], path: str | Path) -> None:
    """Write reports one after the other as one HTML file.

    Raises:
        BenchmarkError: the file cannot be written.
    """
    from gradleak.page import page

    try:
        Path(path).write_text(page(reports), encoding="utf-8")
    except OSError as error:
        raise BenchmarkError(f"{path}: cannot be written: {error.strerror}") from error


def _rank(finding: Finding) -> tuple[int, float, float]:
    scores = finding.scores
    score = scores.get("psnr") or scores.get("total_accuracy") or 0.0
    mismatch = float("inf") if finding.mismatch is None else finding.mismatch
    return _ORDER.index(finding.verdict), -score, mismatch
