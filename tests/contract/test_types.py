import dataclasses

import pytest
import torch
from torch import nn

from benchmark.contract import (
    Attack,
    Budget,
    Defense,
    Grant,
    ImageBatch,
    Knowledge,
    Observation,
    Reconstruction,
    Stack,
    Update,
)
from benchmark.errors import WithheldError


def observation(number=0, **facts):
    update = Update({"weight": torch.full((2, 3), float(number))})
    draws = torch.Generator().manual_seed(number)
    return Observation(update, nn.Linear(3, 2), Knowledge(**facts), Budget(1, 1), draws)


def test_update_is_a_mapping_in_order_that_cannot_be_written():
    given = {"b": torch.ones(3), "a": torch.ones(2, 2)}
    update = Update(given)
    given["c"] = torch.ones(1)
    assert list(update) == ["b", "a"]
    assert len(update) == 2
    with pytest.raises(TypeError):
        update["b"] = torch.zeros(3)
    with pytest.raises(KeyError):
        update["c"]


def test_update_knows_its_bytes_and_its_norm_over_all_tensors_together():
    update = Update({"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])})
    assert update.nbytes == 12
    assert update.norm() == pytest.approx(5)
    assert repr(update) == "Update(2 tensors, 12 bytes)"


def test_update_without_names_is_another_update():
    update = Update({"a": torch.ones(1), "b": torch.ones(1)})
    assert list(update.without("a", "missing")) == ["b"]
    assert list(update) == ["a", "b"]


@pytest.mark.parametrize("grant", Grant)
def test_fact_withheld_is_refused_by_name(grant):
    with pytest.raises(WithheldError, match=f"^{grant.value} is not granted") as raised:
        Knowledge().require(grant)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("grant", Grant)
def test_fact_granted_is_the_very_fact(grant):
    fact = torch.ones(1)
    assert Knowledge(**{grant.value: fact}).require(grant) is fact


def test_observation_reads_grants_as_attributes_and_refuses_the_others():
    facts = {"batch_size": 1, "labels": torch.tensor([7]), "data_statistics": object()}
    facts["public_network"] = nn.Linear(1, 1)
    seen = observation(**facts)
    for name, fact in facts.items():
        assert getattr(seen, name) is fact
        with pytest.raises(WithheldError, match=name):
            getattr(observation(), name)


@pytest.mark.parametrize(
    "noun", [observation(), Knowledge(), ImageBatch(torch.ones(1), torch.ones(1))]
)
def test_nouns_are_frozen(noun):
    name = dataclasses.fields(noun)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(noun, name, None)


def test_batch_is_as_long_as_its_images():
    assert len(ImageBatch(torch.zeros(3, 1, 2, 2), torch.zeros(3))) == 3


def test_stack_puts_trials_first_and_slices_to_stacks():
    seen = [observation(i) for i in range(3)]
    stack = Stack(seen)
    assert stack.model is seen[0].model
    assert stack.update("weight").shape == (3, 2, 3)
    assert stack.update("weight")[:, 0, 0].tolist() == [0, 1, 2]
    assert stack[1] is seen[1]
    assert isinstance(stack[1:], Stack)
    assert list(stack[1:]) == seen[1:]


def test_stack_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Stack([])
    with pytest.raises(ValueError, match="at least one"):
        Stack([observation()])[5:]


def test_stack_shares_its_model_and_the_public_network():
    public = nn.BatchNorm1d(2)
    stack = Stack([observation(i, public_network=public) for i in range(2)])
    assert stack.networks == (stack.model, public)
    assert len(stack.network_tensors()) == 2 + 5  # BatchNorm's running statistics too
    assert Stack([observation()]).networks[1:] == ()


@pytest.mark.parametrize(
    "touch",
    [
        lambda stack: stack[1].update["weight"].zero_(),
        lambda stack: nn.init.zeros_(stack.model.bias),
        lambda stack: nn.init.zeros_(stack[0].public_network.weight),
        lambda stack: stack[0].public_network(torch.ones(2, 2)),  # in training mode it counts
    ],
    ids=["update", "model", "public network", "its statistics"],
)
def test_versions_tell_of_every_change_in_place(touch):
    public = nn.BatchNorm1d(2)
    stack = Stack([observation(i, public_network=public) for i in range(2)])
    before = stack.versions()
    stack.model(torch.ones(1, 3))
    assert stack.versions() == before
    touch(stack)
    assert stack.versions() != before


@pytest.mark.parametrize(("weighted", "needs"), [(False, set()), (True, {Grant.PUBLIC_NETWORK})])
def test_variant_of_an_attack_may_need_less(weighted, needs):
    @dataclasses.dataclass(frozen=True)
    class Varies(Attack):
        weighted: bool

        @property
        def needs(self):
            return frozenset({Grant.PUBLIC_NETWORK} if self.weighted else ())

        def reconstruct(self, seen): ...

    assert Varies(weighted).needs == needs


def test_attack_of_one_trial_is_looped_over_a_stack_in_order():
    class Reads(Attack):
        def reconstruct(self, seen):
            return Reconstruction(seen.update["weight"])

    stack = Stack([observation(i) for i in range(3)])
    answers = Reads().reconstruct_stack(stack)
    assert [answer.images[0, 0].item() for answer in answers] == [0, 1, 2]
    assert Reads().applies(stack[0]) is None
    assert Reads().needs == frozenset()


def test_every_hook_of_a_defense_is_the_identity_by_default(draw):
    defense, model = Defense(), nn.Linear(1, 1)
    batch, update = ImageBatch(torch.ones(1), torch.ones(1)), Update({})
    assert defense.harden(model, draw) is model
    assert defense.protect_batch(batch, model, draw) is batch
    assert defense.protect_update(update, model, draw) is update
    assert defense.server_view(model) is model


def test_defense_describes_itself_by_its_parameters():
    @dataclasses.dataclass(frozen=True)
    class Scaled(Defense):
        scale: float = 0.1

    assert Scaled(0.5).describe() == {"scale": 0.5}
