import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

import gradleak

LABEL = torch.tensor([3])


@pytest.fixture
def read_vit(timm_vit, image):
    """Return a timm ViT that holds the gradient of one image."""
    cross_entropy(timm_vit((image - 0.5) / 0.5), LABEL).backward()
    return timm_vit


def test_timm_vit_is_read_exactly_in_three_lines(read_vit, image):
    report = gradleak.audit(read_vit, read_vit, truth=image)
    assert report.verdict == "exact"
    assert report.best.scores["psnr"] > 60
    assert not any("safe" in str(each) for each in (report, *report.findings))


def test_hugging_face_vit_is_read_exactly_in_three_lines(hugging_face_vit, image):
    hugging_face_vit(image, labels=LABEL).loss.backward()
    report = gradleak.audit(hugging_face_vit, hugging_face_vit)
    assert report.verdict == "exact"  # by consistency alone
    assert (report.images - image).abs().max() < 1e-3


def test_hugging_face_gpt2_is_read_exactly_in_three_lines(gpt2, tokens):
    gpt2(tokens, labels=tokens).loss.backward()
    report = gradleak.audit(gpt2, gpt2)
    assert report.verdict == "exact"
    assert torch.equal(report.tokens, tokens)


@pytest.mark.parametrize("given", ["state dicts", "difference"])
def test_fedavg_difference_is_read_exactly(timm_vit, image, given):
    before = copy.deepcopy(timm_vit.state_dict())
    trained = copy.deepcopy(timm_vit)
    cross_entropy(trained((image - 0.5) / 0.5), LABEL).backward()
    torch.optim.SGD(trained.parameters(), lr=0.1).step()
    after, chosen = trained.state_dict(), {"attacks": ["position_closed_form,defaults"]}
    if given == "state dicts":
        report = gradleak.audit(
            timm_vit, before=before, after=after, rate=0.1, truth=image, **chosen
        )
    else:
        moved = {name: after[name] - before[name] for name, _ in timm_vit.named_parameters()}
        report = gradleak.audit(timm_vit, moved, rate=0.1, truth=image, **chosen)
    assert report.verdict in ("exact", "partly")
    assert report.best.scores["psnr"] > 35
    assert report.best.mismatch < 0.05


def test_update_of_another_image_is_not_read_as_this_one(read_vit):
    other = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(9))
    chosen = {"attacks": ["position_closed_form,defaults"], "labels": 3}
    report = gradleak.audit(read_vit, read_vit, truth=other, **chosen)
    assert report.verdict == "nothing beyond the prior"
    assert "truth's own gradient" in report.notes[0]


def test_unknown_module_declines_by_a_reason():
    from torchvision.models import resnet18

    with pytest.raises(gradleak.NotApplicable, match="7 px every 2 px"):
        gradleak.audit(resnet18(), {})
    with pytest.raises(gradleak.NotApplicable, match="no convolution"):
        gradleak.audit(torch.nn.Linear(2, 2), {})


def test_vit_whose_first_block_reads_something_else_declines(timm_vit):
    timm_vit.norm_pre = torch.nn.LayerNorm(192)
    with pytest.raises(gradleak.NotApplicable, match="does not read patches plus positions"):
        gradleak.audit(timm_vit, {})


@pytest.mark.parametrize(
    ("update", "said"),
    [
        ({"head.weigh": torch.ones(5, 192)}, "head.weigh is no parameter of the model"),
        ({"head.weight": torch.ones(4, 192)}, r"\(4, 192\); the model's is \(5, 192\)"),
        ({"head.bias": torch.full((5,), float("nan"))}, "NaN or infinity"),
        ([torch.ones(1)], "holds 1 tensors; the model has"),
        ({}, "loss.backward"),
    ],
)
def test_wrong_updates_end_in_one_line(timm_vit, update, said):
    with pytest.raises(gradleak.BenchmarkError, match=said) as error:
        gradleak.audit(timm_vit, update)
    assert "\n" not in str(error.value)


def test_model_and_gradients_stay_as_they_were(read_vit, image):
    before = {name: (p.clone(), p.grad.clone()) for name, p in read_vit.named_parameters()}
    gradleak.audit(read_vit, read_vit, attacks=["position_closed_form,defaults"])
    for name, parameter in read_vit.named_parameters():
        assert torch.equal(parameter, before[name][0])
        assert torch.equal(parameter.grad, before[name][1])
    assert read_vit((image - 0.5) / 0.5).shape == (1, 5)
