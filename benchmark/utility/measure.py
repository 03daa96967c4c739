"""What a defense costs: the rate that suits it, then an accuracy, or a perplexity, a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmark.contract import Batch
from benchmark.errors import NotApplicable
from benchmark.identity import harness_version
from benchmark.prices import Price, Prices
from benchmark.protocol import UtilityProtocol
from benchmark.records import Provenance
from benchmark.registry import Registry, Submission
from benchmark.running.provenance import provenance
from benchmark.running.wall import demand_trust
from benchmark.seeds import PUBLIC, generator
from benchmark.tunings import beyond
from benchmark.utility.federated import Trained, train
from benchmark.utility.slowdown import slowdown
from benchmark.utility.tasks import Task, load_task

_STEP_BEYOND = 3.2  # from .1 to .3 to 1: about as far as the protocols' rates are apart
_MOST_BEYOND = 4  # rates: where nothing learns, none is better than the next


@dataclass(frozen=True)
class Order:
    """What to measure; no defenses are the protocol's, no seeds too."""

    protocol: UtilityProtocol
    results: Path
    defenses: tuple[str, ...]
    seeds: tuple[int, ...] | None
    plugins: tuple[Path, ...]
    mirror: Path | None
    device: torch.device
    plan: bool = False
    trust: bool = False


def measure(order: Order) -> Iterator[str]:
    """Measure what is due, and yield a line for each defense.

    Raises:
        DataUnavailable: the data, or the victim's weights, cannot be had here.
        PluginError: a defense that is not there, cannot be built, or comes from outside and is not
            trusted.
    """
    protocol, registry, prices = order.protocol, Registry(order.plugins), Prices(order.results)
    chosen = registry.select("defense", order.defenses or protocol.defenses)
    for submission in chosen if not order.trust else ():
        demand_trust(submission)
    seeds = protocol.seeds if order.seeds is None else order.seeds
    due = {
        one.label: left
        for one in chosen
        if (left := [seed for seed in seeds if prices.now(protocol, one, seed) is None])
    }
    counts = f"{len(chosen)} defenses, {sum(map(len, due.values()))} trainings due"
    yield f"{protocol.name}: {counts}"
    if order.plan or not due:
        return
    bench = Bench(protocol, load_task(protocol, registry, order.mirror, order.device))
    place = provenance(order.device)
    for one in chosen:
        if one.label not in due:
            continue
        try:
            rate = _recorded_rate(protocol, one, prices) or bench.best_rate(one)
            for seed in due[one.label]:
                prices.add(bench.price(one, seed, rate, place))
        except NotApplicable as reason:
            for seed in due[one.label]:
                prices.add(bench.misfit(one, seed, str(reason), place))
        told = (prices.now(protocol, one, seed) for seed in seeds)
        yield _told([price for price in told if price is not None])


