import math
import re

import pytest
import torch

from benchmark.api import NotApplicable, PluginError, RefusedError, Update
from benchmark.federation import DefendedRound, fedsgd
from benchmark.registry import Registry

REGISTRY = Registry()


@pytest.fixture
def defended(quick):
    def make(label, protocol="quick_digits_b"):
        (submission,) = REGISTRY.find("defense", label)[:1]
        return DefendedRound(quick(protocol).round, submission.build(), submission.label)

    return make


def built(label):
    (submission,) = REGISTRY.find("defense", label)[:1]
    return submission.build()


@pytest.mark.parametrize("law", ["gaussian_noise", "laplacian_noise"])
@pytest.mark.parametrize("scale", [0.001, 0.1])
def test_noise_has_the_scale_times_the_gradient_s_norm(defended, law, scale):
    made = defended(f"{law},scale={scale}")
    noised, clean = made.update(0), made.plain.update(0)
    noise = Update({name: noised[name] - clean[name] for name in clean})
    assert noise.norm() == pytest.approx(scale * clean.norm(), rel=0.01)


@pytest.mark.parametrize(("law", "kurtosis"), [("gaussian_noise", 3), ("laplacian_noise", 6)])
def test_noise_follows_its_law(draw, secret, law, kurtosis):
    zero_mean = Update({"a": torch.randn(2000, 1000, generator=draw)})
    noised = built(f"{law},scale=1.0").protect_update(zero_mean, None, secret)
    noise = (noised["a"] - zero_mean["a"]).double()
    found = (noise**4).mean() / (noise**2).mean() ** 2
    assert found.item() == pytest.approx(kurtosis, abs=0.2)


def test_withheld_position_is_all_that_is_missing(defended):
    made = defended("withhold_position")
    sent, whole = made.update(0), made.plain.update(0)
    assert set(whole) - set(sent) == {"pos_embed"}
    assert all(sent[name] is whole[name] for name in sent)
    assert made.server_model is made.plain.victim  # the server sent the positions itself


@pytest.mark.parametrize("encoding", ["sincos_1d", "sincos_2d", "vaswani"])
def test_fixed_position_changes_the_positions_alone(defended, encoding):
    made = defended(f"fixed_position,encoding={encoding}")
    assert set(made.plain.update(0)) - set(made.update(0)) == {"pos_embed"}
    assert not made.model.anatomy.position_trained
    assert made.plain.victim.anatomy.position_trained
    assert made.model.spec.position == encoding
    for name, weight in made.model.weights().items():
        assert torch.equal(weight, made.plain.victim.weights()[name])


@pytest.mark.parametrize(
    ("share", "size", "patch", "width"),
    [
        (0.5, 28, 7, 4),  # 16 patches: below 8 that 4 heads divide
        (0.5, 28, 4, 24),  # 49 patches: below 24.5
        (0.5, 32, 4, 28),  # 64 patches: below 32, not 32 itself
        (1.0, 32, 4, 60),
        (0.5, 14, 7, 4),  # 4 patches: a channel a head is kept
    ],
)
def test_narrow_width_is_the_largest_below_the_share_that_heads_divide(
    make_victim, draw, share, size, patch, width
):
    victim = make_victim(size=size, patch=patch, depth=1)
    narrow = built(f"narrow_width,share={share}").harden(victim, draw)
    assert narrow.anatomy.width == width
    assert narrow.anatomy.patches == victim.anatomy.patches
    assert victim.anatomy.width == 384


def test_narrow_width_fits_the_heads_of_timm(make_victim, draw):
    small = {"channels": 3, "size": 32, "patch": 2, "depth": 1}
    victim = make_victim("timm/deit_tiny_patch16_224", **small)  # 256 patches, 3 heads
    assert built("narrow_width").harden(victim, draw).anatomy.width == 126


@pytest.mark.parametrize("submission", REGISTRY.all("defense"), ids=lambda s: s.label)
def test_adversary_knows_the_parameters(submission):
    said = submission.build().describe()
    assert dict(submission.arguments).items() <= said.items()


