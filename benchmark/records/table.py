"""All records of a results folder as one table, read column by column.

Lines of trials are parsed by Arrow, many files at a time; headers, which are few, by hand. A file
that this cannot take, or that holds records of the first form, is read line by line, which says
what is wrong with which line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pandas.api.types import union_categoricals
from pyarrow import json as arrow_json

from benchmark.errors import RecordError
from benchmark.records.files import Reader, files_in
from benchmark.records.lines import TRIAL_PREFIX, CellOfRun, Headers, Run
from benchmark.records.schema import FailureKind, Record, Status

Codes = NDArray[Any]

_LINE = pa.schema(
    [
        *((name, pa.string()) for name in ("in", "status", "kind", "reason")),
        *((name, pa.int64()) for name in ("seed", "trial", "gradients", "peak_bytes")),
        ("seconds", pa.float64()),
        ("scores", pa.list_(pa.float64())),
        ("excerpt", pa.struct([("exact", pa.string())])),
    ]
)
_OF_LINE = ("seed", "trial", "status", "kind", "reason", "seconds", "gradient_evaluations")
_COLUMNS = ("protocol", "defense", "attack", *_OF_LINE, "peak_bytes", "has_excerpt")
_OF_RUN = (
    *("protocol_digest", "attack_version", "attack_fingerprint"),
    *("harness_version", "harness_fingerprint", "control", "rounding_decides", "threat"),
    *("commit", "dirty", "hardware", "threads", "versions", "key", "wall"),
)
_OF_CELL = ("defense_version", "defense_fingerprint", "description")
_TYPES: dict[Any, Any] = {
    "reason": object,
    "control": bool,
    "rounding_decides": bool,
    "dirty": "boolean",
    "threads": "Int64",
}
_BATCH_BYTES, _BLOCK_BYTES = 2**25, 2**22
_KEY = ["protocol", "defense", "attack", "seed", "trial"]
_WORDS = (
    *("protocol", "defense", "attack", "status", "kind", "threat", "commit", "hardware"),
    *("protocol_digest", "attack_version", "attack_fingerprint", "versions", "key", "wall"),
    *("harness_version", "harness_fingerprint", "defense_version", "defense_fingerprint"),
    "description",
)
"""Columns in which few words stand in many rows."""


@dataclass
class Table:
    """Every record of a results folder, a row each.

    Attributes:
        frame: what a record says by column, then a column a metric, NaN where a record has none.
            `trial` is -1 for a verdict on a whole cell and seed. Sorted by protocol, attack,
            defense, seed and trial, so that the order of lines is no matter; of two records of one
            key the later is kept, and a verdict is dropped where its cell and seed did run.
        damaged: `file:line: what is wrong` of each line that could not be read.
    """

    frame: pd.DataFrame
    damaged: list[str] = field(default_factory=list)


def read_table(results: Path) -> Table:
    """Read a results folder.

    Raises:
        RecordError: no such folder, or a file of a newer program.
    """
    frames: list[pd.DataFrame] = []
    damaged: list[str] = []
    for paths in _batches(files_in(results)):
        quick = _columns(paths)
        for path in [] if quick is not None else paths:
            one = _columns([path])
            if one is None:
                reading = Reader(path).read()
                placed = [record for record in reading.records if _in_place(record, path)]
                damaged += [*reading.damaged, *_misplaced(path, reading.records)]
                one = _rows(placed)
            frames.append(one)
        if quick is not None:
            frames.append(quick)
    return Table(_tidied(_joined(frames)), damaged)


def load_results(results: str | Path = "results") -> pd.DataFrame:
    """Return every recorded trial of a results folder, a row each; see `Table.frame`.

    Raises:
        RecordError: no such folder, or lines of it cannot be read.
    """
    table = read_table(Path(results))
    if table.damaged:
        more = f", and {len(table.damaged) - 1} more" if len(table.damaged) > 1 else ""
        raise RecordError(f"{table.damaged[0]}{more}")
    return table.frame


def read_excerpts(results: Path, protocol: str) -> list[Record]:
    """Return the records of a protocol that carry an excerpt, in the order of `Table.frame`."""
    kept: dict[tuple[str, str, int, int | None], Record] = {}
    for path in files_in(results):
        if path.relative_to(results).parts[0] == protocol and b'"excerpt"' in path.read_bytes():
            for one in Reader(path).read().records:
                kept[one.attack, one.defense, one.seed, one.trial] = one
    found = [record for record in kept.values() if record.excerpt is not None]
    return sorted(found, key=lambda r: (r.attack, r.defense, r.seed, r.trial or 0))


def _is_file_of(path: Path, header: Mapping[str, Any]) -> bool:
    """Tell whether a file is where the records of a header belong."""
    return path.as_posix().endswith(f"/{header['protocol']}/{header['attack']}.jsonl")


def _in_place(record: Record, path: Path) -> bool:
    """Tell whether a record lies in the file of its protocol and attack, or of the first form."""
    said = {"protocol": record.protocol, "attack": record.attack}
    first = {**said, "attack": f"{record.defense}/{record.attack}"}
    return _is_file_of(path, said) or _is_file_of(path, first)


def _misplaced(path: Path, records: Sequence[Record]) -> Iterator[str]:
    """Yield a line for those records of a file that are another's, of each attack one."""
    strange = [(r.protocol, r.attack) for r in records if not _in_place(r, path)]
    raw = path.read_bytes().splitlines() if strange else []
    for protocol, attack in dict.fromkeys(strange):
        named = f'"protocol":{json.dumps(protocol)}'.encode()
        number = next((i for i, line in enumerate(raw, start=1) if named in line), 1)
        count = strange.count((protocol, attack))
        yield f"{path}:{number}: refused: {count} records of {attack} in {protocol}, another file's"


