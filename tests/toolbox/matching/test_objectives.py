"""Every objective, its value and its derivative by the images, against autograd."""

from functools import cache

import pytest
import torch
from torch.nn import functional

from benchmark.contract import Update
from benchmark.toolbox.matching.ghost import Products, Target
from benchmark.toolbox.matching.gradients import Trace
from benchmark.toolbox.matching.objectives import (
    AbsoluteDistance,
    CosineDistance,
    Distance,
    SquaredDistance,
    Sum,
)
from benchmark.toolbox.matching.trace import Tracer

GREY = {"channels": 1, "size": 8, "patch": 4, "width": 96, "classes": 5}
TIMM = {**GREY, "depth": 1}
VICTIMS = {
    "april a": {"architecture": "april_a", **GREY, "depth": 2},
    "april b": {"architecture": "april_b", **GREY, "depth": 2},
    "vit": {"architecture": "timm/vit_tiny_patch16_224", **TIMM},
    "deit": {"architecture": "timm/deit_tiny_patch16_224", **TIMM},
    "distilled": {"architecture": "timm/deit_tiny_distilled_patch16_224", **TIMM},
    "swin": {
        "architecture": "timm/swin_tiny_patch4_window7_224",
        **{"channels": 1, "size": 48, "width": 24, "classes": 5},
    },
    "cifar": {"architecture": "cifar/resnet20", "channels": 3, "size": 8, "classes": 5},
}
DECOMPOSED = ("april a", "april b", "distilled")
SLOW = ("swin", "cifar")
SOME = ("distance, weighed", "cosine, each", "sum")
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-9}


def heavy(name):
    """Return a weight by name: none, twice or half."""
    return 0.0 if name.endswith("bias") else 2.0 if "head" in name else 0.5


def chosen(names):
    """Return some of the names."""
    return frozenset(sorted(names)[::3])


def squared(dummy, seen, weigh=lambda name: 1.0):
    return sum(weigh(n) * (dummy[n] - seen[n]).square().sum() for n in dummy)


def distance(dummy, seen, weigh=lambda name: 1.0):
    return sum(weigh(n) * (dummy[n] - seen[n]).norm() for n in dummy)


def absolute(dummy, seen, weigh=lambda name: 1.0):
    return sum(weigh(n) * (dummy[n] - seen[n]).abs().sum() for n in dummy)


def cosine(dummy, seen, names):
    both = [torch.cat([side[n] for n in sorted(names)]).double() for side in (dummy, seen)]
    return 1 - functional.cosine_similarity(*both, dim=0, eps=0)


def weights_of(names):
    return {name: heavy(name) for name in names}


OBJECTIVES = {  # name -> (names -> objective), (dummy, seen -> what it must be)
    "squared": (lambda names: SquaredDistance(), squared),
    "squared, weighed": (
        lambda names: SquaredDistance(weights_of(names)),
        lambda dummy, seen: squared(dummy, seen, heavy),
    ),
    "distance": (lambda names: Distance(), distance),
    "distance, weighed": (
        lambda names: Distance(weights_of(names)),
        lambda dummy, seen: distance(dummy, seen, heavy),
    ),
    "cosine": (lambda names: CosineDistance(), lambda dummy, seen: cosine(dummy, seen, dummy)),
    "cosine, named": (
        lambda names: CosineDistance(names=chosen(names)),
        lambda dummy, seen: cosine(dummy, seen, chosen(dummy)),
    ),
    "cosine, each": (
        lambda names: CosineDistance("each"),
        lambda dummy, seen: sum(cosine(dummy, seen, [n]) for n in dummy) / len(dummy),
    ),
    "cosine, each named": (
        lambda names: CosineDistance("each", chosen(names)),
        lambda dummy, seen: (
            sum(cosine(dummy, seen, [n]) for n in chosen(dummy)) / len(chosen(dummy))
        ),
    ),
    "absolute": (lambda names: AbsoluteDistance(), absolute),
    "absolute, weighed": (
        lambda names: AbsoluteDistance(weights_of(names)),
        lambda dummy, seen: absolute(dummy, seen, heavy),
    ),
    "sum": (
        lambda names: Sum(
            ((3.0, SquaredDistance()), (0.1, CosineDistance()), (1e-3, AbsoluteDistance()))
        ),
        lambda dummy, seen: (
            3 * squared(dummy, seen)
            + 0.1 * cosine(dummy, seen, dummy)
            + 1e-3 * absolute(dummy, seen)
        ),
    ),
}


