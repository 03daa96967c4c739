"""From the words of `gradleak verify` to its exit code."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmark.attestations import Attestations, Standing, spell
from benchmark.errors import RecordError
from benchmark.protocol import Protocol, load_protocol, load_suite, protocol_files
from benchmark.records import Reading, read_folder
from benchmark.registry import Registry
from benchmark.running.defending import Defending
from benchmark.running.device import device_named
from benchmark.running.order import workers
from benchmark.running.progress import Progress
from benchmark.running.provenance import check_key, provenance, read_key
from benchmark.seeds import Key
from benchmark.verify.report import DIFFERS, table
from benchmark.verify.rerun import Compared, compare, rerun
from benchmark.verify.sample import Stratum, due_again, strata
from benchmark.verify.vouching import Voucher

_CHANGED_SECONDS = 210.0


@dataclass(frozen=True)
class Request:
    """What a user asked to verify; see `gradleak verify`."""

    suite: str | None
    results: Path
    sample: int = 1
    changed: bool = False
    hours: float | None = None
    against: Path | None = None
    mirror: Path | None = None
    device: str = "auto"
    plugins: tuple[Path, ...] = ()
    key: Path | None = None
    trust: bool = False

    @property
    def seconds(self) -> float:
        """The time to spend: what moved is to be cleared while its author waits."""
        if self.hours is not None:
            return self.hours * 3600
        return _CHANGED_SECONDS if self.changed else math.inf


def verify(request: Request) -> int:
    """Run recorded trials again, print what came of it, and attest what it vouches for.

    Returns:
        The exit code: 0 where all that was asked about stands, 3 where an answer changed, a part
        that moved is not attested, or a record is of an older version.

    Raises:
        BenchmarkError: anything in the request that does not fit.
    """
    registry = Registry(request.plugins)
    reading = read_folder(request.results)
    for line in reading.damaged:
        print(f"gradleak: {line}", file=sys.stderr)
    key = read_key(request.key)
    check_key(reading.records, key, request.results)
    protocols = [_as_recorded(each, reading) for each in _protocols(request.suite, reading)]
    if drifted := [line for p in protocols for line in _drift(request.results, p)]:
        print("\n".join(drifted))
    attested = Attestations(request.results)
    standing = Standing(attested, registry, protocols)

    def look(size: int, *, changed: bool) -> list[Stratum]:
        return strata(reading.records, protocols, registry, standing, size=size, changed=changed)

    chosen = look(request.sample, changed=request.changed) if request.sample else []
    if request.against is None:
        found = _rerun(request, chosen, attested, standing, key)
    else:
        other = read_folder(request.against).records
        found = [compare(stratum, other, exactly=False) for stratum in chosen]
    if chosen:
        print(table(found))
    left = look(1, changed=True)
    if old := due_again(reading.records, protocols, registry):
        print(f"outdated: {standing.tell_outdated(old)}")
    if parts := spell(part for one in left for part in one.moved):
        print(f"unverified: {len(left)} cells, because of {', '.join(parts)}")
    differ = sum(one.word == "differs" for one in found)
    print(f"{sum(one.same for one in found)} cells came out the same, {differ} did not")
    return DIFFERS if differ or left or old or drifted else 0


def _rerun(
    request: Request,
    chosen: Sequence[Stratum],
    attested: Attestations,
    standing: Standing,
    key: Key,
) -> list[Compared]:
    """Run strata again, and attest along the way what that vouches for."""
    device = device_named(request.device)
    place = provenance(device, key)
    console = Console(file=sys.stderr, highlight=False)
    found: list[Compared] = []
    with ExitStack() as stack:
        if not request.trust:
            chosen = _guarded(chosen, stack.enter_context(Defending(device)))
        voucher = Voucher(chosen, attested, standing, place)
        progress = stack.enter_context(Progress(len(chosen), len(chosen), console))
        for one in rerun(
            chosen,
            mirror=request.mirror,
            device=device,
            worker_of=workers(device, stack, trust=request.trust),
            provenance=place,
            seconds=request.seconds,
            key=key,
        ):
            found.append(one)
            voucher.take(one)
            progress.advance(one.stratum.cell, 1)
            progress.done(one.stratum.cell, 1)
    if voucher.made:
        print(f"{voucher.made} attestations added to {attested.path}")
    return found


def _guarded(chosen: Sequence[Stratum], defending: Defending) -> list[Stratum]:
    """Return strata whose outside defenses are called behind the wall."""
    return [
        replace(one, cell=replace(one.cell, defense=defending.guard(one.cell.defense)))
        for one in chosen
    ]


def _protocols(suite: str | None, reading: Reading) -> list[Protocol]:
    """Return the protocols to look at, each once: a suite's, or all that have records."""
    if suite is not None:
        every = [protocol for part in load_suite(suite) for protocol in part.protocols]
    else:
        named = {record.protocol for record in reading.records} & protocol_files().keys()
        every = [load_protocol(name) for name in sorted(named)]
    if not reading.records:
        raise RecordError("no records to verify; make some by gradleak run")
    return list({protocol.name: protocol for protocol in every}.values())


def _as_recorded(protocol: Protocol, reading: Reading) -> Protocol:
    """Return a protocol on canaries, where its records are."""
    canaries = protocol.with_canaries()
    digests = {r.identity.protocol_digest for r in reading.records if r.protocol == protocol.name}
    return canaries if canaries.digest in digests else protocol


def _drift(results: Path, protocol: Protocol) -> list[str]:
    """Return what a frozen protocol says otherwise under the same digest: a default changed."""
    path = results / protocol.name / "protocol.json"
    if not path.is_file():
        return []
    was, now = json.loads(path.read_bytes()), protocol.frozen()
    described = ("title", "description")
    if was.get("digest") != now["digest"]:
        return []
    return [
        f"drifted: {path}: {key} is {now[key]!r:.60} by default now: raise the protocol's version"
        for key in was.keys() & now.keys() - set(described)
        if not _contains(now[key], was[key])
    ]


def _contains(now: object, was: object) -> bool:
    """Tell whether a part says what it said, new keys aside."""
    if isinstance(now, dict) and isinstance(was, dict):
        return all(key not in now or _contains(now[key], was[key]) for key in was)
    return now == was
