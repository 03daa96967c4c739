import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load

from benchmark.cell import negotiate
from benchmark.contract import Grant
from benchmark.errors import PluginError
from benchmark.running import sandbox as module
from benchmark.running.exchange import save_model
from benchmark.running.sandbox import Sandbox

SMALL = {"architecture": "april_b", "width": 32, "depth": 1, "patch": 4}
ATTACK = """
from dataclasses import dataclass
from benchmark.api import Attack

@dataclass(frozen=True)
class Plugin(Attack):
    needs = {needs}
    def reconstruct(self, seen):
        raise AssertionError("never asked")
"""
STAGED = """
import os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path
import torch
from benchmark.api import Attack, Reconstruction
CALLS, LAST = [], []

def grey(seen):
    side = seen.model.spec.size
    return Reconstruction(torch.full((seen.batch_size, 1, side, side), 0.5))

@dataclass(frozen=True)
class Plugin(Attack):
    def reconstruct(self, seen):
        case = Path(__file__).with_name("case.txt").read_text()
        if LAST != [case]:
            LAST[:] = [case]
            CALLS.clear()
        CALLS.append(1)
        source, space = "def told(seen):\\n    " + case.replace("\\n", "\\n    "), dict(globals())
        exec(compile(source, __file__, "exec"), space)
        return space["told"](seen)
"""
SHORT = {"seconds": 0.5, "memory_mib": 256}


def slowly(*values):
    """Return a case that starts one process more and tells little more than its neighbours."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def sandbox():
    with Sandbox(torch.device("cpu"), trust=True) as made:
        yield made


@pytest.fixture(scope="module")
def kept():
    """A sandbox kept for all cases of this file: the child that one kills is made anew."""
    with Sandbox(torch.device("cpu"), trust=True) as made:
        yield made


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """Tell an attack what to do, from its next trial on, and return the folder of it."""
    home = tmp_path_factory.mktemp("plugins")
    folder = home / "staged"
    folder.mkdir()
    said = {"name": "staged", "kind": "attack", "entry": "attack:Plugin", "title": "staged"}
    (folder / "submission.yaml").write_text(yaml.safe_dump(said))
    (folder / "attack.py").write_text(STAGED)

    def tell(case):
        (folder / "case.txt").write_text(case)
        return home

    return tell


def test_misbehaviour_of_trials_is_recorded_trial_by_trial(staged, bench, kept):
    ways = {
        "return grey(seen)": ("completed", None),
        "print('a line that is no JSON'); return grey(seen)": ("completed", None),
        "os.write(1, b'nor this'); return grey(seen)": ("completed", None),
        "return Reconstruction(grey(seen).images * torch.nan)": ("failed", "are not finite"),
        "return Reconstruction(grey(seen).images[0])": ("failed", "(1, 8, 8); wanted (1, 1, 8, 8)"),
        "return Reconstruction(grey(seen).images.half())": ("failed", "torch.float16; wanted"),
        "return Reconstruction([0.5])": ("failed", "type list; wanted a tensor"),
        "return Reconstruction(grey(seen).images, 'many')": (
            "failed",
            "'many' gradient evaluations; wanted",
        ),
        "return 3": ("failed", "returned a int; wanted a Reconstruction"),
        "raise ValueError('boom')": ("failed", "ValueError: boom (attack.py:"),
        "time.sleep(60)": ("timed_out", "passed its limit of 0.5 s a trial"),
        "return Reconstruction(grey(seen).images.requires_grad_())": ("completed", None),
    }
    body = "\n".join(f"if len(CALLS) == {i}: {way}" for i, way in enumerate(ways, start=1))
    made = bench(staged(body), trials=len(ways), budget=SHORT)
    records = made.run("staged", worker=kept)
    prior = made.run("prior_only")
    for record, floor, (status, reason) in zip(records, prior, ways.values(), strict=True):
        assert record.status == status, record
        assert (reason or "") in (record.reason or ""), record
        assert (record.metrics == floor.metrics) == (status != "completed")
    assert len(kept._children) == 1


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        slowly("os.kill(os.getpid(), 11)", "failed", "its process died: signal SIGSEGV"),
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(60)",
            "timed_out",
            "passed its limit of 0.5 s and was killed",
        ),
        ("torch.ones(2**28)", "failed", "passed its memory limit of 256 MiB a trial"),
        slowly("bytearray(2**30)", "failed", "passed its memory limit of 256 MiB a trial"),
        ("seen.update['head.bias'].add_(1); return grey(seen)", "failed", "in place"),
    ],
)
def test_death_hang_and_greed_are_recorded(staged, bench, kept, monkeypatch, body, status, reason):
    monkeypatch.setattr(module, "_GRACE_SECONDS", 1.0)
    made = bench(staged(body), budget=SHORT)
    (record,) = made.run("staged", worker=kept, trials=1)
    assert (record.status, reason in record.reason) == (status, True), record
    assert "\n" not in record.reason
    assert record.metrics == made.run("prior_only", trials=1)[0].metrics


def test_trial_that_kills_its_process_leaves_the_others_alone(staged, bench, kept):
    labels = [int(truth.labels[0]) for truth in bench().round.truths]
    assert labels.count(labels[1]) == 1
    body = f"if int(seen.labels[0]) == {labels[1]}: os._exit(3)\nreturn grey(seen)"
    made = bench(staged(body), threat={"grants": ["batch_size", "labels"]})
    records = made.run("staged", worker=kept)
    assert [record.status for record in records] == ["completed", "failed", "completed"]
    assert records[1].reason == "its process died: exit code 3"


def test_labels_gradients_and_failures_cross_as_in_this_process(staged, bench, kept):
    ways = [
        "return Reconstruction(grey(seen).images, 5, torch.tensor([1]))",
        "return Reconstruction(grey(seen).images, 8)",
        "return Reconstruction(None, 5, failure='diverged at step 5')",
        "return Reconstruction(grey(seen).images, 2.5)",
        "return Reconstruction(grey(seen).images, labels=torch.tensor([10]))",
        "return Reconstruction(grey(seen).images, labels=[1])",
    ]
    body = "\n".join(f"if len(CALLS) == {i}: {way}" for i, way in enumerate(ways, start=1))
    made = bench(
        staged(body),
        trials=len(ways),
        budget={"seconds": 5, "memory_mib": 256, "gradient_evaluations": 7},
        metrics=["psnr", "label_accuracy"],
    )
    there, here = made.run("staged", worker=kept), made.run("staged")
    for one, other in zip(there, here, strict=True):
        assert (one.status, one.reason, one.metrics) == (other.status, other.reason, other.metrics)
    assert [record.gradient_evaluations for record in there[:5]] == [5, 8, 5, None, 0]
    assert [record.status for record in there] == ["completed"] + ["failed"] * 5


def test_public_network_crosses_frozen_and_is_written_once(staged, bench, kept, monkeypatch):
    saved = []
    monkeypatch.setattr(
        module, "save_model", lambda *args: (saved.append(args[0]), save_model(*args))
    )
    body = """network = seen.public_network
