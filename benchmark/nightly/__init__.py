from benchmark.nightly.start import Request, nightly

__all__ = ["Request", "nightly"]
