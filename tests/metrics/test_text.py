import itertools
import random
import subprocess
import sys

import pytest
import torch

from benchmark.errors import PluginError, ProtocolError
from benchmark.metrics import METRICS, TEXT_METRICS, ImageScorer, TextScorer, sequence_assignment

WORDS = tuple(f"{first}{second}" for first in "bcdfgklm" for second in ("an", "ed", "ir", "oth"))
COUNTED = tuple(name for name in TEXT_METRICS if name not in ("bleu", "rouge1", "rouge2", "rougeL"))


def decode(ids):
    return " ".join(WORDS[one] for one in ids)


def score(truth, answer, certain=None, metrics=COUNTED):
    truth, answer = torch.tensor(truth), torch.tensor(answer)
    return TextScorer(metrics, decode).score(
        truth, answer, None if certain is None else torch.tensor(certain)
    )


@pytest.fixture(params=range(4))
def drawn(request):
    """Return a truth and an answer of 5 x 9 that shares about half of its tokens, and doubts."""
    draw = torch.Generator().manual_seed(request.param)
    truth = torch.randint(len(WORDS), (5, 9), generator=draw)
    wild = torch.randint(-1, len(WORDS), (5, 9), generator=draw)
    kept = torch.rand(5, 9, generator=draw) < torch.rand(5, 1, generator=draw)
    order = torch.randperm(5, generator=draw)
    answer = torch.where(kept, truth, wild)[order]
    return truth, answer, (torch.rand(5, 9, generator=draw) < 0.6)


def test_text_metrics_stand_in_their_order_and_are_leakage():
    assert TEXT_METRICS == (
        *("total_accuracy", "most_vulnerable_accuracy", "token_accuracy", "unique_token_recall"),
        *("tokens_leaked", "certified_share", "certified_precision"),
        *("bleu", "rouge1", "rouge2", "rougeL"),
    )
    assert {METRICS[name].better for name in TEXT_METRICS} == {"higher"}


def test_perfect_answer_has_every_metric_s_ceiling(drawn):
    truth, _, _ = drawn
    scores = TextScorer(TEXT_METRICS, decode).score(truth, truth.flip(0), truth >= 0)
    assert scores["bleu"] <= 100
    assert (scores.pop("bleu"), scores.pop("tokens_leaked")) == (pytest.approx(100), 45)
    assert scores == dict.fromkeys(scores, pytest.approx(1))


def test_answer_without_tokens_has_nothing(drawn):
    truth, _, _ = drawn
    scores = TextScorer(TEXT_METRICS, decode).score(truth, torch.full_like(truth, -1))
    assert scores.pop("certified_precision") is None
    assert scores == dict.fromkeys(scores, 0)


def test_scores_of_a_batch_written_out():
    truth = [[1, 2, 3, 4], [5, 5, 6, 7]]
    answer = [[6, 5, 5, 7], [1, 2, 4, 9]]  # in the other order
    certain = [[False, True, True, True], [True, True, False, False]]
    assert score(truth, answer, certain) == {
        "total_accuracy": 4 / 8,
        "most_vulnerable_accuracy": 2 / 4,
        "token_accuracy": 7 / 8,
        "unique_token_recall": 6 / 7,
        "tokens_leaked": 4,
        "certified_share": 5 / 8,
        "certified_precision": 4 / 5,
    }


def test_most_vulnerable_is_the_best_sequence_alone():
    scores = score([[1, 2], [3, 4], [5, 6]], [[1, 9], [3, 4], [9, 9]])
    assert (scores["most_vulnerable_accuracy"], scores["total_accuracy"]) == (1, 0.5)


def test_word_in_another_place_counts_in_the_bag_alone():
    scores = score([[1, 2, 3]], [[3, 1, 2]])
    assert (scores["token_accuracy"], scores["unique_token_recall"]) == (1, 1)
    assert (scores["total_accuracy"], scores["tokens_leaked"]) == (0, 0)


def test_one_word_everywhere_earns_its_own_share_of_the_bag():
    scores = score([[1, 1, 2, 3]], [[1, 1, 1, 1]])
    assert (scores["token_accuracy"], scores["unique_token_recall"]) == (0.5, 1 / 3)


def test_attack_that_vouches_for_nothing_has_no_precision():
    for certain in (None, [[False, False]]):
        scores = score([[1, 2]], [[1, 2]], certain)
        assert (scores["certified_share"], scores["certified_precision"]) == (0, None)


