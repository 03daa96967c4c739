from typing import TYPE_CHECKING

from benchmark.lazy import lazily
from benchmark.metrics import Excerpt
from benchmark.records.files import (
    Reading,
    append,
    file_of,
    known,
    read_file,
    read_folder,
    rewrite,
)
from benchmark.records.schema import (
    SCHEMA,
    FailureKind,
    Identity,
    Provenance,
    Record,
    Status,
    Wall,
)
from benchmark.records.storage import check_writable, replace, write_protocol

if TYPE_CHECKING:
    from benchmark.records.table import Table, load_results, read_excerpts, read_table

__all__ = [
    "SCHEMA",
    "Excerpt",
    "FailureKind",
    "Identity",
    "Provenance",
    "Reading",
    "Record",
    "Status",
    "Table",
    "Wall",
    "append",
    "check_writable",
    "file_of",
    "known",
    "load_results",
    "read_excerpts",
    "read_file",
    "read_folder",
    "read_table",
    "replace",
    "rewrite",
    "write_protocol",
]

# pandas is imported when a table is first asked for: a process that only attacks never asks
__getattr__ = lazily(__name__, {".table": ("Table", "load_results", "read_excerpts", "read_table")})
