"""The equations that the first attention gives of words, on a victim small enough for a test."""

import torch

from benchmark.contract import TextBatch
from benchmark.toolbox.text.sequences import WordParts
from benchmark.victims import TextSpec, build

SEQUENCES, LENGTH = 3, 6


def test_indicators_of_sequences_solve_the_equations_and_no_others():
    spec = TextSpec(
        architecture="gpt2", vocabulary=200, length=LENGTH, width=96, depth=1, heads=4, mlp=96
    )
    model = build(spec, torch.Generator().manual_seed(0)).double()
    tokens = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    tokens = tokens[: SEQUENCES * LENGTH].view(SEQUENCES, LENGTH)
    parameters = model.weights()
    gradients = torch.autograd.grad(model.loss(TextBatch(tokens)), list(parameters.values()))
    update = dict(zip(parameters, gradients, strict=True))
    words = tokens[:, :-1].flatten()
    parts = WordParts.of(update, model, words, LENGTH - 1)
    positions = torch.arange(len(words), parts.query.shape[2])
    q, dq, dk, k = parts.without(positions)
    columns = torch.einsum("hrv,hsv->vhrs", q, dq) - torch.einsum("hrv,hsv->vhrs", dk, k)
    columns = columns.flatten(1).T / columns.norm()
    own = torch.arange(SEQUENCES).repeat_interleave(LENGTH - 1)
    indicators = torch.nn.functional.one_hot(own).double()
    assert (columns @ indicators).norm() < 1e-9
    values = torch.linalg.svdvals(columns)
    assert values[-SEQUENCES] < 1e-9
    assert values[-SEQUENCES - 1] > 1e-3
