"""Public images by the likelihood of an update: what noise leaves of one, it tells."""

from dataclasses import replace

import pytest
import torch

from benchmark.contract import ImageBatch, Stack
from benchmark.federation import fedsgd
from benchmark.registry import Registry
from benchmark.seeds import PUBLIC
from submissions.attacks.prior_aware.attack import PriorAware

GRANTED = {
    "threat": {"grants": ["batch_size", "data_statistics", "public_images"]},
    "budget": {"seconds": 30, "memory_mib": 512, "gradient_evaluations": 50},
}


@pytest.fixture
def public(bench):
    return bench(**GRANTED)


def likelihoods(seen):
    """Compute the definition, one public image at a time: the best factor, and what it leaves."""
    found, sent = [], torch.cat([each.flatten() for each in seen.update.values()]).double()
    images = seen.public_images
    for row in range(seen.budget.gradient_evaluations):
        one = ImageBatch(images.images[row, None], images.labels[row, None])
        gradient = torch.cat([each.flatten() for each in fedsgd(seen.model, one).values()]).double()
        factor = max(float(sent @ gradient / gradient.square().sum()), 0)
        left = (sent - factor * gradient).square().sum()
        found.append(-0.5 * len(sent) * (left / len(sent)).log())
    return torch.stack(found)


@pytest.mark.parametrize("defense", ["dp_sgd,noise=0.01", "clip_and_noise,law=gaussian"])
def test_answer_is_the_mean_of_public_images_by_their_likelihood(public, seen_by, defense):
    for seen in seen_by(public, "prior_aware", defense, trials=2):
        shares = likelihoods(seen).softmax(0).float()
        answer = PriorAware().reconstruct(seen)
        wanted = torch.einsum("n,nchw->chw", shares, seen.public_images.images[:50])
        torch.testing.assert_close(answer.images[0], wanted, atol=1e-3, rtol=0)
        assert answer.gradient_evaluations == 50


def test_a_public_image_that_was_sent_is_found_behind_noise(public, seen_by):
    (seen,) = seen_by(public, "prior_aware", "none", trials=1)
    one = ImageBatch(seen.public_images.images[7:8], seen.public_images.labels[7:8])
    made = Registry().find("defense", "dp_sgd,noise=0.001")[0].build()
    sent = made.compute_update(
        one, seen.model, lambda batch: fedsgd(seen.model, batch), PUBLIC.draws(0, "x")
    )
    answer = PriorAware().reconstruct(replace(seen, update=sent))
    torch.testing.assert_close(answer.images, one.images, atol=1e-3, rtol=0)
    assert torch.equal(answer.labels, one.labels)


def test_stack_answers_as_each_trial_alone_does(public, seen_by):
    stack = seen_by(public, "prior_aware", "dp_sgd,noise=0.01", trials=2)
    for one, other in zip(PriorAware().reconstruct_stack(Stack(stack)), stack, strict=True):
        assert torch.equal(one.images, PriorAware().reconstruct(other).images)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threat": {"grants": ["batch_size"]}}, "needs public_images"),
        ({"federation": {"batch_size": 2}}, "too many to be tried"),
        ({"budget": {"seconds": 5, "memory_mib": 64}}, "takes gradients of public images"),
    ],
)
def test_what_does_not_fit_is_said(bench, changes, reason):
    (record,) = bench(**{**GRANTED, **changes}).run("prior_aware")
    assert record.status == "not_applicable"
    assert reason in record.reason


def test_digits_behind_differential_privacy_are_read_beyond_the_prior(quick):
    """As docs/defenses.md says: a tenth of the clipping norm as noise hides no digit's class."""
    digits = quick("digits_small_b_public")
    records = digits.run("prior_aware", "dp_sgd,noise=0.1", trials=4)
    prior = digits.run("prior_only", "dp_sgd,noise=0.1", trials=4)
    assert all(
        one.metrics["psnr"] > other.metrics["psnr"]
        for one, other in zip(records, prior, strict=True)
    )
    assert [record.metrics["label_accuracy"] for record in records] == [1.0] * 4
