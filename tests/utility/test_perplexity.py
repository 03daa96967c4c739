import math

import pytest
import torch

from benchmark.contract import TextBatch
from benchmark.seeds import generator
from benchmark.utility.perplexity import frequencies_perplexity, perplexity
from benchmark.victims import TextSpec, build

SMALL = {"width": 8, "depth": 1, "heads": 2, "vocabulary": 12, "length": 6, "mask_token": 0}


@pytest.fixture
def make(draw):
    def made(architecture="transformer3", sequences=150):
        tokens = torch.randint(12, (sequences, 6), generator=draw)
        masked = torch.rand(tokens.shape, generator=draw) < 0.3 if "bert" in architecture else None
        victim = build(TextSpec(architecture=architecture, **SMALL), generator(0, "victim"))
        return victim, TextBatch(tokens, masked)

    return made


@pytest.mark.parametrize("architecture", ["transformer3", "bert_base"])
def test_it_is_exp_of_the_loss_of_all_text_however_many_sequences_are_read_at_once(
    make, architecture
):
    victim, data = make(architecture)
    assert perplexity(victim, data) == pytest.approx(math.exp(victim.loss(data).item()), rel=1e-5)


def test_victim_that_knows_nothing_guesses_among_the_whole_vocabulary(make):
    victim, data = make()
    victim.network.decoder.weight.data.zero_()
    assert perplexity(victim, data) == pytest.approx(12)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, 1e30])
def test_victim_that_diverged_has_an_infinite_one(make, wrong):
    victim, data = make(sequences=3)
    victim.network.decoder.bias.data[0] = wrong
    assert perplexity(victim, data) == math.inf


def test_frequencies_tell_no_token_s_place():
    tokens = torch.tensor([[9, 1, 1, 2, 2], [9, 3, 3, 4, 4]])
    assert frequencies_perplexity(TextBatch(tokens)) == pytest.approx(4)  # the first is not guessed
    hidden = torch.tensor([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]).bool()
    assert frequencies_perplexity(TextBatch(tokens, hidden)) == pytest.approx(2)


def test_no_one_guess_for_all_has_a_lower_one(make):
    victim, data = make()
    victim.network.decoder.weight.data.zero_()
    shares = data.tokens[:, 1:].flatten().bincount(minlength=12) / data.tokens[:, 1:].numel()
    victim.network.decoder.bias.data.copy_(shares.log())
    assert perplexity(victim, data) == pytest.approx(frequencies_perplexity(data), rel=1e-5)
    victim.network.decoder.bias.data[0] += 0.5
    assert perplexity(victim, data) > 1.001 * frequencies_perplexity(data)
