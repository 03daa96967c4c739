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


def test_vit_with_a_norm_before_its_blocks_is_read_by_positions_alone(timm_vit, image):
    timm_vit.norm_pre = torch.nn.LayerNorm(192)  # as CLIP has it
    timm_vit.patch_embed.proj.bias = None
    cross_entropy(timm_vit((image - 0.5) / 0.5), LABEL).backward()
    chosen = {"attacks": ["position_closed_form,defaults", "span_closed_form,defaults"]}
    report = gradleak.audit(timm_vit, timm_vit, truth=image, labels=3, **chosen)
    exact, declined = report.findings
    assert exact.verdict == "exact"
    assert declined.reason == "the patch projection patch_embed.proj has no bias; wanted one"


def test_positions_that_are_not_added_as_they_are_decline(timm_vit):
    timm_vit._pos_embed = lambda x: x + 2 * timm_vit.pos_embed[:, 1:]
    with pytest.raises(
        gradleak.NotApplicable,
        match="the first block reads 16 tokens of 16 patches and 17 positions",
    ):
        gradleak.audit(timm_vit, {})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("swin_tiny_patch4_window7_224", "SwinTransformer has relative positions, inside"),
        ("beit_base_patch16_224", "Beit has relative positions, inside its attention"),
        ("vit_small_patch16_dinov3", "Eva has rotary positions, inside its attention"),
        ("convnext_tiny", "ConvNeXt has no table of positions"),
        ("mobilevit_s", "begins with a convolution of 3 px every 2 px"),
    ],
)
def test_family_that_does_not_fit_says_what_it_has(name, said):
    import timm

    with torch.device("meta"):
        network = timm.create_model(name)
    with pytest.raises(gradleak.NotApplicable, match=said):
        gradleak.audit(network, {})


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


def test_masked_language_model_wants_its_mask_token_and_is_read(tokens):
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 128, "vocab_size": 200, "max_position_embeddings": 32}
    bert = BertForMaskedLM(BertConfig(**sizes)).eval()
    read, wanted = tokens.clone(), torch.full_like(tokens, -100)
    read[0, 4], wanted[0, 4] = 103, tokens[0, 4]
    bert(read, labels=wanted).loss.backward()
    with pytest.raises(gradleak.BenchmarkError, match="mask_token"):
        gradleak.audit(bert, bert)
    chosen = {"attacks": ["span_tokens,defaults"], "mask_token": 103}
    assert gradleak.audit(bert, bert, truth=tokens, **chosen).verdict == "exact"
    assert gradleak.audit(bert, bert, **chosen).verdict == "not testable"  # masked where?


def test_noise_is_searched_until_the_time_is_spent_and_no_verdict_is_exact(read_vit, image):
    draws = torch.Generator().manual_seed(0)
    sent = {}
    for name, parameter in read_vit.named_parameters():
        noise = torch.randn(parameter.shape, generator=draws)
        sent[name] = parameter.grad + noise * parameter.grad.norm() / parameter.numel() ** 0.5
    chosen = {"attacks": ["position_closed_form,defaults", "dlg,defaults"], "labels": 3}
    report = gradleak.audit(read_vit, sent, truth=image, seconds=4, **chosen)
    closed, searched = report.findings
    assert closed.verdict != "exact"
    assert searched.ran or "time was spent" in searched.reason
    assert report.verdict != "exact"
    assert report.seconds < 30


def test_image_anatomy_is_what_the_benchmark_knows_of_timm(timm_vit):
    from benchmark.victims import ImageSpec
    from benchmark.victims.anatomy import timm
    from benchmark.victims.found.structure import image_anatomy

    given = {"channels": 3, "size": 32, "classes": 5, "mean": (0,) * 3, "std": (1,) * 3}
    known = timm(timm_vit, ImageSpec(architecture="timm/vit_tiny_patch16_224", **given))
    assert image_anatomy(timm_vit, None) == known


def test_torchvision_vit_and_a_list_of_gradients(image):
    from torchvision.models import VisionTransformer

    torch.manual_seed(0)
    vit = VisionTransformer(32, 8, 1, 3, 192, 64, num_classes=5).eval()
    vit.heads.head.weight.data.normal_(std=0.02)  # it starts at zero, and passes no gradient on
    cross_entropy(vit(image), LABEL).backward()
    sent = [parameter.grad for parameter in vit.parameters()]
    chosen = {"attacks": ["position_closed_form,defaults"], "truth": image}
    assert gradleak.audit(vit, sent, **chosen).verdict == "exact"


def test_handed_anatomy_is_taken(timm_vit, image):
    from dataclasses import replace

    from benchmark.victims.found.structure import image_anatomy

    cross_entropy(timm_vit((image - 0.5) / 0.5), LABEL).backward()
    wrong = replace(image_anatomy(timm_vit, None), patch_embedding="elsewhere")
    chosen = {"attacks": ["position_closed_form,defaults"], "anatomy": wrong}
    (finding,) = gradleak.audit(timm_vit, timm_vit, **chosen).findings
    assert finding.reason == "the update holds no gradient of the patch embedding"
