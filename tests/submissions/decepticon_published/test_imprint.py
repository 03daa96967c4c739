"""What the server sends, as the paper says it."""

import pytest
import torch

from benchmark import victims
from benchmark.api import TextVictim, weights
from benchmark.seeds import generator
from benchmark.toolbox.text.imprinting import given_to
from submissions.attacks.decepticon_published.imprint import imprint

VOCABULARY, LENGTH = 500, 16


@pytest.fixture
def sent():
    spec = victims.TextSpec(
        architecture="transformer3", vocabulary=VOCABULARY, length=LENGTH, mlp=400
    )
    model = victims.build(spec, generator(0, "victim"))
    sample = torch.randint(VOCABULARY, (50, LENGTH), generator=generator(0, "public"))
    imprint(model, sample, generator(0, "server"))
    return model


def test_all_measurement_rows_are_equal_and_biases_descend_over_the_blocks(sent):
    known, blocks = weights(sent), TextVictim.of(sent).anatomy.blocks
    rows = torch.cat([block.first.weight.of(known) for block in blocks])
    biases = torch.cat([block.first.bias.of(known) for block in blocks])
    assert (rows == rows[0]).all()
    assert (biases.diff() < 0).all()


def test_bins_hold_equal_shares(sent):
    known, block = weights(sent), TextVictim.of(sent).anatomy.blocks[0]
    tokens = torch.randint(VOCABULARY, (100, LENGTH), generator=generator(1, "private"))
    with torch.no_grad():
        found = given_to(sent, block.first.weight.name, tokens) @ block.first.weight.of(known)[0]
        share = (found < -block.first.bias.of(known)[-1]).double().mean()
    assert float(share) == pytest.approx(1 / 3, abs=0.05)  # below the first of three blocks' last


def test_the_first_token_alone_names_its_sequence(sent):
    known, block = weights(sent), TextVictim.of(sent).anatomy.blocks[0]
    one, other = torch.arange(10, 10 + LENGTH), torch.arange(100, 100 + LENGTH)
    alike = other.clone()
    alike[0] = one[0]
    with torch.no_grad():
        inputs = given_to(sent, block.first.weight.name, torch.stack([one, other, alike]))
    first = (
        known["token_embedding.weight"][one[0], 6:12] + known["position_embedding.weight"][0, 6:12]
    )
    named = torch.nn.functional.pad(first, (0, 90))
    plain = known["token_embedding.weight"][one] + known["position_embedding.weight"]
    expected = torch.nn.functional.layer_norm(plain + named, (96,))
    assert torch.allclose(inputs[0], expected, atol=1e-5)
    marks = inputs[:, 1:, :6].mean(1)
    assert (marks[0] - marks[2]).norm() < 0.3 * (marks[0] - marks[1]).norm()


def test_only_the_last_entry_is_written_by_an_mlp(sent):
    for block in TextVictim.of(sent).anatomy.blocks:
        second = block.second.weight.of(weights(sent))
        assert not second[:-1].any()
        assert (second[-1] == 1e-6).all()


def test_noisy_rows_are_of_full_rank():
    spec = victims.TextSpec(
        architecture="transformer3", vocabulary=VOCABULARY, length=LENGTH, mlp=400
    )
    model = victims.build(spec, generator(0, "victim"))
    sample = torch.randint(VOCABULARY, (50, LENGTH), generator=generator(0, "public"))
    imprint(model, sample, generator(0, "server"), noise=0.003)
    rows = TextVictim.of(model).anatomy.blocks[1].first.weight.of(weights(model))
    assert torch.linalg.matrix_rank(rows) == 96
