"""What a defense costs: the rate that suits it, then an accuracy a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmark.contract import Defense
from benchmark.data import load_images
from benchmark.errors import NotApplicable
from benchmark.identity import harness_version
from benchmark.prices import Price, Prices, present_key
from benchmark.protocol import UtilityProtocol
from benchmark.records import Provenance
from benchmark.registry import Registry, Submission
from benchmark.running.provenance import provenance
from benchmark.running.wall import demand_trust
from benchmark.seeds import PUBLIC, generator
from benchmark.tracks import image_spec
from benchmark.utility.diagnostics import diagnose
from benchmark.utility.federated import Images, Trained, train
from benchmark.victims import ImageVictim, accuracy, build


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
        if (left := [seed for seed in seeds if _key(protocol, one, seed) not in prices.found])
    }
    counts = f"{len(chosen)} defenses, {sum(map(len, due.values()))} trainings due"
    yield f"{protocol.name}: {counts}"
    if order.plan or not due:
        return
    bench = Bench(protocol, order.mirror, order.device, _shuffler(protocol, registry))
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
        yield _told([prices.found[_key(protocol, one, seed)] for seed in seeds])


class Bench:
    """A utility protocol with its data.

    Args:
        protocol: the protocol.
        mirror: of data sets and weights.
        device: where victims train.
        shuffler: a defense that shuffles images, by which a trained victim is judged too.
    """

    def __init__(
        self,
        protocol: UtilityProtocol,
        mirror: Path | None,
        device: torch.device,
        shuffler: Defense | None = None,
    ) -> None:
        self.protocol, self.mirror, self.device = protocol, mirror, device
        self.shuffler = shuffler
        chosen = protocol.data
        public = load_images(chosen.name, "train", chosen.size, mirror)
        private = load_images(chosen.name, "test", chosen.size, mirror)
        self._public = Images(public.images[:], public.labels)
        self._private = Images(private.images[:], private.labels)
        self._spec = image_spec(protocol.victim, public, public.statistics)

    def best_rate(self, submission: Submission) -> float:
        """Return the rate of the best mean accuracy on the seeds' held-out parts.

        Raises:
            NotApplicable: the defense does not fit the victim.
        """
        training, seeds = self.protocol.training, self.protocol.seeds
        found = {
            rate: fmean(self._held_out(submission, seed, rate) for seed in seeds)
            for rate in training.rates
        }
        return max(found, key=lambda rate: found[rate])

    def price(self, submission: Submission, seed: int, rate: float, place: Provenance) -> Price:
        """Train with a defense on, and judge on the private split.

        A victim that tells no more labels of what it was trained on than their commonest alone
        has diverged: that training is done again at the next lower rate, while there is one.

        Raises:
            NotApplicable: the defense does not fit the victim.
        """
        trained = self._train(submission, self._public, seed, rate)
        lower = [each for each in self.protocol.training.rates if each < rate]
        if lower and _judged(trained, self._public) <= self._commonest:
            return self.price(submission, seed, max(lower), place)
        return Price(
            **self._named(submission, seed, place),
            rate=rate,
            accuracy=_judged(trained, self._private),
            diagnostics=self._diagnosed(trained, seed),
            seconds=trained.seconds,
            sent=trained.sent,
        )

    @property
    def _commonest(self) -> float:
        """The share of public images that have the commonest label."""
        return int(self._public.labels.bincount().max()) / len(self._public)

    def misfit(self, submission: Submission, seed: int, reason: str, place: Provenance) -> Price:
        """Return what stands where a defense does not fit the victim."""
        named = self._named(submission, seed, place)
        return Price(**named, rate=None, accuracy=None, reason=reason, seconds=0.0, sent=0)

    def _held_out(self, submission: Submission, seed: int, rate: float) -> float:
        """Return the accuracy on a part of the public split of a training on the rest."""
        draws = generator(seed, self.protocol.name, "held out")
        order = torch.randperm(len(self._public), generator=draws)
        cut = round(self.protocol.training.held_out * len(order))
        rest, judged = self._public.select(order[cut:]), self._public.select(order[:cut])
        return _judged(self._train(submission, rest, seed, rate), judged)

    def _diagnosed(self, trained: Trained, seed: int) -> dict[str, float]:
        """Return what a trained victim makes of shuffled images, where a shuffler is stated."""
        if self.shuffler is None:
            return {}
        draws = PUBLIC.draws(seed, self.protocol.name, "shuffled")
        return diagnose(ImageVictim.of(trained.model), self._private.batch(), self.shuffler, draws)

    def _train(self, submission: Submission, data: Images, seed: int, rate: float) -> Trained:
        victim = build(self._spec, generator(seed, self.protocol.name, "victim"), self.mirror)
        return train(
            ImageVictim.of(victim).to(self.device),
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


def _judged(trained: Trained, data: Images) -> float:
    return accuracy(ImageVictim.of(trained.model), data.images, data.labels)


def _shuffler(protocol: UtilityProtocol, registry: Registry) -> Defense | None:
    if protocol.shuffled_by is None:
        return None
    return registry.select("defense", (protocol.shuffled_by,))[0].build()


def _recorded_rate(protocol: UtilityProtocol, defense: Submission, prices: Prices) -> float | None:
    """Return the rate that was chosen for a defense when other seeds were measured."""
    own = (prices.found.get(_key(protocol, defense, seed)) for seed in protocol.seeds)
    return next((price.rate for price in own if price is not None), None)


def _key(protocol: UtilityProtocol, defense: Submission, seed: int) -> tuple[str, ...]:
    return (*present_key(protocol, defense), str(seed))


def _told(made: Sequence[Price]) -> str:
    """Return a defense's accuracies in one line."""
    first = made[0]
    if first.accuracy is None:
        return f"{first.defense}: n/a: {first.reason}"
    shown = ", ".join(f"{100 * one.accuracy:.1f} %" for one in made if one.accuracy is not None)
    return f"{first.defense}: {shown} at rate {first.rate:g}, {first.seconds:.0f} s a training"
