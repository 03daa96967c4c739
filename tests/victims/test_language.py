import copy
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch.nn import functional

from benchmark.contract import TextBatch
from benchmark.errors import DataUnavailable, ProtocolError
from benchmark.seeds import generator
from benchmark.victims import TextSpec, build, operations, weights
from benchmark.victims.language.architectures import ARCHITECTURES
from benchmark.victims.language.network import sinusoids

WORDS = {"vocabulary": 60, "length": 12}
TINY = {"width": 16, "depth": 2, "heads": 4, "mlp": 24, **WORDS}
NAMES = ["transformer3", "gpt2", "bert_base"]


def spec(architecture, **settings):
    mask_token = 5 if architecture == "bert_base" else None
    return TextSpec(**{"architecture": architecture, "mask_token": mask_token, **settings})


def make(architecture, seed=0, **settings):
    return build(spec(architecture, **TINY | settings), generator(seed, "victim"))


def draw_batch(victim, sequences=2):
    draw = generator(0, "batch")
    tokens = torch.randint(60, (sequences, 9), generator=draw)
    masked = torch.rand(tokens.shape, generator=draw) < 0.4
    tokens[0, 0], masked[0, 0] = 0, False  # BERT's padding token, here one like any other
    return TextBatch(tokens, masked if victim.masked else None)


