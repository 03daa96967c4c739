import pytest
import sacrebleu
import torch
from rouge_score.rouge_scorer import RougeScorer

from benchmark.metrics import TextScorer, sequence_assignment

TRUTH = (
    "The cat sat on the mat , while the dog slept .",
    "Gradients of a batch tell far more than they ever should !",
    "A server that chooses all weights chooses what it reads then .",
)
ANSWERS = {
    "two wrong words": (TRUTH[0].replace("cat", "dog").replace("mat", "rug"), *TRUTH[1:]),
    "two sequences swapped": (TRUTH[1], TRUTH[0], TRUTH[2]),
    "nearly nothing": ("of of of of of of of of of of of of", "it", "weights chooses what"),
    "one word": ("", "", "The"),
}
VOCABULARY = sorted(
    {word for text in (*TRUTH, *sum(ANSWERS.values(), ())) for word in text.split()}
)


def tokens(texts):
    """Return (batch, 12) ids, -1 behind a text that ends early."""
    ids = [[VOCABULARY.index(word) for word in text.split()] for text in texts]
    return torch.tensor([row + [-1] * (12 - len(row)) for row in ids])


def decode(ids):
    return " ".join(VOCABULARY[one] for one in ids)


def score(name, answer):
    return TextScorer((name,), decode).score(tokens(TRUTH), tokens(answer))[name]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_bleu_is_sacrebleu_s_with_every_true_sequence_as_reference(answer):
    references = [[text] * len(answer) for text in TRUTH]
    plain = sacrebleu.corpus_bleu(list(answer), references, force=True).score
    assert score("bleu", answer) == pytest.approx(plain, rel=1e-9)
    assert plain > 0 or answer == ANSWERS["one word"]


@pytest.mark.parametrize("kind", ["rouge1", "rouge2", "rougeL"])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_rouge_is_the_mean_of_rouge_score_over_the_pairs(answer, kind):
    own = sequence_assignment(tokens(TRUTH), tokens(answer)).tolist()
    found = [
        RougeScorer([kind]).score(text, answer[index])[kind].fmeasure
        for text, index in zip(TRUTH, own, strict=True)
    ]
    assert score(kind, answer) == pytest.approx(sum(found) / 3, rel=1e-9)
    assert kind == "rouge2" or sum(found) > 0


def test_order_within_a_sequence_counts_in_bleu_and_not_in_rouge1():
    turned = tuple(" ".join(reversed(text.split())) for text in TRUTH)
    assert score("rouge1", turned[:1] + TRUTH[1:]) == pytest.approx(1)
    assert score("bleu", turned) < 20