assert not network.training and not any(p.requires_grad for p in network.parameters())
return Reconstruction(network(grey(seen).images).sigmoid()[:, :1, None, None].expand(1, 1, 8, 8))"""
    granted = {"threat": {"grants": ["batch_size", "public_network"]}}
    made = bench(staged(body), **granted, public_network={**SMALL, "depth": 2})
    there = made.run("staged", worker=kept) + made.run("staged", worker=kept)
    assert [record.reason for record in there] == [None] * 6
    assert [record.metrics for record in there[:3]] == [r.metrics for r in made.run("staged")]
    assert saved == [made.round.victim, made.setting.public_network]


def test_facts_that_an_attack_lacks_cross(plugin, bench, sandbox):
    source = ATTACK.format(needs="{'public_network', 'labels'}")
    made = bench(plugin("needy", source=source))
    (record,) = made.run("needy", worker=sandbox)
    assert record.reason == "needs labels, public_network, which the protocol does not grant"
    cell = made.cell("needy")
    verdict, _ = negotiate(cell, made.setting, made.defended(cell), sandbox, 0)
    assert verdict.missing == (Grant.LABELS, Grant.PUBLIC_NETWORK)


def test_children_and_files_are_gone_at_the_end(plugin, bench):
    body = "open(os.path.join(os.path.dirname(__file__), 'pid'), 'w').write(str(os.getpid()))"
    folder = plugin("good", f"{body}\nreturn grey(seen)")
    with Sandbox(torch.device("cpu"), trust=True) as made:
        bench(folder).run("good", worker=made)
        files = made._files.folder
        assert os.listdir(files)
    pid = int((folder / "good/pid").read_text())
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not os.path.exists(files)


def make_files_and_be_killed(folder):
    """Tell where a sandbox of this process has its files, and end without leaving it."""
    Path(folder).write_text(str(Sandbox(torch.device("cpu"), trust=True)._files.folder))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
def test_files_are_gone_after_a_parent_that_is_killed(tmp_path):
    told = tmp_path / "folder"
    fork = multiprocessing.get_context("fork")
    parent = fork.Process(target=make_files_and_be_killed, args=(told,))
    parent.start()
    parent.join()
    assert parent.exitcode == -9
    folder = Path(told.read_text())
    assert folder.name.startswith("gradleak-")
    until = time.monotonic() + 10
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not folder.exists()


def test_a_sandbox_in_which_nothing_ran_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Sandbox(torch.device("cpu"))  # as of a run that is killed: nobody leaves it
    assert not list(tmp_path.iterdir())


def test_only_safetensors_cross_and_nothing_is_pickled(plugin, bench, sandbox, monkeypatch):
    crossed, behind = [], []
    ask = module.Child.ask

    def watched(child, request, seconds, **limits):
        for name in request.get("observations", ()):
            with safe_open(name, framework="pt") as file:
                crossed.append(set(file.keys()))
        answered = ask(child, request, seconds, **limits)
        behind.extend(data for _, data in answered if data)
        return answered

    body = "import pickle; pickle.load = pickle.loads = pickle.Unpickler = None; return grey(seen)"
    made = bench(plugin("good", body))
    monkeypatch.setattr(module.Child, "ask", watched)
    for name in ("load", "loads", "dump", "dumps", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    for _ in range(2):  # the second time the child's pickle is broken from the start
        assert [record.reason for record in made.run("good", worker=sandbox)] == [None] * 3
    assert len(crossed) == 2 * (1 + 3)
    assert len(behind) == 2 * 3
    assert all(set(load(bytes(data))) == {"images"} for data in behind)
    assert not any({"known/truth", "known/labels"} & keys for keys in crossed)


def test_submission_that_cannot_be_imported_in_the_child_is_refused(plugin, bench, sandbox):
    source = "import os\nassert 'HF_HUB_OFFLINE' not in os.environ, 'in a child'"
    made = bench(plugin("bad", source=source))
    attack = made.cell("bad").attack
    with pytest.raises(PluginError, match="cannot be imported: AssertionError: in a child"):
        sandbox.load(attack)
    records = made.run("bad", worker=sandbox)  # and no trial hangs on it either
    assert [record.status for record in records] == ["failed"] * 3
    assert len(sandbox._children) == 1


@pytest.mark.parametrize(
    "junk", ["b'no end'", *(slowly(f"b'{each}\\n'") for each in ("junk", "[1]", "{}"))]
)
def test_answer_that_makes_no_sense_is_a_failure(staged, bench, kept, monkeypatch, junk):
    monkeypatch.setattr(module, "_GRACE_SECONDS", 1.0)
    body = f"""
