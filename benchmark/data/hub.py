"""Data on the Hugging Face hub, at a pinned commit; only the file of the split is fetched."""

from __future__ import annotations

import contextlib
from itertools import chain
from pathlib import Path

import numpy as np

from benchmark.data.catalogue import Entry
from benchmark.data.pictures import Pictures
from benchmark.errors import DataUnavailable

_PATIENCE = 5.0  # seconds for one answer


def read_hub(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return a split from the hub's file; DataUnavailable where it cannot be had."""
    if found.hub is None:
        raise DataUnavailable(found.name, ["hub (no repository)"], "none known")
    path = _fetch(found, split)

    import datasets  # seconds, so only once there is a file

    table = datasets.Dataset.from_parquet(str(path))
    if rows := found.hub.rows.get(split):
        table = table.select(list(chain.from_iterable(rows)))
    image, label = found.hub.columns
    pixels = np.stack([np.asarray(picture) for picture in table[image]])
    origin = f"{found.hub.repository}@{found.hub.revision}"
    return Pictures(pixels, np.array(table[label], np.int64), origin)


def _fetch(found: Entry, split: str) -> Path:
    """Return the local copy of a split's file, downloaded where there is none yet."""
    import huggingface_hub as hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    assert found.hub is not None
    repository, file, revision = found.hub.repository, found.hub.files[split], found.hub.revision
    with contextlib.suppress(LocalEntryNotFoundError):
        cached = hub.hf_hub_download(
            repository, file, repo_type="dataset", revision=revision, local_files_only=True
        )
        return Path(cached)
    try:
        # One knock first: without a network the download itself retries for a minute.
        hub.get_session().head(hub.constants.ENDPOINT, timeout=_PATIENCE)
        fetched = hub.hf_hub_download(
            repository, file, repo_type="dataset", revision=revision, etag_timeout=_PATIENCE
        )
        return Path(fetched)
    except Exception as error:  # whatever the network, the proxy or the hub answers
        raise DataUnavailable(
            found.name,
            [f"hub {repository} ({type(error).__name__})"],
            f"hf download {repository} {file} --repo-type dataset --revision {revision}",
        ) from error