def normal(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def plain(network, images, labels, names):
    """Return one trial's gradients by name, flat, by autograd alone; their sums are in float64."""
    named = dict(network.named_parameters())
    loss = functional.cross_entropy(network(images), labels)
    found = torch.autograd.grad(loss, [named[name] for name in names], create_graph=True)
    return dict(zip(names, (gradient.flatten().double() for gradient in found), strict=True))


def relative(found, wanted):
    away = (found - wanted).flatten(1).norm(dim=1)
    return (away / wanted.flatten(1).norm(dim=1)).max().item()


class Case:
    """A victim's dummy and observed gradients of two trials, ours and autograd's."""

    def __init__(self, victim, batch, dtype, *, noise=0.0, withheld=()):
        network, spec = victim.to(dtype).network, victim.spec
        shape = (2, batch, spec.channels, spec.size, spec.size)
        labels = torch.arange(2 * batch).view(2, batch) % spec.classes
        named = dict(network.named_parameters())
        self.names = [name for name in named if name not in withheld]
        truth = normal(0, *shape, dtype=dtype)
        self.seen = [plain(network, *one, self.names) for one in zip(truth, labels, strict=True)]
        self.seen = [
            {
                name: (flat.detach() + noise * normal(7, *flat.shape)).to(dtype)
                for name, flat in seen.items()
            }
            for seen in self.seen
        ]
        updates = [Update({n: seen[n].view(named[n].shape) for n in seen}) for seen in self.seen]
        self.images = normal(1, *shape, dtype=dtype).requires_grad_()
        self.target = Target(updates, self.names)

        def loss(logits, which):
            found = functional.cross_entropy(logits, labels[which].flatten(), reduction="none")
            return found.view(-1, batch).mean(1)

        self.trace = Tracer(network, frozenset(self.names)).trace(self.images, loss)
        self.dummy = [
            plain(network, *one, self.names) for one in zip(self.images, labels, strict=True)
        ]

    def check(self, limit, objectives=tuple(OBJECTIVES)):
        """Compare the objectives' losses and derivatives."""
        for name in objectives:
            make, naive = OBJECTIVES[name]
            losses = make(self.names)(self.trace, self.target)
            both = zip(self.dummy, self.seen, strict=True)
            wanted = torch.stack([naive(dummy, seen) for dummy, seen in both])
            assert losses.dtype == torch.float64
            assert relative(losses[:, None], wanted[:, None]) < limit, name
            found, derivative = (
                torch.autograd.grad(side.sum(), self.images, retain_graph=True)[0]
                for side in (losses, wanted)
            )
            assert relative(found, derivative) < limit, name


@pytest.fixture(scope="module")
def victims(make_victim):
    return cache(lambda kind: make_victim(**VICTIMS[kind]))


def kinds(victims, shapes, rest):
    """Yield victims in float64; one of them, and slowly all, in other shapes and types."""
    for kind in victims:
        for batch, dtype in (*shapes, *rest):
            quick = (batch, dtype) in shapes or kind == "april b"
            marks = () if quick else pytest.mark.slow
            yield pytest.param(kind, batch, dtype, marks=marks, id=f"{kind}-{batch}-{dtype}")


@pytest.mark.parametrize(
    ("kind", "batch", "dtype"),
    list(kinds(VICTIMS, [(4, torch.float64)], [(1, torch.float64), (4, torch.float32)])),
)
def test_losses_and_derivatives_agree_with_autograd(victims, kind, batch, dtype):
    case = Case(victims(kind), batch, dtype)
    assert case.target.ranks or kind == "cifar"  # few channels
    case.check(CLOSE[dtype], SOME if kind in SLOW else tuple(OBJECTIVES))


@pytest.mark.parametrize(
    ("kind", "batch", "dtype"),
    list(
        kinds(
            *(DECOMPOSED, [(4, torch.float64)]),
            [(1, torch.float32), (1, torch.float64), (4, torch.float32)],
        )
    ),
)
def test_losses_and_derivatives_of_noised_updates_agree_with_autograd(victims, kind, batch, dtype):
    case = Case(victims(kind), batch, dtype, noise=0.01)
    assert not case.target.ranks
    case.check(CLOSE[dtype])


@pytest.mark.parametrize("kind", ["april b", "distilled"])
def test_withheld_parameters_are_not_matched(victims, kind):
    victim = victims(kind)
    names = list(victim.weights())
    withheld = [name for name in names if "embed" in name or name.endswith("qkv.weight")]
    assert withheld
    case = Case(victim, 2, torch.float64, withheld=withheld)
    assert case.trace.gradients.keys() == set(names) - set(withheld)
    case.check(1e-9)


def test_a_trial_s_loss_does_not_feel_another_trial_s_images(victims):
    case = Case(victims("april b"), 2, torch.float64)
    for name, (make, _) in OBJECTIVES.items():
        loss = make(case.names)(case.trace, case.target)[0]
        (derivative,) = torch.autograd.grad(loss, case.images, retain_graph=True)
        assert derivative[0].any(), name
        assert not derivative[1].any(), name


def of_vectors(dummy, seen):
    """Return the trace and the target of one parameter that is a vector."""
    return (
        Trace(torch.zeros(len(dummy)), {"w": dummy}),
        Target([Update({"w": one}) for one in seen], ["w"]),
    )


def test_weights_default_to_one():
    dummy = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[3.0, 0.0]])}
    target = Target([Update({"a": torch.zeros(2), "b": torch.zeros(2)})], ["a", "b"])
    trace = Trace(torch.zeros(1), dummy)
    assert SquaredDistance({"a": 2.0})(trace, target).item() == 2 * 5 + 9
    assert AbsoluteDistance({"a": 2.0})(trace, target).item() == 2 * 3 + 3
    assert Distance({"b": 0.0})(trace, target).item() == pytest.approx(5**0.5)


