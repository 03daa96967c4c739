"""The papers' searches on a network of one block: what each reads, declines, finds and spends."""

from dataclasses import replace

import pytest
import torch

from benchmark.api import Grant, ImageVictim, NotApplicable, Stack, Update, weights
from benchmark.registry import Registry
from benchmark.toolbox.labels import count_rule, infer_labels, minimum_rule
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
    # the others want a defense they know, or clients that train
    if not submission.manifest.adaptive_to and submission.label != "surrogate_matching"
]
PUBLIC = ("gradvit", "grad_inversion")


@pytest.fixture
def small(bench):
    """Make a bench of two trials with this many gradients each, and these facts granted."""

    def make(gradients, *granted, batch=1, victim=None):
        network = {"public_network": {"architecture": "cifar/resnet20"}}
        return bench(
            **(SMALL if victim is None else {**SMALL, "victim": victim}),
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


def answer(label, observations):
    """Return an attack's answers; the same draws are left for the next to be asked."""
    left = [replace(seen, generator=seen.generator.clone_state()) for seen in observations]
    return built(label).reconstruct_stack(Stack(left))


def misled(observation):
    """Return an observation whose granted labels are wrong."""
    known = observation.knowledge
    return replace(observation, knowledge=replace(known, labels=(known.labels + 1) % 10))


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
    for found in answer(label, stack):
        assert found.failure is None
        assert found.images.isfinite().all()
        assert 24 - 21 < found.gradient_evaluations <= 24  # a step and its line search take 21
        assert found.labels.shape == (1,)
        assert 0 <= found.labels.item() < 10


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
    stack = seen(name, 6, "public_network", batch=2)
    registered, apart, alone = (
        answer(f"{name},{settings}", stack)
        for settings in ("every=2", "every=1000", "every=1000,batch_norm=0.0")
    )
    for one, other, third in zip(registered, apart, alone, strict=True):
        assert one.failure is None
        assert one.images.shape == (2, 1, 8, 8)
        assert one.labels.shape == (2,)
        assert one.gradient_evaluations == 6
        assert not torch.equal(one.images, other.images)  # drawn to the restarts' consensus
        assert not torch.equal(other.images, third.images)  # drawn to the network's statistics


def test_deep_inversion_without_classes_reads_no_update_and_no_gradient(seen):
    one, other = seen("deep_inversion", 0, "public_network")
    exchanged = replace(one, update=other.update)
    first, second, longer = (
        answer(f"deep_inversion,class_loss=0.0,steps={steps}", [observation])[0]
        for steps, observation in ((10, one), (10, exchanged), (20, one))
    )
    assert torch.equal(first.images, second.images)
    assert not torch.equal(first.images, longer.images)
    assert (first.gradient_evaluations, first.labels, first.failure) == (0, None, None)


def test_deep_inversion_draws_images_of_the_labels_alone_that_the_update_tells(seen):
    one, other = seen("deep_inversion", 0, "public_network", batch=2)
    found, plain = (
        answer(f"deep_inversion,steps=10,class_loss={weight}", [one])[0] for weight in (1.0, 0.0)
    )
    assert torch.equal(found.labels, infer_labels(one))
    assert not torch.equal(found.images, plain.images)
    head = [name for name in one.update if name.startswith("head.")]
    mixed = Update({n: (one if n in head else other).update[n] for n in one.update})
    (same,) = answer("deep_inversion,steps=10", [replace(one, update=mixed)])
    assert torch.equal(found.images, same.images)


def test_gradvit_counts_labels_or_takes_the_paper_s(seen):
    (observation, _) = seen("gradvit", 2, "public_network", batch=2)
    known, update = weights(observation.model), observation.update
    head = ImageVictim.of(observation.model).head
    counted, paper = (
        answer(f"gradvit,steps=1,counted={rule}", [observation])[0].labels for rule in (True, False)
    )
    assert torch.equal(counted, count_rule(update, head, 2, known))
    assert torch.equal(paper, minimum_rule(update, head, 2))


def test_gradvit_s_schedule_holds_the_image_prior_back_for_half_of_the_steps(seen):
    (observation, _) = seen("gradvit", 4, "public_network")
    waits, at_once = (
        built(f"gradvit,scheduled={said}").plan(observation) for said in (True, False)
    )
    assert [waits.terms[-1].schedule(at) for at in (0.4, 0.5)] == [0, 1]
    assert [waits.objective_schedule(at) for at in (0.4, 0.5)] == [1, 0.5]
    assert [at_once.terms[-1].schedule(at) for at in (0.0, 0.5)] == [1, 1]
    assert [at_once.objective_schedule(at) for at in (0.4, 0.5)] == [1, 1]


def test_gradvit_searches_a_network_without_patches_too(small):
    bench = small(2, "public_network", batch=1, victim={"architecture": "cifar/resnet20"})
    (record, _) = bench.run("gradvit")
    assert (record.status, record.gradient_evaluations) == ("completed", 2)


def test_dlg_comes_close_to_the_truth_and_beats_the_prior(small):
    bench = small(200)
    found = bench.run("dlg")
    assert psnr(found).min() > 20
    assert (psnr(found) > psnr(bench.run("prior_only")) + 5).all()
    assert [record.metrics["label_accuracy"] for record in found] == [1, 1]


def test_dlg_beats_the_prior_under_noise(small):
    bench = small(80)
    noised = psnr(bench.run("dlg", "gaussian_noise,scale=0.1"))
    assert (noised > psnr(bench.run("prior_only")) + 2).all()


@pytest.mark.parametrize("name", ["dlg_lbfgs", "idlg"])
def test_search_finds_the_label_of_one_image_and_reads_none(seen, name):
    stack = seen(name, 100, "labels")
    answers = answer(name, [misled(one) for one in stack])
    assert [found.labels.tolist() for found in answers] == [one.labels.tolist() for one in stack]


def test_idlg_declines_a_batch(small):
    (record,) = small(24, batch=4).run("idlg")
    assert record.status == "not_applicable"
    assert record.reason == "reads one label; the batch holds 4 images"


def test_april_declines_where_no_position_gradient_was_sent(small):
    (record,) = small(24).run("april_optimization", "withhold_position")
    assert record.status == "not_applicable"
    assert record.reason == "the update holds no gradient of the positions"


@pytest.mark.parametrize("name", ["inverting_gradients", "tag", "april_optimization", "idlg"])
def test_search_lowers_what_it_says_it_matches(seen, name):
    (one, _) = seen(name, 30)
    (early,), (late,) = (answer(label, [one]) for label in (f"{name},steps=1", name))
    before, after = (objective(built(name), one, found.images) for found in (early, late))
    assert after < 0.5 * before


def test_search_declines_an_update_without_a_head(seen):
    (one, _) = seen("dlg", 24)
    headless = replace(one, update=one.update.without("head.bias", "head.weight"))
    with pytest.raises(NotApplicable, match=r"the update holds no head\.weight"):
        built("dlg").applies(headless)
