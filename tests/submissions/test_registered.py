"""Every submission that is registered keeps the contract."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmark.api import Stack, Update
from benchmark.conformance import check_attack, check_defense
from benchmark.registry import Registry

REGISTRY = Registry()
# Adam amplifies rounding step by step: one heeds no budget of gradients, the other's L1 has kinks
SHORT = {"deep_inversion": "deep_inversion,steps=1", "tag": "tag,steps=2"}
ATTACKS = [
    REGISTRY.find("attack", SHORT[s.label])[0] if s.label in SHORT else s
    for s in REGISTRY.all("attack")
    if not s.outside and s.label != "learned_inverter"  # which its own tests train first
]
DEFENSES = [s for s in REGISTRY.all("defense") if not s.outside]
PROTOCOLS = ("quick_digits_a", "quick_digits_b")
SEARCHES = str(Path(__file__).with_name("searches.yaml"))
TEXT = "quick_pydoc_transformer3"
BATCH = str(Path(__file__).with_name("batch.yaml"))
TRAINED = str(Path(__file__).with_name("trained.yaml"))
SMALL = {name: str(Path(__file__).with_name(f"defended_{name}.yaml")) for name in "ab"}


def label(submission):
    return submission.label


@pytest.fixture
def stack(request, quick, seen_by):
    """What an attack sees of the first defense and protocol that it fits; a search wants budget."""
    stacks = (
        seen_by(quick(name), request.param.label, defense)
        for defense in ("none", *request.param.manifest.adaptive_to)
        for name in (*PROTOCOLS, SEARCHES, TEXT, BATCH, TRAINED)
    )
    return request.param, next(stack for stack in stacks if stack is not None)


@pytest.mark.parametrize("stack", ATTACKS, ids=label, indirect=True)
def test_attack_keeps_the_contract(stack):
    attack, seen = stack
    answers = check_attack(attack, seen)
    spec = seen.model.spec
    if seen.model.track == "text":
        assert [answer.tokens.shape for answer in answers] == [(1, seen[0].length)] * 2
    else:
        shape = (seen[0].batch_size, spec.channels, spec.size, spec.size)
        assert [answer.images.shape for answer in answers] == [shape] * 2
    assert all(answer.gradient_evaluations >= 0 for answer in answers)


@pytest.mark.parametrize("stack", ATTACKS, ids=label, indirect=True)
def test_update_of_zeros_pulls_an_attack_to_nothing(stack):
    attack, seen = stack
    zero = Update({name: torch.zeros_like(t) for name, t in seen[0].update.items()})
    known = seen[0].knowledge
    if known.other_update is not None:
        known = replace(known, other_update=zero)
    (answer,) = attack.build().reconstruct_stack(
        Stack([replace(seen[0], update=zero, knowledge=known)])
    )
    if seen.model.track == "text":
        assert answer.certain is None or not answer.certain.any()
    else:
        assert answer.images.isfinite().all()


@pytest.mark.parametrize("architecture", SMALL)
@pytest.mark.parametrize("defense", DEFENSES, ids=label)
def test_defense_keeps_the_contract(defense, architecture, quick):
    check_defense(defense, quick(SMALL[architecture]).round, [0, 1])


@pytest.mark.parametrize("defense", DEFENSES, ids=label)
def test_defense_sends_tensors_shaped_as_the_parameters_of_its_victim(defense, quick):
    from benchmark.federation import DefendedRound

    defended = DefendedRound(quick(SMALL["b"]).round, defense.build(), defense.label)
    shapes = {name: weight.shape for name, weight in defended.model.weights().items()}
    sent = {name: tensor.shape for name, tensor in defended.update(0).items()}
    assert sent.items() <= shapes.items()


@pytest.mark.parametrize("submission", [*ATTACKS, *DEFENSES], ids=label)
def test_repr_says_the_arguments(submission):
    said = repr(submission.build())
    assert all(f"{key}={value!r}" in said for key, value in submission.arguments)