class Bench:
    """A utility protocol with its data.

    Args:
        protocol: the protocol.
        task: its data and victim.
    """

    def __init__(self, protocol: UtilityProtocol, task: Task) -> None:
        self.protocol, self.task = protocol, task

    def best_rate(self, submission: Submission) -> float:
        """Return the rate of the best mean figure on the seeds' held-out parts.

        Where that is the lowest or the highest of several, others beyond it are tried: a defense
        that clips, or sends signs, has a scale of its own, and would be charged for the protocol's.

        Raises:
            NotApplicable: the defense does not fit the victim.
        """
        found = {
            rate: self._mean_held_out(submission, rate) for rate in self.protocol.training.rates
        }
        for _ in range(_MOST_BEYOND if len(found) > 1 else 0):
            further = beyond(found, self.task.best(found), _STEP_BEYOND)
            if further is None:
                break
            rate = float(f"{further:.1g}")
            found[rate] = self._mean_held_out(submission, rate)
        return self.task.best(found)

    def price(self, submission: Submission, seed: int, rate: float, place: Provenance) -> Price:
        """Train with a defense on, and judge on the private split.

        Raises:
            NotApplicable: the defense does not fit the victim.
        """
        rate, trained = self._settled(submission, seed, rate)
        found = self.task.figure(trained.model, self.task.private)
        said: dict[str, Any] = {self.protocol.figure: found}
        if not math.isfinite(found):
            said = {"reason": "diverged at every rate"}
        draws = PUBLIC.draws(seed, self.protocol.name, "shuffled")
        return Price(
            **self._named(submission, seed, place),
            **said,
            rate=rate,
            diagnostics=self.task.diagnose(trained.model, draws),
            slowdown=self._slowdown(submission, seed),
            seconds=trained.seconds,
            sent=trained.sent,
        )

    def _slowdown(self, submission: Submission, seed: int) -> float:
        return slowdown(
            self.task.victim(seed),
            submission.build(),
            submission.label,
            self.task.public,
            self.protocol.training,
            name=self.protocol.name,
            seed=seed,
        )

    def _settled(self, submission: Submission, seed: int, rate: float) -> tuple[float, Trained]:
        """Train on the public split, and return at which rate, and what it came to.

        A victim that is no better on what it was trained on than frequencies alone has diverged:
        that training is done again at the next lower rate. Where all have, as behind much noise,
        the best of them stands.
        """
        made: dict[float, Trained] = {}
        found: dict[float, float] = {}
        lower = {each for each in self.protocol.training.rates if each < rate}
        for each in (rate, *sorted(lower, reverse=True)):
            made[each] = self._train(submission, self.task.public, seed, each)
            found[each] = self.task.figure(made[each].model, self.task.public)
            if not self.task.diverged(found[each]):
                return each, made[each]
        best = self.task.best(found)
        return best, made[best]

    def misfit(self, submission: Submission, seed: int, reason: str, place: Provenance) -> Price:
        """Return what stands where a defense does not fit the victim."""
        named = self._named(submission, seed, place)
        return Price(**named, rate=None, reason=reason, seconds=0.0, sent=0)

    def _mean_held_out(self, submission: Submission, rate: float) -> float:
        return fmean(self._held_out(submission, seed, rate) for seed in self.protocol.seeds)

    def _held_out(self, submission: Submission, seed: int, rate: float) -> float:
        """Return the figure on a part of the public split of a training on the rest."""
        public = self.task.public
        draws = generator(seed, self.protocol.name, "held out")
        order = torch.randperm(len(public), generator=draws)
        cut = round(self.protocol.training.held_out * len(order))
        rest, judged = public.select(order[cut:]), public.select(order[:cut])
        return self.task.figure(self._train(submission, rest, seed, rate).model, judged)

    def _train(self, submission: Submission, data: Batch, seed: int, rate: float) -> Trained:
        return train(
            self.task.victim(seed),
            submission.build(),
            submission.label,
            data,
            self.protocol.training,
            rate=rate,
            name=self.protocol.name,
            seed=seed,
        )

    def _named(self, submission: Submission, seed: int, place: Provenance) -> dict[str, Any]:
        """Return what a price is the price of."""
        return {
            "protocol": self.protocol.name,
            "digest": self.protocol.digest,
            "defense": submission.label,
            "version": submission.version,
            "harness": harness_version(),
            "seed": seed,
            "description": dict(submission.build().describe()),
            "provenance": place,
        }


def _recorded_rate(protocol: UtilityProtocol, defense: Submission, prices: Prices) -> float | None:
    """Return the rate that was chosen for a defense when other seeds were measured.

    A seed that diverged at it has a lower one.
    """
    own = (prices.now(protocol, defense, seed) for seed in protocol.seeds)
    rates = (price.rate for price in own if price is not None)
    return max((rate for rate in rates if rate is not None), default=None)


def _told(made: Sequence[Price]) -> str:
    """Return what a defense's trainings came to in one line."""
    first = made[0]
    if first.rate is None:
        return f"{first.defense}: {first.told}"
    shown = ", ".join(one.told for one in made)
    return f"{first.defense}: {shown} at rate {first.rate:g}, {first.seconds:.0f} s a training"
