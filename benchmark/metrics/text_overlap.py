"""BLEU by sacrebleu and ROUGE by rouge-score, on the text that tokens decode to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor

Decode = Callable[[list[int]], str]


def bleu(truth: Tensor, answer: Tensor, certain: Tensor, decode: Decode) -> float:
    """Return the corpus BLEU of Papineni et al., 2002, where every true sequence is a reference.

    It is what `sacrebleu.corpus_bleu` answers (13a tokens, exponential smoothing), with the
    n-grams of the references counted once instead of once for each of the answers.

    Args:
        truth: (batch, length) int64.
        answer: as truth; places of -1 are left out of the text.
        certain: (batch, length) bool; not looked at.
        decode: ids to text.

    Returns:
        A number in [0, 100].
    """
    from sacrebleu.metrics.bleu import BLEU

    scorer = BLEU(references=[[text] for text in texts(truth, decode)])
    counted = [scorer.corpus_score([text], None) for text in texts(answer, decode)]
    found = BLEU.compute_bleu(
        correct=[sum(orders) for orders in zip(*(one.counts for one in counted), strict=True)],
        total=[sum(orders) for orders in zip(*(one.totals for one in counted), strict=True)],
        sys_len=sum(one.sys_len for one in counted),
        ref_len=sum(one.ref_len for one in counted),
        smooth_method="exp",
    ).score
    return min(found, 100.0)  # a perfect answer is rounded to a little more


def rouge(truth: Tensor, answer: Tensor, certain: Tensor, decode: Decode, *, kind: str) -> float:
    """Return the mean ROUGE F-measure of Lin, 2004, over the pairs of sequences.

    rouge-score reads lower-case letters and digits only: text without any scores 0.

    Args:
        truth: (batch, length) int64.
        answer: as truth, paired with it; places of -1 are left out of the text.
        certain: (batch, length) bool; not looked at.
        decode: ids to text.
        kind: `rouge1`, `rouge2` or `rougeL`.

    Returns:
        A number in [0, 1].
    """
    from rouge_score.rouge_scorer import (  # type: ignore[import-untyped, unused-ignore]
        RougeScorer,
    )

    scorer = RougeScorer([kind])
    pairs = zip(texts(truth, decode), texts(answer, decode), strict=True)
    return fmean(scorer.score(*pair)[kind].fmeasure for pair in pairs)


def texts(tokens: Tensor, decode: Decode) -> list[str]:
    """Return the text of each sequence, (batch, length), less the places without a token."""
    return [decode([token for token in row if token >= 0]) for row in tokens.tolist()]


_ROUGE = {
    "rouge1": "ROUGE F-measure of words, mean over sequences",
    "rouge2": "ROUGE F-measure of pairs of words, mean over sequences",
    "rougeL": "ROUGE F-measure of the longest common subsequence, mean over sequences",
}
OVERLAP_METRICS = (
    Metric(
        "bleu",
        "",
        "higher",
        "BLEU of the text, every true sequence a reference, 0 to 100",
        bleu,
        given=("decode",),
        of="tokens",
        highest=100.0,
    ),
    *(
        Metric(
            kind,
            "",
            "higher",
            description,
            partial(rouge, kind=kind),
            given=("decode",),
            of="tokens",
        )
        for kind, description in _ROUGE.items()
    ),
)
