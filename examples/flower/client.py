"""A client of Flower: one digit, one step of SGD, and a defense as a mod."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmark.federation import Round, fedsgd
from benchmark.flower import defense_mod
from benchmark.protocol import load_protocol
from benchmark.tracks import load_setting

RATE = 0.1


@cache  # clients run in processes of their own
def the_round() -> Round:
    """Return victim and digits of a protocol of the board."""
    setting = load_setting(load_protocol("quick_digits_b"), None, torch.device("cpu"))
    return setting.round(seed=0)


def client_app(defense: str) -> ClientApp:
    """Return the client behind a defense."""
    app = ClientApp(mods=[defense_mod(defense, the_round().victim, rate=RATE)])
    app.train()(train)
    return app


def train(message: Message, context: Context) -> Message:
    """Take one step on this client's digit."""
    number = int(context.node_config["partition-id"])
    weights = message.content["arrays"].to_torch_state_dict()
    gradient = fedsgd(the_round().with_parameters(weights).victim, the_round().truth(number))
    stepped = {name: weights[name] - RATE * gradient[name] for name in weights}
    told = MetricRecord({"num-examples": 1, "client": number})
    content = RecordDict({"arrays": ArrayRecord(stepped), "metrics": told})
    return Message(content, reply_to=message)
