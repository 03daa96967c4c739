import pytest
import torch

from benchmark.metrics import METRICS, ImageScorer
from benchmark.metrics.labels import label_accuracy


@pytest.mark.parametrize(
    ("truth", "named", "score"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4], 1),
        ([1, 2, 3, 4], [4, 3, 2, 1], 1),
        ([1, 2, 3, 4], [5, 6, 7, 8], 0),
        ([1, 1, 2, 3], [1, 1, 1, 1], 0.5),
        ([1, 2, 3, 4], [1, 1, 1, 1], 0.25),
        ([1, 1, 2, 2], [1, 2, 2, 2], 0.75),
        ([7], [7], 1),
        ([1, 2], [], 0),
    ],
)
def test_label_accuracy_counts_each_label_as_often_as_it_occurs(truth, named, score):
    truth, named = (torch.tensor(labels, dtype=torch.int64) for labels in (truth, named))
    assert label_accuracy(truth, named) == score


def test_labels_are_scored_once_for_the_whole_batch_beside_the_images():
    images = torch.rand(2, 1, 4, 4)
    scorer = ImageScorer(("label_accuracy", "mse"), (1.0,))
    labels = torch.tensor([1, 2]), torch.tensor([2, 9])
    assert scorer.score(images, images, labels) == {"label_accuracy": 0.5, "mse": 0}
    assert METRICS["label_accuracy"].better == "higher"


def test_labels_that_were_not_inferred_have_no_score():
    images = torch.rand(2, 1, 4, 4)
    scores = ImageScorer(("mse", "label_accuracy"), (1.0,)).score(images, images)
    assert scores == {"mse": 0, "label_accuracy": None}
