"""Five clients and a server in Flower, a defense as a client mod, and what the server reads of it.

    uv run --extra flower examples/flower/run.py
    uv run --extra flower examples/flower/run.py gaussian_noise,scale=0.1

Each client holds one digit and takes one step of SGD. The server looks at every answer before it
takes the mean: the closed form of the board reads each client's digit from it.
"""

import sys
from collections.abc import Iterable

from client import RATE, client_app, the_round
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmark.api import Budget, Grant, Update
from benchmark.contract import ThreatModel, observe
from benchmark.metrics.psnr import psnr
from benchmark.registry import Registry
from benchmark.seeds import generator

CLIENTS = 5
DEFENSE = sys.argv[1] if len(sys.argv) > 1 else "gaussian_noise,scale=0.001"

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run one round."""
    weights = {name: weight.detach() for name, weight in the_round().victim.weights().items()}
    strategy = Curious(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    strategy.start(grid, ArrayRecord(weights), num_rounds=1)


class Curious(FedAvg):
    """FedAvg by a server that looks."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Read every client's digit, then take the mean."""
        replies = list(replies)
        before = the_round().victim.weights()
        for reply in replies:
            number = int(reply.content["metrics"]["client"])
            moved = reply.content["arrays"].to_torch_state_dict()
            sent = Update({n: (before[n].detach() - moved[n]) / RATE for n in moved})
            print(f"client {number}: its digit is read at {read(sent, number):.1f} dB", flush=True)
        return super().aggregate_train(server_round, replies)


def read(sent: Update, number: int) -> float:
    """Return how well the span of the tokens tells a client's digit, PSNR in dB."""
    attack = Registry().select("attack", ("span_closed_form,defaults",))[0].build()
    seen = observe(
        ThreatModel(grants=frozenset({Grant.BATCH_SIZE})),
        update=sent,
        model=the_round().victim,
        budget=Budget(seconds=60, memory_bytes=2**30),
        generator=generator(0, "flower", number),
        facts={Grant.BATCH_SIZE: 1},
        defense={"name": DEFENSE.split(",")[0]},
    )
    found = attack.reconstruct(seen).images
    return psnr(the_round().truth(number).images[0], found[0])


if __name__ == "__main__":
    run_simulation(server, client_app(DEFENSE), num_supernodes=CLIENTS)
