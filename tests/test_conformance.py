"""The conformance suite refuses a submission for each promise it breaks."""

import re

import pytest
import torch

from benchmark.conformance import attacks, defenses
from benchmark.conformance.examination import examine
from benchmark.conformance.words import words
from benchmark.registry import Registry

ATTACK = """'A constant.'
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
DEFENSE = """'A constant.'
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
        "same seed, same bits: the same seed gave another answer",
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
        "changed the update or a network in place",
    ),
    "writes to the model": (
        {"body": "torch.nn.init.zeros_(seen.model.network.head.bias); return grey(seen)"},
        "changed the update or a network in place",
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
    "seeds the global stream": (
        {"body": "torch.manual_seed(0); return grey(seen, float(torch.rand(())))"},
        "same seed, same bits: seeds the global generator of torch",
    ),
    "draws from numpy": (
        {"body": "import numpy; return grey(seen, float(numpy.random.rand()))"},
        "same seed, same bits: the same seed gave another answer",
    ),
    "draws from random": (
        {"body": "import random; return grey(seen, random.random())"},
        "same seed, same bits: the same seed gave another answer",
    ),
    "reads what it does not say it needs": (
        {"body": "return grey(seen, float(seen.data_statistics.mean[0]))"},
        "without data_statistics: WithheldError: data_statistics is not granted",
    ),
    "leaves another default dtype": (
        {"body": "torch.set_default_dtype(torch.float16); return grey(seen)"},
        "changed torch's default dtype",
    ),
    "leaves gradients off": (
        {"body": "torch.set_grad_enabled(False); return grey(seen)"},
        "changed torch's grad mode",
    ),
    "leaves threads": (
        {"body": "torch.set_num_threads(7); return grey(seen)"},
        "changed torch's threads",
    ),
    "leaves a variable": (
        {"body": "import os; os.environ['LEFT'] = '1'; return grey(seen)"},
        "changed the environment",
    ),
    "writes past torch's counters": (
        {"body": "seen.update['head.bias'].data.zero_(); return grey(seen)"},
        "changed the update or a network in place",
    ),
    "returns nothing": ({"body": "return None"}, "returned a NoneType; wanted a Reconstruction"),
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
        "too hard",
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
        "changed the undefended update's head.bias in place",
    ),
    "writes to the victim": (
        {
            "hook": "def harden(self, model, generator):\n"
            "        torch.nn.init.zeros_(model.network.head.weight)\n"
            "        return model"
        },
        "changed the victim's network.head.weight in place",
    ),
    "sends NaN": (
        {"hook": UPDATE + "return Update({n: t * torch.nan for n, t in update.items()})"},
        "with values that are not finite",
    ),
    "fails": ({"hook": UPDATE + "return update['tail']"}, "KeyError: 'tail'"),
    "seeds the global stream": (
        {"hook": UPDATE + "torch.manual_seed(0)\n        return update"},
        "seeds the global generator of torch",
    ),
    "does something at strength zero": (
        {"hook": "scale: float = 1.0\n    " + UPDATE + "return update.without('head.bias')"},
        "at scale=0 it sends another head.bias",
    ),
    "names a strength that there is not": ({}, "no argument 'scale'"),
    "sends nothing": ({"hook": UPDATE + "return Update({})"}, "sends nothing at all"),
    "tells a draw": (
        {"hook": "def describe(self): return {'key': torch.ones(2)}"},
        "describes key by a Tensor; wanted plain words",
    ),
}


def faults(rows):
    """Return what is wrong, a line a broken promise."""
    return [f"{r.promise}: {r.reason} ({r.place})" for r in rows if r.answer == "fail"]


