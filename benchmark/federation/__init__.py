from benchmark.federation.client import fedsgd
from benchmark.federation.rounds import DefendedRound, Round

__all__ = ["DefendedRound", "Round", "fedsgd"]
