"""Searches for text: tokens, what a trial gets alone, how it ends, and what is declined."""

from dataclasses import dataclass, replace

import pytest
import torch

from benchmark.contract import Budget, Knowledge, Observation, Stack, TextBatch, Update
from benchmark.errors import NotApplicable, WithheldError
from benchmark.registry import Registry
from benchmark.toolbox.matching import Registration, Search, SearchAttack, SquaredDistance, Term
from benchmark.toolbox.matching.text import TextUnknowns
from benchmark.toolbox.matching.unknowns import unknowns
from benchmark.toolbox.priors import EuclideanNorm
from benchmark.victims import TextSpec, build

VOCABULARY, LENGTH = 120, 4
MATCH = Search(SquaredDistance(), 20, rate=0.1)


@dataclass(frozen=True)
class Attack(SearchAttack):
    text = True
    search: Search = MATCH

    def plan(self, seen):
        return self.search


def make(architecture="transformer3", **settings):
    spec = TextSpec(
        architecture=architecture,
        **{"vocabulary": VOCABULARY, "length": 8, "width": 16, "depth": 1, "heads": 2, "mlp": 32},
        mask_token=3 if architecture == "bert_base" else None,
        **settings,
    )
    return build(spec, torch.Generator().manual_seed(0))


def written(trial, batch=1, length=LENGTH):
    draws = torch.Generator().manual_seed(trial)
    return torch.randint(VOCABULARY, (batch, length), generator=draws)


def see(model, tokens, *, trial=0, evaluations=1000, withheld=()):
    """Return what an attacker sees of a batch."""
    masked = torch.arange(tokens.shape[1]).expand_as(tokens) == 1 if model.masked else None
    model.requires_grad_(True)
    parameters = model.weights()
    loss = model.loss(TextBatch(tokens, masked))
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return Observation(
        Update(dict(zip(parameters, gradients, strict=True))).without(*withheld),
        model,
        Knowledge(batch_size=tokens.shape[0], length=tokens.shape[1]),
        Budget(60, 2**30, evaluations),
        torch.Generator().manual_seed(trial),
    )


def make_stack(model, trials, *, first=0, batch=1):
    places = range(first, first + trials)
    return Stack([see(model, written(trial, batch), trial=trial) for trial in places])


def built(label):
    return Registry().find("attack", label)[0].build()


# --- what is unknown


@pytest.mark.parametrize("labels", ["given", "searched"])
@pytest.mark.parametrize("architecture", ["transformer3", "gpt2"])
def test_true_unknowns_have_the_victims_own_loss_and_answer_the_truth(architecture, labels):
    model, tokens = make(architecture), written(1, batch=2)
    sought = unknowns(see(model, tokens), replace(MATCH, labels=labels))
    embedded = ((model.embed(tokens) - sought.mean) / sought.deviation).detach()
    given = tokens.flatten() if labels == "given" else None
    words = torch.arange(VOCABULARY) if given is None else given
    sure = 50.0 * (tokens[:, 1:, None] == words)
    values = torch.cat([embedded.flatten(), sure.flatten()])[None]
    assert values.shape == (1, sought.numel)
    torch.testing.assert_close(sought.inputs(values)[0], model.embed(tokens))
    loss = sought.loss(values, None if given is None else given[None])
    found = loss(sought.reads(sought.inputs(values)[0]), slice(0, 1))
    torch.testing.assert_close(found[0], model.loss(TextBatch(tokens)))
    assert torch.equal(sought.answer(values[0], given).tokens, tokens)


def test_unknown_embeddings_start_with_the_spread_of_the_table():
    model = make()
    sought = TextUnknowns.of(see(model, written(0)), searched=False)
    drawn = torch.randn(200, sought.numel, generator=torch.Generator().manual_seed(0))
    found, table = sought.inputs(drawn).flatten(0, 2), model.embed(torch.arange(VOCABULARY))
    assert found.std().item() == pytest.approx(table.std().item(), rel=0.05)
    torch.testing.assert_close(found.mean(0), table.mean(0), atol=0.01, rtol=0)


# --- searches


@pytest.mark.parametrize("labels", ["given", "searched"])
def test_a_short_sequence_is_found_exactly(labels):
    model = make()
    stack = make_stack(model, 2)
    found = Attack(replace(MATCH, steps=120, labels=labels)).reconstruct_stack(stack)
    for trial, answer in enumerate(found):
        assert answer.failure is None
        assert answer.gradient_evaluations == 120
        assert torch.equal(answer.tokens, written(trial))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_trial_of_several_gets_the_iterates_it_gets_alone(monkeypatch, batch):
    ended, answer = [], TextUnknowns.answer
    monkeypatch.setattr(TextUnknowns, "answer", lambda *of: ended.append(of[1]) or answer(*of))
    model = make().double()
    Attack().reconstruct_stack(make_stack(model, 3, batch=batch))
    together, ended[:] = list(ended), []
    for trial, values in enumerate(together):
        Attack().reconstruct_stack(make_stack(model, 1, first=trial, batch=batch))
        torch.testing.assert_close(values, ended[-1], rtol=1e-9, atol=1e-9)
    assert not torch.allclose(together[0], together[1])


