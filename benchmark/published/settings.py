"""What a ledger file may say: a paper, its tables, and what of ours answers each number."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from benchmark.published.values import Tolerance

Measure = Literal["records", "accuracy", "accuracy_lost", "diagnostic", "sent"]
OF_TRAINING: frozenset[Measure] = frozenset({"accuracy", "accuracy_lost", "diagnostic"})
"""What is told of a model that was trained under a defense."""
SuiteName = Literal["laptop", "full"]
SUITES: tuple[SuiteName, SuiteName] = ("laptop", "full")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(_Frozen):
    """What of ours measures a published number; a table, a column and a row say parts of it."""

    measure: Measure = "records"
    """`records`: a metric's mean over a cell's trials. `accuracy`: in percent, of a model trained
    under a defense. `accuracy_lost`: points by which it is below that under `baseline`.
    `diagnostic`: what `metric` names of that model, such as its `consistency`. `sent`: numbers in
    an update that a client sends under a defense."""
    protocol: str = ""
    """Of attacks; of what is told of a trained model a utility protocol."""
    attack: str = ""
    """Its label, as records name it."""
    arguments: str = ""
    """`key=value,...` more of the attack, for numbers of one column."""
    defense: str = ""
    baseline: str = ""
    metric: str = ""
    trials: PositiveInt | None = None
    """At most the first so many of each seed."""
    seeds: tuple[int, ...] | None = None
    """In place of the protocol's."""
    channels: NonNegativeInt = 0
    """Of `sent`: the images'."""
    steps: PositiveInt | None = None
    """Gradients that the paper spends on a trial; else as the attack's `paper_gradients` says."""
    compare: Literal["number", "order"] = "number"
    """`order`: on another victim, of which the order of a column's rows alone can be compared."""
    tolerance: Tolerance | None = None
    """Else one standard deviation of the published number."""
    differs: tuple[str, ...] = ()
    """How our setting is another; what table, column and row say is told together."""
    needs: str | None = None
    """What cannot be had, so that the number is not answered."""
    command: str | None = None
    """What would answer it on a machine that has what it needs."""


class Answers(Answer):
    """An answer, and what differs between the suites."""

    laptop: Answer = Answer()
    full: Answer = Answer()


class Column(_Frozen):
    """What the numbers of a column are."""

    name: str
    unit: str = ""
    better: Literal["higher", "lower"]
    """For the attacker; of accuracies and the like as the paper says."""
    scale: float = 1.0
    """Our number times this is in the paper's unit."""
    answer: Answers = Answers()


class Row(_Frozen):
    """A row's numbers, a column each; null where the paper prints none."""

    name: str
    values: tuple[str | int | float | None, ...]
    again: str | None = None
    """The row whose numbers these are, once more beside another attack: it stands in no order, and
    is counted as no published number."""
    answer: Answers = Answers()
    cells: dict[str, Answers] = {}
    """What is said of single numbers, by column."""


class Table(_Frozen):
    """A table, or the numbers that a figure or a sentence states."""

    place: str
    """Where in the paper."""
    title: str
    setting: str
    """As the paper gives it."""
    left_open: tuple[str, ...] = ()
    """What the paper leaves out, with our assumption."""
    notes: tuple[str, ...] = ()
    """What a reader of both numbers should know."""
    answer: Answers = Answers()
    columns: tuple[Column, ...] = Field(min_length=1)
    rows: tuple[Row, ...] = Field(min_length=1)


class Paper(_Frozen):
    """A ledger file."""

    name: str
    title: str
    source: str
    """Authors, venue, year, arXiv number."""
    tables: dict[str, Table]
    """By the name that `gradleak reproduce` takes."""


def merged(suite: SuiteName, *parts: Answers) -> Answer:
    """Return what parts say together for a suite: later ones win, differences add up.

    Of one part what it says for the suite wins over what it says for both.
    """
    said: dict[str, object] = {}
    differs: list[str] = []
    for part in (one for answers in parts for one in (answers, getattr(answers, suite))):
        own = {name: getattr(part, name) for name in part.model_fields_set}
        said |= {name: value for name, value in own.items() if name not in SUITES}
        differs += part.differs
    return Answer.model_validate({**said, "differs": tuple(dict.fromkeys(differs))})
