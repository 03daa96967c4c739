from itertools import count

import pytest

from benchmark.contract import Defense, ImageBatch
from benchmark.data import load_images
from benchmark.errors import RefusedError
from benchmark.federation import fedsgd
from benchmark.protocol import Training
from benchmark.utility import federated
from benchmark.utility.slowdown import slowdown


class Thrice(Defense):
    def compute_update(self, batch, model, gradient, draws):
        gradient(batch)
        gradient(batch)
        return gradient(batch)


class Never(Defense):
    def compute_update(self, batch, model, gradient, draws):
        raise RefusedError("reads no model")


@pytest.fixture
def measured(make_victim, monkeypatch):
    """Return the slowdown of a defense by a clock that stands still but for gradients: 10 each."""
    digits = load_images("digits", "train", 16)
    data = ImageBatch(digits.images[:40], digits.labels[:40])
    victim = make_victim(size=16, patch=4, width=16, depth=1)
    now, reads = [0.0], count()

    def ticking(*given):
        now[0] += 10
        return fedsgd(*given)

    def clock():
        return now[0] + 0.01 * next(reads)

    def run(defense, **changes):
        monkeypatch.setattr(federated, "fedsgd", ticking)
        training = Training(
            **{"clients": 2, "rounds": 2, "batch_size": 8, "rates": (0.1,)} | changes
        )
        return slowdown(victim, defense, "here", data, training, name="x", seed=0, clock=clock)

    return run


@pytest.mark.parametrize(("defense", "wanted"), [(Defense(), 1), (Thrice(), 3), (Never(), 0)])
def test_slowdown_is_a_clients_time_of_that_of_one_without_a_defense(measured, defense, wanted):
    assert measured(defense) == pytest.approx(wanted, abs=0.01)


def test_both_train_as_long_where_training_is_local(measured):
    local = {"local_steps": 2, "local_rate": 0.1}
    assert measured(Thrice(), **local) == pytest.approx(3, abs=0.01)