def test_the_gradient_of_the_table_is_not_matched():
    seen = see(make(), written(0))
    name = "token_embedding.weight"
    other = Update({**seen.update, name: 2 * seen.update[name]})
    start = [replace(seen, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    first, second = (
        Attack().reconstruct(one) for one in (start[0], replace(start[1], update=other))
    )
    assert name not in Attack().matched(seen)
    assert torch.equal(first.tokens, second.tokens)


def test_a_trial_of_text_that_diverges_fails_alone():
    stack = make_stack(make(), 2)
    huge = Update({name: 1e30 * tensor.sign() for name, tensor in stack[0].update.items()})
    found = Attack().reconstruct_stack(Stack([replace(stack[0], update=huge), stack[1]]))
    assert found[0].failure == "diverged at step 1 of 20"
    assert found[1].failure is None


def test_an_update_of_text_that_is_not_finite_fails_alone():
    stack = make_stack(make(), 2)
    bad = Update({name: tensor * torch.nan for name, tensor in stack[0].update.items()})
    found = Attack().reconstruct_stack(Stack([replace(stack[0], update=bad), stack[1]]))
    assert found[0].failure == "the update is not finite"
    assert found[0].tokens.tolist() == [[-1] * LENGTH]
    assert found[1].failure is None


def test_dropout_is_off_in_the_search():
    model = make(dropout=0.5)
    seen = see(model, written(0))
    start = [replace(seen, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    quiet, trained = Attack(), Attack()
    first = quiet.reconstruct(start[0])
    model.train()
    assert torch.equal(trained.reconstruct(start[1]).tokens, first.tokens)
    assert not model.training


# --- what is declined


def test_text_is_declined_without_a_gradient_to_spend():
    with pytest.raises(NotApplicable, match="needs 1 gradient evaluations, the budget is 0"):
        Attack().applies(see(make(), written(0), evaluations=0))


PLANS_OF_IMAGES = [
    {"terms": (Term(1.0, EuclideanNorm()),)},
    {"clamp": True},
    {"registration": Registration(1.0)},
]


@pytest.mark.parametrize("part", PLANS_OF_IMAGES, ids=str)
def test_text_is_declined_by_priors_of_images(part):
    seen = see(make(), written(0))
    Attack().applies(seen)
    with pytest.raises(NotApplicable, match="its priors are of images; the victim reads text"):
        Attack(replace(MATCH, **part)).applies(seen)


@pytest.mark.parametrize("name", ["inverting_gradients", "gradvit,batch_norm=0.0", "dlg_lbfgs"])
def test_a_search_for_images_declines_text(name):
    with pytest.raises(NotApplicable, match="searches for images; the victim reads text"):
        built(name).applies(see(make(), written(0)))


def test_text_is_declined_where_its_words_are_not_told():
    with pytest.raises(NotApplicable, match=r"holds no gradient of decoder\.bias"):
        Attack().applies(see(make(), written(0), withheld=("decoder.bias",)))
    Attack(replace(MATCH, labels="searched")).applies(
        see(make(), written(0), withheld=("decoder.bias",))
    )


def test_text_of_a_masked_model_is_declined():
    with pytest.raises(NotApplicable, match="which places are masked is not known"):
        Attack().applies(see(make("bert_base"), written(0)))


def test_the_length_of_text_must_be_granted():
    seen = see(make(), written(0))
    with pytest.raises(WithheldError, match="length is not granted"):
        Attack().applies(replace(seen, knowledge=Knowledge(batch_size=1)))


# --- the papers' searches


@pytest.mark.parametrize("name", ["tag", "dlg", "april_optimization"])
def test_searches_of_the_papers_find_a_short_sequence(name):
    model = make()
    seen = see(model, written(0))
    attack = built(f"{name},steps=120")
    attack.applies(replace(seen, update=Update({n: t.to("meta") for n, t in seen.update.items()})))
    assert torch.equal(attack.reconstruct(seen).tokens, written(0))


def test_april_declines_fixed_positions_of_text():
    seen = see(make(position="sinusoidal"), written(0))
    built("dlg").applies(seen)
    with pytest.raises(NotApplicable, match="the update holds no gradient of the positions"):
        built("april_optimization").applies(seen)
