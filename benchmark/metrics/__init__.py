from benchmark.metrics.base import Metric
from benchmark.metrics.lpips import ALEXNET_FILE, ALEXNET_URL
from benchmark.metrics.pairing import assignment
from benchmark.metrics.scoring import IMAGE_METRICS, METRICS, TEXT_METRICS, Scorer, metric
from benchmark.metrics.text import sequence_assignment
from benchmark.metrics.text_scoring import Excerpt, TextScorer, excerpt

__all__ = [
    "ALEXNET_FILE",
    "ALEXNET_URL",
    "IMAGE_METRICS",
    "METRICS",
    "TEXT_METRICS",
    "Excerpt",
    "Metric",
    "Scorer",
    "TextScorer",
    "assignment",
    "excerpt",
    "metric",
    "sequence_assignment",
]