def gradient(victim, batch):
    named = victim.weights()
    return dict(zip(named, torch.autograd.grad(victim.loss(batch), named.values()), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_spec_and_seed_make_the_weights_and_another_seed_makes_others(name):
    torch.manual_seed(1)
    first, state = weights(make(name)), torch.get_rng_state()
    assert torch.equal(state, torch.manual_seed(1).get_state())  # the global stream is untouched
    torch.manual_seed(2)
    again, other = weights(make(name)), weights(make(name, seed=1))
    assert all(torch.equal(tensor, again[at]) for at, tensor in first.items())
    assert any(not torch.equal(tensor, other[at]) for at, tensor in first.items())


def test_transformer3_is_the_papers_of_eleven_million_parameters():
    victim = build(spec("transformer3", vocabulary=50257, length=512), generator(0))
    assert sum(tensor.numel() for tensor in victim.weights().values()) == 10_751_281
    embedding = victim.network.token_embedding.weight
    assert embedding.abs().max() <= 0.1
    assert embedding.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.01)
    assert not victim.network.decoder.bias.any()


@pytest.mark.parametrize(
    ("name", "vocabulary", "length", "count"),
    [("gpt2", 50257, 1024, 124_439_808), ("bert_base", 30522, 512, 109_514_298)],
)
def test_the_librarys_models_have_their_papers_sizes(name, vocabulary, length, count):
    kind = spec(name, vocabulary=vocabulary, length=length).kind
    assert (kind.vocabulary, kind.positions) == (vocabulary, length)
    with torch.device("meta"):  # sizes alone, nothing is drawn
        network = kind.network(spec(name, vocabulary=vocabulary, length=length), None)
        network.tie_weights()
    assert sum(tensor.numel() for tensor in network.parameters()) == count


def test_a_model_that_is_not_in_the_table_is_refused_by_name():
    with pytest.raises(ValidationError, match="no language model 'gpt5'; known: transformer3"):
        spec("gpt5")


@pytest.mark.parametrize("name", NAMES)
def test_loss_is_the_mean_over_every_predicted_token(name):
    victim = make(name)
    batch = draw_batch(victim)
    read = batch.tokens if batch.masked is None else batch.tokens.masked_fill(batch.masked, 5)
    logits, losses = victim(read).log_softmax(-1), []
    for i, sequence in enumerate(batch.tokens):
        for t, token in enumerate(sequence):
            if batch.masked is None and t > 0:
                losses.append(-logits[i, t - 1, token])
            elif batch.masked is not None and batch.masked[i, t]:
                losses.append(-logits[i, t, token])
    assert len(losses) == (16 if batch.masked is None else batch.masked.sum())
    torch.testing.assert_close(victim.loss(batch), torch.stack(losses).mean(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_update_has_a_tied_table_once_and_both_its_uses_add_up(name):
    victim = copy.deepcopy(make(name, activation="gelu")).double()  # a copy stays tied
    batch = draw_batch(victim)
    tables = [at for at, tensor in victim.weights().items() if tensor.shape == (60, 16)]
    assert len(tables) == (2 if name == "transformer3" else 1)
    got, table = gradient(victim, batch)[tables[0]], weights(victim)[tables[0]]
    for rows in ([0], batch.tokens.unique()):  # 0 pads BERT's text elsewhere; here it is a word
        nudge = torch.zeros_like(table)
        nudge[rows] = torch.randn(len(rows), 16, generator=generator(0), dtype=torch.float64)
        losses = []
        for step in (1e-5, -2e-5):
            table.add_(nudge, alpha=step)
            losses.append(victim.loss(batch).item())
        table.add_(nudge, alpha=1e-5)
        slope = (losses[0] - losses[1]) / 2e-5
        assert (got * nudge).sum().item() == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_only_a_masked_model_reads_what_comes_later(name):
    victim = make(name)
    tokens = draw_batch(victim).tokens
    later = tokens.clone()
    later[:, -1] = (later[:, -1] + 1) % 60
    changed = (victim(tokens) - victim(later)).abs().amax((0, 2)) > 1e-6
    assert changed.tolist() == [victim.masked] * 8 + [True]


@pytest.mark.parametrize("name", NAMES)
def test_logits_follow_from_embeddings_and_can_be_differentiated_twice(name):
    victim = make(name, activation="gelu")
    tokens = draw_batch(victim).tokens
    torch.testing.assert_close(victim.from_embeddings(victim.embed(tokens)), victim(tokens))
    victim = victim.double()
    parameters = list(victim.parameters())
    embeddings = victim.embed(tokens).detach().requires_grad_()

    def matching(guess):
        logits = victim.from_embeddings(guess).flatten(0, 1)
        loss = functional.cross_entropy(logits, tokens.flatten())
        grads = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
        return sum(grad.square().sum() for grad in grads if grad is not None)

    nudge = torch.randn(embeddings.shape, generator=generator(0, "nudge"), dtype=torch.float64)
    (slope,) = torch.autograd.grad(matching(embeddings), embeddings)
    ahead, behind = (matching(embeddings.detach() + h * nudge).item() for h in (1e-5, -1e-5))
    assert (slope * nudge).sum().item() == pytest.approx((ahead - behind) / 2e-5, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_acts_in_training_mode_alone_and_on_every_probability(name):
    victim = make(name, dropout=0.3)
    batch = draw_batch(victim)
    assert not victim.training
    assert torch.equal(victim.loss(batch), make(name).loss(batch))
    victim.train()
    assert victim.loss(batch) != victim.loss(batch)
    drops = [module.p for module in victim.modules() if isinstance(module, torch.nn.Dropout)]
    assert drops
    assert set(drops) == {0.3}


@pytest.mark.parametrize("name", NAMES)
def test_sinusoidal_positions_are_a_buffer_of_the_embeddings_size(name):
    victim, learned = make(name, position="sinusoidal"), make(name)
    (fixed,) = set(learned.weights()) - set(victim.weights())
    size = 0.1 if name == "transformer3" else 0.02
    torch.testing.assert_close(weights(victim)[fixed], size * sinusoids(12, 16))
    batch = draw_batch(victim)
    assert fixed not in gradient(victim, batch)
    assert gradient(learned, batch)[fixed].any()
    assert victim.loss(batch) != learned.loss(batch)  # they are read


def test_sinusoids_are_those_of_vaswani():
    table = sinusoids(7, 6)
    for position, row in enumerate(table):
        for i in range(3):
            angle = torch.tensor(position / 10_000 ** (2 * i / 6))
            torch.testing.assert_close(
                row[2 * i : 2 * i + 2], torch.stack([angle.sin(), angle.cos()])
            )


@pytest.mark.parametrize("name", NAMES)
def test_activation_is_the_protocols_choice(name):
    own, relu, gelu = (make(name, activation=chosen) for chosen in (None, "relu", "gelu"))
    loss = own.loss(draw_batch(own))
    assert loss == (relu if name == "transformer3" else gelu).loss(draw_batch(own))
    assert loss != (gelu if name == "transformer3" else relu).loss(draw_batch(own))


@pytest.mark.parametrize("name", NAMES)
def test_too_long_a_sequence_and_unfit_sizes_are_named(name):
    with pytest.raises(ProtocolError, match=f"{name} reads 12 tokens; got 13"):
        make(name)(torch.zeros(1, 13, dtype=torch.int64))
    with pytest.raises(ProtocolError, match=f"^{name}: .*5") as refused:
        make(name, heads=5)
    assert "\n" not in str(refused.value)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ProtocolError, match="no mask token"):
        make("bert_base", mask_token=None)
    with pytest.raises(ProtocolError, match="transformer3 has no pretrained weights"):
        make("transformer3", weights="pretrained")
    with pytest.raises(ProtocolError, match="gpt2: pretrained weights take no width; got 16"):
        make("gpt2", weights="pretrained")


@pytest.fixture(params=["gpt2", "bert_base"])
def trained(request, tmp_path, monkeypatch):
    """Return a tiny model whose weights lie in a mirror, the spec that asks for it, the mirror."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    victim = make(request.param, seed=7)
    folder = {"gpt2": "gpt2", "bert_base": "bert-base-uncased"}[request.param]
    asked = spec(request.param, weights="pretrained", vocabulary=60, length=10, dropout=0.2)
    return victim, asked, tmp_path / "weights" / folder


def test_pretrained_weights_come_from_the_mirror(trained, tmp_path):
    victim, asked, folder = trained
    victim.network.save_pretrained(folder)
    found = build(asked, generator(0), tmp_path)
    ours = victim.weights()
    assert list(found.weights()) == list(ours)
    assert all(torch.equal(tensor, ours[name]) for name, tensor in found.weights().items())
    assert torch.equal(found.loss(draw_batch(found)), victim.loss(draw_batch(victim)))
    found.train()
    assert found.loss(draw_batch(found)) != victim.loss(draw_batch(victim))
    with pytest.raises(ProtocolError, match="read 12 of 60 tokens; got length 13"):
        build(asked.model_copy(update={"length": 13}), generator(0), tmp_path)


def test_absent_weights_are_unavailable_with_the_command_that_gets_them(trained, tmp_path):
    _, asked, folder = trained
    folder.mkdir(parents=True)
    save_file({"one": torch.zeros(1)}, folder / "model.safetensors")  # and no config.json
    with pytest.raises(DataUnavailable, match=r"hf download .*model\.safetensors") as missing:
        build(asked, generator(0), tmp_path)
    assert missing.value.tried[0] == str(folder)


def test_a_language_model_is_one_entry_of_the_table(monkeypatch, tmp_path):
    known = ARCHITECTURES["transformer3"]
    other = replace(known, masked=True, start=0.5, trained=("toy", "no/repository"))
    monkeypatch.setitem(ARCHITECTURES, "toy", other)
    with pytest.raises(ProtocolError, match="toy guesses masked tokens"):
        make("toy")
    with pytest.raises(DataUnavailable, match="hf download no/repository"):
        build(spec("toy", mask_token=5, weights="pretrained", **WORDS), generator(0), tmp_path)
    victim = make("toy", mask_token=5, position="sinusoidal")
    assert victim.masked
    assert victim.anatomy.masked
    assert weights(victim)[victim.anatomy.position].abs().max() == 0.5
    assert operations(victim.spec) == operations(spec("transformer3", **TINY))
