"""What there is: tables for `gradleak list`, whole entries for `gradleak show`."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

from benchmark.data.catalogue import CATALOGUE
from benchmark.documents import read_document
from benchmark.errors import BenchmarkError, PluginError, unknown
from benchmark.manifest import Kind
from benchmark.metrics import METRICS
from benchmark.protocol.places import protocol_files, suite_files
from benchmark.registry import Registry, Submission

Rows = tuple[list[str], list[list[object]]]


def listing(kind: str, plugins: tuple[Path, ...], width: int | None = None) -> str:
    """Return a table of all there is of a kind.

    Args:
        kind: of what is listed.
        plugins: folders of more submissions.
        width: in characters, to which the longest columns are cut; None is any.

    Raises:
        BenchmarkError: no such kind.
    """
    kinds: dict[str, Callable[[], Rows]] = {
        "attacks": lambda: _submissions("attack", plugins),
        "defenses": lambda: _submissions("defense", plugins),
        "protocols": _protocols,
        "data": _data,
        "metrics": _metrics,
        "victims": _victims,
    }
    if kind not in kinds:
        raise BenchmarkError(unknown("list of", kind, kinds))
    headers, rows = kinds[kind]()
    if width is not None:
        rows = _fitted(headers, rows, width)
    table = tabulate(rows, headers, tablefmt="simple", disable_numparse=True)
    if kind not in ("attacks", "defenses"):
        return table
    return "\n".join([table, *(f"broken: {said}" for said in Registry(plugins).broken.values())])


def shown(name: str, plugins: tuple[Path, ...]) -> str:
    """Return all that is known of everything with a name, as YAML documents.

    Raises:
        BenchmarkError: nothing has that name.
    """
    from benchmark.protocol import load_protocol, protocols_of

    found: list[dict[str, Any]] = []
    registry = Registry(plugins)
    kinds: tuple[Kind, Kind] = ("attack", "defense")
    for kind in kinds:
        if name.split(",")[0] in registry.names(kind):
            found += [_submission(s) for s in registry.find(kind, name)]
    if name in protocol_files():
        found.append({"kind": "protocol", **load_protocol(name).frozen()})
    if name in suite_files():
        names = protocols_of(name)
        found.append({"kind": "suite", "name": name, "protocols": names})
    if name in CATALOGUE:
        found.append({**_plain(vars(CATALOGUE[name])), "kind": f"{CATALOGUE[name].kind} data set"})
    if name in METRICS:
        metric = METRICS[name]
        fields = ("name", "unit", "better", "description")
        found.append({"kind": "metric", **{field: getattr(metric, field) for field in fields}})
    if not found:
        named = [*CATALOGUE, *METRICS, *protocol_files(), *suite_files()]
        named += [name for kind in kinds for name in registry.names(kind)]
        near = difflib.get_close_matches(name, named, n=3)
        meant = f"did you mean {' or '.join(near)}?" if near else "see gradleak list"
        raise BenchmarkError(f"nothing is called {name!r}; {meant}")
    return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True, width=100).strip()


def _submissions(kind: Kind, plugins: tuple[Path, ...]) -> Rows:
    rows: list[list[object]] = []
    registry = Registry(plugins)
    for submission in registry.all(kind):
        manifest = submission.manifest
        note = "control" if manifest.control else (manifest.paper or "")
        known = manifest.adaptive_to if kind == "attack" else registry.adaptive_to(manifest.name)
        rows.append([submission.label, manifest.title, note, ", ".join(known)])
    return [kind, "what it is", "source", "adaptive to" if kind == "attack" else "known to"], rows


def _protocols() -> Rows:
    rows: list[list[object]] = []
    said = {suite: read_document(path).content for suite, path in suite_files().items()}
    held = {suite: _held(suite, said) for suite in said}
    for name, path in protocol_files().items():
        p = read_document(path).content  # not fitted to the schema, which takes torch and seconds
        suites = [suite for suite, names in held.items() if name in names]
        size = f"{p['trials']} x {len(p['seeds'])}"
        data, victim = p["data"]["name"], p["victim"]["architecture"]
        rows.append([name, p["title"], data, victim, size, ", ".join(suites)])
    return ["protocol", "title", "data", "victim", "trials x seeds", "suites"], rows


def _victims() -> Rows:
    from gradleak.families import read, rows

    return rows(list(read().values()))


def _held(suite: str, said: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the names of a suite's protocols, those of its suites too."""
    inner = (_held(each, said) for each in said[suite].get("suites", ()))
    return {*said[suite].get("protocols", ())}.union(*inner)


