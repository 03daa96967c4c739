"""Which data a protocol attacks: a set of the catalogue, or one's own."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, model_validator

from benchmark.data.catalogue import Entry, Kind
from benchmark.data.catalogue import entry as listed
from benchmark.data.own import OWN, Halves, OwnSet

BESIDE = "beside"
"""What a validation context calls the folder that relative paths stand in."""


class DataSettings(BaseModel):
    """Which data are attacked: one of `name`, `hub`, or of a folder or text of one's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    own_key: ClassVar[str] = ""
    """The key that names one's own files."""
    kind: ClassVar[Kind] = "image"

    name: str = OWN
    """A data set of the catalogue."""
    split: Literal["test"] = "test"
    """Trials come from the private split alone; the public one gives the statistics."""
    hub: str | None = None
    """A data set of the Hugging Face hub, owner/name."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Its commit: 40 hexadecimal digits, for a branch would move."""
    columns: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=2)
    """Of it: of the image and, if any, its label; or of the text and, if any, its user. None is
    `[image, label]`, or `[text]`."""
    split_seed: int | None = None
    """By what one's own data are dealt into public and private; None is 0."""
    public: float | None = Field(default=None, gt=0, lt=1)
    """Share of one's own data that is public; None is a half."""
    _beside: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _one_source(self, info: ValidationInfo) -> Self:
        self._beside = (info.context or {}).get(BESIDE, Path())
        catalogued = self.name != OWN
        sources = (catalogued, self.hub is not None, self._place is not None)
        if sum(sources) != 1:
            raise ValueError(f"wanted one of name, {self.own_key} and hub")
        if (self.hub is None) != (self.revision is None):
            raise ValueError("hub and revision stand together; wanted both or neither")
        if self.columns is not None and self.hub is None:
            raise ValueError("columns are of a hub's data set")
        if catalogued and (self.split_seed is not None or self.public is not None):
            raise ValueError("split_seed and public are of one's own data; a set has its own split")
        return self

    @property
    def _place(self) -> str | None:
        return getattr(self, self.own_key, None)

    @cached_property
    def entry(self) -> Entry:
        """What the data are: read, where they are one's own, to tell what they hold.

        Raises:
            ProtocolError: no such data set, file or folder, or nothing in it.
        """
        if self.name != OWN:
            return listed(self.name)
        halves = Halves(self.split_seed or 0, 0.5 if self.public is None else self.public)
        if self.hub is not None and self.revision is not None:
            from benchmark.data.own_hub import hub_set

            return hub_set(self.kind, self.hub, self.revision, self.columns, halves)
        return self._own(self._beside / str(self._place), halves)

    def _own(self, place: Path, halves: Halves) -> Entry:
        raise NotImplementedError

    @property
    def content(self) -> dict[str, Any]:
        """The key of one's own files, with the digest of what they hold: what decides a number."""
        found = self.entry
        if self._place is None or not isinstance(found, OwnSet):
            return {}
        return {self.own_key: found.content}


class ImageDataSettings(DataSettings):
    """Which images are attacked."""

    own_key: ClassVar[str] = "folder"

    folder: str | None = None
    """One's own PNG and JPEG files, or a folder of them a class; from the protocol's own folder."""
    size: int = Field(ge=4, le=2**12)
    """Side in pixels that the victim sees."""
    per_class: int | None = Field(default=None, ge=1)
    """Most images of a class among all the trials of a seed; None is no limit."""

    def _own(self, place: Path, halves: Halves) -> Entry:
        from benchmark.data.own_images import own_images

        return own_images(place, halves)


class TextDataSettings(DataSettings):
    """Which text is attacked."""

    own_key: ClassVar[str] = "text"
    kind: ClassVar[Kind] = "text"

    text: str | None = None
    """One's own: a folder of `.txt`, a user a file; a `.jsonl` of `user` and `text`; or one text
    file, a paragraph a user. From the protocol's own folder."""
    tokenizer: Literal["gpt2", "bert-base-uncased", "pydoc"]
    length: int = Field(ge=2)
    """Tokens of a sequence; nothing is padded."""
    skip_lines: int = Field(default=0, ge=0)
    """At the head of each user's text, left out: a heading in a form that all share says nothing
    of an attack, and flatters scores of n-grams."""

    def _own(self, place: Path, halves: Halves) -> Entry:
        from benchmark.data.own_text import own_text

        return own_text(place, halves)
