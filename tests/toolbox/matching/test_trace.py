"""Traced gradients against a plain double backward, one trial at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from benchmark.errors import NotApplicable
from benchmark.toolbox.matching.gradients import EmbeddingLookup, Product
from benchmark.toolbox.matching.trace import Tracer
from benchmark.victims import TextSpec, build

GREY = {"channels": 1, "size": 8, "patch": 4, "classes": 5}
TIMM = {**GREY, "depth": 1}
VICTIMS = {
    "april a": {"architecture": "april_a", **GREY, "width": 16, "depth": 2},
    "april b": {"architecture": "april_b", **GREY, "width": 16, "depth": 2},
    "vit": {"architecture": "timm/vit_tiny_patch16_224", **TIMM, "width": 24},
    "deit": {"architecture": "timm/deit_tiny_patch16_224", **TIMM, "width": 24},
    "distilled": {"architecture": "timm/deit_tiny_distilled_patch16_224", **TIMM, "width": 24},
    "swin": {
        "architecture": "timm/swin_tiny_patch4_window7_224",
        **{"channels": 1, "size": 32, "width": 24, "classes": 5},
    },
    "cifar": {"architecture": "cifar/resnet20", "channels": 3, "size": 8, "classes": 5},
}
ALONE = ("swin", "cifar")
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-9}


def normal(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def whole_numbers(seed, below, *shape):
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(seed))


def cross_entropy(labels):
    """Return the loss of trials with labels (trials, batch), or with logits for them."""

    def loss(logits, which):
        wanted = labels[which].flatten(0, 1)
        wanted = wanted.softmax(1) if wanted.ndim == 2 else wanted
        found = functional.cross_entropy(logits, wanted, reduction="none")
        return found.view(-1, labels.shape[1]).mean(1)

    return loss


def formed(gradient):
    return gradient if isinstance(gradient, torch.Tensor) else gradient.form().flatten(1)


def plain(network, images, labels):
    """Return the losses, and the gradients by name, (trials, numel), of autograd alone."""
    named = dict(network.named_parameters())
    losses = [
        cross_entropy(labels)(network(one), slice(i, i + 1))[0] for i, one in enumerate(images)
    ]
    found = [torch.autograd.grad(loss, list(named.values()), create_graph=True) for loss in losses]
    return torch.stack(losses), {
        name: torch.stack([gradients[place].flatten() for gradients in found])
        for place, name in enumerate(named)
    }


def apart(found, wanted):
    """Return the largest distance of a trial, relative to the norm of what was wanted."""
    away = (found - wanted).flatten(1).norm(dim=1)
    return (away / wanted.flatten(1).norm(dim=1)).max().item()


def check(network, images, labels, by):
    """Compare losses, gradients, and the derivatives of the gradients' projections by `by`."""
    network.requires_grad_(False)  # as a search does
    trace = Tracer(network).trace(images, cross_entropy(labels))
    losses, wanted = plain(network.requires_grad_(True), images, labels)
    limit = CLOSE[losses.dtype]
    assert apart(trace.losses[:, None], losses[:, None]) < limit
    assert trace.gradients.keys() == wanted.keys()
    found = {name: formed(trace.gradients[name]) for name in wanted}
    largest = max(gradient.norm() for gradient in wanted.values())
    for name, gradient in wanted.items():
        assert found[name].shape == gradient.shape, name
        assert (found[name] - gradient).norm() < limit * max(gradient.norm(), 0.01 * largest), name
    draws = {n: normal(i, *g.shape, dtype=g.dtype) for i, (n, g) in enumerate(wanted.items())}
    derivatives = [
        torch.autograd.grad(sum((draws[n] * side[n]).sum() for n in draws), by)[0]
        for side in (found, wanted)
    ]
    assert apart(*derivatives) < limit