for pipe in range(3, 9):
    try: os.write(pipe, {junk})
    except OSError: pass
time.sleep(60)"""
    made = bench(staged(body), budget=SHORT)
    (record,) = made.run("staged", worker=kept, trials=1)
    assert record.status in ("failed", "timed_out")
    assert record.reason
    assert "\n" not in record.reason


def test_seconds_are_the_parents_and_over_budget_is_timed_out(plugin, bench, sandbox):
    body = """
time.perf_counter = lambda: 0.0
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
if len(CALLS) == 2: time.sleep(0.3)
if len(CALLS) == 3: time.sleep(1.6)
return grey(seen)"""
    records = bench(plugin("bad", body), budget=SHORT).run("bad", worker=sandbox)
    assert [record.status for record in records] == ["completed", "completed", "timed_out"]
    assert 0 < records[0].seconds < 0.3 < records[1].seconds
    assert records[2].seconds > 1.6
    assert records[2].reason == "passed its limit of 0.5 s a trial"


@pytest.mark.slow
def test_a_cell_stops_after_three_deaths_in_a_row_and_the_next_begins(plugin, bench, sandbox):
    made = bench(plugin("bad", "os._exit(3)"), trials=5)
    for _ in range(2):
        records = made.run("bad", worker=sandbox)
        assert [record.status for record in records] == ["failed"] * 5
        assert [record.reason.split(":")[0] for record in records] == [
            *["its process died"] * 3,
            *["not run"] * 2,
        ]


@pytest.mark.slow
def test_real_time_signal_has_a_number_for_a_name(plugin, bench, sandbox):
    made = bench(plugin("bad", "os.kill(os.getpid(), 37)"))
    (record,) = made.run("bad", worker=sandbox, trials=1)
    assert record.reason == "its process died: signal 37"


def test_trial_after_one_that_wrote_to_the_model_sees_it_as_it_was(staged, bench, kept):
    body = """
weight = next(seen.model.parameters()).detach()
if len(CALLS) == 1: weight.add_(1)
return Reconstruction(grey(seen).images.fill_(weight.abs().mean().item()))"""
    records = bench(staged(body)).run("staged", worker=kept)
    assert [record.kind for record in records] == ["mutated", None, None]
    honest = bench(staged(body.replace("== 1", "== 0"))).run("staged")
    assert [r.metrics for r in records[1:]] == [r.metrics for r in honest[1:]]