def test_vouching_for_no_token_is_wrong():
    assert score([[1, 2]], [[-1, 2]], [[True, True]])["certified_precision"] == 0.5


def test_pairs_are_those_of_the_best_total_accuracy(drawn):
    truth, answer, _ = drawn
    best = max(
        sum(
            int((row == other).sum()) for row, other in zip(truth, answer[list(order)], strict=True)
        )
        for order in itertools.permutations(range(5))
    )
    assert int((answer[sequence_assignment(truth, answer)] == truth).sum()) == best
    assert score(truth.tolist(), answer.tolist())["tokens_leaked"] == best


def test_what_is_vouched_for_moves_with_its_sequence(drawn):
    truth, answer, certain = drawn
    own = sequence_assignment(truth, answer).tolist()
    right = [
        answer[own[row], place] == truth[row, place]
        for row in range(5)
        for place in range(9)
        if certain[own[row], place]
    ]
    scores = score(truth.tolist(), answer.tolist(), certain.tolist())
    assert scores["certified_precision"] == pytest.approx(sum(map(int, right)) / len(right))


def test_bag_is_counted_as_a_loop_counts_it(drawn):
    truth, answer, _ = drawn
    left, found = truth.flatten().tolist(), 0
    unique = set()
    for token in answer.flatten().tolist():
        if token in truth:
            unique.add(token)
        if token in left:
            left.remove(token)
            found += 1
    scores = score(truth.tolist(), answer.tolist())
    assert scores["token_accuracy"] == pytest.approx(found / 45)
    assert scores["unique_token_recall"] == pytest.approx(len(unique) / len(truth.unique()))


def test_order_of_the_sequences_carries_no_credit(drawn):
    truth, answer, certain = drawn
    scorer = TextScorer(TEXT_METRICS, decode)
    expected = scorer.score(truth, answer, certain)
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        assert scorer.score(truth, answer[order], certain[order]) == expected


def test_order_of_the_sequences_does_not_decide_between_equal_pairings():
    truth = torch.tensor([[1, 2], [1, 3], [1, 4]])
    answer = torch.tensor([[1, 8], [9, 9], [1, 7]])  # the first fits the second or the third too
    pairs = answer[sequence_assignment(truth, answer)]
    for order in itertools.permutations(range(3)):
        turned = answer[list(order)]
        assert torch.equal(turned[sequence_assignment(truth, turned)], pairs)


def test_scoring_takes_tokens_as_they_are_and_leaves_them(drawn):
    truth, answer, certain = drawn
    before = truth.clone(), answer.clone(), certain.clone()
    TextScorer(COUNTED, decode).score(truth, answer, certain)
    assert all(map(torch.equal, before, drawn))


@pytest.mark.parametrize(
    ("answer", "certain", "said"),
    [
        ([[1, 2, 3]], None, r"tokens \(1, 3\); wanted \(1, 2\)"),
        ([[1, 2]], [[True]], r"certain \(1, 1\); wanted \(1, 2\)"),
    ],
)
def test_wrong_shape_is_refused_with_both_shapes(answer, certain, said):
    with pytest.raises(PluginError, match=said):
        score([[1, 2]], answer, certain)


def test_metric_of_something_else_is_refused_with_those_there_are():
    with pytest.raises(ProtocolError, match="psnr is of images; wanted one of total_accuracy, "):
        TextScorer(("bleu", "psnr"), decode)
    with pytest.raises(ProtocolError, match=r"bleu is of tokens; wanted one of psnr, .*label_acc"):
        ImageScorer(("psnr", "bleu"), (1.0,))
    with pytest.raises(ProtocolError, match="'blue' is unknown"):
        TextScorer(("blue",), decode)


def test_a_hundred_long_sequences_are_paired():
    draw = random.Random(0)
    truth = torch.tensor([[draw.randrange(50257) for _ in range(512)] for _ in range(100)])
    assert torch.equal(truth.flip(0)[sequence_assignment(truth, truth.flip(0))], truth)


def test_listing_imports_neither_sacrebleu_nor_rouge():
    code = """
import sys
from benchmark.metrics import TEXT_METRICS
print(len(TEXT_METRICS), sorted({"torch", "sacrebleu", "rouge_score", "nltk"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "11 []\n"