@pytest.mark.parametrize(
    "objective", [SquaredDistance(), Distance(), CosineDistance(), CosineDistance("each")]
)
def test_objective_and_derivative_are_finite_where_gradients_agree(objective):
    dummy = normal(0, 3, 50).requires_grad_()
    losses = objective(*of_vectors(dummy, dummy.detach().clone()))
    assert losses.abs().max() < 0.01
    (derivative,) = torch.autograd.grad(losses.sum(), dummy)
    assert derivative.isfinite().all()


@pytest.mark.parametrize("objective", [Distance(), CosineDistance(), CosineDistance("each")])
@pytest.mark.parametrize("zero", ["dummy", "seen", "both"])
def test_objective_and_derivative_are_finite_where_a_gradient_is_zero(objective, zero):
    dummy = (normal(0, 2, 50) * (zero == "seen")).requires_grad_()
    losses = objective(*of_vectors(dummy, normal(1, 2, 50) * (zero == "dummy")))
    (derivative,) = torch.autograd.grad(losses.sum(), dummy)
    assert losses.isfinite().all()
    assert derivative.isfinite().all()


def test_cosine_is_0_for_alike_1_for_orthogonal_and_2_for_opposite_gradients():
    seen = torch.eye(4)[:3]
    dummy = torch.stack([5 * seen[0], torch.eye(4)[3], -0.1 * seen[2]])
    assert CosineDistance()(*of_vectors(dummy, seen)).tolist() == pytest.approx([0, 1, 2])


def test_cosine_does_not_see_the_scale_of_the_update():
    dummy, seen = normal(0, 2, 50, dtype=torch.float64), normal(1, 2, 50, dtype=torch.float64)
    found = [CosineDistance()(*of_vectors(dummy, scale * seen)) for scale in (1, 1e-6)]
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)


def test_a_distance_that_cancelled_below_zero_counts_as_rounding():
    below = Products(*(torch.tensor([[x]], dtype=torch.float64) for x in (1.0, 1 + 1e-8, 1.0)))
    assert below.squared_distance < 0

    class Below(Target):
        def compare(self, trace, names):
            return names, below

    target = Below([Update({"w": torch.ones(1)})], ["w"])
    trace = Trace(torch.zeros(1), {})
    assert Distance()(trace, target).item() == pytest.approx(1e-7**0.5)
