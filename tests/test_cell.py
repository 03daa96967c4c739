from types import SimpleNamespace

import pytest
import torch

from benchmark.cell import run_cell, stacks
from benchmark.contract import Reconstruction
from benchmark.errors import DataUnavailable
from benchmark.identity import harness_version
from benchmark.running.inprocess import InProcess
from benchmark.seeds import PUBLIC, Key
from benchmark.tracks import vision as module
from benchmark.victims import build
from benchmark.worker import Outcome

NOISE = {"name": "gaussian_noise"}


class KeepsStack(InProcess):
    def reconstruct(self, submission, stack):
        self.stack = stack
        return super().reconstruct(submission, stack)


MISBEHAVIOUR = {
    "raise ValueError('boom\\nand more')": ("failed", "ValueError: boom (attack.py:"),
    "while True: pass": ("timed_out", "passed its limit of 0.2 s a trial"),
    "time.sleep(9)": ("timed_out", "passed its limit of 0.2 s a trial"),
    "return Reconstruction(grey(seen).images * torch.nan)": ("failed", "not finite"),
    "return Reconstruction(grey(seen).images / 0)": ("failed", "not finite"),
    "return Reconstruction(grey(seen).images[..., :4])": (
        "failed",
        "(1, 1, 8, 4); wanted (1, 1, 8",
    ),
    "return Reconstruction(grey(seen).images.double())": ("failed", "torch.float64; wanted"),
    "return Reconstruction([0.5])": ("failed", "type list; wanted a tensor"),
    "return Reconstruction(grey(seen).images.to('meta'))": ("failed", "wanted a dense tensor"),
    "return Reconstruction(grey(seen).images.to_sparse())": ("failed", "wanted a dense tensor"),
    "return Reconstruction(grey(seen).images, 'many')": ("failed", "'many' gradient evaluations"),
    "return Reconstruction(grey(seen).images, 2.5)": ("failed", "wanted a whole number"),
    "raise SystemExit(0)": ("failed", "SystemExit: 0 (attack.py:"),
    "return grey(seen).images": ("failed", "returned a Tensor; wanted a Reconstruction"),
    "return None": ("failed", "returned a NoneType; wanted a Reconstruction"),
    "seen.update['head.bias'].zero_(); return grey(seen)": ("failed", "changed the observation"),
    "seen.model.mean.add_(1); return grey(seen)": ("failed", "changed the observation in place"),
}


@pytest.mark.parametrize(("body", "said"), MISBEHAVIOUR.items(), ids=lambda x: str(x)[:40])
def test_misbehaviour_is_recorded_in_one_line_and_counts_as_the_prior(plugin, bench, body, said):
    made = bench(plugin("bad", body), budget={"seconds": 0.2, "memory_mib": 256})
    records = made.run("bad", trials=2)
    status, reason = said
    assert [record.status for record in records] == [status] * 2
    assert all(reason in record.reason and "\n" not in record.reason for record in records)
    fresh = bench().run("prior_only", trials=2)
    assert [record.metrics for record in records] == [record.metrics for record in fresh]


def test_one_crash_leaves_the_other_trials_alone(plugin, bench):
    body = "if len(CALLS) == 2: raise RuntimeError('this one')\nreturn grey(seen)"
    records = bench(plugin("bad", body)).run("bad")
    assert [record.status for record in records] == ["completed", "failed", "completed"]
    assert "this one" in records[1].reason


def test_oracle_hits_the_ceiling_and_the_wrong_update_does_not(bench):
    made = bench()
    assert all(record.metrics["mse"] == 0 for record in made.run("oracle"))
    assert all(record.metrics["mse"] > 0 for record in made.run("wrong_update"))


def test_ungranted_need_makes_the_cell_not_applicable_with_the_reason(bench):
    made = bench(threat={"grants": ["batch_size"]})
    (record,) = made.run("prior_only")
    assert (record.status, record.trial) == ("not_applicable", None)
    assert record.reason == "needs data_statistics, which the protocol does not grant"
    assert set(record.metrics.values()) == {None}


