"""Labels read off updates of drawn batches, against the truth."""

import pytest
import torch
from torch.nn import functional

from benchmark.contract import Budget, ImageBatch, Knowledge, Observation, Update
from benchmark.errors import NotApplicable, WithheldError
from benchmark.federation import fedsgd
from benchmark.toolbox.labels import (
    check_labels,
    count_rule,
    infer_labels,
    labels_of_images,
    minimum_rule,
    sign_rule,
)
from benchmark.victims import weights

START = {"position_std": 1.0, "class_token_std": 1.0}
APRIL = {"architecture": "april_b", "initialisation": START, "width": 64, "depth": 2}
TIMM = {"architecture": "timm/deit_tiny_patch16_224", "patch": 7, "width": 48, "depth": 2}
DISTILLED = {**TIMM, "architecture": "timm/deit_tiny_distilled_patch16_224"}
DRAWS = 20


@pytest.fixture(scope="module")
def leak(make_victim):
    """Make victims by settings, once each, and updates of drawn batches on them."""
    victims = {}

    def make(settings, labels, seed=0, classes=10):
        key = settings["architecture"], classes
        if key not in victims:
            victims[key] = make_victim(**settings, classes=classes)
        draws = torch.Generator().manual_seed(seed)
        coarse = torch.rand(len(labels), 1, 4, 4, generator=draws)
        images = functional.interpolate(coarse, 28, mode="bilinear")  # smooth, unlike one another
        return victims[key], fedsgd(victims[key], ImageBatch(images, labels))

    return make


def observed(victim, update, **knowledge):
    draws = torch.Generator().manual_seed(0)
    return Observation(update, victim, Knowledge(**knowledge), Budget(1.0, 2**20), draws)


def drawn(batch, seed, *, distinct, classes=10):
    draws = torch.Generator().manual_seed(seed)
    if distinct:
        return torch.randperm(classes, generator=draws)[:batch]
    return torch.randint(classes, (batch,), generator=draws)


def rate(leak, settings, infer, batch, *, distinct, classes=10):
    """Return the share of drawn batches whose labels are all inferred."""
    right = 0
    for seed in range(DRAWS):
        labels = drawn(batch, seed, distinct=distinct, classes=classes)
        found = infer(*leak(settings, labels, seed, classes), batch)
        assert found.dtype == torch.int64
        right += torch.equal(found, labels.sort().values)
    return right / DRAWS


def inferred(victim, update, batch):
    return infer_labels(observed(victim, update, batch_size=batch))


def by_minimum(_, update, batch):
    return minimum_rule(update, "head", batch)


@pytest.mark.parametrize("settings", [APRIL, TIMM])
@pytest.mark.parametrize("withheld", [(), ("head.bias",)], ids=["bias", "no bias"])
def test_sign_rule_names_the_label_of_every_single_image(leak, settings, withheld):
    def infer(victim, update, batch):
        return inferred(victim, update.without(*withheld), batch)

    assert rate(leak, settings, infer, 1, distinct=True) == 1


@pytest.mark.parametrize("settings", [APRIL, TIMM])
@pytest.mark.parametrize("batch", [4, 8])
def test_distinct_labels_of_a_batch_are_always_inferred(leak, settings, batch):
    assert rate(leak, settings, inferred, batch, distinct=True) == 1


@pytest.mark.parametrize("settings", [APRIL, TIMM])
@pytest.mark.parametrize("batch", [4, 8, 16])
def test_repeated_labels_of_a_batch_are_inferred(leak, settings, batch):
    assert rate(leak, settings, inferred, batch, distinct=False) >= 0.9


def test_minimum_rule_fails_on_signed_features_and_few_classes(leak):
    assert rate(leak, APRIL, by_minimum, 8, distinct=True, classes=200) == 1
    assert rate(leak, APRIL, by_minimum, 8, distinct=True) < 0.5


def test_minimum_rule_reads_features_that_are_not_negative(draw):
    """As the paper assumes: only a true class, here 1 and 3, can have a negative entry."""
    features = torch.rand(2, 6, generator=draw)
    logits = torch.randn(2, 5, generator=draw) + 5 * functional.one_hot(torch.tensor([0, 2]), 5)
    coefficients = logits.softmax(1) - functional.one_hot(torch.tensor([3, 1]), 5)
    update = {"head.weight": coefficients.T @ features / 2}
    assert minimum_rule(update, "head", 2).tolist() == [1, 3]


