"""The nouns a submission speaks. Trials come first where trials are stacked."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, overload

import torch
from torch import Tensor, nn

from benchmark.contract.batch import ImageBatch
from benchmark.contract.grants import Grant
from benchmark.contract.victim import Victim
from benchmark.errors import WithheldError


class Update(Mapping[str, Tensor]):
    """What a client sends: tensors by parameter name, float32, shaped as the parameters."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = MappingProxyType(dict(tensors))

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def values(self) -> ValuesView[Tensor]:
        """Return the tensors; quicker than by name."""
        return self._tensors.values()

    def items(self) -> ItemsView[str, Tensor]:
        """Return names with tensors; quicker than by name."""
        return self._tensors.items()

    @cached_property
    def shapes(self) -> Update:
        """The same tensors without values."""
        return Update({name: tensor.to("meta") for name, tensor in self.items()})

    def __repr__(self) -> str:
        return f"Update({len(self)} tensors, {self.nbytes} bytes)"

    @cached_property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(tensor.nbytes for tensor in self.values())

    def norm(self) -> float:
        """Return the Euclidean norm over all tensors together."""
        return float(torch.nn.utils.get_total_norm(self.values()))

    def clipped(self, most: float) -> Update:
        """Return this update scaled down to a norm at most, over all tensors together."""
        factor = min(most / max(self.norm(), 1e-30), 1.0)
        return self if factor == 1 else Update({n: factor * each for n, each in self.items()})

    def without(self, *names: str) -> Update:
        """Return this update less the named tensors."""
        return Update({name: tensor for name, tensor in self.items() if name not in names})


@dataclass(frozen=True)
class DataStatistics:
    """What is public of a data set, taken from its training split, never from the trials.

    Attributes:
        mean_image: (channel, height, width), pixels in [0, 1].
        mean: (channel,), pixels in [0, 1].
        std: (channel,), in pixels.
    """

    mean_image: Tensor
    mean: Tensor
    std: Tensor


@dataclass(frozen=True)
class LocalTraining:
    """How users train before they answer, which the server tells them (FedAvg).

    Attributes:
        steps: of SGD.
        batch_size: examples a step; the last of an epoch fewer.
        rate: learning rate.
    """

    steps: int
    batch_size: int
    rate: float


@dataclass(frozen=True)
class Knowledge:
    """The facts granted; None is a fact withheld.

    The defense's public description is always known (Kerckhoffs), and so is what the server told
    the clients to do: `local` is None where they send one gradient. So are the weights it made,
    by name, where a defense has it hold others: `initial` is None elsewhere.
    """

    batch_size: int | None = None
    labels: Tensor | None = None
    data_statistics: DataStatistics | None = None
    public_network: nn.Module | None = None
    public_images: ImageBatch | None = None
    trained_inverter: nn.Module | None = None
    pixel_levels: int | None = None
    length: int | None = None
    public_text: Tensor | None = None
    client_keys: Mapping[str, Tensor] | None = None
    truth: Tensor | None = None
    other_update: Update | None = None
    defense: Mapping[str, Any] = field(default_factory=dict)
    local: LocalTraining | None = None
    initial: Mapping[str, Tensor] | None = None

    def require(self, grant: Grant) -> Any:  # noqa: ANN401  (each grant has its own type)
        """Return a granted fact, or raise WithheldError naming it."""
        fact = getattr(self, grant.value)
        if fact is None:
            raise WithheldError(f"{grant.value} is not granted by this protocol's threat model")
        return fact


@dataclass(frozen=True)
class Budget:
    """What an attack may spend on one trial.

    Attributes:
        seconds: of wall clock.
        memory_bytes: above the process's own.
        gradient_evaluations: gradients of the victim on the trial's whole batch; 0 leaves closed
            forms only.
    """

    seconds: float
    memory_bytes: int
    gradient_evaluations: int = 0