def _batches(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Return files in groups of so many bytes."""
    batch: list[Path] = []
    size = 0
    for path in paths:
        batch.append(path)
        size += path.stat().st_size
        if size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _columns(paths: Sequence[Path]) -> pd.DataFrame | None:
    """Return the records of files, or None where they have to be read line by line."""
    known, trials = Headers(), list[bytes]()
    try:
        for path in paths:
            *lines, tail = path.read_bytes().split(b"\n")
            if tail:
                return None
            trials += [line for line in lines if line.startswith(TRIAL_PREFIX)]
            for line in lines:
                if line and not line.startswith(TRIAL_PREFIX):
                    header = json.loads(line)
                    if "schema" in header and not _is_file_of(path, header):
                        return None
                    known.take(header)
        if not trials:
            return None
        found = _parsed(trials)
        of_cell = found.column("in").combine_chunks().dictionary_encode()
        cells = [known.cells[name] for name in of_cell.dictionary.to_pylist()]
        runs = [known.runs[cell.run] for cell in cells]
        return _framed(found, of_cell.indices.to_numpy(), cells, runs)
    except (OSError, RecordError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _parsed(trials: Sequence[bytes]) -> pa.Table:
    text = b"\n".join(trials)
    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),  # a core parses each
        parse_options=arrow_json.ParseOptions(_LINE, unexpected_field_behavior="ignore"),
    )


def _framed(
    found: pa.Table, codes: Codes, cells: Sequence[CellOfRun], runs: Sequence[Run]
) -> pd.DataFrame:
    """Return the rows of a file; ValueError where a line says what it may not.

    Args:
        found: the lines.
        codes: the place of each line's headers in the next two.
        cells: headers.
        runs: headers.
    """
    trial = found.column("trial").fill_null(-1).to_numpy()
    status = _coded(found.column("status").fill_null("completed"))
    kind = _coded(found.column("kind"))
    if not {*status.categories, *kind.categories} <= {*get_args(Status), *get_args(FailureKind)}:
        raise ValueError("a status or a kind that is none")
    if found.column("seed").null_count:
        raise ValueError("a line without a seed")
    seconds = found.column("seconds")
    if np.isnan(seconds.to_numpy()).sum() > seconds.null_count:
        raise ValueError("seconds that are no number")
    frame = pd.DataFrame(
        {
            "seed": found.column("seed").to_numpy(),
            "trial": trial,
            "status": status,
            "kind": kind,
            "reason": found.column("reason").to_pandas(),
            "seconds": seconds.to_pandas().astype(float),
            "gradient_evaluations": found.column("gradients").to_pandas().astype(float),
            "peak_bytes": found.column("peak_bytes").to_pandas().astype(float),
            "has_excerpt": found.column("excerpt").is_valid().to_numpy(),
        }
    )
    for name in ("protocol", "attack", "defense", *_OF_RUN, *_OF_CELL):
        of = cells if name in CellOfRun.model_fields else runs
        values = [_plain(name, getattr(header, name)) for header in of]
        frame[name] = _words(values, codes) if name in _WORDS else _taken(values, codes)
    return pd.concat([frame, _scores(found, codes, runs, trial >= 0)], axis=1)


def _scores(found: pa.Table, codes: Codes, runs: Sequence[Run], ran: Codes) -> pd.DataFrame:
    """Return a column a metric; ValueError where scores and metrics differ in number."""
    scores = found.column("scores").combine_chunks()
    lengths = scores.value_lengths().fill_null(0).to_numpy()
    wanted = np.array([len(run.metrics) for run in runs])[codes]
    if (lengths[ran] != wanted[ran]).any() or lengths[~ran].any():
        raise ValueError("another number of scores than of metrics")
    flat = scores.flatten()
    numbers = flat.to_numpy(zero_copy_only=False).astype(float)
    if np.isnan(numbers).sum() > flat.null_count:
        raise ValueError("a score that is no number")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(metric for run in runs for metric in run.metrics):
        at = np.array([run.metrics.index(name) if name in run.metrics else -1 for run in runs])
        there = ran & (at[codes] >= 0)
        column = np.full(len(codes), np.nan)
        column[there] = numbers[(starts + at[codes])[there]]
        columns[name] = column
    return pd.DataFrame(columns)


def _rows(records: Sequence[Record]) -> pd.DataFrame:
    """Return records as rows, the slow way."""
    rows = []
    for one in records:
        row = {name: getattr(one, name) for name in _COLUMNS[:-1]}
        row |= {"control": one.control, "rounding_decides": one.rounding_decides}
        row |= {"threat": one.threat, "trial": _number(one.trial)}
        row |= dict(one.identity) | dict(one.provenance) | one.metrics
        row |= {"versions": _plain("versions", one.provenance.versions)}
        row |= {"description": _plain("description", one.description)}
        row |= {"has_excerpt": one.excerpt is not None}
        rows.append(row)
    columns = [*_COLUMNS, *_OF_RUN, *_OF_CELL]
    frame = pd.DataFrame(rows, columns=None if rows else columns)
    numbers = [name for name in frame.columns if name not in (*columns, "seconds")]
    numbers += ["seconds", "gradient_evaluations", "peak_bytes"]
    words = {n: _words([row[n] for row in rows], np.arange(len(rows))) for n in _WORDS}
    return frame.astype(dict.fromkeys(numbers, float)).assign(**words)


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)] or [_rows([])]
    words = {
        name: union_categoricals([frame[name] for frame in filled], sort_categories=True)
        for name in _WORDS
    }
    rest = pd.concat([frame.drop(columns=list(_WORDS)) for frame in filled], ignore_index=True)
    return rest.assign(**words)


def _tidied(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.astype(_TYPES)
    frame = frame.drop_duplicates(_KEY, keep="last")
    frame = frame.sort_values(["protocol", "attack", "defense", "seed", "trial"])
    cell = [frame[name].cat.codes for name in ("protocol", "defense", "attack")]
    ran = frame["trial"].groupby([*cell, frame["seed"]]).transform("max") >= 0
    frame = frame[(frame["trial"] >= 0) | ~ran].reset_index(drop=True)
    first = [*_COLUMNS, *_OF_CELL, *_OF_RUN]
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def _words(values: Sequence[Any], codes: Codes) -> pd.Categorical[Any]:
    """Return words by the place of their headers."""
    categories = list(dict.fromkeys(value for value in values if value is not None))
    places = np.array([-1 if v is None else categories.index(v) for v in values], dtype=int)
    index: Any = pd.Index(categories, dtype=object)
    return pd.Categorical.from_codes(places[codes], index)


def _coded(column: pa.ChunkedArray) -> pd.Categorical[Any]:
    """Return a column of a few words."""
    found = column.combine_chunks().dictionary_encode()
    places = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    index: Any = pd.Index(found.dictionary.to_pylist(), dtype=object)
    return pd.Categorical.from_codes(places, index)


def _taken(values: Sequence[Any], codes: Codes) -> pd.api.extensions.ExtensionArray:
    return pd.array(values, dtype=object).take(codes)


def _plain(name: str, value: Any) -> object:  # noqa: ANN401  (whatever a header holds)
    """Return a cell of a table: versions in words, what a defense says of itself as JSON."""
    if name == "versions":
        return ", ".join(f"{part} {number}" for part, number in sorted(value.items()))
    if name == "description":
        return json.dumps(value, sort_keys=True)
    return value


def _number(trial: int | None) -> int:
    return -1 if trial is None else trial