@pytest.fixture(scope="module", params=VICTIMS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def network(make_victim, kind):
    return make_victim(**VICTIMS[kind]).network


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_gradients_and_their_derivatives_agree_with_autograd(network, kind, batch, dtype):
    spec = VICTIMS[kind]
    shape = (2, batch, spec["channels"], spec["size"], spec["size"])
    images = normal(0, *shape, dtype=dtype).requires_grad_()
    check(network.to(dtype), images, whole_numbers(1, 5, 2, batch), images)


def test_only_networks_with_other_parameters_are_traced_one_trial_at_a_time(network, kind):
    assert Tracer(network).together == (kind not in ALONE)


@settings(max_examples=12)
@given(
    side=st.integers(1, 3),
    patch=st.integers(1, 4),
    channels=st.integers(1, 3),
    width=st.sampled_from([4, 8, 16]),
    depth=st.integers(1, 2),
    trials=st.integers(1, 3),
    batch=st.integers(1, 3),
    architecture=st.sampled_from(["april_a", "april_b"]),
)
def test_drawn_shapes_agree_with_autograd(
    make_victim, side, patch, channels, width, depth, trials, batch, architecture
):
    size = side * patch
    victim = make_victim(
        architecture, channels=channels, size=size, patch=patch, width=width, depth=depth
    )
    images = normal(1, trials, batch, channels, size, size, dtype=torch.float64).requires_grad_()
    check(victim.double().network, images, whole_numbers(2, 10, trials, batch), images)


@pytest.mark.parametrize("kind", ["april b", "distilled", "cifar"])
def test_a_trial_s_gradients_do_not_feel_another_trial_s_images(make_victim, kind):
    spec = VICTIMS[kind]
    shape = (3, 2, spec["channels"], spec["size"], spec["size"])
    images = normal(0, *shape).requires_grad_()
    trace = Tracer(make_victim(**spec).network).trace(
        images, cross_entropy(whole_numbers(1, 5, 3, 2))
    )
    size = sum(formed(gradient)[1].square().sum() for gradient in trace.gradients.values())
    (derivative,) = torch.autograd.grad(size, images)
    assert derivative[1].flatten(1).any(dim=1).all()  # both images of the trial itself
    assert not derivative[[0, 2]].any()


@pytest.mark.parametrize("kind", ["april b", "swin"])
def test_only_wanted_parameters_are_traced(make_victim, kind):
    spec = VICTIMS[kind]
    network = make_victim(**spec).network
    wanted = frozenset(
        name for name, _ in network.named_parameters() if "norm" not in name and "bias" not in name
    )
    images = normal(0, 2, 1, 1, spec["size"], spec["size"]).requires_grad_()
    labels = whole_numbers(1, 5, 2, 1)
    trace = Tracer(network, wanted).trace(images, cross_entropy(labels))
    _, gradients = plain(network, images, labels)
    assert trace.gradients.keys() == wanted
    for name in wanted:
        assert apart(formed(trace.gradients[name]), gradients[name]) < 1e-4, name


def test_bias_is_traced_where_its_weight_is_not_wanted(make_victim):
    network = make_victim(**VICTIMS["april b"]).network
    wanted = frozenset({"head.bias", "blocks.0.norm1.bias", "patch_embed.bias"})
    images, labels = normal(0, 2, 1, 1, 8, 8).requires_grad_(), whole_numbers(1, 5, 2, 1)
    trace = Tracer(network, wanted).trace(images, cross_entropy(labels))
    _, gradients = plain(network, images, labels)
    assert trace.gradients.keys() == wanted
    assert all(apart(trace.gradients[name], gradients[name]) < 1e-4 for name in wanted)


def test_swin_without_its_relative_positions_is_traced_at_once(make_victim):
    network = make_victim(**VICTIMS["swin"]).network
    names = [name for name, _ in network.named_parameters()]
    wanted = frozenset(name for name in names if not name.endswith("relative_position_bias_table"))
    tracer = Tracer(network, wanted)
    assert tracer.together
    images, labels = normal(0, 2, 2, 1, 32, 32).requires_grad_(), whole_numbers(1, 5, 2, 2)
    trace = tracer.trace(images, cross_entropy(labels))
    _, gradients = plain(network, images, labels)
    assert all(apart(formed(trace.gradients[n]), gradients[n]) < 1e-4 for n in wanted)


def test_weights_need_no_gradient_and_keep_their_flag(make_victim):
    network = make_victim(**VICTIMS["april b"]).network.requires_grad_(False)
    images = normal(0, 1, 1, 1, 8, 8).requires_grad_()
    trace = Tracer(network).trace(images, cross_entropy(torch.tensor([[1]])))
    assert isinstance(trace.gradients["blocks.0.attn.qkv.weight"], Product)
    assert not any(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("error", [False, True])
def test_no_hook_is_left_on_the_network(make_victim, error):
    network = make_victim(**VICTIMS["april b"]).network
    tracer, labels = Tracer(network), torch.tensor([[1]])
    if error:
        with pytest.raises(RuntimeError):
            tracer.trace(normal(0, 1, 1, 9, 8, 8), cross_entropy(labels))
    else:
        tracer.trace(normal(0, 1, 1, 1, 8, 8).requires_grad_(), cross_entropy(labels))
    assert not any(module._forward_hooks for module in network.modules())


class Twice(nn.Module):
    """The same layers on two inputs, of one and of several tokens."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, rows):  # (rows, 6, 6)
        x = self.norm(self.layer(rows)).tanh()
        return self.head(self.norm(self.layer(x.mean(1))))


def test_a_layer_called_twice_adds_up():
    torch.manual_seed(0)
    network = Twice().double()
    images = normal(0, 3, 2, 6, 6, dtype=torch.float64).requires_grad_()
    check(network, images, whole_numbers(1, 5, 3, 2), images)


class Text(nn.Module):
    """Bag of words, (rows, length) to (rows, vocabulary)."""

    def __init__(self, *, tied, positions=False, **settings):
        super().__init__()
        self.words = nn.Embedding(11, 6, **settings)
        self.positions = nn.Embedding(4, 6) if positions else None
        self.head = nn.Linear(6, 11)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1])[None])
        return self.head(x.tanh().mean(1))


def check_text(trials=3, **settings):
    """Compare a text model's gradients, and their derivatives by searched label logits."""
    torch.manual_seed(0)
    labels = normal(1, trials, 2, 11, dtype=torch.float64).requires_grad_()
    check(Text(**settings).double(), whole_numbers(0, 11, trials, 2, 4), labels, labels)


@pytest.mark.parametrize("tied", [False, True])
def test_text_models_agree_with_autograd(tied):
    check_text(tied=tied)


def test_a_table_s_gradient_is_not_formed_unless_it_is_tied():
    labels, ids = cross_entropy(torch.tensor([[1], [2]])), whole_numbers(0, 11, 2, 1, 4)
    assert isinstance(
        Tracer(Text(tied=False)).trace(ids, labels).gradients["words.weight"], EmbeddingLookup
    )
    tied = Tracer(Text(tied=True)).trace(ids, labels).gradients["words.weight"]
    assert isinstance(tied, torch.Tensor)


@pytest.mark.parametrize("trials", [2, 3])
def test_positions_looked_up_once_for_all_rows_agree_with_autograd(trials):
    check_text(trials, tied=False, positions=True)


def test_padding_has_no_gradient():
    check_text(tied=False, padding_idx=3)


def test_a_layer_whose_output_is_written_over_agrees_with_autograd():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 5)).double()
    images = normal(0, 2, 3, 6, dtype=torch.float64).requires_grad_()
    check(network, images, whole_numbers(1, 5, 2, 3), images)


