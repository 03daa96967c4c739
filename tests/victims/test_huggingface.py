"""A Hugging Face model of one's own as a protocol's victim, from a mirror and offline."""

import json

import pytest
import torch
from torch.nn import functional
from transformers import ConvNextConfig, DeiTConfig, ViTConfig, ViTForImageClassification

from benchmark.errors import DataUnavailable, NotApplicable, ProtocolError
from benchmark.protocol import load_protocol
from benchmark.running.exchange import load_model, save_model
from benchmark.seeds import generator
from benchmark.victims import ImageSpec, Jigsaw, build

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 1,
    "num_labels": 10,
}
CONVNEXT = {"num_channels": 3, "image_size": 32, "hidden_sizes": [8, 12, 16, 20], "depths": [1] * 4}
NAME = "owner/tiny-vit"
RUN = ["--defense", "none", "--attack", "position_closed_form,defaults"]


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    """A hub's cache that holds nothing; whoever asks the hub itself fails."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def mirror(tmp_path):
    """A mirror with a ViT's weights, and a ConvNeXt's config alone."""
    folder = tmp_path / "mirror"
    torch.manual_seed(5)
    saved = ViTForImageClassification(ViTConfig(**SIZES))
    saved.save_pretrained(folder / "weights" / "huggingface" / NAME)
    ConvNextConfig(**CONVNEXT).save_pretrained(folder / "weights/huggingface/convnext")
    return folder


@pytest.fixture
def make(mirror):
    def made(architecture=f"huggingface/{NAME}", seed=0, **settings):
        given = {"channels": 1, "size": 8, "classes": 10, **settings}
        statistics = {"mean": (0.4,) * given["channels"], "std": (0.25,) * given["channels"]}
        spec = ImageSpec(architecture=architecture, **{**statistics, **given})
        return build(spec, generator(seed, "victim"), mirror)

    return made


@pytest.fixture
def images(draw):
    return torch.rand(2, 1, 8, 8, generator=draw)


def state(victim):
    return victim.network.state_dict()


def test_random_weights_are_those_of_the_seed_and_of_the_data_s_shape(make):
    one, again, other = make(), make(), make(seed=1)
    assert all(torch.equal(tensor, state(again)[name]) for name, tensor in state(one).items())
    assert not torch.equal(state(one)["classifier.weight"], state(other)["classifier.weight"])
    shaped = make(channels=3, size=12, classes=3)
    assert shaped(torch.zeros(1, 3, 12, 12)).shape == (1, 3)
    assert shaped.anatomy.patches == 9


def test_pretrained_weights_are_the_folder_s(make, mirror, images):
    victim = make(weights="pretrained")
    there = ViTForImageClassification.from_pretrained(mirror / "weights" / "huggingface" / NAME)
    normalised = (images - victim.mean) / victim.std
    torch.testing.assert_close(victim(images), there.eval()(normalised).logits)


def test_gradient_of_the_gradient_s_norm_is_finite_and_not_zero(make, images):
    victim = make()
    loss = functional.cross_entropy(victim(images.requires_grad_()), torch.tensor([1, 2]))
    gradients = torch.autograd.grad(loss, list(victim.weights().values()), create_graph=True)
    (second,) = torch.autograd.grad(sum(g.square().sum() for g in gradients), images)
    assert second.isfinite().all()
    assert second.any()


def test_parts_are_found_once_and_go_along_with_copies(make, monkeypatch):
    victim = make()
    monkeypatch.setattr("benchmark.victims.huggingface_models.image_anatomy", None)
    parts = victim.anatomy
    assert (parts.position, parts.head) == ("vit.embeddings.position_embeddings", "classifier")
    assert (parts.prefix, len(parts.blocks)) == (("vit.embeddings.cls_token",), 2)
    changed = victim.with_jigsaw(Jigsaw(unknown=True, index=True), generator(1))
    changed = changed.with_fixed_positions("sincos_1d")
    assert changed.anatomy.unknown_position == "unknown_position"
    assert (changed.anatomy.prefix, changed.head) == (parts.prefix, victim.head)
    assert (parts.position_trained, changed.anatomy.position_trained) == (True, False)


def test_tokens_start_and_positions_are_fixed_as_asked(make):
    start = {"position_std": 3.0, "class_token_std": 2.0}
    weights = make(initialisation=start).weights()
    assert weights["vit.embeddings.position_embeddings"].std().item() == pytest.approx(3, rel=0.2)
    assert weights["vit.embeddings.cls_token"].std().item() == pytest.approx(2, rel=0.3)
    fixed = make(position="sincos_1d")
    assert "vit.embeddings.position_embeddings" not in fixed.weights()
    assert not fixed.anatomy.position_trained


def test_width_is_the_config_s_alone(make):
    with pytest.raises(NotApplicable, match="owner/tiny-vit: its config states its width"):
        make().with_width(8, generator(0))


def test_masked_patches_of_a_jigsaw_are_read_at_the_unknown_position(make, images):
    victim = make().with_jigsaw(Jigsaw(unknown=True), generator(1))
    masked = torch.zeros(2, 4, dtype=torch.bool)
    assert torch.equal(victim(images, masked), victim(images))
    masked[:, 1] = True
    assert not torch.allclose(victim(images, masked), victim(images))


@pytest.mark.parametrize("weights", ["random", "pretrained"])
def test_victim_crosses_into_the_sandbox_without_the_mirror(make, images, tmp_path, weights):
    victim = make(weights=weights)
    save_model(victim, tmp_path / "model")
    there = load_model(tmp_path / "model", torch.device("cpu"))
    assert torch.equal(there(images), victim(images))
    assert (there.spec, there.anatomy, there.head) == (victim.spec, victim.anatomy, victim.head)


def test_head_that_is_one_of_two_is_none(make, mirror):
    config = DeiTConfig(**SIZES, architectures=["DeiTForImageClassificationWithTeacher"])
    config.save_pretrained(mirror / "weights" / "huggingface" / "distilled")
    victim = make("huggingface/distilled")
    with pytest.raises(NotApplicable, match="are no linear layer's"):
        _ = victim.head


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weights": "pretrained", "classes": 3}, "weights tell 10 classes; the data have 3"),
        ({"weights": "pretrained", "size": 12}, "images of 1 x 12 px want (1, 10, 64)"),
        ({"size": 10}, "4 px patches must tile 10 px"),
        ({"patch": 2}, "huggingface/owner/tiny-vit takes no patch; got patch 2"),
        ({"initialisation": {"layers": "timm"}}, "starts as transformers starts it"),
        ({"architecture": "huggingface/../tiny"}, "huggingface/../tiny: "),
    ],
)
def test_what_does_not_fit_is_one_line(make, changes, said):
    with pytest.raises(ProtocolError) as raised:
        make(**changes)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"model_type": "own", "auto_map": {}}, "code of a repository's own is not run"),
        ({"model_type": "gpt2"}, "huggingface/odd: "),
        ({"model_type": "vit", "hidden_size": "wide"}, "huggingface/odd: "),
        ([], "huggingface/odd: "),
    ],
)
def test_config_of_something_else_is_one_line(make, mirror, stated, said):
    folder = mirror / "weights" / "huggingface" / "odd"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(stated))
    with pytest.raises(ProtocolError) as raised:
        make("huggingface/odd")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_weights_without_a_head_are_refused(make, mirror):
    folder = mirror / "weights" / "huggingface" / NAME
    headless = ViTForImageClassification.from_pretrained(folder).vit
    headless.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    stated = {"id2label": {str(n): str(n) for n in range(10)}}
    (folder / "config.json").write_text(json.dumps({**config, **stated}))
    with pytest.raises(ProtocolError, match=r"hold no classifier\.bias; wanted all"):
        make(weights="pretrained")


def test_config_alone_makes_no_pretrained_victim(make):
    with pytest.raises(DataUnavailable, match=r"hf download convnext config\.json model\.safe"):
        make("huggingface/convnext", weights="pretrained", channels=3, size=32)


def test_key_huggingface_stands_for_the_architecture(tiny):
    short = load_protocol(str(tiny(victim={"huggingface": NAME})))
    long = load_protocol(str(tiny(victim={"architecture": f"huggingface/{NAME}"})))
    assert short.digest == long.digest
    assert short.frozen()["victim"]["architecture"] == f"huggingface/{NAME}"
    both = tiny(victim={"huggingface": NAME, "architecture": "april_b"})
    with pytest.raises(ProtocolError, match="stand together; wanted one of them"):
        load_protocol(str(both))


@pytest.mark.parametrize("weights", ["random", "pretrained"])
def test_run_of_a_protocol_reads_an_image_exactly(tiny, mirror, gradleak, numbers, weights):
    path = tiny(victim={"huggingface": NAME, "weights": weights})
    ended = gradleak("run", path, *RUN, "--data", mirror)
    assert (ended.code, ended.err) == (0, "")
    told = numbers(path.parent / "own-results", "position_closed_form")
    assert len(told) == 3
    assert all(status == "completed" and m["psnr"] > 60 for status, _, m in told.values())


@pytest.mark.slow
def test_isolated_attacks_give_the_same_bits(tiny, mirror, gradleak, numbers, tmp_path):
    path = tiny(victim={"huggingface": NAME, "weights": "pretrained"}, trials=1)
    made = []
    for name, words in (("inside", []), ("isolated", ["--isolate"])):
        into = tmp_path / name
        assert gradleak("run", path, *RUN, "--data", mirror, "--results", into, *words).code == 0
        made.append(numbers(into))
    assert made[0] == made[1]
    assert all(status == "completed" for status, _, _ in made[0].values())


def test_model_that_is_not_here_is_unavailable_with_the_command(tiny, mirror, gradleak, numbers):
    path = tiny(victim={"huggingface": "google/vit-base-patch16-224"})
    ended = gradleak("run", path, *RUN, "--data", mirror)
    assert (ended.code, ended.err) == (0, "")
    (told,) = numbers(path.parent / "own-results").values()
    assert told[0] == "unavailable"
    assert told[1].startswith("config.json of google/vit-base-patch16-224 is not available: tried ")
    assert told[1].endswith("get it by: hf download google/vit-base-patch16-224 config.json")
    assert "\n" not in told[1]


def test_wrong_classes_end_a_run_in_one_line(tiny, mirror, gradleak):
    folder = mirror / "weights" / "huggingface" / "three"
    ViTForImageClassification(ViTConfig(**{**SIZES, "num_labels": 3})).save_pretrained(folder)
    path = tiny(victim={"huggingface": "three", "weights": "pretrained"})
    ended = gradleak("run", path, *RUN, "--data", mirror)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "pretrained weights tell 3 classes; the data have 10" in ended.err


def test_convnext_is_searched_and_says_why_the_closed_form_does_not_apply(
    tiny, mirror, gradleak, numbers
):
    path = tiny(
        victim={"huggingface": "convnext"},
        data={"name": "digits", "size": 32},
        budget={"seconds": 30, "memory_mib": 256, "gradient_evaluations": 2},
        trials=1,
    )
    searches = ["--attack", "dlg,defaults", "--attack", "random"]
    ended = gradleak("run", path, *RUN, *searches, "--data", mirror)
    assert (ended.code, ended.err) == (0, "")
    told = {
        attack: rest for (_, _, attack, *_), rest in numbers(path.parent / "own-results").items()
    }
    assert told["dlg"][0] == told["random"][0] == "completed"
    status, reason, _ = told["position_closed_form"]
    assert status == "not_applicable"
    assert "a ConvNextForImageClassification has no table of positions" in reason


def test_parts_of_a_convnext_are_not_known_and_its_head_is(make):
    victim = make("huggingface/convnext", channels=3, size=32)
    assert victim.head == "classifier"
    with pytest.raises(NotApplicable, match="huggingface/convnext: a ConvNextForImageClass"):
        _ = victim.anatomy
    with pytest.raises(ProtocolError, match="has no positions to fix as sincos_2d"):
        victim.with_fixed_positions("sincos_2d")
