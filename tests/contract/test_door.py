"""No field of an observation, however deep, leads to the private batch."""

from collections.abc import Iterable, Mapping

import pytest
import torch
from torch import Tensor

from benchmark.api import Grant
from benchmark.registry import Registry

REGISTRY = Registry()
ATTACKS = {  # what an attack sees hangs on its needs and its server alone: one of each kind
    (frozenset(s.build().needs), s.manifest.server): s.label
    for s in REGISTRY.all("attack")
    if not s.manifest.control
}
FITS = ATTACKS[frozenset({Grant.BATCH_SIZE}), "honest_but_curious"]


def pairs():
    """Yield every pair; quick are the attack that fits here by each defense, and all undefended."""
    names = set()
    for defense in REGISTRY.all("defense"):
        name = defense.manifest.name
        for attack in ATTACKS.values():
            quick = name == "none" or (attack == FITS and name not in names)
            marks = () if quick else pytest.mark.slow
            yield pytest.param(attack, defense.label, marks=marks)
        names.add(name)


def tensors(thing):
    """Return every tensor that can be reached from an object by its fields and its items."""
    due, met = [thing], {}
    while due:
        thing = due.pop()
        if id(thing) in met or isinstance(thing, (str, bytes, type)):
            continue
        met[id(thing)] = thing  # kept alive, or an id could come back
        if isinstance(thing, Tensor):
            due += [thing.grad, thing.grad_fn]
            yield thing
        elif isinstance(thing, Mapping):
            due += thing.values()
        elif isinstance(thing, Iterable):
            due += thing
        due += getattr(thing, "__dict__", {}).values()
        due += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]


def same(one, other):
    one, other = one.detach().flatten().double(), other.flatten().double()
    if one.is_meta or other.is_meta:  # a shape holds no value
        return False
    return one.shape == other.shape and torch.equal(one, other)


def holds(stack, truth):
    """Return whether a whole batch, an image or the labels can be read from a stack."""
    images = [truth.images, *truth.images]
    found = [one for seen in stack for one in tensors(seen)]
    assert len(found) > 20
    labels = any(one.dtype == torch.int64 and same(one, truth.labels) for one in found)
    return any(same(one, image) for one in found for image in images), labels


@pytest.mark.parametrize(("attack", "defense"), list(pairs()))
def test_observation_has_no_path_to_the_truth(bench, seen_by, attack, defense):
    made = bench(victim={"architecture": "april_a", "width": 32, "depth": 2, "patch": 4})
    stack = seen_by(made, attack, defense)
    if stack is None:
        (verdict,) = made.run(attack, defense)
        assert verdict.status == "not_applicable"
        return
    assert len(stack) == 2
    assert [holds(stack, truth) for truth in made.round.truths] == [(False, False)] * 3


def test_search_finds_labels_that_are_granted(bench, seen_by):
    made = bench(threat={"grants": ["batch_size", "labels", "data_statistics"]})
    stack = seen_by(made, "position_closed_form")
    assert holds(stack, made.round.truths[0]) == (False, True)


def test_search_finds_the_truth_in_the_oracle_s_observation(bench, seen_by):
    made = bench()
    assert holds(seen_by(made, "oracle"), made.round.truths[0]) == (True, False)


def test_attack_s_draws_are_its_own_and_every_trial_s(bench, seen_by):
    made = bench()
    cells = [("random", "none"), ("position_closed_form", "none"), ("random", "narrow_width")]
    seeds = [seen.generator.initial_seed() for cell in cells for seen in seen_by(made, *cell)]
    assert len(set(seeds)) == 6