def test_labels_not_granted_are_withheld_from_the_attack(plugin, bench):
    made = bench(plugin("peeks", "seen.labels\nreturn grey(seen)"))
    assert "labels is not granted" in made.run("peeks")[0].reason


def test_truth_is_withheld_from_all_but_controls(plugin, bench):
    source = (
        "from dataclasses import dataclass\n"
        "from benchmark.api import Attack, Grant, Reconstruction\n"
        "@dataclass(frozen=True)\n"
        "class Plugin(Attack):\n"
        "    needs = frozenset({Grant.TRUTH})\n"
        "    def reconstruct(self, seen):\n"
        "        return Reconstruction(seen.knowledge.require(Grant.TRUTH))\n"
    )
    (record,) = bench(plugin("thief", source=source)).run("thief")
    assert record.status == "not_applicable"


def test_record_says_what_made_it(bench):
    made = bench()
    record = made.run("random", "gaussian_noise,scale=0.01", trials=1)[0]
    assert (record.protocol, record.defense) == ("tiny", "gaussian_noise,scale=0.01")
    assert (record.attack, record.control) == ("random", True)
    assert record.identity.decides == (made.protocol.digest, "1", "1+noise.2", harness_version())
    assert (record.seed, record.trial, record.status, record.reason) == (0, 0, "completed", None)
    assert set(record.metrics) == {"psnr", "mse"}
    assert record.seconds > 0
    assert record.gradient_evaluations == 0
    assert record.provenance == made.provenance


def test_crashing_defense_is_recorded_as_failed_by_its_name(plugin, bench):
    source = (
        "from dataclasses import dataclass\n"
        "from benchmark.api import Defense\n"
        "@dataclass(frozen=True)\n"
        "class Broken(Defense):\n"
        "    def protect_update(self, update, model, draws):\n"
        "        raise KeyError('head')\n"
    )
    folder = plugin("broken", source=source, kind="defense", entry="attack:Broken")
    records = bench(folder).run("random", "broken")
    assert [(record.status, record.kind) for record in records] == [("failed", "defense")] * 3
    assert records[0].reason == "defense broken: KeyError: 'head'"


def test_every_attack_meets_the_same_trials(bench):
    made = bench()
    cells = [made.cell(name, "gaussian_noise,scale=0.01") for name in ("random", "prior_only")]
    first, second = (made.defended(cell) for cell in cells)
    assert torch.equal(first.update(1)["head.bias"], second.update(1)["head.bias"])


def test_key_of_a_run_decides_the_noise_and_nothing_else_that_an_attack_sees(bench):
    made = bench()
    cell = made.cell("random", "gaussian_noise,scale=0.01")
    seen = []
    for key in (PUBLIC, Key(b"another")):
        worker = KeepsStack()
        due = run_cell(
            cell, made.setting, made.defended(cell, key), worker, [0, 1], made.provenance
        )
        list(due)
        seen.append(worker.stack[1])
    one, other = seen
    assert not torch.equal(one.update["head.bias"], other.update["head.bias"])
    assert torch.equal(one.generator.get_state(), other.generator.get_state())
    assert one.model is other.model
    assert one.defense == other.defense == {**NOISE, "scale": 0.01}


def test_stacks_are_cut_at_fixed_places_whatever_is_due():
    def plain(weight_bytes):
        weights = [SimpleNamespace(nbytes=weight_bytes)]
        return SimpleNamespace(victim=SimpleNamespace(parameters=lambda: weights), answers=1)

    half = plain(2**29)  # two updates fill a stack
    assert stacks(range(5), 5, half) == [[0, 1], [2, 3], [4]]
    assert stacks([1, 2, 4], 5, half) == [[1], [2], [4]]
    assert stacks([3, 2], 5, half) == [[3, 2]]
    assert stacks(range(2), 2, plain(2**40)) == [[0], [1]]
    assert [len(stack) for stack in stacks(range(70), 70, plain(1))] == [32, 32, 6]


