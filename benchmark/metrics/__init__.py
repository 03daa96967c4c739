from benchmark.metrics.base import Metric
from benchmark.metrics.lpips import ALEXNET_FILE, ALEXNET_URL
from benchmark.metrics.pairing import assignment
from benchmark.metrics.scoring import IMAGE_METRICS, METRICS, Scorer, metric

__all__ = [
    "ALEXNET_FILE",
    "ALEXNET_URL",
    "IMAGE_METRICS",
    "METRICS",
    "Metric",
    "Scorer",
    "assignment",
    "metric",
]
