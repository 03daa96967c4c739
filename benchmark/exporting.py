"""Records as one table in a file of a common format."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmark.errors import BenchmarkError, RecordError
from benchmark.records import load_results


def export(results: Path, output: Path, form: str) -> str:
    """Write the records of a results folder, a row a trial, and return a line on what was written.

    Args:
        results: the folder.
        output: the file; `-` is standard output, for CSV alone.
        form: `csv` or `parquet`.

    Raises:
        BenchmarkError: another form, or a Parquet file on standard output.
        RecordError: no such folder, damaged lines, or a file that cannot be written.
    """
    if form not in ("csv", "parquet"):
        raise BenchmarkError(f"--format {form!r}: wanted csv or parquet")
    shown = str(output) == "-"
    if shown and form == "parquet":
        raise BenchmarkError("--output -: wanted a file for parquet, which is no text")
    frame = load_results(results)
    try:
        if form == "parquet":
            frame.to_parquet(output, index=False)
        else:
            frame.to_csv(sys.stdout if shown else output, index=False)
    except OSError as error:
        raise RecordError(f"{output}: cannot be written: {error.strerror or error}") from error
    return f"{len(frame)} records, {len(frame.columns)} columns written to {output}"