class OtherUses(nn.Module):
    """Layers that are called as functions, (rows, 4, 6) to (rows, 5); positions are taken out."""

    def __init__(self, taken=slice(4)):
        super().__init__()
        self.positions, self.tied = nn.Embedding(9, 6), nn.Linear(6, 6, bias=False)
        self.inner, self.head, self.taken = nn.Linear(6, 6), nn.Linear(6, 5), taken

    def forward(self, rows):
        x = (rows + self.positions.weight[self.taken]).tanh()
        x = functional.linear(self.tied(x), self.tied.weight, self.inner.bias)
        return self.head(functional.linear(x, self.inner.weight).tanh().mean(1))


@pytest.mark.parametrize("taken", [slice(4), slice(2, 6), torch.tensor([3, 0, 3, 8])], ids=str)
@pytest.mark.parametrize(("trials", "batch"), [(1, 1), (3, 1), (2, 3)])
def test_layers_called_as_functions_agree_with_autograd(taken, trials, batch):
    torch.manual_seed(0)
    images = normal(0, trials, batch, 4, 6, dtype=torch.float64).requires_grad_()
    check(OtherUses(taken).double(), images, whole_numbers(1, 5, trials, batch), images)


class Conv1D(nn.Module):
    """The layer of `transformers` with weight (in, out)."""

    def __init__(self, ins, outs):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(*n)) for n in ((ins, outs), (outs,)))

    def forward(self, x):
        written = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return written.view(*x.shape[:-1], -1)