def test_counts_see_that_each_class_looks_different_to_the_head(draw):
    """One prediction for the whole batch is not enough: it alone is right on a fifth of these."""
    right = 0
    for _ in range(DRAWS):
        weight, centres = (
            torch.randn(10, 64, generator=draw) / 8,
            torch.randn(10, 64, generator=draw),
        )
        labels = torch.randint(3, (16,), generator=draw)
        features = 1 + centres[labels] + 0.3 * torch.randn(16, 64, generator=draw)
        coefficients = (features @ weight.T).softmax(1) - functional.one_hot(labels, 10)
        update = {"head.weight": coefficients.T @ features / 16, "head.bias": coefficients.mean(0)}
        known = {"head.weight": weight, "head.bias": torch.zeros(10)}
        right += torch.equal(count_rule(update, "head", 16, known), labels.sort().values)
    assert right / DRAWS >= 0.7


def test_counts_stand_where_the_update_is_nothing(leak):
    victim, update = leak(APRIL, torch.tensor([3, 3]))
    zero = Update({name: torch.zeros_like(tensor) for name, tensor in update.items()})
    found = inferred(victim, zero, 5)
    likely = weights(victim)["head.bias"].topk(5).indices  # what the head says of no features
    assert torch.equal(found, likely.sort().values)


def test_granted_labels_are_returned_sorted_whatever_the_update(leak):
    victim, update = leak(APRIL, torch.tensor([7, 2, 7]))
    seen = observed(victim, update.without("head.weight", "head.bias"), labels=torch.tensor([7, 2]))
    assert infer_labels(seen).tolist() == [2, 7]


def test_batch_size_is_needed_where_labels_are_not_granted(leak):
    with pytest.raises(WithheldError, match="batch_size"):
        infer_labels(observed(*leak(APRIL, torch.tensor([1]))))


def test_head_withheld_is_told_from_shapes_alone(leak):
    victim, update = leak(APRIL, torch.tensor([7, 2]))
    shapes = Update({name: tensor.to("meta") for name, tensor in update.items()})
    check_labels(observed(victim, shapes, batch_size=2))
    check_labels(observed(victim, shapes.without("head.bias"), batch_size=1))
    for missing in ("head.weight", "head.bias"):
        with pytest.raises(NotApplicable, match=f"holds no {missing}"):
            check_labels(observed(victim, shapes.without(missing), batch_size=2))
    with pytest.raises(NotApplicable, match=r"holds no head\.weight"):
        check_labels(observed(victim, shapes.without("head.weight", "head.bias"), batch_size=1))


def test_two_classes_without_a_bias_are_declined(leak):
    victim, update = leak(APRIL, torch.tensor([1]), classes=2)
    assert inferred(victim, update, 1).tolist() == [1]
    with pytest.raises(NotApplicable, match="two classes"):
        inferred(victim, update.without("head.bias"), 1)


def test_victim_of_two_heads_shows_one_label_and_declines_more(leak):
    victim, update = leak(DISTILLED, torch.tensor([4]))
    assert inferred(victim, update, 1).tolist() == [4]
    with pytest.raises(NotApplicable, match="two heads"):
        inferred(victim, update, 2)


def test_rules_decline_batches_they_cannot_read(leak):
    _, update = leak(APRIL, torch.tensor([1]))
    with pytest.raises(NotApplicable, match="a batch of 2"):
        sign_rule(update, "head", 2)
    with pytest.raises(NotApplicable, match="11 distinct labels wanted of 10 classes"):
        minimum_rule(update, "head", 11)


@pytest.mark.parametrize("name", ["head.weight", "head.bias"])
def test_update_that_is_not_finite_is_one_line(leak, name):
    victim, update = leak(APRIL, torch.tensor([1, 2]))
    spoilt = Update({**update, name: torch.full_like(update[name], torch.nan)})
    with pytest.raises(ValueError, match=f"{name} is not finite"):
        count_rule(spoilt, "head", 2, weights(victim))


@pytest.mark.parametrize("settings", [APRIL, TIMM])
@pytest.mark.parametrize("batch", [1, 4])
def test_images_in_hand_tell_each_its_own_label_in_their_order(leak, settings, batch):
    labels = drawn(batch, 3, distinct=False)
    coarse = torch.rand(batch, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    images = functional.interpolate(coarse, 28, mode="bilinear")  # as in `leak`
    victim, update = leak(settings, labels, seed=3)
    order = torch.randperm(batch, generator=torch.Generator().manual_seed(1))
    seen = observed(victim, update, batch_size=batch)
    assert torch.equal(labels_of_images(seen, images[order]), labels[order])
