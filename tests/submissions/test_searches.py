"""The papers' searches on a network of one block: what each reads, declines, finds and spends."""

from dataclasses import replace

import pytest
import torch

from benchmark.api import Grant, NotApplicable, Stack
from benchmark.registry import Registry
from benchmark.toolbox.matching import SearchAttack, Target, Tracer

REGISTRY = Registry()
SMALL = {
    "data": {"name": "digits", "size": 8},
    "victim": {
        "architecture": "april_b",
        "initialisation": {"position_std": 1.0, "class_token_std": 1.0},
        "patch": 4,
        "width": 32,
        "depth": 1,
    },
    "trials": 2,
    "metrics": ["psnr", "label_accuracy"],
}
ATTACKS = [
    submission
    for submission in REGISTRY.all("attack")
    if not submission.outside and isinstance(submission.build(), SearchAttack)
]
PUBLIC = ("gradvit", "grad_inversion")


@pytest.fixture
def small(bench):
    """Make a bench of two trials with this many gradients each, and these facts granted."""

    def make(gradients, *granted, batch=1):
        network = {"public_network": {"architecture": "cifar/resnet20"}}
        return bench(
            **SMALL,
            **(network if "public_network" in granted else {}),
            federation={"batch_size": batch},
            threat={"grants": ["batch_size", "data_statistics", *granted]},
            budget={"seconds": 60, "memory_mib": 512, "gradient_evaluations": gradients},
        )

    return make


@pytest.fixture
def seen(small, seen_by):
    """Return what an attack sees of two trials on a small bench."""

    def see(attack, gradients, *granted, batch=1):
        return seen_by(small(gradients, *granted, batch=batch), attack)

    return see


def built(label):
    return REGISTRY.find("attack", label)[0].build()


def psnr(records):
    assert [record.status for record in records] == ["completed"] * 2
    return torch.tensor([record.metrics["psnr"] for record in records])


def objective(attack, observation, images):
    """Return what an attack's plan matches, at some pixels, without its priors."""
    victim = observation.model
    tracer, update = Tracer(victim.network), observation.update
    normalised = ((images - victim.mean) / victim.std)[None].requires_grad_()
    labels = attack.labels(observation)

    def loss(logits, which):
        return torch.nn.functional.cross_entropy(logits, labels)[None]

    trace = tracer.trace(normalised, loss)
    return attack.plan(observation).objective(trace, Target([update], sorted(update))).item()


def test_every_search_of_the_papers_is_registered():
    names = {submission.manifest.name for submission in ATTACKS}
    assert names == {
        *("dlg", "dlg_lbfgs", "idlg", "inverting_gradients", "tag", "april_optimization"),
        *("grad_inversion", "gradvit", "deep_inversion"),
    }


@pytest.mark.parametrize("label", [s.label for s in ATTACKS if not s.manifest.control])
def test_search_spends_its_budget_and_names_labels(seen, label):
    stack = seen(label, 24, "public_network")
    for answer in built(label).reconstruct_stack(stack):
        assert answer.failure is None
        assert answer.images.isfinite().all()
        assert 24 - 21 < answer.gradient_evaluations <= 24  # a line search takes 21 at most
        assert answer.labels.shape == (1,)
        assert 0 <= answer.labels.item() < 10


@pytest.mark.parametrize("label", [s.label for s in ATTACKS if not s.manifest.control])
def test_search_without_a_gradient_to_spend_is_not_applicable(small, label):
    (record,) = small(0, "public_network").run(label)
    assert record.status == "not_applicable"
    assert "gradient evaluations, the budget is 0" in record.reason


@pytest.mark.parametrize("name", PUBLIC)
def test_only_the_batch_norm_prior_needs_a_public_network(small, name):
    without = f"{name},batch_norm=0.0"
    assert Grant.PUBLIC_NETWORK in built(name).needs
    assert Grant.PUBLIC_NETWORK not in built(without).needs
    bench = small(4)
    (record,) = bench.run(name)
    assert record.status == "not_applicable"
    assert "public_network" in record.reason
    psnr(bench.run(without))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_batch_of_two_is_searched_with_a_public_network(seen, name):
    stack = seen(name, 24, "public_network", batch=2)
    states = [each.generator.get_state() for each in stack]

    def answers(label):
        for each, state in zip(stack, states, strict=True):
            each.generator.set_state(state)
        return built(label).reconstruct_stack(stack)

    registered, apart, alone = (
        answers(f"{name},{settings}")
        for settings in ("every=2", "every=1000", "every=1000,batch_norm=0.0")
    )
    for one, other, third in zip(registered, apart, alone, strict=True):
        assert one.failure is None
        assert one.images.shape == (2, 1, 8, 8)
        assert one.labels.shape == (2,)
        assert one.gradient_evaluations == 24
        assert not torch.equal(one.images, other.images)  # drawn to the restarts' consensus
        assert not torch.equal(other.images, third.images)  # drawn to the network's statistics


