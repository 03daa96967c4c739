from benchmark.federation.canaries import canary_images, canary_text
from benchmark.federation.client import Client, fedsgd
from benchmark.federation.draws import draw_images, draw_text
from benchmark.federation.rounds import KEPT_BYTES, DefendedRound, Round

__all__ = [
    "KEPT_BYTES",
    "Client",
    "DefendedRound",
    "Round",
    "canary_images",
    "canary_text",
    "draw_images",
    "draw_text",
    "fedsgd",
]
