"""`gradleak nightly`: what is due, for a time; a sample verified; the board; what changed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmark.attestations import Attestations, Standing
from benchmark.leaderboard import write_board
from benchmark.nightly.changes import Snapshot, report
from benchmark.protocol import load_protocol, load_suite, protocol_files
from benchmark.records import replace
from benchmark.registry import Registry
from benchmark.reproduction import Request as Published
from benchmark.reproduction import reproduce
from benchmark.running.order import Order
from benchmark.running.start import carry_out
from benchmark.verify import Request as Verification
from benchmark.verify import verify

DRIFT = 3
"""Exit code where a verification found another answer."""
_VERIFYING = 0.25  # of the time, at least: what runs leave of theirs is added


@dataclass(frozen=True)
class Request:
    """What a user asked for; see `gradleak nightly`."""

    suite: str
    hours: float
    results: Path
    board: Path
    published: Path
    mirror: Path | None
    device: str
    sample: int = 1


def nightly(request: Request) -> int:
    """Run what is due for a time, verify a sample, write board, pages and a report of the changes.

    Returns:
        The exit code: 3 where an answer drifted, else that of the run.

    Raises:
        BenchmarkError: anything in the request that does not fit.
    """
    end = time.monotonic() + 3600 * request.hours
    names = [one.name for part in load_suite(request.suite) for one in part.protocols]
    before = _snapshot(request, names)
    code = carry_out(_order(request, end), only_plan=False)
    left = max(end - time.monotonic(), 3600 * request.hours * _VERIFYING)
    checked = verify(_verification(request, left / 3600))
    protocols = [load_protocol(n) for n in protocol_files() if (request.results / n).is_dir()]
    standing = Standing(Attestations(request.results), Registry(), protocols)
    write_board(request.results, request.board, standing.count)
    reproduce(_published(request))
    told = report(before, _snapshot(request, names), checked == DRIFT, _now("%Y-%m-%d %H:%M UTC"))
    if told is None:
        print("nothing changed")
    else:
        path = request.results / "changes" / f"{_now('%Y-%m-%d-%H%M%S')}.md"
        replace(path, told)
        print(f"wrote {path}")
    return checked or code


def _snapshot(request: Request, names: list[str]) -> Snapshot:
    if not request.results.is_dir():
        return Snapshot({}, {}, {})
    return Snapshot.take(request.results, names)


def _order(request: Request, end: float) -> Order:
    return Order(
        suite=request.suite,
        attacks=(),
        defenses=(),
        trials=None,
        seeds=None,
        device=request.device,
        results=request.results,
        mirror=request.mirror,
        plugins=(),
        isolate=False,
        until=end - 3600 * request.hours * _VERIFYING,
    )


def _verification(request: Request, hours: float) -> Verification:
    return Verification(
        suite=request.suite,
        sample=request.sample,
        changed=False,
        hours=hours,
        against=None,
        results=request.results,
        mirror=request.mirror,
        device=request.device,
        plugins=(),
    )


def _published(request: Request) -> Published:
    return Published(
        names=(),
        everything=False,
        suite="laptop",
        plan=False,
        device=request.device,
        results=request.results,
        output=request.published,
        mirror=request.mirror,
    )


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)
