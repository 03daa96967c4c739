"""Outside defenses: their hooks run in a child behind the wall and give what they gave inside."""

import shutil

import pytest
import torch
import yaml

from benchmark.contract import Defense
from benchmark.errors import DefenseError, PluginError
from benchmark.federation import DefendedRound
from benchmark.identity import OWN
from benchmark.registry import Registry
from benchmark.running import link
from benchmark.running.defending import Defending
from benchmark.running.wall import trouble
from tests.conftest import TINY, Bench

OF_ONE_HOOK = """
import os
from dataclasses import dataclass
from benchmark.api import Defense

@dataclass(frozen=True)
class Plugin(Defense):
    def {hook}:
        {body}
"""
ALL_HOOKS = """
import os, time
from dataclasses import dataclass
from pathlib import Path
import torch
from benchmark.api import Defense, Update

def case(hook, given, model, gradient=None):
    named, body = Path(__file__).with_name("case.txt").read_text().split(": ", 1)
    if named != hook:
        return gradient(given) if gradient else given
    space = dict(globals())
    exec("def told(given, model, gradient):\\n    " + body, space)
    return space["told"](given, model, gradient)

@dataclass(frozen=True)
class Plugin(Defense):
    def protect_batch(self, batch, model, draws):
        return case("batch", batch, model)

    def compute_update(self, batch, model, gradient, draws):
        return case("compute", batch, model, gradient)

    def protect_update(self, update, model, draws):
        return case("update", update, model)
"""


@pytest.fixture(scope="module")
def defending():
    if said := trouble():
        pytest.skip(said)
    with Defending(torch.device("cpu")) as made:
        yield made


@pytest.fixture(scope="module")
def staged(defending, tmp_path_factory, provenance):
    """Return what makes a round behind one defense, kept for all cases, that is told what to do."""
    home = tmp_path_factory.mktemp("staged")
    folder = home / "staged"
    folder.mkdir()
    said = {"name": "staged", "kind": "defense", "entry": "defense:Plugin", "title": "staged"}
    (folder / "submission.yaml").write_text(yaml.safe_dump(said))
    (folder / "defense.py").write_text(ALL_HOOKS)
    (home / "tiny.yaml").write_text(yaml.safe_dump(TINY, sort_keys=False))
    plain = Bench(home / "tiny.yaml", None, provenance).round
    (found,) = Registry([folder]).find("defense", "staged")
    defense = defending.guard(found).build()

    def behind(case):
        (folder / "case.txt").write_text(case)
        return DefendedRound(plain, defense, "staged")

    return behind


@pytest.mark.parametrize(
    ("label", "changes"),
    [
        ("gaussian_noise,scale=0.1", {}),
        pytest.param("dp_sgd", {"federation": {"batch_size": 2}}, marks=pytest.mark.slow),
        pytest.param(
            "dp_sgd",
            {"federation": {"algorithm": "fedavg", "local_steps": 2, "local_rate": 0.1}},
            marks=pytest.mark.slow,
        ),
        *(pytest.param(n, {}, marks=pytest.mark.slow) for n in ("censor", "quantise", "soteria")),
        *(
            pytest.param(n, {}, marks=pytest.mark.slow)
            for n in ("withhold_position", "sign_update")
        ),
    ],
)
def test_honest_defense_sends_the_same_bits_as_inside(tmp_path, defending, bench, label, changes):
    name = label.split(",")[0]
    (inside, *_) = Registry().find("defense", label)
    folder = tmp_path / name
    shutil.copytree(OWN / "defenses" / name, folder)
    manifest = folder / "submission.yaml"
    manifest.write_text(manifest.read_text().replace(f"name: {name}", f"name: their_{name}"))
    (found, *_) = Registry([folder]).find("defense", f"their_{label}")
    defending._made.pop(found.label, None)
    plain = bench(**changes).round
    ours = DefendedRound(plain, inside.build(), inside.label)
    theirs = DefendedRound(plain, defending.guard(found).build(), inside.label)
    both = (ours, theirs)
    for trial in (0, 1):
        one, other = ours.update(trial), theirs.update(trial)
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert theirs.description == ours.description
    for hook in ("protect_batch", "compute_update", "protect_update"):  # it has those alone
        inherited = [getattr(type(one.defense), hook) is getattr(Defense, hook) for one in both]
        assert inherited[0] == inherited[1]


def test_what_comes_back_as_it_was_is_the_very_object(staged):
    made = staged("nothing: pass")
    truth = made.plain.truth(0)
    assert made.keyed.protect_batch(truth, made.model, made.key.draws("x")) is truth
    assert torch.equal(made.update(0)["head.bias"], made.plain.update(0)["head.bias"])