@pytest.mark.parametrize(("kind", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_half_precision_keeps_as_many_bits_as_its_format(defended, kind, bits):
    made = defended(f"half_precision,format={kind}")
    sent, whole = made.update(0), made.plain.update(0)
    for name, tensor in whole.items():
        large = tensor.abs() > 1e-3 * tensor.abs().max()
        off = ((sent[name] - tensor) / tensor)[large].abs()
        assert off.max() <= 2.0**-bits  # half a unit of the last bit kept
        assert off.max() > 2.0 ** -(bits + 2)


def test_half_precision_loses_no_small_gradient_to_zero_for_want_of_scale():
    small = Update({"a": torch.tensor([1e-9, 3e-7])})  # float16's least number is 6e-8
    sent = built("half_precision,format=float16").protect_update(small, None, None)
    assert torch.allclose(sent["a"], small["a"], rtol=1e-2)


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_pruning_keeps_the_largest_entries_of_each_tensor(defended, share):
    made = defended(f"gradient_pruning,share={share}")
    for name, clean in made.plain.update(0).items():
        sent, whole = made.update(0)[name].flatten(), clean.flatten()
        kept = sent != 0
        assert torch.equal(sent[kept], whole[kept])
        assert kept.sum() <= max(math.ceil((1 - share) * len(whole) - 1e-9), 1)
        if kept.any():
            assert whole[kept].abs().min() >= whole[~kept].abs().max()


def test_pruning_keeps_as_many_entries_as_it_says(secret):
    one = Update({"a": torch.arange(1.0, 1001.0), "b": torch.ones(3)})
    sent = built("gradient_pruning,share=0.99").protect_update(one, None, secret)
    assert sent["a"].nonzero().flatten().tolist() == list(range(990, 1000))
    assert torch.equal(sent["b"], one["b"])  # of equal entries all


def test_signs_are_all_that_is_sent(defended):
    made = defended("sign_update")
    for name, clean in made.plain.update(0).items():
        assert torch.equal(made.update(0)[name], clean.sign())


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("rounding", ["nearest", "random"])
def test_quantised_entries_are_levels_no_further_than_a_step(defended, bits, rounding):
    made = defended(f"quantise,bits={bits},rounding={rounding}")
    for name, clean in made.plain.update(0).items():
        sent = made.update(0)[name]
        assert len(sent.unique()) <= 2**bits
        step = clean.abs().max() / (2 ** (bits - 1) - 1)
        reach = 0.5 if rounding == "nearest" else 1
        assert (sent - clean).abs().max() <= reach * step * (1 + 1e-5)


def test_random_rounding_is_right_in_the_mean(secret):
    one = Update({"a": torch.cat([torch.ones(1), torch.full((100_000,), 0.3)])})
    sent = built("quantise,bits=2,rounding=random").protect_update(one, None, secret)["a"][1:]
    assert set(sent.tolist()) == {0.0, 1.0}
    assert sent.mean().item() == pytest.approx(0.3, abs=0.01)


def test_zero_tensor_is_quantised_to_zero(secret):
    zero = Update({"a": torch.zeros(3)})
    assert not built("quantise").protect_update(zero, None, secret)["a"].any()


BLOCK = {"attn.proj.bias", "attn.proj.weight", "attn.qkv.weight", "norm1.bias", "norm1.weight"}
MLP = {f"mlp.fc{i}.{kind}" for i in (1, 2) for kind in ("bias", "weight")}
MLP |= {"norm2.bias", "norm2.weight"}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ("blocks=2-3", {f"blocks.{i}.{name}" for i in (1, 2) for name in BLOCK | MLP}),
        ("blocks=4-9", {f"blocks.3.{name}" for name in BLOCK | MLP}),
        ("part=attention", {f"blocks.{i}.{name}" for i in range(4) for name in BLOCK}),
        ("part=mlp,blocks=1-1", {f"blocks.0.{name}" for name in MLP}),
        ("part=positions", {"pos_embed"}),
        ("part=embeddings", {"patch_embed.weight", "patch_embed.bias"}),
    ],
)
def test_withheld_parts_are_all_that_is_missing(defended, arguments, missing):
    made = defended(f"withhold,{arguments}")
    sent, whole = made.update(0), made.plain.update(0)
    assert set(whole) - set(sent) == missing
    assert all(sent[name] is whole[name] for name in sent)


