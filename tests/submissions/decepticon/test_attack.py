"""What the malicious server reads of small victims, and what it vouches for."""

import copy

import pytest
import torch

from benchmark import victims
from benchmark.api import WithheldError
from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.errors import NotApplicable
from benchmark.registry import Registry
from benchmark.seeds import generator
from submissions.attacks.decepticon.lookups import dropped, read_rows
from submissions.attacks.decepticon.tables import Tables

VOCABULARY, LENGTH, MASK = 300, 20, 7
SIZES = {"width": 96, "depth": 3, "heads": 8, "mlp": 600}


def text(sequences, name="text"):
    """Return tokens as uneven as those of a language: few make up most of it."""
    draw = torch.rand(sequences, LENGTH, generator=generator(0, name))
    return (10 + 280 * draw**3).long()


def build(architecture, **settings):
    mask = MASK if architecture == "bert_base" else None
    spec = {"vocabulary": VOCABULARY, "length": 2 * LENGTH, "mask_token": mask, **SIZES, **settings}
    return victims.build(
        victims.TextSpec(architecture=architecture, **spec), generator(0, "victim")
    )


def observe(attack, tokens, architecture="transformer3", protect=None, **settings):
    """Return what the server sees of one update, computed on the weights that it sent."""
    known = Knowledge(batch_size=len(tokens), length=LENGTH, public_text=text(100, "public"))
    sent = attack.corrupt(build(architecture, **settings), known, generator(0, "server"))
    masked = None
    if sent.masked:
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, 3::5] = True
    torch.manual_seed(0)
    sent.train(bool(settings.get("dropout")))
    named = sent.weights()
    gradients = torch.autograd.grad(sent.loss(TextBatch(tokens, masked)), named.values())
    update = dict(zip(named, gradients, strict=True))
    if protect is not None:
        update = {name: protect(tensor) for name, tensor in update.items()}
    budget = Budget(seconds=60, memory_bytes=2**30)
    return Observation(Update(update), sent.eval(), known, budget, generator(0, "read"))


def build_attack(**arguments):
    variant, *_ = Registry().find("attack", "decepticon")
    return type(variant.build())(**arguments)


def scores(attack, tokens, *args, **settings):
    """Return the shares of tokens in place, of certain ones, and of certain ones in place."""
    from scipy.optimize import linear_sum_assignment

    answer = attack.reconstruct(observe(attack, tokens, *args, **settings))
    assert answer.tokens.shape == answer.certain.shape == tokens.shape
    assert answer.tokens.dtype == torch.int64
    equal = (tokens[:, None] == answer.tokens).sum(2)
    _, order = linear_sum_assignment(equal.numpy(), maximize=True)
    right, certain = tokens == answer.tokens[order], answer.certain[order]
    return float(right.double().mean()), float(certain.double().mean()), right[certain].all()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
@pytest.mark.parametrize("architecture", ["transformer3", "gpt2"])
def test_nearly_all_tokens_of_several_sequences_are_read(architecture, position, activation):
    chosen = {"position": position, "activation": activation}
    total, certain, right = scores(build_attack(), text(6), architecture, **chosen)
    assert total >= 0.95
    assert certain >= 0.9
    assert right


def test_masked_tokens_are_read_too():
    total, certain, right = scores(build_attack(), text(6), "bert_base")
    assert total >= 0.95
    assert certain >= 0.75
    assert right


def test_fixed_positions_hide_little_of_a_masked_model_s_text():
    total, _, _ = scores(build_attack(), text(6), "bert_base", position="sinusoidal")
    assert total >= 0.75


@pytest.mark.parametrize(("sequences", "name"), [(1, "t1"), (3, "t2")])
def test_nothing_is_certified_where_a_fixed_position_hides_the_anchor(sequences, name):
    tokens = text(sequences, name)
    total, certain, right = scores(build_attack(), tokens, "bert_base", position="sinusoidal")
    assert total < 1
    assert certain >= 0.5
    assert right


def test_one_sequence_is_read_whole():
    assert scores(build_attack(), text(1)) == (1.0, 1.0, True)


@pytest.mark.parametrize("arguments", [{"noise": 0.003}, {"measure": "random_tokens"}])
def test_variants_read_as_much(arguments):
    total, _, right = scores(build_attack(**arguments), text(6))
    assert total >= 0.95
    assert right


def test_more_tokens_than_half_the_bins_are_read_in_place():
    tokens = text(50)
    total, _, _ = scores(build_attack(), tokens)
    assert tokens.numel() > 0.5 * SIZES["depth"] * SIZES["mlp"]
    assert total > 0.8


def test_sequences_that_begin_alike_are_told_apart_by_their_labels():
    tokens = text(6)
    tokens[:3, :4] = tokens[0, :4]
    total, _, right = scores(build_attack(), tokens)
    assert total >= 0.95
    assert right


@pytest.mark.parametrize("name", ["t1", "t2"])
def test_nothing_wrong_is_certified_of_many_sequences_that_begin_alike(name):
    tokens = text(40, name)
    tokens[:, 0] = 10 + tokens[:, 0] % 3
    tokens[:4, :4] = tokens[0, :4]
    total, certain, right = scores(build_attack(), tokens)
    assert total >= 0.8
    assert certain >= 0.5
    assert right


