from benchmark.verify.report import DIFFERS
from benchmark.verify.start import Request, verify

__all__ = ["DIFFERS", "Request", "verify"]
