"""The likeliest sequence beneath noise, on victims small enough for a test."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.errors import NotApplicable
from benchmark.registry import Registry
from benchmark.victims import TextSpec, build
from submissions.attacks.span_tokens_denoised.likelihood import Likelihood

NAME, VOCABULARY, LENGTH = "span_tokens_denoised", 400, 24


def make(architecture="gpt2"):
    spec = TextSpec(
        architecture=architecture,
        vocabulary=VOCABULARY,
        length=LENGTH,
        mask_token=3 if architecture == "bert_base" else None,
        width=48,
        depth=2,
        heads=4,
        mlp=192,
    )
    return build(spec, torch.Generator().manual_seed(0))


def tokens_of(sequences=1, seed=0, length=LENGTH):
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(10, VOCABULARY, (sequences, length), generator=draws)


def see(model, tokens, label, rounds=1):
    """Return what an attacker sees of a batch behind a defense."""
    masked = None
    if model.masked:
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, ::5] = True
    parameters = model.weights()
    gradients = torch.autograd.grad(
        model.loss(TextBatch(tokens, masked)), list(parameters.values())
    )
    update = Update(dict(zip(parameters, gradients, strict=True)))
    defense = Registry().find("defense", label)[0].build()
    draws = np.random.default_rng(1)
    sent = [defense.protect_update(update, model, draws) for _ in range(rounds)]
    described = {"name": label.partition(",")[0], **asdict(defense)}
    known = Knowledge(batch_size=len(tokens), length=tokens.shape[1], defense=described)
    generator = torch.Generator().manual_seed(0)
    return Observation(sent[0], model, known, Budget(60, 2**30), generator, later=tuple(sent[1:]))


def attack(name=NAME):
    return Registry().find("attack", name)[0].build()


@pytest.mark.parametrize("architecture", ["gpt2", "transformer3"])
@pytest.mark.parametrize("law", ["gaussian_noise", "laplacian_noise"])
def test_tokens_are_read_beneath_noise_that_hides_them_from_the_plain_attack(architecture, law):
    seen = see(make(architecture), tokens_of(), f"{law},scale=0.01")
    attack().applies(seen)
    plain, answer = (attack(name).reconstruct(seen) for name in ("span_tokens", NAME))
    right = answer.tokens == tokens_of()
    assert (plain.tokens == tokens_of()).float().mean() < 0.7
    assert right.float().mean() > 0.9
    assert right[answer.certain].all()


def test_what_leaves_what_noise_would_is_certain():
    seen = see(make(), tokens_of(), "gaussian_noise,scale=0.003")
    answer = attack().reconstruct(seen)
    assert answer.certain.all()
    assert torch.equal(answer.tokens, tokens_of())


def test_nothing_is_certain_where_the_nearest_tokens_stand(monkeypatch):
    seen = see(make(), tokens_of(), "gaussian_noise,scale=1e-6")
    assert attack().reconstruct(seen).certain.all()
    monkeypatch.setattr(Likelihood, "fits_noise", True)
    assert not attack().reconstruct(seen).certain[:, :-1].any()


def test_rounds_are_averaged_and_their_noise_is_known_to_be_less():
    once, often = (
        attack().reconstruct(see(make(), tokens_of(), "gaussian_noise,scale=0.1", rounds))
        for rounds in (1, 256)
    )
    assert (once.tokens == tokens_of()).float().mean() < 0.5
    assert torch.equal(often.tokens, tokens_of())
    assert often.certain.float().mean() > 0.5


def test_update_beneath_noise_of_its_own_size_is_answered_without_certainty():
    seen = see(make(), tokens_of(), "gaussian_noise,scale=30")
    assert not attack().reconstruct(seen).certain.any()


@pytest.mark.parametrize(
    ("architecture", "sequences", "said"),
    [("gpt2", 2, "of a lone sequence"), ("bert_base", 1, "every next token is predicted")],
)
def test_batches_and_encoders_are_declined(architecture, sequences, said):
    seen = see(make(architecture), tokens_of(sequences, length=10), "gaussian_noise,scale=0.01")
    with pytest.raises(NotApplicable, match=said):
        attack().applies(seen)


def test_defense_that_describes_no_noise_is_declined():
    with pytest.raises(NotApplicable, match="the defense describes no noise to take off"):
        attack().applies(see(make(), tokens_of(), "none"))


@pytest.mark.parametrize("seed", range(3))
def test_each_step_makes_the_sequence_likelier_and_is_what_a_new_projection_says(seed):
    draws = torch.Generator().manual_seed(seed)
    gradient = torch.randn(30, 12, generator=draws, dtype=torch.float64)
    inputs = torch.randn(5, 4, 12, generator=draws, dtype=torch.float64)

    def left(choice):
        chosen = inputs[torch.arange(5), choice]
        return (gradient - gradient @ torch.linalg.pinv(chosen) @ chosen).square().sum()

    found = Likelihood(gradient, inputs, draws)
    start = left(found.choice)
    found.climb()
    end, free = left(found.choice), 30 * (12 - 5)
    assert end < start
    assert found.stray == pytest.approx(float(end - free) / (2 * free) ** 0.5)
    for place in range(5):
        for other in range(4):
            changed = found.choice.clone()
            changed[place] = other
            assert left(changed) >= end * (1 - 1e-12)
