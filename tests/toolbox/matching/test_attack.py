"""What a search declines, and how it comes by labels."""

from dataclasses import dataclass, replace

import pytest
import torch

from benchmark.contract import Budget, Grant, ImageBatch, Stack, ThreatModel, Update
from benchmark.contract import observe as observed
from benchmark.errors import NotApplicable, WithheldError
from benchmark.federation import fedsgd
from benchmark.toolbox.matching import LBFGS, Adam, Search, SearchAttack, SquaredDistance, Term
from benchmark.toolbox.priors import EuclideanNorm

START = {"position_std": 1.0, "class_token_std": 1.0}
APRIL = {"size": 8, "patch": 4, "width": 16, "depth": 1, "classes": 5, "initialisation": START}
DISTILLED = {
    **{"architecture": "timm/deit_tiny_distilled_patch16_224", "size": 8, "patch": 4},
    **{"width": 24, "depth": 1, "classes": 5},
}
MATCH = Search(SquaredDistance(), 5)


@dataclass(frozen=True)
class Attack(SearchAttack):
    search: Search = MATCH
    left_out: frozenset[str] = frozenset()

    def plan(self, seen):
        return self.search

    def matched(self, seen):
        return super().matched(seen) - self.left_out


@pytest.fixture
def observe(make_victim):
    """Make what an attacker sees of one trial."""

    def make(*grants, batch=1, evaluations=100, withheld=(), seed=0, **settings):
        victim = make_victim(**(settings or APRIL))
        draws = torch.Generator().manual_seed(seed)
        labels = torch.randint(5, (batch,), generator=draws)
        images = torch.rand(batch, 1, 8, 8, generator=draws)
        return observed(
            ThreatModel(grants=frozenset({Grant.BATCH_SIZE, *grants})),
            update=fedsgd(victim, ImageBatch(images, labels)).without(*withheld),
            model=victim,
            budget=Budget(60, 2**30, evaluations),
            generator=torch.Generator().manual_seed(seed),
            facts={Grant.BATCH_SIZE: batch, Grant.LABELS: labels},
            defense={},
        )

    return make


@pytest.mark.parametrize(
    ("optimiser", "restarts", "wanted"),
    [(Adam(), 1, 1), (Adam(), 3, 3), (LBFGS(), 1, 21), (LBFGS(), 2, 42)],
    ids=repr,
)
def test_search_declines_a_budget_without_a_step_of_every_restart(
    observe, optimiser, restarts, wanted
):
    attack = Attack(Search(SquaredDistance(), 5, optimiser, restarts=restarts))
    for granted in (0, wanted - 1):
        with pytest.raises(NotApplicable, match=f"needs {wanted} .* budget is {granted}$"):
            attack.applies(observe(evaluations=granted))
    attack.applies(observe(evaluations=wanted))


WITHOUT_LABELS = [
    {"batch": 1, "withheld": ("head.weight", "head.bias")},
    {"batch": 2, "withheld": ("head.bias",)},
    {"batch": 2, "withheld": ("head.weight",)},
    {"batch": 2, **DISTILLED},
]


@pytest.mark.parametrize("options", WITHOUT_LABELS, ids=str)
def test_search_declines_where_labels_cannot_be_read(observe, options):
    with pytest.raises(NotApplicable):
        Attack().applies(observe(**options))


@pytest.mark.parametrize("options", WITHOUT_LABELS, ids=str)
def test_granted_or_searched_labels_need_not_be_read(observe, options):
    Attack().applies(observe(Grant.LABELS, **options))
    Attack(replace(MATCH, labels="searched")).applies(observe(**options))


def test_labels_are_read_off_the_head_of_any_network(observe):
    Attack().applies(observe(batch=1, architecture="cifar/resnet20", size=8, classes=5))


def test_search_that_matches_nothing_declines_nothing(observe):
    attack = Attack(Search(None, 5, terms=(Term(1.0, EuclideanNorm()),)))
    attack.applies(observe(batch=2, evaluations=0, withheld=("head.bias", "head.weight")))


