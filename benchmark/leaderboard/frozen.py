"""The frozen protocol that lies beside its records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import RecordError
from benchmark.leaderboard.classes import NAMES, threat_class
from benchmark.leaderboard.markdown import prose
from benchmark.metrics import METRICS, Metric
from benchmark.stats import Scale

OWN_KEYS = ("folder", "text", "hub")
"""Of a protocol's data, where they are not the catalogue's."""
_USUAL = {"users": 1, "rounds": 1, "secure_aggregation": False, "mode": "train"}
"""What goes without saying."""


@dataclass(frozen=True)
class Frozen:
    """What a board needs of a protocol.

    Attributes:
        primary: the metric of the matrix and the ranking.
        metrics: all metrics, in the protocol's order.
        breach: a metric and the number from which on a trial is breached, if the protocol says.
        content: the whole file; what only describes may be missing.
    """

    name: str
    digest: str
    primary: Metric
    metrics: list[str]
    breach: tuple[Metric, float] | None
    content: Mapping[str, Any]

    @classmethod
    def read(cls, results: Path, name: str) -> Frozen:
        """Read `<name>/protocol.json`; RecordError where a needed field is missing or wrong."""
        path = results / name / "protocol.json"
        try:
            content = json.loads(path.read_bytes())
            found, digest = str(content["name"]), str(content["digest"])
            primary, metrics = str(content["primary"]), [str(one) for one in content["metrics"]]
        except FileNotFoundError:
            raise RecordError(f"{path}: missing; its records are of no known protocol") from None
        except KeyError as error:
            raise RecordError(f"{path}: {error.args[0]} is missing") from None
        except (OSError, ValueError, TypeError) as error:
            raise RecordError(f"{path}: not a frozen protocol: {error}") from None
        if found != name:
            raise RecordError(f"{path}: the name is {found!r}, the folder's is {name!r}")
        if primary not in metrics:
            raise RecordError(f"{path}: primary {primary!r} is not among {', '.join(metrics)}")
        for metric in metrics:
            if metric not in METRICS:
                known = ", ".join(METRICS)
                raise RecordError(f"{path}: metric {metric!r} is unknown; known: {known}")
        breach = _breach(content.get("breach"), metrics, path)
        return cls(name, digest, METRICS[primary], metrics, breach, content)

    @property
    def scale(self) -> Scale:
        """How its trials are judged."""
        breach = None
        if self.breach is not None:
            metric, at = self.breach
            breach = (metric.name, metric.better == "higher", at)
        return Scale(self.primary.name, self.primary.better == "higher", breach)

    @property
    def title(self) -> str:
        """Title as plain text, or the name of a protocol without one."""
        return " ".join(str(self.content.get("title") or "").split()) or self.name

    @property
    def own_data(self) -> str | None:
        """Where the data are from, if the protocol brought them itself; None of the catalogue's."""
        data = self.content.get("data")
        if not isinstance(data, dict):
            return None
        return next((str(data[key]) for key in OWN_KEYS if data.get(key) is not None), None)

    @property
    def heading(self) -> str:
        """Title and name, as plain text; the name keeps it unique."""
        return self.name if self.title == self.name else f"{self.title} ({self.name})"

    @property
    def units(self) -> dict[str, str]:
        """Each metric with its unit, as a column is headed."""
        found = {name: METRICS[name].unit for name in self.metrics}
        return {name: f"{name} ({unit})" if unit else name for name, unit in found.items()}

    def setting(self) -> str:
        """Return the setting in one sentence: data, victim, federation, trials, threat model."""
        parts = [
            _described("data", self.content.get("data"), "name"),
            _described("victim", self.content.get("victim"), "architecture"),
            _described("federation", self.content.get("federation"), "algorithm"),
        ]
        trials, seeds = self.content.get("trials"), self.content.get("seeds")
        if trials is not None and isinstance(seeds, list):
            parts.append(f"{trials} trials a seed (seeds {', '.join(map(str, seeds))})")
        threat = self.content.get("threat")
        if isinstance(threat, dict):
            grants = ", ".join(map(prose, threat.get("grants") or [])) or "nothing"
            server = prose(threat.get("server", "")).replace(r"\_", "-")
            letter = threat_class(threat, self.content.get("federation") or {})
            named = f"class {letter} of Carletti et al. (2025), {NAMES[letter]}"
            parts.append(f"{server} server, granted {grants} ({named})".strip())
        return "; ".join(part for part in parts if part) + "."


def _breach(stated: object, metrics: list[str], path: Path) -> tuple[Metric, float] | None:
    match stated:
        case None:
            return None
        case {"metric": str(name), "at": int() | float() as at} if name in metrics:
            return METRICS[name], at
    raise RecordError(f"{path}: breach is {stated}; wanted one of its metrics and at")


def _described(word: str, section: object, lead: str) -> str:
    """Return a part of the protocol in words: its name, then its plain fields."""
    if not isinstance(section, dict):
        return ""
    fields = [
        f"{prose(key.replace('_', ' '))} {_value(section[key])}"
        for key in section
        if key != lead and section[key] is not None and not isinstance(section[key], dict)
        if _USUAL.get(key) != section[key]
    ]
    inside = f" ({', '.join(fields)})" if fields else ""
    return f"{word} {prose(section.get(lead, 'unnamed'))}{inside}"


def _value(field: object) -> str:
    if isinstance(field, bool):
        return "yes" if field else "no"
    if isinstance(field, list):
        return " x ".join(map(prose, field))
    return prose(field)
