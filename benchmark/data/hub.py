"""Data on the Hugging Face hub, at a pinned commit; only the file of the split is fetched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import chain
from pathlib import Path

import numpy as np

from benchmark.data.catalogue import Entry
from benchmark.data.pictures import Pictures
from benchmark.errors import DataUnavailable

PATIENCE = 5.0
"""Seconds to wait for one answer."""

_FORBIDDEN: ContextVar[bool] = ContextVar("_FORBIDDEN", default=False)


@contextlib.contextmanager
def no_download() -> Iterator[None]:
    """Let nothing be downloaded within: what is not on this machine is unavailable."""
    token = _FORBIDDEN.set(True)
    try:
        yield
    finally:
        _FORBIDDEN.reset(token)


def downloads_forbidden() -> bool:
    """Tell whether nothing may be downloaded now."""
    return _FORBIDDEN.get()


def read_hub(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return a split from the hub's file; DataUnavailable where it cannot be had."""
    return read_parquet(found, split, hub_file(found, split, mirror))


def hub_file(found: Entry, split: str, mirror: Path | None) -> Path:
    """Return the hub's file of a split: the mirror's copy, else its cache's, else downloaded.

    Raises:
        DataUnavailable: it cannot be had.
    """
    if found.hub is None:
        raise DataUnavailable(found.name, ["hub (no repository)"], "none known")
    if mirror is not None and (path := copy_in(mirror, found, split)).is_file():
        return path
    return _fetch(found, split)


def copy_in(mirror: Path, found: Entry, split: str) -> Path:
    """Return where the mirror keeps its copy of the hub's file of a split."""
    assert found.hub is not None
    return mirror / found.name / Path(found.hub.files[split]).name


def read_parquet(found: Entry, split: str, path: Path) -> Pictures:
    """Return a split from a copy of the hub's file."""
    import datasets  # seconds, so only once there is a file

    assert found.hub is not None
    table = datasets.Dataset.from_parquet(str(path))
    if rows := found.hub.rows.get(split):
        table = table.select(list(chain.from_iterable(rows)))
    image, label = found.hub.columns
    pixels = np.stack([np.asarray(picture) for picture in table[image]])
    origin = f"{found.hub.repository}@{found.hub.revision}"
    return Pictures(pixels, np.array(table[label], np.int64), origin, (path,))


def unavailable(found: Entry, split: str, said: str) -> DataUnavailable:
    """Return that the hub's file of a split cannot be had, with the command that would get it."""
    assert found.hub is not None
    tried = f"hub {found.hub.repository} ({said})"
    return DataUnavailable(found.name, [tried], command(found, split))


def command(found: Entry, split: str) -> str:
    """Return the shell command that downloads the hub's file of a split to its cache."""
    assert found.hub is not None
    repository, file, revision = found.hub.repository, found.hub.files[split], found.hub.revision
    return f"hf download {repository} {file} --repo-type dataset --revision {revision}"


def _fetch(found: Entry, split: str) -> Path:
    """Return the cache's copy of a split's file, downloaded where there is none yet."""
    import huggingface_hub as hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    assert found.hub is not None
    repository, file, revision = found.hub.repository, found.hub.files[split], found.hub.revision
    with contextlib.suppress(LocalEntryNotFoundError):
        cached = hub.hf_hub_download(
            repository, file, repo_type="dataset", revision=revision, local_files_only=True
        )
        return Path(cached)
    if downloads_forbidden():
        raise unavailable(found, split, "not in its cache")
    try:
        # One knock first: without a network the download itself retries for a minute.
        hub.get_session().head(hub.constants.ENDPOINT, timeout=PATIENCE)
        fetched = hub.hf_hub_download(
            repository, file, repo_type="dataset", revision=revision, etag_timeout=PATIENCE
        )
        return Path(fetched)
    except Exception as error:  # whatever the network, the proxy or the hub answers
        raise unavailable(found, split, type(error).__name__) from error
