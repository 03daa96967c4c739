import logging

import pytest
import torch
from torch.nn.functional import cross_entropy

import gradleak

LABEL = torch.tensor([3])
FORM = {"attacks": ["position_closed_form,defaults"], "mean": [0.5] * 3, "std": [0.5] * 3}


@pytest.fixture
def step(timm_vit, image):
    """Compute the gradient of one image as a client does; noise hides it."""

    def backward(noise=0.0):
        timm_vit.zero_grad()
        cross_entropy(timm_vit((image - 0.5) / 0.5), LABEL).backward()
        draws = torch.Generator().manual_seed(0)
        for each in timm_vit.parameters():
            each.grad += noise * torch.randn(each.shape, generator=draws)
        return image

    return backward


def test_leak_is_raised_before_it_is_sent_with_its_report(timm_vit, step):
    guard = gradleak.guard(timm_vit, **FORM)
    with pytest.raises(
        gradleak.LeakError, match="update 1: This update gives the whole batch"
    ) as leak:
        guard(step())
    assert leak.value.report.best.attack == "position_closed_form"
    assert leak.value.report.best.scores["psnr"] > 60


def test_every_so_many_updates_are_audited_and_the_cost_is_told(timm_vit, step):
    guard = gradleak.guard(timm_vit, every=3, **FORM)
    image = step(noise=10)
    told = [guard(image) for _ in range(7)]
    assert [each is None for each in told] == [False, True, True, False, True, True, False]
    assert (guard.updates, guard.audited) == (7, 3)
    assert 0 < guard.seconds < 60


def test_limit_is_a_score_that_noise_stays_below(timm_vit, step):
    guard = gradleak.guard(timm_vit, limit=30.0, every=1, **FORM)
    assert guard(step(noise=10)).best.scores["psnr"] < 30
    with pytest.raises(gradleak.LeakError):
        guard(step())


def test_leak_is_logged_where_that_is_wanted_and_without_the_truth_it_is_told_by_consistency(
    timm_vit, step, caplog
):
    step()
    with caplog.at_level(logging.WARNING, logger="gradleak"):
        report = gradleak.guard(timm_vit, action="log", **FORM)()
    assert report.verdict == "exact"
    assert "update 1: This update gives the whole batch away, exactly" in caplog.text


def test_weights_before_and_after_are_audited_in_place_of_gradients(timm_vit, step):
    image, before = step(), {k: v.clone() for k, v in timm_vit.state_dict().items()}
    torch.optim.SGD(timm_vit.parameters(), lr=0.1).step()
    guard = gradleak.guard(timm_vit, limit=35.0, rate=0.1, **FORM)
    with pytest.raises(gradleak.LeakError):
        guard(image, before=before, after=timm_vit.state_dict())


def test_guard_of_text_wants_the_tokens(gpt2, tokens):
    gpt2(tokens, labels=tokens).loss.backward()
    with pytest.raises(gradleak.LeakError, match=r"100\.0% in place"):
        gradleak.guard(gpt2, limit=0.5)(tokens)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"every": 0}, "every is 0; wanted 1 or more"),
        ({"action": "warn"}, "action is 'warn'; wanted 'raise' or 'log'"),
    ],
)
def test_argument_that_does_not_fit_ends_in_one_line(timm_vit, given, said):
    with pytest.raises(gradleak.BenchmarkError, match=said):
        gradleak.guard(timm_vit, **given)


def test_number_as_limit_wants_the_truth(timm_vit, step):
    step()
    with pytest.raises(gradleak.BenchmarkError, match="limit 30 is of scores; wanted the truth"):
        gradleak.guard(timm_vit, limit=30.0, **FORM)()
