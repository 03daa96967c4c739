"""Milliseconds of one step of gradient matching a trial, by each way of taking it.

    python tests/performance/gpu.py [--device cpu]

Every way is checked against the plain stack's derivative; one that raises says why in its place.
On the CPU the table is small: it is there to test the script.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional

from benchmark.contract import Update
from benchmark.seeds import generator
from benchmark.toolbox.matching import SquaredDistance, Target, Tracer
from benchmark.victims import ImageSpec, ImageVictim, Initialisation, build

ROUNDS = 10
STARTED = Initialisation(position_std=1.0, class_token_std=1.0)
COLOUR: dict[str, Any] = {"channels": 3, "mean": (0.5,) * 3, "std": (0.25,) * 3}
B = ImageSpec(
    architecture="april_b", patch=8, initialisation=STARTED, size=32, classes=10, **COLOUR
)
VIT = ImageSpec(architecture="timm/vit_base_patch16_224", size=224, classes=1000, **COLOUR)
TINY = B.model_copy(update={"width": 32, "depth": 1})
TABLE = {
    "cuda": [
        *[("Architecture B", B, trials) for trials in (32, 256)],
        *[("ViT-B/16", VIT, trials) for trials in (1, 8)],
    ],
    "cpu": [("tiny", TINY, 2)],
}


class Step:
    """One step of a stack: normalised images to the squared distance and its derivative."""

    def __init__(self, victim: ImageVictim, trials: int) -> None:
        self.network = victim.network.requires_grad_(False)
        device, spec = victim.mean.device, victim.spec
        draws = generator(0, "step")
        shape = (trials, 1, spec.channels, spec.size, spec.size)
        self.images, seen = (torch.randn(shape, generator=draws).to(device) for _ in range(2))
        self.labels = torch.randint(spec.classes, (trials,), generator=draws).to(device)
        named = dict(self.network.named_parameters())
        self.updates = []
        for image, label in zip(seen, self.labels, strict=True):
            with requiring(self.network):
                loss = functional.cross_entropy(self.network(image), label[None])
                found = torch.autograd.grad(loss, list(named.values()))
            self.updates.append(Update(dict(zip(named, found, strict=True))))
        self.tracer, self.target = Tracer(self.network), Target(self.updates, named)

    def stacked(self, images: Tensor) -> Tensor:
        """Return the derivative at the images of all trials, by the engine."""
        images = images.detach().requires_grad_()
        trace = self.tracer.trace(images, self._losses)
        distances = SquaredDistance()(trace, self.target)
        return torch.autograd.grad(distances.sum(), images)[0]

    def naive(self, images: Tensor) -> Tensor:
        """Return the same, trial by trial, by autograd through every weight's gradient."""
        found = []
        with requiring(self.network):
            weights = list(self.network.parameters())
            for image, label, update in zip(images, self.labels, self.updates, strict=True):
                image = image.detach().requires_grad_()
                loss = functional.cross_entropy(self.network(image), label[None])
                dummy = torch.autograd.grad(loss, weights, create_graph=True)
                pairs = zip(dummy, update.values(), strict=True)
                distance = torch.stack([(one - seen).square().sum() for one, seen in pairs]).sum()
                found.append(torch.autograd.grad(distance, image)[0])
        return torch.stack(found)

    def _losses(self, logits: Tensor, which: slice) -> Tensor:
        return functional.cross_entropy(logits, self.labels[which], reduction="none")


Way = Callable[[Step], Callable[[Tensor], Tensor]]


@contextmanager
def requiring(network: nn.Module) -> Iterator[None]:
    """Let the weights require a gradient for a while."""
    network.requires_grad_(True)
    try:
        yield
    finally:
        network.requires_grad_(False)


@contextmanager
def tf32() -> Iterator[None]:
    """Allow matrix products in TF32 for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def compiled(step: Step) -> Iterator[None]:
    """Compile a step's network for a while."""
    step.network.compile(backend="inductor" if step.images.is_cuda else "aot_eager")
    try:
        yield
    finally:
        step.network._compiled_call_impl = None
        torch._dynamo.reset()  # type: ignore[no-untyped-call]


def captured(step: Step) -> Callable[[Tensor], Tensor]:
    """Capture a step as a CUDA graph on static images."""
    if not step.images.is_cuda:
        raise RuntimeError("a graph is captured on a CUDA device alone")
    fixed = step.images.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # libraries allocate their workspaces before the capture
        for _ in range(3):
            step.stacked(fixed)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step.stacked(fixed)

    def replay(images: Tensor) -> Tensor:
        fixed.copy_(images)
        graph.replay()
        return found

    return replay


def milliseconds(work: Callable[[Tensor], Tensor], images: Tensor, rounds: int) -> float:
    """Return the median over some rounds, after one that does not count."""
    taken = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        work(images)
        if images.is_cuda:
            torch.cuda.synchronize()
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken[1:])


def rows(name: str, spec: ImageSpec, trials: int, device: torch.device) -> Iterator[list[Any]]:
    """Yield one row of the table for every way on one victim."""
    step = Step(build(spec, generator(0, "victim")).to(device), trials)
    wanted = step.stacked(step.images)
    ways = {
        "naive": (nullcontext(), lambda: step.naive),
        "stack": (nullcontext(), lambda: step.stacked),
        "stack + TF32": (tf32(), lambda: step.stacked),
        "stack + torch.compile": (compiled(step), lambda: step.stacked),
        "stack in a CUDA graph": (nullcontext(), lambda: captured(step)),
    }
    for way, (around, make) in ways.items():
        row = [name, trials, way]
        try:
            with around:
                work = make()
                found = work(step.images).clone()
                taken = milliseconds(work, step.images, ROUNDS)
        except Exception as error:  # whatever torch raises is the row
            reason = str(error).strip().split("\n")[0]
            yield [*row, None, None, f"{type(error).__name__}: {reason[:80]}"]
            continue
        yield [*row, taken / trials, float((found - wanted).norm() / wanted.norm()), None]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device = torch.device(parser.parse_args().device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here; --device cpu runs a small table")
        return
    torch.set_float32_matmul_precision("highest")
    found = [row for case in TABLE[device.type] for row in rows(*case, device)]
    heads = ["victim", "trials", "way", "ms a trial-step", "relative error", "why not"]
    print(tabulate(found, heads, floatfmt=("", "", "", ".3f", ".1e", "")))


if __name__ == "__main__":
    main()