def test_noisy_rows_that_many_sequences_fill_are_not_taken_for_dropout():
    seen = observe(build_attack(noise=0.003), text(30))
    tables = Tables.of(seen.update, seen.model, LENGTH)
    assert not dropped(seen.update, tables)
    seen = observe(build_attack(), text(30), dropout=0.1)
    assert dropped(seen.update, Tables.of(seen.update, seen.model, LENGTH))


def test_dropout_of_the_inputs_hides_little():
    total, certain, right = scores(build_attack(), text(1), "gpt2", dropout=0.1, width=192)
    assert total >= 0.8
    assert certain >= 0.5
    assert right


def test_nothing_wrong_is_certified_of_several_sequences_with_dropout():
    for name in ("t1", "t2", "t3"):
        assert scores(build_attack(), text(8, name), dropout=0.1)[2]


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_dropout_behind_the_activation_hides_little_of_rare_tokens(position):
    places = 8 * LENGTH
    tokens = 10 + torch.randperm(280, generator=generator(0, "rare"))[:places].view(8, LENGTH)
    total, certain, right = scores(build_attack(), tokens, dropout=0.1, position=position)
    assert total >= 0.8
    assert certain >= 0.5
    assert right


def test_a_token_at_two_places_is_read_at_both_with_dropout():
    tokens = 10 + torch.arange(6 * LENGTH).view(6, LENGTH)
    tokens[1, 7] = tokens[4, 15] = 200
    seen = observe(build_attack(), tokens, dropout=0.1)
    tables = Tables.of(seen.update, seen.model, LENGTH)
    found = {int(tables.words[one.token]): one for one in read_rows(seen.update, tables)}
    assert found[200].positions.tolist() == [7, 15]
    assert all(found[word].positions.tolist() == [(word - 10) % LENGTH] for word in (40, 45, 52))


def test_dropout_hides_little_of_several_sequences():
    total, _, _ = scores(build_attack(), text(4), "gpt2", dropout=0.1, width=192)
    assert total >= 0.7


def test_noise_is_averaged_out_between_the_jumps():
    draw = generator(0, "noise")

    def protect(tensor):
        return tensor + 0.1 * torch.randn(tensor.shape, generator=draw)

    total, certain, _ = scores(build_attack(), text(1), protect=protect)
    assert total >= 0.7
    assert certain == 0


def test_little_noise_hides_no_more_than_larger_noise():
    shares = []
    for scale in (1e-5, 3e-5, 1e-4, 1e-3, 1e-2):
        draw = generator(0, "noise")

        def protect(tensor, scale=scale, draw=draw):
            return tensor + scale * torch.randn(tensor.shape, generator=draw)

        total, _, right = scores(build_attack(), text(1), protect=protect)
        shares.append(total)
        assert right
    assert min(shares) >= 0.9, shares


@pytest.mark.parametrize("name", ["t1", "t2"])
def test_noise_hides_little_of_several_sequences(name):
    draw = generator(0, "noise")

    def protect(tensor):
        return tensor + 0.01 * torch.randn(tensor.shape, generator=draw)

    total, _, right = scores(build_attack(), text(8, name), protect=protect)
    assert total >= 0.85
    assert right


def test_much_noise_hides_all():
    draw = generator(0, "noise")

    def protect(tensor):
        return tensor + 1e3 * torch.randn(tensor.shape, generator=draw)

    total, certain, _ = scores(build_attack(), text(1), protect=protect)
    assert total <= 0.3
    assert certain == 0


def test_a_scaled_update_reads_the_same():
    plain = build_attack().reconstruct(observe(build_attack(), text(4)))
    scaled = observe(build_attack(), text(4), protect=lambda tensor: 1e-3 * tensor)
    again = build_attack().reconstruct(scaled)
    assert torch.equal(plain.tokens, again.tokens)


def test_a_zero_update_is_answered_with_nothing_certain():
    answer = build_attack().reconstruct(observe(build_attack(), text(2), protect=torch.zeros_like))
    assert answer.tokens.shape == (2, LENGTH)
    assert not answer.certain.any()


def test_the_same_draw_makes_the_same_weights_and_another_others():
    attack, model = build_attack(), build("transformer3")
    known = Knowledge(batch_size=1, length=LENGTH, public_text=text(100, "public"))
    first, again, other = (
        attack.corrupt(copy.deepcopy(model), known, generator(seed, "server")).weights()
        for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["blocks.0.fc1.weight"], other["blocks.0.fc1.weight"])


def test_public_text_is_needed_only_where_it_is_measured():
    known = Knowledge(batch_size=1, length=LENGTH)
    with pytest.raises(WithheldError, match="public_text"):
        build_attack().corrupt(build("transformer3"), known, generator(0))
    build_attack(measure="random_tokens").corrupt(build("transformer3"), known, generator(0))
    assert len(build_attack().needs) == len(build_attack(measure="random_tokens").needs) + 1


@pytest.mark.parametrize("withheld", ["blocks.1.fc1.weight", "token_embedding.weight"])
def test_without_what_it_reads_it_is_not_applicable(withheld):
    seen = observe(build_attack(), text(1))
    build_attack().applies(seen)
    without = copy.copy(seen)
    object.__setattr__(without, "update", seen.update.without(withheld))
    with pytest.raises(NotApplicable, match=f"holds no gradient of {withheld}"):
        build_attack().applies(without)
