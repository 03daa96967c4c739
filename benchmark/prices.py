"""What defenses cost: what federated training comes to, a line a seed in `utility.jsonl`.

A line is of a utility protocol, a defense and a seed; the last of equal ones counts.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from benchmark.errors import RecordError
from benchmark.identity import harness_version
from benchmark.protocol import UtilityProtocol
from benchmark.records import Provenance
from benchmark.records.files import locked
from benchmark.records.storage import append_text
from benchmark.registry import Submission
from benchmark.versions import is_raised

_LONG = 1e6
"""A perplexity from here on, of a training that diverged, is told by its power of ten."""


class Price(BaseModel):
    """One training with a defense on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str
    digest: str
    """Of the utility protocol."""
    defense: str
    version: str
    """The defense's."""
    harness: str
    """The harness's version."""
    seed: int
    description: dict[str, bool | int | float | str | None]
    """What the defense says of itself, an epsilon too."""
    rate: float | None
    """Of the server, the best on the held-out part; None where none trained."""
    accuracy: float | None = None
    """Share of the private split whose label is told; of images."""
    perplexity: float | None = None
    """Of a token of the private split, exp of the mean cross entropy in nats; of text."""
    reason: str | None = None
    """Why there is neither."""
    diagnostics: dict[str, float] = {}
    """What the trained victim makes of shuffled images, and its positions, by name."""
    slowdown: float | None = None
    """A client's processor time in a round, as a multiple of that of one without a defense."""
    seconds: float
    """Of all clients and the server, the choice of the rate left out."""
    sent: int
    """Bytes that a client sent in all."""
    provenance: Provenance

    @model_validator(mode="after")
    def _says_one_thing(self) -> Price:
        said = [one for one in (self.accuracy, self.perplexity, self.reason) if one is not None]
        if len(said) != 1:
            raise ValueError("wanted one of accuracy, perplexity and reason")
        return self

    @property
    def figure(self) -> float | None:
        """The accuracy, or the perplexity; None where there is neither."""
        return self.accuracy if self.perplexity is None else self.perplexity

    @property
    def told(self) -> str:
        """What it came to, in words."""
        if self.accuracy is not None:
            return f"{100 * self.accuracy:.1f} %"
        if self.perplexity is None:
            return f"n/a: {self.reason}"
        return f"{self.perplexity:.1f}" if self.perplexity < _LONG else f"{self.perplexity:.1e}"

    @property
    def key(self) -> tuple[str, ...]:
        """What it is the price of."""
        named = (self.protocol, self.digest, self.defense, self.version, self.harness)
        return (*named, str(self.seed))


def prices_file(results: Path) -> Path:
    """Return where a results folder keeps its prices."""
    return results / "utility.jsonl"


class Prices:
    """What is recorded in a results folder."""

    def __init__(self, results: Path) -> None:
        """Read a results folder's prices, if it has any.

        Raises:
            RecordError: a line is none.
        """
        self.path = prices_file(results)
        self.found: dict[tuple[str, ...], Price] = {}
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]  # a tail that a kill left is cut off by the next one
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                one = Price.model_validate_json(line)
            except ValidationError as error:
                said = error.errors()[0]["msg"]
                raise RecordError(f"{self.path}:{number}: not a price: {said}") from error
            self.found[one.key] = one

    def now(self, protocol: UtilityProtocol, defense: Submission, seed: int) -> Price | None:
        """Return the price of a defense that counts as things are, the last of several."""
        wanted = (protocol.name, protocol.digest, defense.label, harness_version(), seed)
        for one in reversed(self.found.values()):
            if (one.protocol, one.digest, one.defense, one.harness, one.seed) == wanted:
                if not is_raised(defense.version, one.version):
                    return one
        return None

    def add(self, one: Price) -> None:
        """Keep a price."""
        with locked(self.path):
            append_text(self.path, f"{one.model_dump_json(exclude_defaults=True)}\n")
        self.found[one.key] = one