def test_search_needs_no_values_to_decide(observe):
    seen = observe()
    shapes = Update({name: tensor.to("meta") for name, tensor in seen.update.items()})
    Attack().applies(replace(seen, update=shapes))


def test_labels_that_are_not_granted_are_read_and_answered(observe):
    told = [observe(Grant.LABELS, seed=seed) for seed in range(3)]
    found = Attack().reconstruct_stack(Stack([observe(seed=seed) for seed in range(3)]))
    for answer, seen in zip(found, told, strict=True):
        assert torch.equal(answer.labels, seen.labels)
        assert torch.equal(Attack().reconstruct(seen).labels, seen.labels)
    assert len({int(seen.labels) for seen in told}) > 1


def test_one_trial_is_a_stack_of_one(observe):
    alone = Attack().reconstruct(observe(seed=1))
    (stacked,) = Attack().reconstruct_stack(Stack([observe(seed=1)]))
    assert torch.equal(alone.images, stacked.images)
    assert alone.gradient_evaluations == stacked.gradient_evaluations == 5
    assert torch.equal(alone.labels, stacked.labels)


def test_searched_labels_are_answered_and_none_are_read(observe, monkeypatch):
    monkeypatch.setattr(SearchAttack, "labels", None)
    answer = Attack(replace(MATCH, labels="searched")).reconstruct(observe(batch=2))
    assert answer.labels.shape == (2,)
    assert answer.labels.dtype == torch.int64


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_update_whose_labels_are_not_finite_fails_alone(observe, bad):
    seen = observe(seed=0)
    update = Update({n: t + bad if n == "head.bias" else t for n, t in seen.update.items()})
    found = Attack().reconstruct_stack(Stack([replace(seen, update=update), observe(seed=1)]))
    assert found[0].failure == "the update is not finite"
    assert found[0].labels is None
    assert found[1].failure is None
    alone = Attack().reconstruct(observe(seed=1))
    torch.testing.assert_close(found[1].images, alone.images, rtol=1e-4, atol=1e-4)


def test_labels_that_a_trial_s_values_do_not_tell_fail_that_trial(observe):
    class Unsure(Attack):
        def labels(self, seen):
            if seen.generator.initial_seed() == 1:
                raise ValueError("no label stands out")
            return super().labels(seen)

    found = Unsure().reconstruct_stack(Stack([observe(seed=seed) for seed in range(3)]))
    failures = [answer.failure for answer in found]
    assert failures == [None, "the labels could not be inferred", None]
    assert found[1].gradient_evaluations == 0


def test_only_matched_parameters_are_read(observe):
    left_out, seen = frozenset({"pos_embed", "head.weight"}), observe(Grant.LABELS)
    spoilt = Update({n: t * torch.nan if n in left_out else t for n, t in seen.update.items()})
    answer = Attack(left_out=left_out).reconstruct(replace(seen, update=spoilt))
    assert answer.failure is None
    wanted = Attack(left_out=left_out).reconstruct(observe(Grant.LABELS))
    assert torch.equal(answer.images, wanted.images)
    assert not torch.equal(answer.images, Attack().reconstruct(observe(Grant.LABELS)).images)


def test_a_batch_size_that_is_not_granted_is_asked_for(observe):
    seen = observe()
    unknown = replace(seen, knowledge=replace(seen.knowledge, batch_size=None))
    with pytest.raises(WithheldError, match="batch_size"):
        Attack().reconstruct(unknown)


def test_search_declines_where_nothing_is_left_to_match(observe):
    nothing = observe(withheld=tuple(observe().update))
    attack = Attack(replace(MATCH, labels="searched"))
    with pytest.raises(NotApplicable, match=r"holds none of the parameters it matches$"):
        attack.applies(nothing)
    with pytest.raises(NotApplicable, match=r"holds none of the parameters it matches$"):
        replace(attack, left_out=frozenset(observe().update)).applies(observe())
