from benchmark.federation.client import fedsgd
from benchmark.federation.draws import draw_images, draw_text
from benchmark.federation.rounds import DefendedRound, Round

__all__ = ["DefendedRound", "Round", "draw_images", "draw_text", "fedsgd"]
