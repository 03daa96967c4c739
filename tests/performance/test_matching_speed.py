"""What a step of gradient matching costs, against the usual double backward and against its floor.

Wanted, of squared distances on a quiet machine: at least 5 stacked steps to a usual one (1.5 on
ViT-B/16), at most 2 floors to a stacked step, less than 1.5 GiB, and before the first step less
than 0.05 of an attack of 800 steps. The usual step is told twice: as DLG and its followers publish
it, whose `backward()` also leaves a derivative on every weight, and without those (`naive`).
Beside an open implementation, where `GRADLEAK_PEERS` names the folder of its runners, both take
steps of DLG by Adam on the same update in turn.
"""

import operator
import statistics
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from benchmark.contract import Budget, ImageBatch, Knowledge, Observation, Stack
from benchmark.federation.client import fedsgd
from benchmark.running.memory import Peak
from benchmark.seeds import generator
from benchmark.toolbox.matching import (
    AbsoluteDistance,
    Adam,
    Search,
    SquaredDistance,
    Tracer,
    search,
)
from benchmark.toolbox.matching.trace import Product
from benchmark.toolbox.noise import add_noise, gaussian
from benchmark.victims import ImageSpec, Initialisation, build

aten = torch.ops.aten
CLOSE = 1e-4  # of float32, relative
ROUNDS = 7
STEPS = 800  # of an attack, as APRIL takes on MNIST
COLOUR = {"channels": 3, "mean": (0.5,) * 3, "std": (0.25,) * 3}
STARTED = Initialisation(position_std=1.0, class_token_std=1.0)
B = ImageSpec(
    architecture="april_b", patch=8, initialisation=STARTED, size=32, classes=10, **COLOUR
)
VIT = ImageSpec(architecture="timm/vit_base_patch16_224", size=224, classes=1000, **COLOUR)
CASES = {
    "squared": (32, 1, SquaredDistance(), torch.square, 0.0),
    "squared, batch of 8": (4, 8, SquaredDistance(), torch.square, 0.0),
    "squared, noised": (32, 1, SquaredDistance(), torch.square, 0.1),
    "L1": (32, 1, AbsoluteDistance(), torch.abs, 0.0),
}


class Clocked:
    """Adam that keeps what the first step evaluates, and the seconds of each; an `Optimiser`."""

    most = 1

    def __init__(self, between=lambda: None):
        self.between = between  # called before every step, off the clock
        self.called, self.began, self.first = [], [], ()
        self.operations = 0  # of the first step's matrix products

    def start(self, values):
        self.state = Adam().start(values)
        return self

    def step(self, values, evaluate, rate):
        self.called.append(time.perf_counter())
        if not self.first:
            with Counter() as counter:
                self.first = values, *evaluate(values, torch.arange(len(values)))
            self.operations = counter.operations
        self.between()
        self.began.append(time.perf_counter())
        return self.state.step(values, evaluate, rate)

    def keep(self, rows):
        self.state.keep(rows)

    def seconds(self):
        """Return the median of the steps but the last, whose end is not seen."""
        pairs = zip(self.began, self.called[1:], strict=False)
        return statistics.median(end - began for began, end in pairs)


def observed(spec, trials, batch=1, noise=0.0):
    """Return observations of random images, labels granted, in memory without limit."""
    victim, draws = build(spec, generator(0, "victim")), generator(0, "images")
    shape = (trials, batch, spec.channels, spec.size, spec.size)
    images, labels = (
        torch.rand(shape, generator=draws),
        torch.randint(spec.classes, shape[:2], generator=draws),
    )
    updates = [fedsgd(victim, ImageBatch(*pair)) for pair in zip(images, labels, strict=True)]
    if noise:
        updates = [add_noise(update, noise, gaussian, draws) for update in updates]
    budget = Budget(3600, 2**40, 10**6)
    return Stack(
        [
            Observation(update, victim, Knowledge(batch, known), budget, generator(i, "start"))
            for i, (update, known) in enumerate(zip(updates, labels, strict=True))
        ]
    )


def searched(stack, objective, clock, steps):
    """Run a search by a clock; return the seconds before its first step."""
    started = time.perf_counter()
    answers = search(stack, Search(objective, steps, clock), [seen.labels for seen in stack])
    assert all(answer.failure is None for answer in answers)
    return clock.called[0] - started


class Counter(TorchDispatchMode):
    """Counts the operations of matrix products, in-place ones too."""

    operations = 0

    def __torch_dispatch__(self, function, _types, given=(), options=None):
        options, name = options or {}, function.overloadpacket
        out = function(*given, **options)
        name = aten.baddbmm if name is aten.baddbmm_ else name
        if name in flop_registry:
            self.operations += flop_registry[name](*given, **options, out_val=out)
        return out


def naive(seen, images, distance, *, published=False):
    """Return loss and derivative of one trial by autograd through every weight's gradient.

    As published, the loss's `backward()` gives the weights derivatives as well.
    """
    network = seen.model.network.requires_grad_(True)
    images = images.detach().requires_grad_()
    weights = list(network.parameters())
    dummy = torch.autograd.grad(
        cross_entropy(network(images), seen.labels), weights, create_graph=True
    )
    loss = sum(
        distance(one - other).sum() for one, other in zip(dummy, seen.update.values(), strict=True)
    )
    if published:
        loss.backward()
        network.zero_grad()
        derivative = images.grad
    else:
        (derivative,) = torch.autograd.grad(loss, images)
    network.requires_grad_(False)
    return loss.detach(), derivative


