"""`gradleak nightly`: what is due, for a time; a sample verified; the board; what changed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from benchmark.attestations import Attestations, Standing
from benchmark.leaderboard import write_board
from benchmark.nightly.changes import Snapshot, report
from benchmark.nightly.value import by_value
from benchmark.protocol import load_protocol, load_suite, protocol_files
from benchmark.records import replace
from benchmark.registry import Registry
from benchmark.reproduction import Request as Published
from benchmark.reproduction import reproduce
from benchmark.running.device import device_named
from benchmark.running.order import Order
from benchmark.running.start import carry_out
from benchmark.verify import DIFFERS, verify
from benchmark.verify import Request as Verification

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
    results, mirror, device = request.results, request.mirror, request.device
    running = 3600 * request.hours * (1 - _VERIFYING)
    arrange = partial(
        by_value,
        results=results,
        ranks=before.ranks,
        seconds=running,
        device=device_named(device).type,
        cores=torch.get_num_threads(),
    )
    until = end - 3600 * request.hours * _VERIFYING
    order = Order(
        request.suite,
        results=results,
        mirror=mirror,
        device=device,
        until=until,
        arrange=arrange,
    )
    code = carry_out(order, only_plan=False)
    left = max(end - time.monotonic(), 3600 * request.hours * _VERIFYING)
    checked = verify(
        Verification(
            request.suite,
            results=results,
            mirror=mirror,
            device=device,
            sample=request.sample,
            hours=left / 3600,
        )
    )
    protocols = [load_protocol(n) for n in protocol_files() if (results / n).is_dir()]
    standing = Standing(Attestations(results), Registry(), protocols)
    write_board(results, request.board, standing.count)
    reproduce(Published(output=request.published, results=results, mirror=mirror, device=device))
    told = report(before, _snapshot(request, names), checked == DIFFERS, _now("%Y-%m-%d %H:%M UTC"))
    if told is None:
        print("nothing changed")
    else:
        path = results / "changes" / f"{_now('%Y-%m-%d-%H%M%S')}.md"
        replace(path, told)
        print(f"wrote {path}")
    return checked or code


def _snapshot(request: Request, names: list[str]) -> Snapshot:
    if not request.results.is_dir():
        return Snapshot({}, {}, {})
    return Snapshot.take(request.results, names)


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)
