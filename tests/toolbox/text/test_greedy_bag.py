"""Words are counted by the paper's greedy rules; see each of algorithms 2 and 3 on numbers."""

import torch

from benchmark.contract import TextBatch
from benchmark.toolbox.text.greedy_bag import by_decoder_bias, by_norm, greedy_bag
from benchmark.victims import TextSpec, build

VOCABULARY = 2000


def sent(architecture, tokens):
    spec = TextSpec(
        architecture=architecture,
        vocabulary=VOCABULARY,
        length=tokens.shape[1],
        width=32,
        depth=1,
        heads=4,
        mlp=64,
    )
    model = build(spec, torch.Generator().manual_seed(0))
    named = model.weights()
    gradients = torch.autograd.grad(model.loss(TextBatch(tokens)), list(named.values()))
    return model, dict(zip(named, gradients, strict=True))


def test_counts_of_a_noiseless_small_batch_are_the_truth_s():
    tokens = torch.tensor([[3, 4, 5, 4, 6, 7], [8, 5, 4, 5, 9, 5]])
    model, update = sent("transformer3", tokens)
    assert torch.equal(greedy_bag(update, model, tokens.numel()), tokens.flatten().sort().values)


def test_tokens_are_labels_below_zero_and_inputs_of_any_gradient():
    bias = torch.tensor([0.1, -0.25, 0.05, -0.75, 0.1])
    embedding = torch.tensor([[0.0], [1.0], [-2.0], [1.0], [0.0]])
    assert by_decoder_bias(bias, embedding, 5).tolist() == [1, 2, 3, 3, 3]


def test_rows_of_large_norm_are_tokens_as_often_as_they_are_large():
    embedding = torch.full((100, 1), 0.01)
    embedding[7], embedding[20] = 1.0, 3.1
    assert by_norm(embedding, 4).tolist() == [7, 20, 20, 20]


def test_a_higher_cutoff_leaves_the_smaller_out():
    embedding = torch.full((100, 1), 0.01)
    embedding[7], embedding[20] = 0.1, 3.1
    assert by_norm(embedding, 2, cutoff=1.5).tolist() == [7, 20]
    assert by_norm(embedding, 2, cutoff=5.0).tolist() == [20, 20]


def test_a_tied_table_is_read_by_its_norms():
    tokens = torch.arange(100, 108)[None]
    model, update = sent("gpt2", tokens)
    found = greedy_bag(update, model, 8)
    assert torch.equal(found, by_norm(update["transformer.wte.weight"], 8))
    assert set(found.tolist()) <= set(tokens.flatten().tolist())


def test_the_largest_are_taken_where_more_are_found_than_there_are_places():
    bias = -torch.arange(1.0, 11.0)
    assert by_decoder_bias(bias, torch.zeros(10, 1), 3).tolist() == [7, 8, 9]


def test_one_that_is_found_crowds_out_no_repetition_where_there_are_too_many():
    bias = -torch.tensor([0.1, 0.1, 0.1, 2.0, 1.0])
    assert by_decoder_bias(bias, torch.zeros(5, 1), 3).tolist() == [3, 3, 4]


def test_nothing_stands_out_of_zeros():
    assert by_decoder_bias(torch.zeros(10), torch.zeros(10, 1), 4).tolist() == []
    assert by_norm(torch.zeros(10, 1), 4).tolist() == []