def floor(stack, images):
    """Return work: the four bare passes over a step's matrix products, on its own tensors."""
    network = stack.model.network
    named, labels = dict(network.named_parameters()), torch.stack([s.labels for s in stack])

    def losses(logits, which):
        found = cross_entropy(logits, labels[which].flatten(), reduction="none")
        return found.view(-1, labels.shape[1]).mean(1)

    trace = Tracer(network).trace(images.clone().requires_grad_(), losses)
    layers = [
        (
            named[name].detach().flatten(1),
            gradient.inputs.detach().flatten(0, 1),
            gradient.outputs.detach().flatten(0, 1),
        )
        for name, gradient in trace.gradients.items()
        if isinstance(gradient, Product)
    ]

    def passes():
        for _ in range(2):
            for weight, inputs, outputs in layers:
                inputs @ weight.mT
                outputs @ weight

    return passes


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def apart(found, wanted):
    """Return the largest distance of a trial, relative to the norm of what was wanted."""
    found, wanted = found.double().flatten(1), wanted.double().flatten(1)
    return ((found - wanted).norm(dim=1) / wanted.norm(dim=1)).max().item()


def compare(benchmark, spec, trials, batch, objective, distance, noise):
    """Time a stack's steps, usual steps and floors in turn; note ratios and errors."""
    stack = observed(spec, trials, batch, noise)
    shape = (trials, batch, spec.channels, spec.size, spec.size)
    images = torch.randn(shape, generator=generator(0, "floor"))
    passes, usual, published, least = floor(stack, images), [], [], []

    def others():  # in turn with the steps, so that a busy machine is busy for all
        seen, rows = stack[len(usual) % trials], images[len(usual) % trials]
        published.append(seconds(lambda: naive(seen, rows, distance, published=True)))
        usual.append(seconds(lambda: naive(seen, rows, distance)))
        least.append(seconds(passes))

    clock = Clocked(others)
    given = (stack, objective, clock, ROUNDS + 1)
    fixed = benchmark.pedantic(searched, given, rounds=1)
    step = clock.seconds() / trials
    info = benchmark.extra_info
    info["milliseconds_trial_step"] = 1000 * step
    info["ratio_published_to_stack"] = statistics.median(published) / step
    info["ratio_naive_to_stack"] = statistics.median(usual) / step
    info["ratio_stack_to_floor"] = step * trials / statistics.median(least)
    info["ratio_fixed_to_loop"] = fixed / (STEPS * step * trials)
    with Counter() as counter:
        naive(stack[0], images[0], distance)
    info["ratio_operations"] = counter.operations * trials / clock.operations
    values, losses, derivatives = clock.first
    wanted = [naive(s, rows, distance) for s, rows in zip(stack, values.view(shape), strict=True)]
    info["error_loss"] = apart(losses[:, None], torch.stack([loss for loss, _ in wanted])[:, None])
    info["error_gradient"] = apart(derivatives, torch.stack([found for _, found in wanted]))
    assert info["error_loss"] <= CLOSE
    assert info["error_gradient"] <= CLOSE


@pytest.mark.parametrize("case", CASES)
@pytest.mark.benchmark(group="matching, Architecture B on CIFAR's size")
def test_step_of_a_stack_against_the_usual_one(benchmark, case):
    compare(benchmark, B, *CASES[case])


@pytest.mark.slow
@pytest.mark.benchmark(group="matching, ViT-B/16")
def test_step_of_one_trial_on_vit_b16_against_the_usual_one(benchmark):
    compare(benchmark, VIT, 1, 1, SquaredDistance(), torch.square, 0.0)


@pytest.mark.benchmark(group="matching, beside the open implementation")
def test_step_of_dlg_by_adam_beside_the_open_implementation(benchmark, side_by_side, tmp_path):
    alone, stack, update = observed(B, 1), observed(B, 32), tmp_path / "update.safetensors"
    held = {f"weights.{name}": value for name, value in alone.model.network.state_dict().items()}
    held |= {f"gradients.{name}": value.clone() for name, value in alone[0].update.items()}
    blank = torch.zeros(1, B.channels, B.size, B.size)  # scores are not compared
    save_file({**held, "truth.image": blank, "truth.label": alone[0].labels}, update)

    def ours(stack, steps):
        clock = Clocked()
        searched(stack, SquaredDistance(), clock, steps)
        return {"ms_median": 1000 * clock.seconds() / len(stack)}

    given = ("--attack", "dlg_adam", "--update", update, "--steps", 60)
    works = {
        "published": ("run_breaching.py", "--threads", torch.get_num_threads(), "matching", *given),
        "alone": lambda: ours(alone, 60),
        "stack": lambda: ours(stack, 12),
    }
    taken = operator.itemgetter("ms_median")
    found = benchmark.pedantic(side_by_side, (works, taken), rounds=1)
    info = benchmark.extra_info
    for who, one in found.items():
        info[f"milliseconds_{who}"] = taken(one)
    for who in ("alone", "stack"):
        info[f"ratio_published_to_{who}"] = taken(found["published"]) / taken(found[who])
    assert info["ratio_published_to_stack"] > 0


def peak():
    """Return the bytes a search of 32 trials takes above the model and the updates."""
    stack = observed(B, 32)
    searched(stack[:1], SquaredDistance(), Clocked(), 1)  # libraries load
    with Peak(stack.model) as measured:
        searched(stack, SquaredDistance(), Clocked(), 3)
    return measured.bytes


@pytest.mark.benchmark(group="matching, memory")
def test_memory_of_32_trials(benchmark):
    told = f"import runpy; print(runpy.run_path({__file__!r})['peak']())"
    command = [sys.executable, "-c", told]  # a fresh process: nothing freed before is used again
    ended = benchmark.pedantic(
        subprocess.run, (command,), {"capture_output": True, "text": True, "check": True}, rounds=1
    )
    benchmark.extra_info["peak_mib"] = int(ended.stdout) / 2**20
    assert benchmark.extra_info["peak_mib"] > 0
