from benchmark.verify.start import Request, verify

__all__ = ["Request", "verify"]
