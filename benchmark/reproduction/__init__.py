from benchmark.reproduction.start import Request, reproduce

__all__ = ["Request", "reproduce"]
