"""Which engine an order is carried out by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch

from benchmark.cell import Cell
from benchmark.errors import BenchmarkError
from benchmark.registry import Submission
from benchmark.running.engine import Engine, Inline
from benchmark.running.heard import Heard
from benchmark.running.making import Maker, Terms
from benchmark.running.needs import kept_bytes, memory_of, room, sharing
from benchmark.running.order import Order
from benchmark.running.pool import Pool
from benchmark.running.provenance import provenance
from benchmark.seeds import Key
from benchmark.worker import Worker

ENGINES = ("local", "ray")


def check_engine(order: Order) -> None:
    """Refuse an engine that there is not.

    Raises:
        BenchmarkError: which there are.
    """
    if order.engine not in ENGINES:
        raise BenchmarkError(f"--engine {order.engine!r}: wanted {' or '.join(ENGINES)}")
    if order.address is not None and order.engine != "ray":
        raise BenchmarkError(f"--address {order.address}: wanted --engine ray with it")


def engine_of(
    order: Order,
    due: Iterable[Cell],
    device: torch.device,
    key: Key,
    worker_of: Callable[[Submission], Worker],
    heard: Heard,
    stack: ExitStack,
) -> Engine:
    """Return the engine of an order.

    Args:
        order: what is to be run.
        due: the cells of it that are.
        device: where victims live.
        key: what clients draw in secret hangs on it.
        worker_of: which worker of this process runs a submission.
        heard: takes what submissions say in this process.
        stack: ends what the engine starts.
    """
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    due = list(due)
    per_gpu = order.per_gpu or sharing(due, order.results, device)
    jobs = order.jobs or room(due, order.results, gpus=gpus, per_gpu=per_gpu)
    threads = max(1, torch.get_num_threads() // jobs)
    kept = kept_bytes(due, order.results, device, jobs)
    terms = Terms(str(device), order.mirror, key, order.isolate, order.trust, kept)

    def needed(cell: Cell) -> int:
        return memory_of(cell, order.results)

    if order.engine == "ray":
        from benchmark.running.cluster import Cluster

        share = 1 / per_gpu if device.type == "cuda" else 0.0
        made = Cluster(terms, address=order.address, threads=threads, gpus=share, memory_of=needed)
        return stack.enter_context(made)
    if jobs > 1:
        places = [{"CUDA_VISIBLE_DEVICES": str(i % gpus)} if gpus else {} for i in range(jobs)]
        return stack.enter_context(Pool(terms, places, threads, needed))
    return Inline(
        Maker(
            worker_of=worker_of,
            provenance=provenance(device, key),
            device=device,
            mirror=order.mirror,
            key=key,
            heard=heard,
            kept_bytes=kept,
        )
    )
