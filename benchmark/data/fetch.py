"""Brings a data set from the hub into the mirror: resumed, checked, then in place at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from benchmark.data.catalogue import Entry, entry
from benchmark.data.hub import PATIENCE, copy_in, read_parquet, unavailable
from benchmark.data.places import VARIABLE, check_digest
from benchmark.errors import BenchmarkError, DataUnavailable

_CHUNK = 2**18  # bytes
_SHA256 = 64  # characters; the hub's other digests are git's, and shorter


def fetch(name: str, mirror: Path | None) -> Iterator[str]:
    """Bring every split of a set into the mirror, and yield a line for each.

    A file stands under another name until it has the digest the hub states and, of images, its
    content the catalogue's. An interrupted download goes on from there when asked again.

    Args:
        name: in the catalogue.
        mirror: the folder to write to.

    Raises:
        DataUnavailable: the hub does not have it, or cannot be reached.
        BenchmarkError: there is no mirror, or a digest is another; a download is then deleted.
    """
    found = entry(name)
    if found.hub is None:
        how = found.access or f"its source; see gradleak show {name}"
        raise DataUnavailable(name, ["hub (no repository)"], how)
    if mirror is None:
        raise BenchmarkError(f"no mirror to fetch {name} into; wanted --data DIR or {VARIABLE}")
    for split in found.hub.files:
        path = copy_in(mirror, found, split)
        if path.is_file():
            _check(found, split, path)
            yield f"{path}: already there"
            continue
        partial = path.with_name(path.name + ".partial")
        digest = _download(found, split, partial)
        try:
            _check(found, split, partial, digest)
        except BenchmarkError:
            partial.unlink()
            raise
        os.replace(partial, path)
        yield f"{path}: {path.stat().st_size} bytes"


def _check(found: Entry, split: str, path: Path, digest: str | None = None) -> None:
    """Raise BenchmarkError where a file has another digest, or its images have."""
    with path.open("rb") as file:
        had = hashlib.file_digest(file, "sha256").hexdigest()
    if had != (digest or had):
        raise BenchmarkError(f"{path}: the file has sha256 {had}, the hub states {digest}")
    if found.kind != "image":
        return  # text is held against the catalogue whenever it is loaded
    try:
        content = read_parquet(found, split, path).digest()
    except Exception as error:  # whatever the reader of parquet says
        said = " ".join(str(error).split())[:120]
        raise BenchmarkError(f"{path}: {said}; wanted {found.name} {split} as parquet") from error
    check_digest(found, split, content, str(path))


def _download(found: Entry, split: str, partial: Path) -> str | None:
    """Append to a partial file what it lacks, and return the sha256 that the hub states."""
    import huggingface_hub as hub

    assert found.hub is not None
    repository, file, revision = found.hub.repository, found.hub.files[split], found.hub.revision
    url = hub.hf_hub_url(repository, file, repo_type="dataset", revision=revision)
    try:
        etag = hub.get_hf_file_metadata(url, timeout=PATIENCE).etag or ""
    except Exception as error:  # whatever the network, the proxy or the hub answers
        raise unavailable(found, split, type(error).__name__) from error
    had = partial.stat().st_size if partial.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={had}-"} if had else {})
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            _save(cast(HTTPResponse, answer), partial, had)
    except HTTPError as error:
        if not (had and error.code == 416):  # nothing is behind the end of a whole file
            raise unavailable(found, split, f"HTTP {error.code}") from error
    except (OSError, HTTPException) as error:
        said = f"{type(error).__name__}; give the same command again to go on"
        raise unavailable(found, split, said) from error
    return etag if len(etag) == _SHA256 else None


def _save(answer: HTTPResponse, partial: Path, had: int) -> None:
    """Write an answer behind what was had, or from the start where the whole file came."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    had = had if answer.status == 206 else 0
    length = answer.headers["Content-Length"]
    total = had + int(length) if length else None
    partial.parent.mkdir(parents=True, exist_ok=True)
    said = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*said, console=Console(stderr=True), transient=True)
    with progress, partial.open("ab" if had else "wb") as file:
        task = progress.add_task(partial.stem, total=total, completed=had)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))
        if total is not None and file.tell() < total:
            raise ConnectionError(f"{file.tell()} of {total} bytes")
