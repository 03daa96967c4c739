"""What a protocol says: frozen settings, a class a track."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmark.contract import Budget, Grant, LocalTraining, Server, ThreatModel
from benchmark.data.own import OWN
from benchmark.errors import ProtocolError
from benchmark.metrics import IMAGE_METRICS, TEXT_METRICS, metric
from benchmark.protocol.data import DataSettings, ImageDataSettings, TextDataSettings
from benchmark.victims import ImageSettings, TextSettings

_NAME = r"^[a-z0-9][a-z0-9_]*$"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FederationSettings(_Frozen):
    """How clients make their updates, and how many of them the server sees."""

    algorithm: Literal["fedsgd", "fedavg"] = "fedsgd"
    """`fedsgd`: an update is one gradient. `fedavg`: it is what local training moved (McMahan et
    al., 2017), in units of a gradient."""
    batch_size: int = Field(default=1, ge=1)
    """Images, or sequences, of one user."""
    loss: Literal["cross_entropy"] = "cross_entropy"
    users: int = Field(default=1, ge=1)
    """Users in an aggregate: the server sees the mean of their updates."""
    secure_aggregation: bool = False
    """Whether cryptography keeps each user's own from the server; without it a server that
    aggregates is taken at its word. The update is the same."""
    rounds: int = Field(default=1, ge=1)
    """Updates of one batch and one model that the server sees, each with draws of its own."""
    mode: Literal["train", "eval"] = "train"
    """Whether dropout is active, where the victim has any; batch norms read their running
    statistics either way."""
    local_steps: int | None = Field(default=None, ge=1)
    """Of `fedavg`: steps of SGD on the user's batch; or else `epochs`."""
    epochs: int | None = Field(default=None, ge=1)
    """Of `fedavg`: passes over the user's batch."""
    local_batch: int | None = Field(default=None, ge=1)
    """Of `fedavg`: images, or sequences, a step; None is the user's whole batch."""
    local_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Of `fedavg`: learning rate."""

    @model_validator(mode="after")
    def _trains_as_it_says(self) -> FederationSettings:
        if self.secure_aggregation and self.users == 1:
            raise ValueError("secure_aggregation of one user; wanted users: 2 or more")
        names = ("local_steps", "epochs", "local_batch", "local_rate")
        given = [name for name in names if getattr(self, name) is not None]
        if self.algorithm == "fedsgd":
            if given:
                raise ValueError(f"{given[0]} is of fedavg; the algorithm is fedsgd")
        elif self.local_rate is None or (self.local_steps is None) == (self.epochs is None):
            raise ValueError("fedavg wants local_rate, and local_steps or epochs")
        elif self.local_batch is not None and self.local_batch > self.batch_size:
            raise ValueError(
                f"local_batch {self.local_batch} of a batch of {self.batch_size}; wanted no more"
            )
        return self

    @property
    def examples(self) -> int:
        """Images, or sequences, of all users."""
        return self.users * self.batch_size

    def local(self) -> LocalTraining | None:
        """Return a user's training; None where it sends one gradient."""
        if self.local_rate is None:
            return None
        each = self.local_batch or self.batch_size
        steps = self.local_steps or (self.epochs or 1) * -(-self.batch_size // each)
        return LocalTraining(steps, each, self.local_rate)


class ImageFederationSettings(FederationSettings):
    """How a client makes its update from images."""

    distinct_labels: bool = False
    """Whether no label may stand twice in a batch."""


class ThreatSettings(_Frozen):
    """Who the server is, and what it is granted."""

    server: Server = "honest_but_curious"
    grants: tuple[Grant, ...] = (Grant.BATCH_SIZE, Grant.DATA_STATISTICS)

    def model(self) -> ThreatModel:
        """Return the contract's threat model."""
        return ThreatModel(self.server, frozenset(self.grants))


class BudgetSettings(_Frozen):
    """What an attack may spend on one trial."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    memory_mib: int = Field(gt=0)
    """Above the process's own memory; enforced where attacks run isolated."""
    gradient_evaluations: int = Field(default=0, ge=0)
    """Gradients of the victim on a trial's whole batch; 0 leaves closed forms only."""

    def budget(self) -> Budget:
        """Return the contract's budget."""
        return Budget(self.seconds, self.memory_mib * 2**20, self.gradient_evaluations)


class InverterSettings(_Frozen):
    """How the inverter that is granted is trained (Learning to Invert, Wu et al., UAI 2023)."""

    hidden: int = Field(default=3000, ge=1)
    """Width of its two hidden layers."""
    bins: int = Field(default=1024, ge=1)
    """Into which an update's values are hashed, where there are more."""
    examples: int = Field(default=1000, ge=10)
    """Updates of public batches, a tenth of them held out to choose the epoch."""
    epochs: int = Field(default=30, ge=1)
    """Passes over them."""


class BreachSettings(_Frozen):
    """From which score on a trial counts as breached."""

    metric: str
    """One of the protocol's own."""
    at: float = Field(allow_inf_nan=False)
    """In the metric's unit; itself a breach, as is all that is better for the attacker."""


class Protocol(_Frozen):
    """What makes two numbers comparable."""

    name: str = Field(pattern=_NAME)
    version: int = Field(ge=1)
    title: str
    description: str
    track: Literal["vision", "text"]
    data: DataSettings
    victim: ImageSettings | TextSettings
    federation: FederationSettings
    threat: ThreatSettings
    trials: int = Field(ge=1, le=10**6)
    """Trials under each seed; with one, no control sees another trial's update."""
    seeds: tuple[int, ...] = Field(min_length=1)
    budget: BudgetSettings
    metrics: tuple[str, ...]
    primary: str
    breach: BreachSettings | None = None
    canaries: bool = False
    """Whether private batches are canaries, made of the private split so that no data set holds
    them, and every draw hangs on the run's key."""

    @model_validator(mode="after")
    def _names_exist(self) -> Protocol:
        _ = self.data.entry
        for name in self.metrics:
            metric(name)
        if self.primary not in self.metrics:
            raise ValueError(f"the primary metric {self.primary} is not among the metrics")
        if self.breach is not None and self.breach.metric not in self.metrics:
            raise ValueError(f"the breach metric {self.breach.metric} is not among the metrics")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed stands twice")
        return self

    @cached_property
    def digest(self) -> str:
        """Identify all that decides a number: everything but the title and the description.

        What a protocol leaves at its default is left out, so that a new key expires no record; a
        default that changes wants another `version`.
        """
        described = {"title", "description"}
        content = self.model_dump(mode="json", exclude=described, exclude_defaults=True)
        content["data"] |= self.data.content  # what files hold, wherever they lie
        text = json.dumps({**content, "track": self.track}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def frozen(self) -> dict[str, Any]:
        """Return the protocol as plain data, with its digest, to keep beside its records."""
        content = self.model_dump(mode="json")
        if own := self.data.content:
            content["data"]["content"] = own[self.data.own_key]
        if self.canaries:
            content["canaries_of"] = self.with_canaries(False).digest
        else:
            del content["canaries"]
        return {**content, "digest": self.digest}

    def with_canaries(self, wanted: bool = True) -> Self:
        """Return the protocol on canaries, or on the data's own."""
        made = self.model_copy(update={"canaries": wanted})
        vars(made).pop("digest", None)  # of the protocol it was copied from
        return made


class VisionProtocol(Protocol):
    """A protocol of images."""

    track: Literal["vision"] = "vision"
    data: ImageDataSettings
    victim: ImageSettings
    federation: ImageFederationSettings = ImageFederationSettings()
    threat: ThreatSettings = ThreatSettings()
    public_network: ImageSettings | None = None
    """The network granted as `public_network`, an image prior; stands with that grant alone."""
    inverter: InverterSettings | None = None
    """How `gradleak train --inverter` makes what is granted as `trained_inverter`; likewise."""
    iip_embedding: Literal["pixels"] | ImageSettings | None = None
    """Where the metric `iip` compares images: on pixels averaged to 32 x 32 at most, or by what
    the last layer of a network reads; without one the metric has no number."""
    metrics: tuple[str, ...] = IMAGE_METRICS
    primary: str = "psnr"

    @model_validator(mode="after")
    def _stage_can_be_told(self) -> VisionProtocol:
        """Refuse a training stage on data that no digest fixes, or of another network."""
        others = {"public_network": self.public_network, "iip_embedding": self.iip_embedding}
        for key, network in others.items():
            if isinstance(network, ImageSettings) and network.trained_on is not None:
                raise ValueError(f"{key}: trained_on is of the victim alone")
        trained_on, own = self.victim.trained_on, self.data.name
        if trained_on is None:
            return self
        if own == OWN:
            raise ValueError("victim: trained_on is of data sets of the catalogue, not of own data")
        if trained_on != own:
            raise ValueError(f"victim: trained_on {trained_on}: wanted {own}, the data's own")
        if "train" not in self.data.entry.digest:
            raise ValueError(f"victim: trained_on {own}: its content is the copy's, of no digest")
        return self

    @model_validator(mode="after")
    def _network_is_granted(self) -> VisionProtocol:
        granted = Grant.PUBLIC_NETWORK in self.threat.model().grants
        if granted and self.public_network is None:
            raise ProtocolError("public_network is granted; wanted the key public_network too")
        if self.public_network is not None and not granted:
            raise ProtocolError("public_network is described; wanted it among threat.grants too")
        return self

    @model_validator(mode="after")
    def _inverter_is_granted(self) -> VisionProtocol:
        granted = Grant.TRAINED_INVERTER in self.threat.model().grants
        if granted and self.inverter is None:
            raise ProtocolError("trained_inverter is granted; wanted the key inverter too")
        if self.inverter is not None and not granted:
            raise ProtocolError("inverter is described; wanted trained_inverter granted too")
        return self


class TextProtocol(Protocol):
    """A protocol of text."""

    track: Literal["text"]
    data: TextDataSettings
    victim: TextSettings
    federation: FederationSettings = FederationSettings()
    threat: ThreatSettings = ThreatSettings(
        grants=(Grant.BATCH_SIZE, Grant.LENGTH, Grant.PUBLIC_TEXT)
    )
    metrics: tuple[str, ...] = TEXT_METRICS
    primary: str = "total_accuracy"


class Curve(_Frozen):
    """How scores depend on one setting: a panel of a suite's picture, and a table."""

    title: str
    x: str
    """What varies: a key of the protocol (`federation.batch_size`), an argument of a defense
    (`gaussian_noise.scale`) or of the attacks (`attack.steps`), or `defense` itself."""
    unsaid: float | None = None
    """What stands for a key that a protocol, or an argument that an attack, leaves open; None
    leaves it out."""
    protocols: tuple[str, ...] = ()
    """Of the suite's own; empty is all of them."""
    attacks: tuple[str, ...] = ()
    """As records name them, less an argument that is the axis; empty is all that ran, less the
    controls."""
    defenses: tuple[str, ...] = ()
    """As records name them, in the order of the axis where it is theirs; empty is undefended."""
    lines: str | None = None
    """A key of the protocol whose values have a line each, or `defense`; None is one line an
    attack."""
    metric: str | None = None
    """Of the scores; None is the protocols' primary."""
    logarithmic: bool = False
    """Whether the axis of x is."""
    logarithmic_scores: bool = False


class Suite(_Frozen):
    """The protocols of one board."""

    name: str = Field(pattern=_NAME)
    title: str
    protocols: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    """The only attacks it runs, as `--attack` names them; empty is all that are registered."""
    leave_out: tuple[str, ...] = ()
    """Names of attacks it does not run, where it runs all that are registered."""
    defenses: tuple[str, ...] = ()
    """Likewise."""
    trials: int | None = Field(default=None, ge=1)
    """The first so many trials of each protocol and seed; None is all."""
    suites: tuple[str, ...] = ()
    """Suites that run after its own protocols, each by its own choices."""
    curves: tuple[Curve, ...] = ()
    """What is drawn of its own protocols' records, on a page of its own."""

    @model_validator(mode="after")
    def _holds_something(self) -> Suite:
        if not (self.protocols or self.suites):
            raise ValueError("a suite wants protocols or suites")
        if self.attacks and self.leave_out:
            raise ValueError("attacks and leave_out together; wanted one of them")
        return self
