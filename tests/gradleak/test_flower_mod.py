import copy
import importlib.util
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

import gradleak
from gradleak.flower import guard_mod

RATE = 0.1
FORM = {"attacks": ["position_closed_form,defaults"], "mean": [0.5] * 3, "std": [0.5] * 3}
INSTALLED = importlib.util.find_spec("flwr") is not None


@pytest.fixture
def exchange(timm_vit, image):
    """Let a mod stand between a server and a client that takes a step on one image."""
    from flwr.app import ArrayRecord, RecordDict

    def message(weights, kind):
        content = RecordDict({"arrays": ArrayRecord(weights)})
        metadata = SimpleNamespace(message_type=kind)
        return SimpleNamespace(content=content, metadata=metadata, has_error=lambda: False)

    def client(_msg, _context):
        trained = copy.deepcopy(timm_vit)
        cross_entropy(trained((image - 0.5) / 0.5), torch.tensor([3])).backward()
        torch.optim.SGD(trained.parameters(), lr=RATE).step()
        return message(trained.state_dict(), "train")

    def run(mod, kind="train"):
        return mod(message(timm_vit.state_dict(), kind), None, client)

    return run


@pytest.mark.skipif(INSTALLED, reason="the extra flower is here")
def test_mod_without_flower_names_the_extra(timm_vit):
    with pytest.raises(gradleak.BenchmarkError, match=r"pip install 'gradleak\[flower\]'"):
        guard_mod(timm_vit, rate=RATE)


@pytest.mark.skipif(not INSTALLED, reason="wants the extra flower")
def test_weights_that_give_an_image_away_do_not_leave_the_client(timm_vit, exchange):
    with pytest.raises(gradleak.LeakError, match="update 1: This update gives"):
        exchange(guard_mod(timm_vit, rate=RATE, **FORM))


@pytest.mark.skipif(not INSTALLED, reason="wants the extra flower")
def test_leak_is_logged_and_sent_where_that_is_wanted(timm_vit, exchange, caplog):
    reply = exchange(guard_mod(timm_vit, rate=RATE, action="log", **FORM))
    assert "gives" in caplog.text
    assert len(reply.content["arrays"]) == len(timm_vit.state_dict())


@pytest.mark.skipif(not INSTALLED, reason="wants the extra flower")
def test_messages_that_are_no_training_pass(timm_vit, exchange, caplog):
    assert exchange(guard_mod(timm_vit, rate=RATE, **FORM), kind="evaluate")
    assert not caplog.text