def test_layers_with_weights_in_by_out_agree_with_autograd():
    torch.manual_seed(0)
    network = nn.Sequential(Conv1D(6, 7), nn.GELU(), Conv1D(7, 4), nn.Flatten(), nn.Linear(8, 5))
    images = normal(0, 3, 2, 2, 6, dtype=torch.float64).requires_grad_()
    labels = whole_numbers(1, 5, 3, 2)
    check(network.double(), images, labels, images)
    gradient = Tracer(network).trace(images, cross_entropy(labels)).gradients["0.weight"]
    assert isinstance(gradient, Product)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_agrees_with_autograd(approximate):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 9), nn.GELU(approximate), nn.Linear(9, 5)).double()
    images = (3 * normal(0, 2, 3, 6, dtype=torch.float64)).requires_grad_()
    check(network, images, whole_numbers(1, 5, 2, 3), images)


class Turned(nn.Module):
    """A linear layer whose weight is read by a product that is not traced."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, rows):
        return rows @ self.layer.weight.T


def test_a_weight_that_is_read_otherwise_is_refused_not_missed():
    images = normal(0, 2, 1, 6).requires_grad_()
    with pytest.raises(NotApplicable, match=r"^layer\.weight is read by"):
        Tracer(Turned()).trace(images, cross_entropy(whole_numbers(1, 5, 2, 1)))


def test_a_layer_on_something_shared_by_all_rows_is_refused():
    class Shared(Twice):
        def forward(self, rows):
            return self.head(rows.mean(1) + self.layer(torch.ones(1, 6)))

    images = normal(0, 2, 1, 6, 6).requires_grad_()
    with pytest.raises(NotApplicable, match=r"reads \(1, 6\); wanted 2 rows$"):
        Tracer(Shared()).trace(images, cross_entropy(whole_numbers(1, 5, 2, 1)))


@pytest.mark.parametrize("trials", [1, 2])
@pytest.mark.parametrize("architecture", ["transformer3", "gpt2", "bert_base"])
def test_language_models_on_embeddings_agree_with_autograd(architecture, trials):
    spec = TextSpec(
        architecture=architecture,
        **{"vocabulary": 13, "length": 6, "width": 8, "depth": 1, "heads": 2, "mlp": 12},
        mask_token=12,
    )
    victim = build(spec, torch.Generator().manual_seed(0)).double()
    read = normal(0, trials, 2, 5, 8, dtype=torch.float64).requires_grad_()
    tokens = whole_numbers(1, 13, trials, 2, 5)

    def loss(logits, which):
        wanted = tokens[which].flatten()
        found = functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="none")
        return found.view(-1, 10).mean(1)

    named = dict(victim.network.named_parameters())
    losses = [loss(victim.from_embeddings(one), slice(i, i + 1))[0] for i, one in enumerate(read)]
    wanted = [
        torch.autograd.grad(
            one, list(named.values()), create_graph=True, allow_unused=True, materialize_grads=True
        )
        for one in losses
    ]
    victim.requires_grad_(False)
    trace = Tracer(victim.network, run=victim.from_embeddings).trace(read, loss)
    assert trace.gradients.keys() == named.keys()
    size, square = 0, 0
    for place, name in enumerate(named):
        gradient = torch.stack([found[place].flatten() for found in wanted])
        found = formed(trace.gradients[name])
        assert (found - gradient).abs().max() < 1e-9, name
        draw = normal(place, *found.shape, dtype=torch.float64)
        size, square = size + (draw * found).sum(), square + (draw * gradient).sum()
    derivatives = [torch.autograd.grad(one, read)[0] for one in (size, square)]
    assert apart(*derivatives) < 1e-9
    table = "decoder.weight" if architecture == "transformer3" else "tied"
    tied = [g for n, g in trace.gradients.items() if "wte" in n or "word_embed" in n or n == table]
    assert all(isinstance(gradient, Product) for gradient in tied)  # 50,257 rows are not formed
    assert tied