def test_withheld_blocks_that_there_are_none_of_do_not_apply(defended):
    with pytest.raises(NotApplicable, match="blocks='5-8'"):
        defended("withhold,blocks=5-8").update(0)


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ("part=embeddings", {"token_embedding.weight"}),
        (
            "part=mlp,blocks=1-1",
            {
                f"blocks.0.{m}.{kind}"
                for m in ("fc1", "fc2", "norm2")
                for kind in ("bias", "weight")
            },
        ),
    ],
)
def test_parts_of_a_language_model_are_withheld_by_the_same_words(defended, arguments, missing):
    made = defended(f"withhold,{arguments}", "quick_pydoc_transformer3")
    assert set(made.plain.update(0)) - set(made.update(0)) == missing


@pytest.mark.parametrize("law", ["gaussian", "laplacian"])
def test_clipped_update_has_the_norm_and_noise_of_the_deviation(secret, law):
    one = Update({"a": torch.full((400, 500), 3.0), "b": torch.full((7,), -1.0)})
    clipped = built("clip_and_noise,norm=2.0,noise=0.0").protect_update(one, None, secret)
    assert clipped.norm() == pytest.approx(2.0, rel=1e-3)
    assert torch.allclose(clipped["a"][0, 0], -3 * clipped["b"][0])
    noised = built(f"clip_and_noise,norm=2.0,noise=0.1,law={law}").protect_update(one, None, secret)
    assert (noised["a"] - clipped["a"]).std().item() == pytest.approx(0.1, rel=0.02)


def test_update_below_the_clipping_norm_is_left_as_it_is(secret):
    small = Update({"a": torch.full((4,), 0.1)})
    assert small.clipped(1.0) is small


def test_dp_sgd_clips_each_example_and_averages(defended):
    made = defended("dp_sgd,clip=0.5,noise=0", "quick_digits_b_batch4")
    truth, plain = made.plain.truth(0), made.plain
    each = [fedsgd(plain.victim, one) for one in truth.examples()]
    assert len(each) == 4
    assert all(one.norm() > 0.5 for one in each)
    for name, sent in made.update(0).items():
        wanted = sum(0.5 / one.norm() * one[name] for one in each) / 4
        assert torch.allclose(sent, wanted, rtol=1e-4, atol=1e-8)


def test_dp_sgd_s_noise_is_the_multiplier_times_the_clipping_norm_over_the_batch(defended):
    quiet = defended("dp_sgd,clip=0.5,noise=0", "quick_digits_b_batch4").update(0)
    noised = defended("dp_sgd,clip=0.5,noise=2.0", "quick_digits_b_batch4").update(0)
    noise = torch.cat([(noised[name] - quiet[name]).flatten() for name in quiet])
    assert noise.std().item() == pytest.approx(2.0 * 0.5 / 4, rel=0.01)


@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "delta"),
    [(1.0, 0.01, 1000, 1e-5), (0.5, 0.1, 10, 1e-6), (4.0, 1.0, 100, 1e-3)],
)
def test_dp_sgd_tells_the_epsilon_of_opacus(noise, rate, rounds, delta):
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    for _ in range(rounds):
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    label = f"dp_sgd,noise={noise},sampling_rate={rate},rounds={rounds},delta={delta}"
    said = built(label).describe()
    assert said["epsilon"] == pytest.approx(accountant.get_epsilon(delta), rel=1e-6)
    assert said["delta"] == delta


def test_dp_sgd_without_noise_promises_nothing():
    assert built("dp_sgd,noise=0").describe()["epsilon"] is None


