"""What a defense costs: the rate that suits it, then an accuracy a seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmark.data import load_images
from benchmark.errors import NotApplicable
from benchmark.identity import harness_version
from benchmark.prices import Price, Prices
from benchmark.protocol import UtilityProtocol
from benchmark.records import Provenance
from benchmark.registry import Registry, Submission
from benchmark.running.provenance import provenance
from benchmark.seeds import generator
from benchmark.utility.federated import Images, Trained, accuracy, train
from benchmark.victims import ImageSpec, ImageVictim, build


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


def measure(order: Order) -> Iterator[str]:
    """Measure what is due, and yield a line for each defense.

    Raises:
        DataUnavailable: the data, or the victim's weights, cannot be had here.
        PluginError: a defense that is not there, or cannot be built.
    """
    protocol, registry, prices = order.protocol, Registry(order.plugins), Prices(order.results)
    chosen = registry.select("defense", order.defenses or protocol.defenses)
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
    bench = Bench(protocol, order.mirror, order.device)
    place = provenance(order.device)
    for one in chosen:
        if one.label not in due:
            continue
        known = [p.rate for p in prices.found.values() if p.key[:-1] == _key(protocol, one, 0)[:-1]]
        rate = known[0] if known else None
        for seed in due[one.label]:
            made = bench.price(one, seed, rate, place)
            rate = made.rate
            prices.add(made)
        yield _told([prices.found[_key(protocol, one, seed)] for seed in seeds])


class Bench:
    """A utility protocol with its data."""

    def __init__(
        self, protocol: UtilityProtocol, mirror: Path | None, device: torch.device
    ) -> None:
        self.protocol, self.mirror, self.device = protocol, mirror, device
        chosen = protocol.data
        public = load_images(chosen.name, "train", chosen.size, mirror)
        private = load_images(chosen.name, "test", chosen.size, mirror)
        self._public = Images(public.images[:], public.labels)
        self._private = Images(private.images[:], private.labels)
        settings, statistics = protocol.victim, public.statistics
        self._spec = ImageSpec(
            **settings.model_dump(exclude={"mean", "std", "trained_on", "epochs"}),
            channels=public.images.shape[1],
            size=chosen.size,
            classes=len(public.class_names),
            mean=settings.mean or tuple(statistics.mean.tolist()),
            std=settings.std or tuple(statistics.std.tolist()),
        )

    def price(
        self, submission: Submission, seed: int, rate: float | None, place: Provenance
    ) -> Price:
        """Train with a defense on, at a rate, or at the best one on the held-out part."""
        defense = submission.build()
        trained, right, reason = None, None, None
        try:
            if rate is None:
                rate = self._best_rate(submission, seed)
            trained = self._train(submission, self._public, seed, rate)
            right = accuracy(trained.model, self._private)
        except NotApplicable as error:
            reason = str(error)
        protocol = self.protocol
        return Price(
            protocol=protocol.name,
            digest=protocol.digest,
            defense=submission.label,
            version=submission.version,
            harness=harness_version(),
            seed=seed,
            description=dict(defense.describe()),
            rate=rate,
            accuracy=right,
            reason=reason,
            seconds=0.0 if trained is None else trained.seconds,
            sent=0 if trained is None else trained.sent,
            provenance=place,
        )

    def _best_rate(self, submission: Submission, seed: int) -> float:
        """Return the rate of the best accuracy on the held-out part; of equals the first."""
        held_out = self.protocol.training.held_out
        draws = generator(seed, self.protocol.name, "held out")
        order = torch.randperm(len(self._public), generator=draws)
        cut = round(held_out * len(order))
        rest, judged = self._public.select(order[cut:]), self._public.select(order[:cut])
        found = {
            rate: accuracy(self._train(submission, rest, seed, rate).model, judged)
            for rate in self.protocol.training.rates
        }
        return max(found, key=lambda rate: found[rate])

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


def _key(protocol: UtilityProtocol, defense: Submission, seed: int) -> tuple[str, ...]:
    said = (protocol.name, protocol.digest, defense.label, defense.version, harness_version())
    return (*said, str(seed))


def _told(made: Sequence[Price]) -> str:
    """Return a defense's accuracies in one line."""
    first = made[0]
    if first.accuracy is None:
        return f"{first.defense}: n/a: {first.reason}"
    shown = ", ".join(f"{100 * one.accuracy:.1f} %" for one in made if one.accuracy is not None)
    return f"{first.defense}: {shown} at rate {first.rate:g}, {first.seconds:.0f} s a training"