def test_worker_answers_are_judged_not_trusted(bench):
    class Liar(InProcess):
        def reconstruct(self, submission, stack):
            answer = Reconstruction(torch.full((1, 1, 8, 8), torch.nan))
            return [Outcome(answer, "completed", None, 1.0, 2)] * len(stack)

    records = bench().run("random", worker=Liar())
    assert {record.status for record in records} == {"failed"}
    assert records[0].seconds == 1.0


@pytest.mark.parametrize(
    ("needs", "body", "reason"),
    [
        ("set()", "raise KeyError('part')", "applies: KeyError: 'part' (attack.py:"),
        ("set()", "seen.update['head.bias'].sum().item()", "applies: "),
        ("set()", "while True: pass", "applies: passed its limit of 0.2 s"),
        ("{'magic'}", "pass", "applies: ValueError: 'magic' is not a valid Grant"),
    ],
)
def test_attack_that_cannot_say_whether_it_fits_fails_its_trials(
    plugin, bench, needs, body, reason
):
    source = f"""
from dataclasses import dataclass
from benchmark.api import Attack

@dataclass(frozen=True)
class Plugin(Attack):
    needs = {needs}
    def applies(self, seen):
        {body}
    def reconstruct(self, seen):
        raise AssertionError("never asked")
"""
    made = bench(plugin("bad", source=source), budget={"seconds": 0.2, "memory_mib": 256})
    records = made.run("bad")
    assert [record.trial for record in records] == [0, 1, 2]
    assert all(record.status == "failed" for record in records)
    assert all(record.reason.startswith(reason) for record in records), records[0].reason
    floor = made.run("prior_only")
    assert [r.metrics for r in records] == [r.metrics for r in floor]


def test_needs_may_be_written_as_plain_words(plugin, bench):
    source = """
from dataclasses import dataclass
import torch
from benchmark.api import Attack, Reconstruction

@dataclass(frozen=True)
class Plugin(Attack):
    needs = {"labels"}
    def reconstruct(self, seen):
        raise AssertionError("never asked")
"""
    (record,) = bench(plugin("plain", source=source)).run("plain")
    assert record.status == "not_applicable"
    assert record.reason == "needs labels, which the protocol does not grant"


def test_what_an_attack_does_to_its_facts_and_to_the_models_modes_stays_its_own(plugin, bench):
    body = """seen.data_statistics.mean_image.fill_(9)
seen.model.train()
for parameter in seen.model.parameters(): parameter.requires_grad_(False)
return grey(seen)"""
    made = bench(plugin("rude", body))
    before = made.run("prior_only")
    assert [record.status for record in made.run("rude")] == ["completed"] * 3
    assert not made.round.victim.training
    assert all(weight.requires_grad for weight in made.round.victim.parameters())
    assert [r.metrics for r in made.run("prior_only")] == [r.metrics for r in before]


def test_nan_in_an_update_is_laid_to_the_defense(plugin, bench):
    source = """
from dataclasses import dataclass
import torch
from benchmark.api import Defense, Update

@dataclass(frozen=True)
class Plugin(Defense):
    def protect_update(self, update, model, draws):
        return Update({name: tensor * torch.nan for name, tensor in update.items()})
"""
    manifest = {"kind": "defense", "entry": "defense:Plugin"}
    folder = plugin("spoils", source="", **manifest)
    (folder / "spoils/defense.py").write_text(source)
    made = bench(folder)
    floor = made.run("prior_only")
    for attack in ("position_closed_form", "prior_only"):
        records = made.run(attack, "spoils")
        assert [(record.status, record.kind) for record in records] == [("failed", "defense")] * 3
        first = next(iter(made.round.update(0)))
        said = f"defense spoils: returned {first} with values that are not finite"
        assert {record.reason for record in records} == {said}
        assert [r.metrics for r in records] == [r.metrics for r in floor]


LABELLED = ["psnr", "label_accuracy"]
PRIOR = {"grants": ["batch_size", "public_network"]}
NETWORK = {"architecture": "april_b", "width": 32, "depth": 2, "patch": 4}