@pytest.fixture
def checked(plugin, bench, seen_by):
    """Write a submission, ask it for every promise, and return what is wrong."""

    def attack(
        frozen="frozen=True", body="return grey(seen)", answers=None, needs="{'batch_size'}"
    ):
        source = ATTACK.format(frozen=frozen, body=body, needs=needs)
        source += TOGETHER.format(answers=answers) if answers else ""
        made = bench(plugin("tried", source=source))
        (submission,) = made.registry.find("attack", "tried")
        stack = seen_by(made, "tried" if "magic" not in needs else "prior_only")
        return faults([*words(submission), *attacks.Asked(submission, stack).rows()])

    def defense(frozen="frozen=True", hook="pass"):
        source = DEFENSE.format(frozen=frozen, hook=hook)
        made = bench(plugin("tried", source=source, kind="defense", strength="scale"))
        (submission,) = made.registry.find("defense", "tried")
        return faults([*words(submission), *defenses.Asked(submission, [made.round]).rows()])

    return {"attack": attack, "defense": defense}


def test_attack_that_keeps_every_promise_passes(checked):
    assert checked["attack"]() == []


def test_defense_that_keeps_every_promise_passes(checked):
    hook = (
        "scale: float = 1.0\n    "
        + UPDATE
        + (
            "draw = self.scale * draws.random()\n"
            "        return Update({n: t + draw for n, t in update.items()})"
        )
    )
    assert checked["defense"](hook=hook) == []


def test_attack_may_draw_from_its_own_generator(checked):
    body = "return grey(seen, float(torch.rand((), generator=seen.generator)))"
    assert checked["attack"](body=body) == []


@pytest.mark.parametrize("promise", BAD_ATTACKS)
def test_attack_is_refused_that(checked, promise):
    source, said = BAD_ATTACKS[promise]
    found = checked["attack"](**source)
    assert any(said in line for line in found), found
    assert all(re.search(r"\(attack\.py:\d+\)$", line) for line in found)


@pytest.mark.parametrize("promise", BAD_DEFENSES)
def test_defense_is_refused_that(checked, promise):
    source, said = BAD_DEFENSES[promise]
    found = checked["defense"](**source)
    assert any(said in line for line in found), found


def test_settings_are_put_back_after_each_run(checked):
    threads = torch.get_num_threads()
    checked["attack"](body="torch.set_num_threads(7); return grey(seen)")
    assert torch.get_num_threads() == threads


def test_line_that_raised_is_told(checked):
    (line, *_) = checked["attack"](body="x = 1\n        return seen.update['tail']")
    assert "KeyError: 'tail' (attack.py:15)" in line


def test_check_tells_promise_reason_and_line_and_ends_in_code_1(gradleak, plugin):
    folder = plugin("mine", "return seen.update['tail']")
    ended = gradleak("check", folder / "mine", "--traceback")
    assert ended.code == 1
    rows = [line for line in ended.out.splitlines() if "KeyError: 'tail'" in line]
    assert len(rows) == 2  # of either track, for it declines none
    assert rows[0].split()[-1] == "(attack.py:18)"
    assert "return seen.update['tail']" in ended.err
    assert "not asked" in ended.out


def test_check_of_a_process_that_ends_is_a_failure_whatever_its_code(gradleak, plugin):
    ended = gradleak("check", plugin("quits", "os._exit(0)"))
    assert ended.code == 1
    assert "its process ended with exit code 0 after: fits a victim" in ended.out


def test_check_of_a_broken_manifest_is_a_failure(gradleak, plugin):
    ended = gradleak("check", plugin("mine", colour="red"))
    assert (ended.code, "colour: Extra inputs are not permitted" in ended.out) == (1, True)


def test_code_that_does_not_load_is_asked_no_more_and_its_line_is_told(plugin):
    registry = Registry([plugin("mine", source="x = 1\ny = 1 / 0\n")])
    *_, last = examine(registry.find("attack", "mine")[0], registry)
    assert (last.promise, last.answer, last.place) == ("loads", "fail", "attack.py:2")
    assert "ZeroDivisionError" in last.reason


def test_check_of_what_there_is_not_ends_in_one_line_and_code_2(gradleak):
    ended = gradleak("check", "nonesuch")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "neither a folder nor a submission" in ended.err


def test_check_of_a_registered_name_passes(gradleak):
    ended = gradleak("check", "sign_update")
    assert (ended.code, ended.err) == (0, "")
    assert "no promise broken" in ended.out