def test_batch_crosses_and_comes_back(staged):
    made = staged("batch: return type(given)(1 - given.images, given.labels)")
    assert torch.equal(made.batch(0).images, 1 - made.plain.truth(0).images)


BAD = {
    "raises": ("update: return given['tail']", "protect_update: KeyError: 'tail' (<string>:2"),
    "returns None": ("update: return None", "returned a NoneType; wanted a Update"),
    "exits": ("update: raise SystemExit(0)", "protect_update: SystemExit: 0"),
    "never ends": ("update: exec('while True: pass')", "passed its limit of 2 s and was killed"),
    "sends another name": ("update: return Update({'x': torch.ones(1)})", "returned x, which is"),
    "sends another shape": (
        "update: return Update({n: t[None] for n, t in given.items()})",
        "(1, ",
    ),
    "sends another type": (
        "update: return Update({n: t.double() for n, t in given.items()})",
        "of torch.float64",
    ),
    "sends NaN": (
        "update: return Update({n: t * torch.nan for n, t in given.items()})",
        "with values that are not finite",
    ),
    "writes in place": ("update: given['head.bias'].add_(1); return given", "was given in place"),
    "forges an answer": (
        "update: [os.write(p, b'{}\\n') for p in range(3, 9) if os.path.exists(f'/dev/fd/{p}')]",
        "an answer that makes no sense",
    ),
    "returns another batch": (
        "batch: return type(given)(given.images[..., :4], given.labels)",
        "returned images (1, 1, 8, 4)",
    ),
    "names a label there is none of": (
        "batch: return type(given)(given.images, given.labels + 10)",
        "returned labels that are not from 0 to 9",
    ),
    "hooks the forward pass": (
        "compute: model.network.head.register_forward_hook(print); return gradient(given)",
        "changes the model and asks for a gradient",
    ),
    "patches the model": (
        "compute: torch.nn.init.zeros_(model.network.head.bias); return gradient(given)",
        "changes the model and asks for a gradient",
    ),
}


@pytest.mark.parametrize("way", BAD)
def test_defense_is_blamed_that(staged, monkeypatch, way):
    case, said = BAD[way]
    monkeypatch.setattr(link, "_HOOK_SECONDS", 2.0 if way == "never ends" else 60.0)
    with pytest.raises(DefenseError) as raised:
        staged(case).update(0)
    assert str(raised.value).startswith("defense staged: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_process_that_dies_too_often_is_asked_no_more(staged, monkeypatch):
    monkeypatch.setattr(link, "_MOST_KILLS", 2)
    made = staged("update: os._exit(0)")
    made.defense.link._kills.clear()  # of the tests before
    try:
        for _ in range(2):
            with pytest.raises(DefenseError, match="its process died: exit code 0"):
                made.update(0)
        with pytest.raises(DefenseError, match="not called: its process died 2 times in a row"):
            made.update(0)
    finally:
        made.defense.link._kills.clear()


@pytest.mark.parametrize(
    "hook",
    [
        "harden(self, model, generator)",
        pytest.param("keyed(self, model, draws)", marks=pytest.mark.slow),
        pytest.param("server_view(self, model)", marks=pytest.mark.slow),
    ],
)
def test_hook_that_cannot_cross_is_refused_by_name(defending, plugin, hook):
    source = OF_ONE_HOOK.format(hook=hook, body="return model")
    (found,) = Registry([plugin("deep", source=source, kind="defense")]).find("defense", "deep")
    with pytest.raises(PluginError) as raised:
        defending.guard(found).build()
    assert f"and its {hook.split('(')[0]} cannot be called behind the wall" in str(raised.value)
    assert "--trust-plugins" in str(raised.value)


def test_run_records_the_wall_and_the_failures_of_an_outside_defense(
    gradleak, plugin, tiny, tmp_path
):
    if said := trouble():
        pytest.skip(said)
    hook = "protect_update(self, update, model, draws)"
    source = OF_ONE_HOOK.format(hook=hook, body="raise ValueError('boom')")
    folder, results = plugin("theirs", source=source, kind="defense"), tmp_path / "results"
    words = ("--attack", "prior_only", "--defense", "theirs", "--trials", 1, "--results", results)
    ended = gradleak("run", tiny(), "--plugins", folder, *words)
    assert ended.code == 2
    assert "defense theirs failed on every trial it was given" in ended.err
    text = (results / "tiny" / "prior_only.jsonl").read_text().replace(" ", "")
    assert '"wall":"bubblewrap"' in text
    assert text.count('"kind":"defense"') == 1