def test_deep_inversion_reads_no_update_and_no_gradient(seen):
    stack = seen("deep_inversion", 0, "public_network")
    one, other = stack
    assert any(not torch.equal(one.update[name], other.update[name]) for name in one.update)
    state = one.generator.get_state()
    attack = built("deep_inversion,steps=10")
    first = attack.reconstruct(one)
    one.generator.set_state(state)
    second = attack.reconstruct(replace(one, update=other.update))
    assert torch.equal(first.images, second.images)
    assert (first.gradient_evaluations, first.labels, first.failure) == (0, None, None)
    one.generator.set_state(state)
    longer = built("deep_inversion,steps=20").reconstruct(one)
    assert not torch.equal(first.images, longer.images)


def test_dlg_comes_close_to_the_truth_and_beats_the_prior(small):
    bench = small(300)
    found = bench.run("dlg")
    assert psnr(found).min() > 30
    assert (psnr(found) > psnr(bench.run("prior_only")) + 10).all()
    assert [record.metrics["label_accuracy"] for record in found] == [1, 1]


def test_dlg_answers_less_well_under_noise(small):
    bench = small(150)
    clean, noised = (psnr(bench.run("dlg", name)) for name in ("none", "gaussian_noise,scale=0.1"))
    assert (clean > noised + 3).all()


def test_dlg_lbfgs_finds_label_and_image_together(seen):
    stack = seen("dlg_lbfgs", 200, "labels")
    answers = built("dlg_lbfgs").reconstruct_stack(stack)
    assert [answer.labels.tolist() for answer in answers] == [s.labels.tolist() for s in stack]
    flipped = Stack([replace(s, knowledge=replace(s.knowledge, labels=None)) for s in stack])
    assert built("dlg_lbfgs").applies(flipped[0]) is None  # it reads no labels


def test_idlg_reads_the_label_of_one_image_and_comes_closer(seen):
    (one, _) = seen("idlg", 200, "labels")
    state = one.generator.get_state()
    early = built("idlg,steps=1").reconstruct(one)
    one.generator.set_state(state)
    late = built("idlg").reconstruct(one)
    assert late.labels.tolist() == one.labels.tolist()
    attack = built("idlg")
    assert objective(attack, one, late.images) < 0.1 * objective(attack, one, early.images)


def test_idlg_declines_a_batch(small):
    (record,) = small(24, batch=4).run("idlg")
    assert record.status == "not_applicable"
    assert record.reason == "reads one label; the batch holds 4 images"


def test_april_declines_where_no_position_gradient_was_sent(small):
    (record,) = small(24).run("april_optimization", "withhold_position")
    assert record.status == "not_applicable"
    assert record.reason == "the update holds no gradient of the positions"


@pytest.mark.parametrize(
    ("name", "share"),
    [("inverting_gradients", 0.5), ("tag", 0.5), ("april_optimization", 0.5), ("gradvit", 0.5)],
)
def test_search_lowers_what_it_says_it_matches(seen, name, share):
    attack = built(name)
    (one, _) = seen(name, 100, "public_network")
    state = one.generator.get_state()
    early, late = (
        _from(state, one, built(label)) for label in (f"{name},steps=1", f"{name},steps=100")
    )
    before, after = (objective(attack, one, answer.images) for answer in (early, late))
    print(name, before, after, after / before)
    assert after < share * before


def _from(state, observation, attack):
    """Answer an observation whose randomness starts at a state."""
    observation.generator.set_state(state)
    return attack.reconstruct(observation)


def test_search_declines_an_update_without_a_head(seen):
    (one, _) = seen("dlg", 24)
    headless = replace(one, update=one.update.without("head.bias", "head.weight"))
    with pytest.raises(NotApplicable, match=r"the update holds no head\.weight"):
        built("dlg").applies(headless)
