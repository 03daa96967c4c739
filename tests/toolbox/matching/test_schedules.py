import pytest

from benchmark.toolbox.matching.schedules import After, Constant, CosineDecay, Steps, Warmup


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Constant(), {0: 1, 0.5: 1, 0.99: 1}),
        (Steps(), {0: 1, 0.374: 1, 0.375: 0.1, 0.624: 0.1, 0.625: 0.01, 0.875: 0.001, 0.99: 0.001}),
        (Steps(at=(0.5,), factor=0.3), {0.49: 1, 0.5: 0.3}),
        (After(0.5), {0: 0, 0.49: 0, 0.5: 1, 0.99: 1}),
        (CosineDecay(), {0: 1, 1 / 3: 0.75, 0.5: 0.5, 2 / 3: 0.25}),
        (CosineDecay(to=0.2), {0: 1, 0.5: 0.6, 2 / 3: 0.4}),
        (Warmup(0.2), {0: 0, 0.05: 0.25, 0.1: 0.5, 0.2: 1, 0.9: 1}),
        (Warmup(0.5, CosineDecay(to=0.2)), {0.25: 0.5, 0.5: 1, 0.75: 0.6}),
    ],
    ids=repr,
)
def test_factor_is_the_value_worked_out_by_hand(schedule, factors):
    for progress, factor in factors.items():
        assert schedule(progress) == pytest.approx(factor, rel=1e-12, abs=1e-15), progress


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
def test_warm_up_that_takes_no_share_or_all_is_refused(share):
    with pytest.raises(ValueError, match=f"share is {share}; it must lie between 0 and 1"):
        Warmup(share)
