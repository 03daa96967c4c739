from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from benchmark.contract import ImageBatch, LocalTraining, Update
from benchmark.errors import PluginError
from benchmark.running.exchange import (
    load_model,
    load_observation,
    save_model,
    save_observation,
)

CPU = torch.device("cpu")


def names(path):
    with safe_open(path, framework="pt") as file:
        return set(file.keys())


@pytest.mark.parametrize("defense", ["none", "fixed_position", "narrow_width"])
def test_model_crosses_bit_by_bit(bench, seen_by, tmp_path, defense):
    model = seen_by(bench(), "random", defense).model
    save_model(model, tmp_path / "model")
    there = load_model(tmp_path / "model", CPU)
    images = torch.rand(2, 1, 8, 8)
    assert torch.equal(there(images), model(images))
    assert there.spec == model.spec
    assert list(there.weights()) == list(model.weights())


def test_local_training_and_later_rounds_cross_bit_by_bit(bench, seen_by, tmp_path):
    trained = {"algorithm": "fedavg", "local_steps": 2, "local_rate": 0.1, "rounds": 3}
    seen = seen_by(bench(federation=trained), "random", "gaussian_noise")[0]
    save_observation(seen, tmp_path / "seen")
    there = load_observation(tmp_path / "seen", seen.model, CPU)
    assert there.knowledge.local == seen.knowledge.local == LocalTraining(2, 1, 0.1)
    assert len(there.later) == len(seen.later) == 2
    for one, other in zip(there.later, seen.later, strict=True):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_weights_that_the_server_made_cross_where_it_holds_others(bench, seen_by, tmp_path):
    seen = seen_by(bench(), "random", "model_encryption")[0]
    save_observation(seen, tmp_path / "seen")
    there = load_observation(tmp_path / "seen", seen.model, CPU)
    assert set(there.knowledge.initial) == set(seen.knowledge.initial)
    for name, weight in seen.knowledge.initial.items():
        assert torch.equal(there.knowledge.initial[name], weight)
    assert seen_by(bench(), "random")[0].knowledge.initial is None


def test_keys_that_a_client_told_cross_and_none_told_stay_none(bench, seen_by, tmp_path):
    def there(grants, defense):
        made = bench(threat={"grants": grants})
        seen = seen_by(made, "random", defense)[0]
        save_observation(seen, tmp_path / "seen")
        crossed = load_observation(tmp_path / "seen", seen.model, CPU)
        return crossed.knowledge.client_keys, seen.knowledge.client_keys

    crossed, told = there(["batch_size", "client_keys"], "model_encryption")
    assert set(crossed) == set(told) == {"matrix", "order"}
    assert all(torch.equal(crossed[name], key) for name, key in told.items())
    assert all(crossed[name].dtype == key.dtype for name, key in told.items())
    assert there(["batch_size", "client_keys"], "none") == ({}, {})
    assert there(["batch_size"], "model_encryption") == (None, None)


def test_observation_crosses_bit_by_bit(bench, seen_by, tmp_path):
    grants = ["batch_size", "labels", "data_statistics"]
    budget = {"seconds": 5, "memory_mib": 256, "gradient_evaluations": 7}
    seen = seen_by(bench(threat={"grants": grants}, budget=budget), "random")[1]
    public = ImageBatch(torch.rand(2, 1, 4, 4), torch.tensor([7, 8]))
    known = replace(seen.knowledge, pixel_levels=256, public_images=public)
    seen = replace(seen, knowledge=known)
    save_observation(seen, tmp_path / "seen")
    there = load_observation(tmp_path / "seen", seen.model, CPU)
    assert set(there.update) == set(seen.update)
    assert all(torch.equal(there.update[name], tensor) for name, tensor in seen.update.items())
    assert torch.equal(there.labels, seen.labels)
    assert torch.equal(there.data_statistics.mean_image, seen.data_statistics.mean_image)
    assert there.batch_size == seen.batch_size
    assert there.pixel_levels == 256
    assert torch.equal(there.public_images.images, public.images)
    assert torch.equal(there.public_images.labels, public.labels)
    assert there.knowledge.defense == seen.knowledge.defense
    assert there.budget == seen.budget
    assert there.budget.gradient_evaluations == 7
    assert there.knowledge.public_network is None
    draws = [torch.rand(4, generator=each.generator) for each in (there, seen)]
    assert torch.equal(*draws)


def test_facts_not_granted_are_not_in_the_file(bench, seen_by, tmp_path):
    made = bench(threat={"grants": ["batch_size"]})
    seen = seen_by(made, "random")[0]
    save_observation(seen, tmp_path / "seen")
    assert names(tmp_path / "seen") == {"generator"} | {f"update/{name}" for name in seen.update}
    content = (tmp_path / "seen").read_bytes()
    assert made.round.truths[0].images.numpy().tobytes() not in content


@pytest.mark.parametrize("attack", ["oracle", "wrong_update"])
def test_facts_for_controls_cross(bench, seen_by, tmp_path, attack):
    known = seen_by(bench(), attack)[0]
    save_observation(known, tmp_path / "seen")
    there = load_observation(tmp_path / "seen", known.model, CPU).knowledge
    if attack == "oracle":
        assert torch.equal(there.truth, known.knowledge.truth)
    else:
        assert isinstance(there.other_update, Update)
        other = known.knowledge.other_update
        assert all(torch.equal(there.other_update[name], each) for name, each in other.items())


def test_model_that_is_no_victim_does_not_cross(tmp_path):
    with pytest.raises(PluginError, match="a Linear cannot cross"):
        save_model(torch.nn.Linear(1, 1), tmp_path / "model")
