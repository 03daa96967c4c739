"""Positions by one assignment, tokens by another, sequences by clusters of bounded size."""

import torch

from submissions.attacks.decepticon_published.matching import (
    clusters,
    correlations,
    named,
    placed,
)

DRAWS = torch.Generator().manual_seed(0)
POSITIONS, TOKENS = (torch.randn(n, 40, generator=DRAWS) for n in (8, 30))


def test_known_positions_order_embeddings():
    stands = torch.tensor([5, 0, 3, 7, 1, 2, 6, 4])
    vectors = 3 * (TOKENS[:8] + POSITIONS[stands])
    owner, own = placed(correlations(vectors, POSITIONS), 8)
    assert torch.equal(stands[owner], torch.arange(8))
    assert own.all()


def test_positions_without_an_embedding_are_filled_with_the_best_used_one():
    vectors = TOKENS[:3] + POSITIONS[[4, 0, 6]]
    scores = correlations(vectors, POSITIONS)
    owner, own = placed(scores, 8)
    assert own.nonzero()[:, 0].tolist() == [0, 4, 6]
    assert owner[[4, 0, 6]].tolist() == [0, 1, 2]
    assert torch.equal(owner[~own], scores.argmax(0)[~own])


def test_the_place_that_sends_no_gradient_is_never_assigned():
    vectors = TOKENS[:8] + POSITIONS
    _, own = placed(correlations(vectors, POSITIONS), 7)
    assert own.tolist() == [True] * 7 + [False]


def test_tokens_are_named_once_for_each_time_they_occur():
    wanted = torch.tensor([9, 4, 9, 2])
    vectors = 0.5 * (TOKENS[wanted] + POSITIONS[:4])
    words = torch.tensor([2, 4, 9, 9])
    assert torch.equal(words[named(vectors, POSITIONS[:4], TOKENS[words])], wanted)


def test_clusters_hold_no_more_than_a_sequence():
    marks = torch.cat([torch.zeros(6, 3), torch.ones(4, 3)]) + 0.01 * torch.randn(
        10, 3, generator=DRAWS
    )
    found = clusters(marks, 2, 5, seed=0)
    assert torch.bincount(found).tolist() == [5, 5]
    loose = clusters(marks, 2, 6, seed=0)
    assert len(set(loose[:6].tolist())) == len(set(loose[6:].tolist())) == 1