def budget(gradient_evaluations):
    return {"seconds": 5, "memory_mib": 256, "gradient_evaluations": gradient_evaluations}


def test_gradients_beyond_the_budget_are_a_failure_that_counts_as_the_prior(plugin, bench):
    folder = plugin("greedy", "return Reconstruction(grey(seen).images, 900)")
    within, over = (bench(folder, budget=budget(n)).run("greedy") for n in (900, 800))
    assert [(r.status, r.gradient_evaluations) for r in within] == [("completed", 900)] * 3
    assert [(r.status, r.gradient_evaluations) for r in over] == [("failed", 900)] * 3
    assert over[0].reason == "spent 900 gradient evaluations; the budget is 800"
    assert bench().run("prior_only")[0].metrics == over[0].metrics != within[0].metrics


def test_attack_may_say_that_it_has_no_answer_to_one_trial(plugin, bench):
    body = """if len(CALLS) == 2:
    return Reconstruction(grey(seen).images * torch.nan, 12, failure='diverged at step 12')
return grey(seen)"""
    made = bench(plugin("honest", body), budget=budget(800))
    records = made.run("honest")
    assert [record.status for record in records] == ["completed", "failed", "completed"]
    failed = records[1]
    assert (failed.reason, failed.gradient_evaluations) == ("diverged at step 12", 12)
    assert failed.seconds > 0
    assert failed.metrics == made.run("prior_only")[1].metrics
    assert len(made.cell("honest").attack.build().reconstruct.__globals__["CALLS"]) == 3


def test_labels_that_an_attack_names_are_scored(plugin, bench):
    labels = bench(federation={"batch_size": 4}).round.truths[0].labels
    wrong = [int(labels[1]), int(labels[0]), *[(int(each) + 1) % 10 for each in labels[2:]]]
    images = "grey(seen).images.expand(4, 1, 8, 8)"
    body = f"return Reconstruction({images}, labels=torch.tensor({wrong}))"
    made = bench(plugin("infers", body), federation={"batch_size": 4}, metrics=LABELLED, trials=2)
    common = sum(min(wrong.count(n), labels.tolist().count(n)) for n in set(wrong))
    assert common >= 2
    assert made.run("infers")[0].metrics["label_accuracy"] == common / 4


def test_trial_scores_no_label_where_it_failed_and_none_where_none_was_named(plugin, bench):
    body = "if len(CALLS) == 2: raise ValueError('boom')\nreturn grey(seen)"
    records = bench(plugin("bad", body), metrics=LABELLED).run("bad")
    assert [record.metrics["label_accuracy"] for record in records] == [None, 0, None]


def test_labels_that_were_granted_are_not_scored(plugin, bench):
    body = "if len(CALLS) == 2: raise ValueError('boom')\n"
    body += "return Reconstruction(grey(seen).images, labels=seen.labels)"
    granted = {"grants": ["batch_size", "labels"]}
    records = bench(plugin("knows", body), metrics=LABELLED, threat=granted).run("knows")
    assert [record.status for record in records] == ["completed", "failed", "completed"]
    assert [record.metrics["label_accuracy"] for record in records] == [None] * 3


def needy(needs):
    return f"""
from dataclasses import dataclass
import torch
from benchmark.api import Attack, Grant, Reconstruction

@dataclass(frozen=True)
class Plugin(Attack):
    weight: float = 1.0

    @property
    def needs(self):
        return frozenset({needs} if self.weight else [])

    def reconstruct(self, seen):
        return Reconstruction(torch.full((1, 1, 8, 8), 0.5))
"""


@pytest.fixture
def no_weights(monkeypatch):
    """Let no network be had with pretrained weights."""

    def made(spec, generator, mirror=None):
        if spec.weights == "pretrained":
            raise DataUnavailable("the weights", ["here"], "a command")
        return build(spec, generator, mirror)

    monkeypatch.setattr(module, "build", made)