@dataclass(frozen=True)
class Observation:
    """All that an attacker sees of one trial. Made by `threat.observe` alone.

    Attributes:
        update: what the client sent, after its defense.
        model: the victim's weights as the server knows them; `anatomy` says where its parts are.
        knowledge: the facts granted.
        budget: what the attack may spend.
        generator: the attack's own randomness, one stream a trial.
        later: what the client sent in later rounds, of the same batch and the same model; empty in
            most protocols.
    """

    update: Update
    model: Victim
    knowledge: Knowledge
    budget: Budget
    generator: torch.Generator
    later: tuple[Update, ...] = ()

    def averaged(self) -> Observation:
        """Return the observation of the mean of all rounds' updates: itself where there is one."""
        if not self.later:
            return self
        every = (self.update, *self.later)
        mean = {n: torch.stack([each[n] for each in every]).mean(0) for n in self.update}
        return replace(self, update=Update(mean), later=())

    @property
    def batch_size(self) -> int:
        """Images, or sequences, in the private batch; WithheldError where not granted."""
        return int(self.knowledge.require(Grant.BATCH_SIZE))

    @property
    def defense(self) -> Mapping[str, Any]:
        """The defense's public description: its name, and what it says of itself."""
        return self.knowledge.defense

    @property
    def labels(self) -> Tensor:
        """Labels of the private batch, (batch,) int64; WithheldError where not granted."""
        labels: Tensor = self.knowledge.require(Grant.LABELS)
        return labels

    @property
    def data_statistics(self) -> DataStatistics:
        """Public statistics of the images; WithheldError where not granted."""
        statistics: DataStatistics = self.knowledge.require(Grant.DATA_STATISTICS)
        return statistics

    @property
    def pixel_levels(self) -> int:
        """How many values a stored pixel can have; WithheldError where not granted."""
        found: int = self.knowledge.require(Grant.PIXEL_LEVELS)
        return found

    @property
    def length(self) -> int:
        """Tokens of each private sequence; WithheldError where not granted."""
        return int(self.knowledge.require(Grant.LENGTH))

    @property
    def public_text(self) -> Tensor:
        """Text of other users, (sequences, length) int64; WithheldError where not granted."""
        text: Tensor = self.knowledge.require(Grant.PUBLIC_TEXT)
        return text

    @property
    def client_keys(self) -> Mapping[str, Tensor]:
        """What clients share behind a defense, by name; WithheldError where no client colludes."""
        keys: Mapping[str, Tensor] = self.knowledge.require(Grant.CLIENT_KEYS)
        return keys

    @property
    def public_network(self) -> nn.Module:
        """A network that is not the victim, frozen, on pixels; WithheldError where not granted."""
        network: nn.Module = self.knowledge.require(Grant.PUBLIC_NETWORK)
        return network

    @property
    def public_images(self) -> ImageBatch:
        """Images of others, with their labels; WithheldError where not granted."""
        images: ImageBatch = self.knowledge.require(Grant.PUBLIC_IMAGES)
        return images

    @property
    def trained_inverter(self) -> nn.Module:
        """A network trained on updates of public data, frozen; WithheldError where not granted."""
        inverter: nn.Module = self.knowledge.require(Grant.TRAINED_INVERTER)
        return inverter


class Stack(Sequence[Observation]):
    """Independent observations of one cell and seed: the same model, one update each."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        if not observations:
            raise ValueError("a stack holds at least one observation")
        self._observations = tuple(observations)

    @overload
    def __getitem__(self, index: int) -> Observation: ...
    @overload
    def __getitem__(self, index: slice) -> Stack: ...
    def __getitem__(self, index: int | slice) -> Observation | Stack:
        chosen = self._observations[index]
        return Stack(chosen) if isinstance(chosen, tuple) else chosen

    def __len__(self) -> int:
        return len(self._observations)

    @property
    def model(self) -> Victim:
        """The model that all the observations share."""
        return self._observations[0].model

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """The model, and those that are granted: all the observations' own."""
        known = self._observations[0].knowledge
        granted = (known.public_network, known.trained_inverter)
        return (self.model, *(network for network in granted if network is not None))

    def update(self, name: str) -> Tensor:
        """Return one parameter's updates, (trial, *parameter)."""
        return torch.stack([seen.update[name] for seen in self._observations])

    def network_tensors(self) -> list[Tensor]:
        """Return every parameter and buffer of the networks."""
        modules = (module for network in self.networks for module in network.modules())
        # one walk; torch's own iterators take three
        found = [t for m in modules for t in (*m._parameters.values(), *m._buffers.values())]
        return [tensor for tensor in found if tensor is not None]

    def versions(self) -> list[int]:
        """Return torch's count of in-place changes of every tensor that attacks share."""
        sent = [each for seen in self._observations for each in (seen.update, *seen.later)]
        updates = [tensor for update in sent for tensor in update.values()]
        return [tensor._version for tensor in (*self.network_tensors(), *updates)]


@dataclass(frozen=True)
class Reconstruction:
    """What an attack answers for one trial: images, or tokens, as the victim reads.

    Attributes:
        images: (batch, channel, height, width) float32; the harness clips to [0, 1], pairs and
            scores, so the order within the batch is free.
        gradient_evaluations: gradients of the victim on the whole batch that this trial took.
        labels: (batch,) int64, in any order; None where the attack names none.
        failure: one line where the attack has no answer to this trial; the harness then looks at
            nothing else, and the trial counts as the prior alone.
        tokens: (batch, length) int64, of text; the order of the sequences is free. A method that
            finds words without their places puts them anywhere.
        certain: (batch, length) bool, the tokens that the attack vouches for; None where it
            vouches for none.
        residual: of a search, how far its last gradients were from those observed, in the measure
            that it minimises, over how far they were at its start; None of what does not search.
    """

    images: Tensor | None = None
    gradient_evaluations: int = 0
    labels: Tensor | None = None
    failure: str | None = None
    tokens: Tensor | None = None
    certain: Tensor | None = None
    residual: float | None = None