@pytest.mark.parametrize(
    "label",
    [
        "gradient_pruning,share=1.0",
        "gradient_pruning,share=-0.1",
        "quantise,bits=1",
        "quantise,bits=8.0",
        "withhold,blocks=0-4",
        "withhold,part=head",
        "clip_and_noise,norm=0",
        "clip_and_noise,law=cauchy",
        "dp_sgd,clip=0",
        "dp_sgd,delta=1",
        "dp_sgd,sampling_rate=2",
        "dp_sgd,rounds=0",
        "narrow_width,share=0",
        "soteria,pruned=1.1",
        "model_encryption,condition=0.5",
        "precode,width=0",
        "precode,weight=-1",
        "censor,reading=own",
        "censor,candidates=0",
        "dropout,rate=1.0",
    ],
)
def test_argument_out_of_its_range_is_refused_by_name(label):
    argument = label.split(",")[1]
    with pytest.raises(PluginError, match=re.escape(f"defense {label}: {argument} should")):
        built(label)


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("withhold,blocks=4-1", "blocks from 4 to 1; wanted the first one first"),
        ("withhold,part=positions,blocks=1-2", "positions are of no block"),
        ("mjp,positions=none", "wanted none of both"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(label, why):
    with pytest.raises(PluginError, match=why):
        built(label)


@pytest.fixture
def encrypted(defended):
    return defended("model_encryption")


def test_encryption_changes_both_embeddings_and_nothing_else(encrypted):
    sent, plain = encrypted.update(0), encrypted.plain.update(0)
    changed = {name for name in plain if not torch.equal(sent[name], plain[name])}
    assert changed == {"patch_embed.weight", "pos_embed"}
    held, made = encrypted.server_model.weights(), encrypted.plain.victim.weights()
    assert {n for n in made if not torch.equal(held[n], made[n])} == changed
    assert torch.equal(sent["pos_embed"][:, 0], plain["pos_embed"][:, 0])  # the class token's


def test_server_s_step_on_the_encrypted_model_decrypts_to_the_plain_one(encrypted):
    model, rate = encrypted.plain.victim, 0.1
    held = encrypted.server_model.weights()
    stepped = {n: held[n].detach() - rate * encrypted.update(0)[n] for n in held}
    opened = encrypted.keyed.decrypt(stepped, model)
    for name, weight in model.weights().items():
        plain = weight.detach() - rate * encrypted.plain.update(0)[name]
        torch.testing.assert_close(opened[name], plain, rtol=1e-5, atol=1e-6)


def test_clients_share_one_key_a_federation_and_no_one_describes_it(encrypted, defended):
    again = defended("model_encryption")
    assert torch.equal(again.keyed.matrix, encrypted.keyed.matrix)
    assert encrypted.description == {"condition": 10.0}
    values = torch.linalg.svdvals(encrypted.keyed.matrix)
    assert (values[0] / values[-1]).item() == pytest.approx(10, rel=1e-6)


@pytest.mark.parametrize("defense", ["none", "gaussian_noise", "model_encryption"])
def test_a_colluding_client_tells_the_keys_that_clients_share_and_no_other_sees(
    bench, seen_by, defense
):
    told = {"threat": {"grants": ["batch_size", "client_keys"]}}
    colluding, honest = (seen_by(bench(**more), "random", defense) for more in (told, {}))
    wanted = {"matrix", "order"} if defense == "model_encryption" else set()
    assert set(colluding[0].client_keys) == wanted
    assert honest[0].knowledge.client_keys is None
    assert honest[0].defense == colluding[0].defense
    assert not {"matrix", "order"} & honest[0].defense.keys()


def test_keys_told_decrypt_the_update(bench, seen_by):
    made = bench(threat={"grants": ["batch_size", "client_keys"]})
    seen = seen_by(made, "random", "model_encryption")[0]
    plain, sent, keys = made.round.update(0), seen.update, seen.client_keys
    turned = plain["patch_embed.weight"].flatten(1).double() @ keys["matrix"].T
    torch.testing.assert_close(turned.float(), sent["patch_embed.weight"].flatten(1))
    assert torch.equal(plain["pos_embed"][:, keys["order"]], sent["pos_embed"])


def test_a_client_refuses_a_model_made_to_be_read_and_takes_an_honest_one(quick):
    bench = quick("quick_pydoc_transformer3")
    for record in bench.run("decepticon", "parameter_inspection", trials=2):
        assert (record.status, record.kind) == ("failed", "model_refused")
        assert record.reason.startswith("model refused: blocks.0.attn.qkv.weight has ")
    assert {r.status for r in bench.run("span_tokens", "parameter_inspection", trials=2)} == {
        "completed"
    }


@pytest.mark.parametrize("architecture", ["april_a", "april_b", "timm/deit_tiny_patch16_224"])
def test_inspection_passes_models_as_they_start(make_victim, architecture):
    honest = make_victim(architecture, patch=7)
    built("parameter_inspection").inspect(honest)


def test_inspection_finds_rows_that_are_alike_but_for_noise(make_victim, draw):
    victim = make_victim("april_b", patch=7)
    rows = victim.weights()["blocks.0.mlp.fc1.weight"]
    one = torch.randn(rows.shape[1], generator=draw)
    rows.data.copy_(one + 1e-2 * torch.randn(rows.shape, generator=draw))
    with pytest.raises(RefusedError, match=r"rows of .* are like another"):
        built("parameter_inspection,rank=0.0").inspect(victim)
