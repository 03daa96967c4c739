"""A training stage: the same bits again, a digest of all that decides them, files kept whole."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from benchmark.errors import BenchmarkError, DataUnavailable
from benchmark.victims import ImageSettings, ImageSpec, Stage
from benchmark.victims.training import Recipe

SETTINGS = ImageSettings(
    architecture="april_b", width=16, depth=1, patch=4, trained_on="digits", epochs=2
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADLEAK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def stage():
    """Return a stage of the tiny victim, with other settings, or attributes of the stage."""

    def make(seed=0, content="c", size=8, mean=0.5, recipe=None, **changes):
        settings = SETTINGS.model_copy(update=changes)
        own = settings.model_dump(exclude={"trained_on", "epochs", "mean", "std"})
        spec = ImageSpec(**own, channels=1, size=size, classes=2, mean=(mean,), std=(0.3,))
        return Stage(settings, spec, seed, content, recipe or Recipe())

    return make


@pytest.fixture
def images(draw):
    """Bright and dark images, and which is which."""
    labels = torch.arange(40) % 2
    return torch.rand(40, 1, 8, 8, generator=draw) * 0.5 + 0.5 * labels.view(-1, 1, 1, 1), labels


def fitted(stage, images):
    victim, said = stage.untrained(None), []
    stage.fit(victim, *images, said.append)
    return victim, said


def same(one, other):
    one, other = one.network.state_dict(), other.network.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_training_lowers_the_loss_and_tells_it_after_each_step(stage, images):
    chosen = stage(epochs=30, recipe=Recipe(rate=3e-3))
    _, said = fitted(chosen, images)
    assert len(said) == chosen.steps(40) == 60
    assert said[-1] < 0.5 * said[0]


def test_one_stage_makes_the_same_bits_twice_and_another_seed_makes_others(stage, images):
    first = fitted(stage(), images)[0]
    torch.rand(3)  # torch's global stream has no part in it
    assert same(first, fitted(stage(), images)[0])
    assert not same(first, fitted(stage(seed=1), images)[0])


def test_training_leaves_the_global_stream_and_ends_in_evaluation_mode(stage, images):
    before = torch.random.get_rng_state()
    victim, _ = fitted(stage(), images)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not victim.training


def test_trained_weights_are_read_back_as_pretrained(stage, images):
    chosen = stage(position="sincos_1d")
    victim, _ = fitted(chosen, images)
    chosen.save(victim)
    again = chosen.trained("train it")
    assert same(again, victim)
    assert not again.training
    assert again.spec.weights == "pretrained"


def test_weights_not_made_here_are_unavailable_with_the_place_and_the_command(stage, cache):
    with pytest.raises(DataUnavailable) as missing:
        stage().trained("gradleak train tiny")
    (place,) = missing.value.tried
    assert place.startswith(str(cache / "weights/april_b-digits-"))
    assert str(missing.value).startswith("april_b trained on digits, epochs: 2, is not available")
    assert missing.value.command == "gradleak train tiny"


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"content": "d"},
        {"size": 16},
        {"epochs": 3},
        {"width": 32},
        {"weights": "pretrained"},
        {"recipe": Recipe(batch_size=16)},
    ],
)
def test_digest_tells_apart_whatever_decides_the_weights(stage, changes):
    assert stage(**changes).digest != stage().digest


def test_digest_does_not_hang_on_the_last_bit_of_a_mean_of_the_data(stage):
    assert stage(mean=0.5000001).file == stage().file


def test_file_of_other_weights_is_an_error_that_names_it(stage, images):
    stage().save(fitted(stage(), images)[0])
    stage().file.rename(stage(width=32).file)
    with pytest.raises(BenchmarkError, match=r"the network wants \(1, 1, 32\)"):
        stage(width=32).trained("")


def test_interrupted_save_leaves_no_file(stage, images, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    victim, _ = fitted(stage(), images)
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(BenchmarkError, match="cannot be written: No space left"):
        stage().save(victim)
    assert not list(stage().file.parent.iterdir())


def test_loss_that_is_not_finite_ends_the_training(stage, images):
    victim = stage().untrained(None)
    with pytest.raises(BenchmarkError, match="loss nan at step 1 of 4"):
        stage().fit(victim, images[0] * torch.nan, images[1], lambda _: None)


def test_rate_rises_for_a_tenth_of_the_steps_and_falls_to_zero():
    factors = [Recipe().factor(step, 100) for step in range(101)]
    assert factors[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert factors[10] == 1
    assert all(one > two for one, two in pairwise(factors[10:]))
    assert factors[100] == pytest.approx(0)


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        ({"GRADLEAK_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/weights"),
        ({"GRADLEAK_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/gradleak/weights"),
        ({"GRADLEAK_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/gradleak/weights"),
    ],
)
def test_cache_lies_where_the_environment_says_else_where_users_look(
    stage, monkeypatch, named, folder
):
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    assert str(stage().file.parent) == folder


def test_recipe_is_part_of_what_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().rate = 1.0
