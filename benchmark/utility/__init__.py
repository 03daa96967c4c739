from benchmark.utility.measure import Order, measure

__all__ = ["Order", "measure"]