def _fitted(headers: list[str], rows: list[list[object]], width: int) -> list[list[object]]:
    """Return rows whose longest columns, other than the first, are cut to fit a width."""
    headers = [f"{header}  " for header in headers]  # which tabulate adds
    columns = zip(headers, *rows, strict=True)
    longest = [max(len(str(cell)) for cell in column) for column in columns]
    least = [longest[0], *map(len, headers[1:])]
    while sum(longest) + 2 * (len(longest) - 1) > width:  # two spaces between columns
        room = [wide - small for wide, small in zip(longest, least, strict=True)]
        able = [place for place, left in enumerate(room) if left > 0]
        if not able:
            break
        longest[max(able, key=longest.__getitem__)] -= 1
    return [[_cut(str(c), most) for c, most in zip(row, longest, strict=True)] for row in rows]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _data() -> Rows:
    rows: list[list[object]] = []
    for entry in CATALOGUE.values():
        size = ", ".join(f"{count} {split}" for split, count in entry.size.items())
        rows.append([entry.name, entry.kind, ", ".join(entry.tier), size, entry.licence])
    return ["data set", "kind", "tiers", "size", "licence"], rows


def _metrics() -> Rows:
    rows: list[list[object]] = [
        [metric.name, metric.unit, metric.better, metric.description] for metric in METRICS.values()
    ]
    return ["metric", "unit", "worse for the client", "what it is"], rows


def _submission(submission: Submission) -> dict[str, Any]:
    manifest = submission.manifest.model_dump(
        mode="json", exclude={"variants"}, exclude_none=True, exclude_defaults=True
    )
    about = _stated(submission) if submission.outside else _built(submission)
    return {
        **manifest,
        "label": submission.label,
        "arguments": about[0],
        "folder": str(submission.folder),
        "version in full": submission.version,
        "fingerprint": submission.fingerprint,
        "documentation": about[1].strip(),
    }


def _built(submission: Submission) -> tuple[Any, str]:
    """Return all arguments of a submission, and its docstring."""
    instance = submission.build()
    return _plain(vars(instance)), instance.__doc__ or ""


def _stated(submission: Submission) -> tuple[Any, str]:
    """Return the same as the source states it, not imported: arguments as they are written."""
    made = stated_class(submission)
    fields = [one for one in made.body if isinstance(one, ast.AnnAssign)] if made else []
    stated: dict[str, Any] = {
        one.target.id: _literal(one.value)
        for one in fields
        if isinstance(one.target, ast.Name) and "ClassVar" not in ast.unparse(one.annotation)
    }
    return stated | dict(submission.arguments), (made and ast.get_docstring(made)) or ""


def stated_class(submission: Submission) -> ast.ClassDef | None:
    """Return a submission's class as its source states it; nothing is imported.

    Raises:
        PluginError: the source is no regular file, or no Python.
    """
    module, _, name = submission.manifest.entry.partition(":")
    path = submission.folder / f"{module}.py"
    if not path.is_file():
        raise PluginError(f"{path}: wanted a regular file")
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PluginError(f"{path}: cannot be read: {error}") from error
    return next((one for one in body if isinstance(one, ast.ClassDef) and one.name == name), None)


def _literal(value: ast.expr | None) -> Any:  # noqa: ANN401  (any constant)
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return ast.unparse(value) if value else None


def _plain(value: Any) -> Any:  # noqa: ANN401  (any data, to what YAML writes plainly)
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
