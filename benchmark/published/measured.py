"""What of ours answers a published number, from records, from prices, or by counting."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmark.contract import Update
from benchmark.errors import PluginError, RecordError
from benchmark.identity import harness_version
from benchmark.manifest import Kind
from benchmark.prices import Price, Prices
from benchmark.protocol import Protocol, VisionProtocol, load_protocol, load_utility
from benchmark.published.ledger import Published
from benchmark.published.verdicts import NotRun, Ours
from benchmark.records import read_table
from benchmark.registry import Registry, Submission, exactly
from benchmark.seeds import PUBLIC, generator
from benchmark.stats import CELL, RAN, tidy
from benchmark.tunings import resolve
from benchmark.versions import is_raised
from benchmark.victims import SIZES, ImageSpec, ImageVictim, build


class Measured:
    """A results folder, asked for what answers published numbers.

    Args:
        results: the folder; where there is none, nothing was run.
        registry: of the submissions.
    """

    def __init__(self, results: Path, registry: Registry) -> None:
        self.results, self._registry = results, registry
        self._protocols: dict[str, Protocol] = {}
        self._submissions: dict[tuple[Kind, str, str], Submission] = {}

    def ours(self, one: Published) -> Ours | NotRun:
        """Return what was measured, in the paper's unit, or why nothing was."""
        if one.answer.needs is not None:
            return NotRun(one.answer.needs)
        match one.answer.measure:
            case "records":
                return self._recorded(one)
            case "sent":
                return self._sent(one)
            case "accuracy" | "accuracy_lost" | "diagnostic":
                return self._trained(one)

    def protocol(self, name: str) -> Protocol:
        """Return a protocol, read once."""
        if name not in self._protocols:
            self._protocols[name] = load_protocol(name)
        return self._protocols[name]

    def submission(self, kind: Kind, label: str, protocol: Protocol) -> Submission:
        """Return the one submission of a label, its rate resolved where it is tuned.

        Raises:
            PluginError: there is none, or its rate was not tuned in the protocol.
        """
        key = (kind, label, protocol.name)
        if key not in self._submissions:
            (found,) = self._registry.find(kind, exactly(label))
            tuned = resolve([found], protocol, self.results) if kind == "attack" else (found,)
            self._submissions[key] = tuned[0]
        return self._submissions[key]

    def _recorded(self, one: Published) -> Ours | NotRun:
        answer = one.answer
        protocol = self.protocol(answer.protocol)
        try:
            attack = self.submission("attack", one.attack, protocol)
            defense = self.submission("defense", answer.defense, protocol)
        except PluginError as error:
            return NotRun(str(error))
        rows = self._of(protocol, attack, defense)
        if rows.empty:
            return NotRun("no records", due=True)
        rows = rows[rows["seed"].isin(answer.seeds or protocol.seeds)]
        current = rows[self._current(rows, protocol, attack, defense)]
        if current.empty:
            return NotRun("records of another version alone", due=True)
        ran = current[current["status"].isin(RAN) & (current["trial"] < (answer.trials or np.inf))]
        if ran.empty:
            last = current.iloc[-1]
            return NotRun(f"{str(last['status']).replace('_', ' ')}: {last['reason']}")
        scores = ran[answer.metric].to_numpy(float) if answer.metric in ran else np.array([np.nan])
        if np.isnan(scores).all():
            return NotRun(f"{answer.metric} has no number in these records")
        return _told(one, scores[~np.isnan(scores)], self._share(one, protocol, attack, ran))

    def _of(self, protocol: Protocol, attack: Submission, defense: Submission) -> pd.DataFrame:
        found = self._by_cell.get((protocol.name, defense.label, attack.label))
        return pd.DataFrame() if found is None else found

    @cached_property
    def _by_cell(self) -> dict[tuple[str, str, str], pd.DataFrame]:
        if not self.results.is_dir():
            return {}
        table = tidy(read_table(self.results).frame)
        each = table.groupby(CELL, observed=True)
        return {(str(p), str(d), str(a)): rows for (p, d, a), rows in each}

    @staticmethod
    def _current(
        rows: pd.DataFrame, protocol: Protocol, attack: Submission, defense: Submission
    ) -> pd.Series[bool]:
        """Tell of rows whether they were made by this very protocol and these versions."""
        wanted = {
            "protocol_digest": protocol.digest,
            "attack_version": attack.version,
            "defense_version": defense.version,
            "harness_version": harness_version(),
        }
        raised = [
            rows[name].astype(str).map(partial(is_raised, word)).astype(bool)
            for name, word in wanted.items()
        ]
        return ~pd.concat(raised, axis=1).any(axis=1)

    @staticmethod
    def _share(
        one: Published, protocol: Protocol, attack: Submission, ran: pd.DataFrame
    ) -> float | None:
        """Return the most gradients of a trial over the paper's, where both are known."""
        paper = one.answer.steps
        if paper is None:
            stated = attack.manifest.paper_gradients
            paper = stated.get(protocol.data.name) if isinstance(stated, dict) else stated
        spent = ran["gradient_evaluations"].max()
        return float(spent) / paper if paper and spent > 0 else None

    def _trained(self, one: Published) -> Ours | NotRun:
        answer = one.answer
        trained = self._trainings(answer.protocol, answer.defense, answer.seeds)
        if answer.measure == "diagnostic":
            scores = [price.diagnostics[answer.metric] for price in trained.values()]
        else:
            of = _percent(trained)
            scores = list(of.values())
            if answer.measure == "accuracy_lost":
                plain = _percent(self._trainings(answer.protocol, answer.baseline, answer.seeds))
                scores = [plain[seed] - right for seed, right in of.items() if seed in plain]
        return _told(one, np.array(scores)) if scores else NotRun("no trainings", due=True)

    def _trainings(self, name: str, label: str, seeds: tuple[int, ...] | None) -> dict[int, Price]:
        """Return by seed what was trained by the present protocol and versions."""
        protocol = load_utility(name)
        (defense,) = self._registry.find("defense", exactly(label))
        found = (self._prices.now(protocol, defense, seed) for seed in seeds or protocol.seeds)
        return {one.seed: one for one in found if one is not None and one.accuracy is not None}

    @cached_property
    def _prices(self) -> Prices:
        return Prices(self.results)

    def _sent(self, one: Published) -> Ours:
        answer = one.answer
        (defense,) = self._registry.find("defense", exactly(answer.defense))
        victim = _victim(answer.protocol, answer.channels)
        whole = Update({name: each.detach() for name, each in victim.weights().items()})
        sent = defense.build().protect_update(whole, victim, PUBLIC.draws("published"))
        count = float(sum(each.numel() for each in sent.values())) * one.column.scale
        return Ours(count, None, count, 1, exact=True)


def _percent(trained: Mapping[int, Price]) -> dict[int, float]:
    return {
        seed: 100 * price.accuracy for seed, price in trained.items() if price.accuracy is not None
    }


@cache
def _victim(name: str, channels: int) -> ImageVictim:
    protocol = load_protocol(name)
    if not isinstance(protocol, VisionProtocol):
        raise RecordError(f"{name}: wanted a protocol of images")
    settings = protocol.victim
    spec = ImageSpec(
        **settings.model_dump(include={"architecture", *SIZES}),
        channels=channels,
        size=protocol.data.size,
        classes=len(protocol.data.entry.class_names),
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
    )
    return build(spec, generator(0, "published"))


def _told(one: Published, scores: NDArray[np.float64], share: float | None = None) -> Ours:
    numbers = scores * one.column.scale
    std = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    return Ours(float(numbers.mean()), std, float(np.median(numbers)), len(numbers), share)
