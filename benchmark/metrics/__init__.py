from benchmark.metrics.base import Metric
from benchmark.metrics.iip import Candidates, candidate_rows, pixels
from benchmark.metrics.lpips import LPIPS_URLS
from benchmark.metrics.pairing import assignment
from benchmark.metrics.scoring import (
    IMAGE_METRICS,
    METRICS,
    OF_INPUT,
    TEXT_METRICS,
    ImageScorer,
    Scorer,
    metric,
)
from benchmark.metrics.text import sequence_assignment
from benchmark.metrics.text_scoring import Excerpt, TextScorer, excerpt

__all__ = [
    "IMAGE_METRICS",
    "LPIPS_URLS",
    "METRICS",
    "OF_INPUT",
    "TEXT_METRICS",
    "Candidates",
    "Excerpt",
    "ImageScorer",
    "Metric",
    "Scorer",
    "TextScorer",
    "assignment",
    "candidate_rows",
    "excerpt",
    "metric",
    "pixels",
    "sequence_assignment",
]
