"""Data sets of the Hugging Face hub that the catalogue does not list, by `datasets`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmark.data.catalogue import Kind, Split
from benchmark.data.formats.encoded import Encoded
from benchmark.data.hub import PATIENCE, downloads_forbidden
from benchmark.data.own import Halves, OwnSet, about, digest
from benchmark.data.own_images import class_names, labels_of
from benchmark.data.own_text import Texts, by_user, text_set
from benchmark.errors import DataUnavailable, ProtocolError, first_line


@dataclass(frozen=True)
class HubRows(Encoded):
    """Images in the rows of a table.

    Attributes:
        images: a column of encoded images.
        rows: the rows of the split.
        origin: repository and revision.
    """

    images: Any
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    origin: str
    margin: float = 1.0

    def content(self, row: int) -> tuple[bytes, str]:
        """Return an encoded image and the row it stands in."""
        place = int(self.rows[row])
        return _bytes(self.images[place]), f"{self.origin} row {place}"

    def files(self) -> Iterable[Path]:
        """Return none: the files are the library's."""
        return ()

    def intact(self) -> bool | None:
        """Tell nothing: a revision is held to its own digests by the library."""
        return None


@dataclass(frozen=True)
class HubSet(OwnSet):
    """A set of the hub at one commit; all rows of all its splits, split again by the seed.

    Attributes:
        columns: of an image and, if there is one, its label; or of a text and, likewise, its user.
        repository: owner/name.
        revision: the commit.
    """

    columns: tuple[str, ...] = ()
    repository: str = ""
    revision: str = ""

    def read(self, split: Split) -> HubRows | Texts:
        """Return a split.

        Raises:
            DataUnavailable: it is not in the library's cache and cannot be downloaded.
            ProtocolError: it has no such columns.
        """
        table, origin = self._table(), f"{self.repository}@{self.revision}"
        for column in self.columns:
            if column not in table.column_names:
                known = ", ".join(table.column_names)
                raise ProtocolError(f"{origin}: no column {column!r}; known: {known}")
        if self.kind == "text":
            said = table[self.columns[0]][:]
            users = table[self.columns[1]][:] if self.columns[1:] else range(len(said))
            found = by_user(zip(map(str, users), said, strict=True))
            return text_set(origin, self.users_are, found, self.halves).read(split)
        return self._images(table, split, origin)

    def _images(self, table: Any, split: Split, origin: str) -> HubRows:  # noqa: ANN401
        import datasets

        encoded = table.cast_column(self.columns[0], datasets.Image(decode=False))
        images = encoded[self.columns[0]]
        groups = [""] * len(table)
        if self.columns[1:]:
            kind = table.features[self.columns[1]]
            names = getattr(kind, "names", None)
            groups = [names[one] if names else str(one) for one in table[self.columns[1]]]
        rows = self.halves.rows([digest(_bytes(image)) for image in images], split, origin)
        classes = class_names(groups)
        labels = labels_of(groups, classes)[rows]
        return HubRows(images, np.array(rows, np.int64), labels, classes, origin)

    def _table(self) -> Any:  # noqa: ANN401  (a Dataset, untyped)
        import datasets

        folder = self._folder()
        try:
            return datasets.load_dataset(str(folder), split="all")
        except Exception as error:  # whatever is wrong with somebody's files
            said = f"{self.repository}@{self.revision}: {first_line(error)}"
            raise ProtocolError(said) from error

    def _folder(self) -> Path:
        """Return the cache's copy of the repository at the commit, downloaded if there is none."""
        import huggingface_hub as hub
        from huggingface_hub.errors import LocalEntryNotFoundError

        what: dict[str, Any] = {
            "repo_id": self.repository,
            "repo_type": "dataset",
            "revision": self.revision,
        }
        with contextlib.suppress(LocalEntryNotFoundError):
            return Path(hub.snapshot_download(**what, local_files_only=True))
        if downloads_forbidden():
            raise self._missing("not in its cache")
        try:
            # One knock first: without a network the download itself retries for a minute.
            hub.get_session().head(hub.constants.ENDPOINT, timeout=PATIENCE)
            return Path(hub.snapshot_download(**what, etag_timeout=PATIENCE))
        except Exception as error:  # whatever the network, the proxy or the hub answers
            raise self._missing(type(error).__name__) from error

    def _missing(self, said: str) -> DataUnavailable:
        fetch = f"hf download {self.repository} --repo-type dataset --revision {self.revision}"
        return DataUnavailable(self.repository, [f"hub {self.repository} ({said})"], fetch)


def hub_set(
    kind: Kind, repository: str, revision: str, columns: tuple[str, ...] | None, halves: Halves
) -> HubSet:
    """Return a set of the hub; nothing is read of it yet."""
    columns = columns or (("image", "label") if kind == "image" else ("text",))
    return HubSet(
        **about(kind, f"https://huggingface.co/datasets/{repository}"),
        users_are=f"{'users' if columns[1:] else 'rows'} of {repository}",
        halves=halves,
        columns=columns,
        repository=repository,
        revision=revision,
    )


def _bytes(image: dict[str, Any]) -> bytes:
    """Return an encoded image: held in the table, or in a file beside it."""
    held = image["bytes"]
    return Path(image["path"]).read_bytes() if held is None else held
