"""The conformance suite refuses a submission for each promise it breaks."""

import pytest

from benchmark.conformance import check_attack, check_defense
from benchmark.errors import PluginError

ATTACK = """
from dataclasses import dataclass
import torch
from benchmark.api import Attack, Reconstruction

def grey(seen, level=0.5):
    side = seen.model.spec.size
    return Reconstruction(torch.full((seen.batch_size, 1, side, side), level))

@dataclass({frozen})
class Plugin(Attack):
    needs = {needs}
    def reconstruct(self, seen):
        {body}
"""
TOGETHER = """
    def reconstruct_stack(self, stack):
        return {answers}
"""
DEFENSE = """
from dataclasses import dataclass
import torch
from benchmark.api import Defense, Update

@dataclass({frozen})
class Plugin(Defense):
    {hook}
"""
UPDATE = "def protect_update(self, update, model, draws):\n        "

BAD_ATTACKS = {
    "is not frozen": ({"frozen": ""}, "Plugin is no frozen dataclass"),
    "draws from the global stream": (
        {"body": "return grey(seen, float(torch.rand(())))"},
        "a stack and its trials differ",
    ),
    "answers a stack otherwise": (
        {"answers": "[grey(seen, 0.4) for seen in stack]"},
        "a stack and its trials differ",
    ),
    "answers in another order": (
        {
            "body": "return grey(seen, float(seen.update['head.bias'][0]))",
            "answers": "[self.reconstruct(seen) for seen in reversed(list(stack))]",
        },
        "a stack and its trials differ",
    ),
    "answers too few trials": ({"answers": "[grey(stack[0])]"}, "1 answers to 2 trials"),
    "writes to the update": (
        {"body": "seen.update['head.bias'].zero_(); return grey(seen)"},
        "changed the observation in place",
    ),
    "writes to the model": (
        {"body": "torch.nn.init.zeros_(seen.model.network.head.bias); return grey(seen)"},
        "changed the observation in place",
    ),
    "answers NaN": ({"body": "return grey(seen, float('nan'))"}, "images that are not finite"),
    "answers infinity": (
        {"body": "return grey(seen, float('inf'))"},
        "images that are not finite",
    ),
    "answers float64": (
        {"body": "return Reconstruction(grey(seen).images.double())"},
        "images of torch.float64; wanted torch.float32",
    ),
    "spends more than its budget": (
        {"body": "return Reconstruction(grey(seen).images, 1)"},
        "spent 1 gradient evaluations; the budget is 0",
    ),
    "names labels there are none of": (
        {"body": "return Reconstruction(grey(seen).images, labels=torch.tensor([10]))"},
        "returned labels from 10 to 10; wanted 0 to 9",
    ),
    "names other labels in a stack": (
        {
            "body": "return grey(seen)",
            "answers": "[Reconstruction(grey(s).images, labels=torch.tensor([1])) for s in stack]",
        },
        "a stack and its trials differ",
    ),
    "gives up": (
        {"body": "return Reconstruction(grey(seen).images, failure='too hard')"},
        "tried: too hard",
    ),
    "needs what no one grants": ({"needs": "{'magic'}"}, "needs {'magic'}; wanted batch_size"),
}
BAD_DEFENSES = {
    "is not frozen": ({"frozen": ""}, "Plugin is no frozen dataclass"),
    "draws from the global stream": (
        {"hook": UPDATE + "return Update({n: t + torch.rand(()) for n, t in update.items()})"},
        "the same seed sends another",
    ),
    "writes to the update": (
        {"hook": UPDATE + "update['head.bias'].add_(1)\n        return update"},
        "changed the undefended update in place",
    ),
    "writes to the victim": (
        {
            "hook": "def harden(self, model, generator):\n"
            "        torch.nn.init.zeros_(model.network.head.weight)\n"
            "        return model"
        },
        "changed the victim in place",
    ),
    "sends NaN": (
        {"hook": UPDATE + "return Update({n: t * torch.nan for n, t in update.items()})"},
        "with values that are not finite",
    ),
    "fails": ({"hook": UPDATE + "return update['tail']"}, "KeyError: 'tail'"),
    "tells a draw": (
        {"hook": "def describe(self): return {'key': torch.ones(2)}"},
        "describes itself in more than plain words",
    ),
}


@pytest.fixture
def checked(plugin, bench, seen_by):
    """Write a submission and put it through the suite."""

    def attack(frozen="frozen=True", body="return grey(seen)", answers=None, needs="set()"):
        source = ATTACK.format(frozen=frozen, body=body, needs=needs)
        source += TOGETHER.format(answers=answers) if answers else ""
        made = bench(plugin("tried", source=source))
        (submission,) = made.registry.find("attack", "tried")
        return check_attack(submission, seen_by(made, "tried"))

    def defense(frozen="frozen=True", hook="pass"):
        source = DEFENSE.format(frozen=frozen, hook=hook)
        made = bench(plugin("tried", source=source, kind="defense"))
        (submission,) = made.registry.find("defense", "tried")
        check_defense(submission, made.round, [0, 1])

    return {"attack": attack, "defense": defense}


def test_submissions_that_keep_every_promise_pass(checked):
    answers = checked["attack"]()
    assert len(answers) == 2


def test_defense_that_keeps_every_promise_passes(checked):
    checked["defense"](
        hook=UPDATE + "draw = draws.random()\n"
        "        return Update({n: t + draw for n, t in update.items()})"
    )


def test_attack_may_draw_from_its_own_generator(checked):
    checked["attack"](body="return grey(seen, float(torch.rand((), generator=seen.generator)))")


@pytest.mark.parametrize("promise", BAD_ATTACKS)
def test_attack_is_refused_that(checked, promise):
    source, said = BAD_ATTACKS[promise]
    with pytest.raises(PluginError, match=said) as raised:
        checked["attack"](**source)
    assert "tried" in str(raised.value)


@pytest.mark.parametrize("promise", BAD_DEFENSES)
def test_defense_is_refused_that(checked, promise):
    source, said = BAD_DEFENSES[promise]
    with pytest.raises(PluginError, match=said) as raised:
        checked["defense"](**source)
    assert "tried" in str(raised.value)
