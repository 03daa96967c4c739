from benchmark.metrics.base import Metric
from benchmark.metrics.lpips import ALEXNET_FILE, ALEXNET_URL
from benchmark.metrics.pairing import assignment
from benchmark.metrics.scoring import METRICS, Scorer, metric

__all__ = ["ALEXNET_FILE", "ALEXNET_URL", "METRICS", "Metric", "Scorer", "assignment", "metric"]