def test_public_network_is_another_one_frozen_and_made_for_the_data(bench, seen_by):
    made = bench(threat=PRIOR, public_network=NETWORK)
    first, second = (seen.public_network for seen in seen_by(made, "random"))
    assert first is second is made.setting.public_network
    assert not first.training
    assert not any(weight.requires_grad for weight in first.parameters())
    victim = made.round.victim.spec
    assert first.spec == victim.model_copy(update={"depth": 2})
    own = bench(threat=PRIOR, public_network=made.protocol.victim.model_dump()).setting
    twin = own.public_network.weights()["head.weight"]
    assert not torch.equal(twin, made.round.victim.weights()["head.weight"])


def test_network_without_weights_is_unavailable_to_those_that_need_it(plugin, bench, no_weights):
    source = needy("[Grant.PUBLIC_NETWORK]")
    folder = plugin("needy", source=source)
    plugin("variant", source=source.replace("weight: float = 1.0", "weight: float = 0.0"))
    plugin("both", source=needy("[Grant.PUBLIC_NETWORK, Grant.LABELS]"))
    made = bench(folder, threat=PRIOR, public_network=NETWORK | {"weights": "pretrained"})
    (record,) = made.run("needy")
    assert (record.status, record.trial) == ("unavailable", None)
    said = "the weights is not available: tried here; get it by: a command"
    assert record.reason == said
    assert [record.status for record in made.run("variant")] == ["completed"] * 3
    assert [record.status for record in made.run("random")] == ["completed"] * 3
    assert made.run("both")[0].status == "not_applicable"  # with the weights it were so too


def test_network_that_is_not_granted_is_not_applicable(plugin, bench):
    (record,) = bench(plugin("needy", source=needy("[Grant.PUBLIC_NETWORK]"))).run("needy")
    assert record.status == "not_applicable"
    assert record.reason == "needs public_network, which the protocol does not grant"


def test_change_of_the_public_network_is_a_failure(plugin, bench):
    body = "torch.nn.init.zeros_(seen.public_network.network.head.bias); return grey(seen)"
    made = bench(plugin("rude", body), threat=PRIOR, public_network=NETWORK)
    assert {record.reason for record in made.run("rude")} == {"changed the observation in place"}


INVERTS = """
from dataclasses import dataclass, replace
from benchmark.api import Defense

@dataclass(frozen=True)
class Inverts(Defense):
    def protect_batch(self, batch, model, draws):
        return replace(batch, images=1 - batch.images)
"""


def test_what_a_defense_made_of_the_truth_is_a_second_truth_by_another_name(plugin, bench):
    folder = plugin("inverts", source=INVERTS, kind="defense", entry="attack:Inverts")
    made = bench(folder)
    for record in made.run("oracle", "inverts"):
        assert record.metrics["psnr"] == 160  # the oracle answers the original
        truth = made.round.truth(record.trial).images.double()
        wanted = (2 * truth - 1).square().mean().item()
        assert record.metrics["mse_input"] == pytest.approx(wanted)
        assert set(record.metrics) == {"psnr", "mse", "psnr_input", "mse_input"}


def test_defense_that_leaves_batches_alone_has_one_truth(bench):
    for defense in ("none", "withhold_position", "mjp,gamma=0.0"):
        (record, *_) = bench().run("prior_only", defense)
        assert set(record.metrics) == {"psnr", "mse"}


REFUSES = """
from dataclasses import dataclass
from benchmark.api import Defense, RefusedError

@dataclass(frozen=True)
class Refuses(Defense):
    def harden(self, model, generator):
        raise RefusedError("model refused: too clever")

    def protect_batch(self, batch, model, draws):
        return batch
"""


def test_model_refused_before_training_is_a_failed_trial_of_that_kind(plugin, bench):
    folder = plugin("refuses", source=REFUSES, kind="defense", entry="attack:Refuses")
    for record in bench(folder).run("prior_only", "refuses"):
        assert (record.status, record.kind) == ("failed", "model_refused")
        assert record.reason == "model refused: too clever"
