"""The rates that searches were tuned to, a file a protocol beside its records: `tuning.yaml`.

A rate is chosen by what an attacker has: the search's own objective, on batches of the public
split, at the protocol's budget. No truth is looked at. Every attack is tried at the same factors of
its default, and beyond them for as long as the outermost is the best.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmark.documents import read_document
from benchmark.errors import PluginError, RecordError
from benchmark.protocol import Protocol, protocol_files
from benchmark.records import Provenance
from benchmark.records import replace as write
from benchmark.registry import TUNED, Submission

FILE = "tuning.yaml"
FACTORS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
"""Of an attack's default rate; the same for every attack."""
STEP, MOST = 3.0, 243.0
"""By how much a rate beyond the factors differs from the last, and the most from the default."""
ROUNDING = 1e-7
"""Mismatches below it are float32's rounding, and alike: of those the rate nearest to the default
is chosen."""
_HEAD = "# Written by gradleak tune: rates by each search's own objective on public batches.\n"


class Tuning(BaseModel):
    """One search's tuning in a protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    """Of the attack; where it has moved the tuning is stale."""
    protocol_digest: str
    default: float
    """The rate where none is given."""
    mismatch: dict[float, float]
    """By rate: the median over the trials of the objective's end over its start."""
    rate: float | None
    """The chosen one; None until every rate was tried."""
    trials: int = Field(ge=1)
    """Public batches, the first of the seed."""
    seed: int
    command: str
    provenance: Provenance

    def tried(self, rate: float, mismatch: float) -> Tuning:
        """Return the tuning with one more rate, and the chosen one where it was the last."""
        found = dict(sorted({**self.mismatch, rate: mismatch}.items()))
        ended = next_rate(found, self.default) is None
        chosen = choose(found, self.default) if ended else None
        return self.model_copy(update={"mismatch": found, "rate": chosen})

    def __str__(self) -> str:
        """What a reader is told."""
        return (
            f"rate {self.rate:g}, tuned on {self.trials} public batches by its own objective, "
            f"of {len(self.mismatch)} rates"
        )


@dataclass(frozen=True)
class Tunings:
    """What has been tuned in one protocol: a tuning by the attack's label without a rate."""

    path: Path
    attacks: dict[str, Tuning]

    @staticmethod
    def read(results: Path, protocol: str) -> Tunings:
        """Read a protocol's file; nothing is tuned where there is none.

        Raises:
            ProtocolError: it is not YAML.
            RecordError: it does not hold tunings.
        """
        path = results / protocol / FILE
        if not path.is_file():
            return Tunings(path, {})
        found = {}
        for label, content in read_document(path).content.items():
            try:
                found[str(label)] = Tuning.model_validate(content)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, (label, *first["loc"])))
                raise RecordError(f"{path}: {where}: {first['msg']}") from error
        return Tunings(path, found)

    def write(self) -> None:
        """Write the file, by label."""
        content = {label: self.attacks[label].model_dump() for label in sorted(self.attacks)}
        write(self.path, _HEAD + yaml.safe_dump(content, sort_keys=False, width=100))


def next_rate(mismatch: dict[float, float], default: float) -> float | None:
    """Return the next rate to try, of two digits; None where the best lies within those tried.

    Args:
        mismatch: of the rates tried so far.
        default: the attack's own rate.
    """
    for factor in FACTORS:
        if (rate := _rounded(default * factor)) not in mismatch:
            return rate
    further = beyond(mismatch, choose(mismatch, default), STEP)
    if further is None or max(further / default, default / further) > MOST:
        return None
    return _rounded(further)


def beyond(tried: Collection[float], best: float, step: float) -> float | None:
    """Return the rate a step further than the best; None where that lies within those tried."""
    return {min(tried): best / step, max(tried): best * step}.get(best)


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")


def choose(mismatch: dict[float, float], default: float) -> float:
    """Return the rate of the least mismatch; of those alike, the one nearest to the default."""

    def key(rate: float) -> tuple[float, float]:
        return max(mismatch[rate], ROUNDING), abs(math.log(rate / default))

    return min(mismatch, key=key)


def base(submission: Submission) -> Submission:
    """Return an attack without the rate it was given: what is tuned."""
    kept = tuple(pair for pair in submission.arguments if pair[0] != "rate")
    return replace(submission, arguments=kept)


def without_rate(label: str) -> str:
    """Return an attack's label without the rate it was given."""
    return ",".join(part for part in label.split(",") if not part.startswith("rate="))


def stale(tuning: Tuning, submission: Submission, protocol: Protocol) -> str | None:
    """Return why a tuning is not of this attack in this protocol; None where it is."""
    if tuning.version != submission.version:
        return f"of version {tuning.version}, the attack is of {submission.version}"
    if tuning.protocol_digest != protocol.digest:
        return "of another version of the protocol"
    if tuning.rate is None:
        return "not finished"
    return None


def resolve(
    attacks: Iterable[Submission], protocol: Protocol, results: Path
) -> tuple[Submission, ...]:
    """Return attacks with `rate=tuned` as the rate tuned in a protocol; the default's own name.

    Where no gradient is granted no search runs, and no rate is asked for.

    Raises:
        PluginError: a rate was not tuned, with the command that does.
    """
    found = []
    for attack in attacks:
        if TUNED not in attack.arguments:
            found.append(attack)
            continue
        plain = base(attack)
        if protocol.budget.gradient_evaluations:
            rate = _tuned(plain, protocol, results)
            plain = replace(plain, arguments=(*plain.arguments, *rate))
        found.append(plain)
    return tuple({one.label: one for one in found}.values())


def _tuned(plain: Submission, protocol: Protocol, results: Path) -> tuple[tuple[str, float], ...]:
    """Return the tuned rate as an argument; none where it is the default."""
    tuning = Tunings.read(results, protocol.name).attacks.get(plain.label)
    wrong = "missing" if tuning is None else stale(tuning, plain, protocol)
    if tuning is None or wrong is not None or tuning.rate is None:
        where, make = results / protocol.name, command(protocol.name, plain.label, results)
        raise PluginError(
            f"{plain.label},rate=tuned: the tuning in {where} is {wrong}; make it by: {make}"
        )
    return () if tuning.rate == tuning.default else (("rate", tuning.rate),)


def command(protocol: str, label: str, results: Path, trials: int | None = None) -> str:
    """Return the command that tunes an attack in a protocol."""
    named = protocol if protocol in protocol_files() else f"{protocol}.yaml"
    words = ["gradleak tune", named, "--attack", label]
    words += [] if trials is None else ["--trials", str(trials)]
    words += [] if results == Path("results") else ["--results", str(results)]
    return " ".join(words)
