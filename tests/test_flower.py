import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmark.errors import PluginError
from benchmark.flower import defended, defense_mod, weights_in
from benchmark.registry import Registry

RATE = 0.5
EXAMPLE = Path(__file__).parents[1] / "examples" / "flower" / "run.py"


@pytest.fixture
def victim(make_victim):
    return make_victim(size=8, patch=4, width=16, depth=1)


@pytest.fixture
def told(victim):
    """Return what the server reads of a client whose gradient is one everywhere."""

    def tell(defense, seed=0, **others):
        built = Registry().select("defense", (defense,))[0].build()
        held = {name: weight.detach().clone() for name, weight in victim.weights().items()}
        moved = {name: weight - RATE for name, weight in held.items()}
        draws = np.random.default_rng(seed)
        found = defended(built, victim, held, moved | others, RATE, draws)
        return {n: (held[n] - found[n]) / RATE if n in held else found[n] for n in found}

    return tell


def test_no_defense_leaves_the_answer_as_it_is(told):
    for update in told("none").values():
        torch.testing.assert_close(update, torch.ones_like(update))


def test_noise_on_the_update_has_the_scale_of_the_board(told):
    noise = torch.cat([(u - 1).flatten() for u in told("gaussian_noise,scale=0.5").values()])
    assert noise.std().item() == pytest.approx(0.5, rel=0.05)


def test_what_is_withheld_comes_back_as_it_was_sent(told):
    update = told("withhold_position")
    assert not update.pop("pos_embed").any()
    assert all(each.min() > 0.9 for each in update.values())


def test_entries_that_are_no_parameters_pass(told):
    assert told("sign_update", mean=torch.tensor([1.0, 2.0]))["mean"].tolist() == [1, 2]


def test_defense_that_wants_the_batch_is_refused_by_name(victim):
    with pytest.raises(PluginError, match="mjp acts in harden; a Flower mod sees updates alone"):
        defense_mod("mjp,defaults", victim, rate=RATE)


def test_second_record_beside_the_weights_is_refused_since_no_defense_would_see_it():
    records = {"arrays": {}, "moments": {}}
    message = SimpleNamespace(content=SimpleNamespace(array_records=records))
    with pytest.raises(PluginError, match="a message holds 2 ArrayRecords; wanted the weights"):
        weights_in(message)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="wants the extra flower")
def test_federation_of_five_yields_updates_that_the_board_s_closed_form_reads():
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "gaussian_noise,scale=0.00001"],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"RAY_worker_niceness": "0"},  # else they starve beside other tests
    )
    found = re.findall(r"client (\d): its digit is read at ([\d.]+) dB", done.stdout)
    assert sorted(number for number, _ in found) == list("01234"), done.stderr[-2000:]
    assert all(float(decibel) > 40 for _, decibel in found)
