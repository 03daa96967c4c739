import statistics

import pytest
import torch

from benchmark.registry import Registry
from submissions.attacks.adaptive_matching.attack import (
    AdaptiveMatching,
    OverEntries,
    _objective,
)

REGISTRY = Registry()


def built(label):
    return REGISTRY.find("defense", label)[0].build()


@pytest.fixture
def entries(draw):
    """Return a gradient of one parameter, (1, numel)."""
    return torch.randn(1, 1000, generator=draw)


def public(label):
    return {"name": label.split(",")[0], **built(label).describe()}


def sent(label, gradient, secret):
    from benchmark.api import Update

    return built(label).protect_update(Update({"a": gradient[0]}), None, secret)["a"][None]


@pytest.mark.parametrize(
    "label",
    [
        "gradient_pruning,share=0.9",
        "sign_update",
        "quantise,bits=4",
        "quantise,bits=4,rounding=random",
    ],
)
def test_objective_is_zero_at_the_gradient_that_was_protected(label, entries, secret, draw):
    objective = _objective(public(label))
    assert isinstance(objective, OverEntries)
    protected = sent(label, entries, secret)
    other = torch.randn(1, 1000, generator=draw)
    assert objective.of(entries, protected).item() == pytest.approx(0, abs=1e-5)
    assert objective.of(other, protected).item() > 0.1


def test_attack_that_knows_the_defense_declines_all_others(bench):
    made = bench(budget={"seconds": 30, "memory_mib": 512, "gradient_evaluations": 4})
    (record,) = made.run("adaptive_matching", "none")
    assert (record.status, record.reason) == (
        "not_applicable",
        "knows nothing of the defense none",
    )
    for defense in ("sign_update", "gradient_pruning", "quantise", "clip_and_noise", "dp_sgd"):
        records = made.run("adaptive_matching", defense, trials=1)
        assert [record.status for record in records] == ["completed"], records[0].reason


def test_of_several_examples_each_is_clipped_by_itself(bench):
    made = bench(
        federation={"batch_size": 2},
        budget={"seconds": 30, "memory_mib": 512, "gradient_evaluations": 4},
    )
    (record,) = made.run("adaptive_matching", "dp_sgd")
    assert record.reason == "DP-SGD clips each of several examples by itself"


def test_a_lone_example_is_read_from_its_direction(quick):
    """DLG compares lengths too, of which clipping leaves nothing."""
    digits = quick("digits_small_b_leakage")
    plain = digits.run("dlg,defaults", "dp_sgd,noise=0.0001", trials=3)
    knowing = digits.run("adaptive_matching", "dp_sgd,noise=0.0001", trials=3)
    gained = [
        one.metrics["psnr"] - other.metrics["psnr"]
        for one, other in zip(knowing, plain, strict=True)
    ]
    assert statistics.fmean(gained) > 5


@pytest.mark.slow
def test_text_is_read_from_signs_by_who_compares_signs(quick):
    pydoc = quick("pydoc_small_transformer_leakage")
    (plain,) = pydoc.run("dlg,defaults", "sign_update", trials=1)
    (knowing,) = pydoc.run("adaptive_matching", "sign_update", trials=1)
    assert plain.metrics["total_accuracy"] < 0.2
    assert knowing.metrics["total_accuracy"] > 0.4


def test_text_is_searched_for_as_well(quick, seen_by):
    pydoc = quick("pydoc_small_transformer_leakage")
    (seen,) = seen_by(pydoc, "adaptive_matching", "sign_update", trials=1)
    answer = AdaptiveMatching(steps=2).reconstruct(seen)
    assert answer.tokens.shape == (1, 32)
