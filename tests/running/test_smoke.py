import pytest
import torch

from benchmark.protocol import load_protocol
from benchmark.registry import Registry
from benchmark.running import smoke as module
from benchmark.running.inprocess import InProcess
from benchmark.running.plan import groups
from benchmark.running.smoke import failed, smoke, table
from benchmark.tracks import load_setting

GRANTED = {"seconds": 5, "memory_mib": 256, "gradient_evaluations": 90}
TEXT = {
    "track": "text",
    "data": {"name": "pydoc", "tokenizer": "pydoc", "length": 48},
    "victim": {"architecture": "transformer3", "width": 16, "heads": 2, "depth": 2, "mlp": 32},
    "federation": {"users": 3, "batch_size": 4},
    "metrics": ["total_accuracy"],
    "primary": "total_accuracy",
}


class Watched(InProcess):
    """A worker that notes what attacks see when asked, and when run."""

    def __init__(self):
        self.asked, self.run = [], []

    def applies(self, submission, seen):
        self.asked.append(seen)
        return super().applies(submission, seen)

    def reconstruct(self, submission, stack):
        self.run += stack
        return super().reconstruct(submission, stack)


def gradients(seen):
    """Return the gradients granted in each observation."""
    return [each.budget.gradient_evaluations for each in seen]


@pytest.fixture
def tried(tiny, provenance):
    """Smoke attacks on the tiny protocol."""

    def run(*attacks, plugins=None, worker=None, **changes):
        registry = Registry([plugins] if plugins else [])
        chosen = groups(
            [load_protocol(str(tiny(**changes)))],
            registry.find("defense", "none"),
            registry.select("attack", attacks),
            None,
            None,
        )
        worker = worker or InProcess()
        return list(
            smoke(
                chosen,
                load=lambda group: load_setting(group.protocol, None, torch.device("cpu")),
                worker_of=lambda submission: worker,
                provenance=provenance,
            )
        )

    return run


def test_one_trial_of_each_cell_is_run_under_the_first_seed(tried):
    worker = Watched()
    made = tried("random", "wrong_update", worker=worker, seeds=[4, 5])
    assert [(one.cell.attack.label, one.cell.seed, one.status) for one in made] == [
        ("random", 4, "completed"),
        ("wrong_update", 4, "completed"),
    ]
    assert len(worker.run) == 2
    assert not failed(made)


@pytest.mark.parametrize(
    ("attack", "least"), [("dlg", 1), ("dlg_lbfgs", 21), ("gradvit,batch_norm=0.0,restarts=3", 3)]
)
def test_search_is_asked_of_the_whole_budget_and_granted_its_first_step(tried, attack, least):
    worker = Watched()
    (one,) = tried(attack, worker=worker, budget=GRANTED)
    assert (one.status, one.reason) == ("completed", None)
    assert (gradients(worker.asked), gradients(worker.run)) == ([90], [least])


def test_attack_is_asked_of_the_whole_batch_of_images_and_given_a_small_one(tried):
    worker = Watched()
    threat = {"grants": ["batch_size", "labels", "data_statistics"]}
    one, _ = tried("idlg", "oracle", worker=worker, federation={"batch_size": 8}, threat=threat)
    assert (one.status, one.cell.protocol.name) == ("not_applicable", "tiny")
    assert "the batch holds 8 images" in one.reason
    assert [(seen.batch_size, len(seen.labels)) for seen in worker.asked] == [(8, 8), (8, 8)]
    assert [(seen.batch_size, len(seen.labels)) for seen in worker.run] == [(2, 2)]


@pytest.mark.parametrize("architecture", ["transformer3", "bert_base"])
def test_attack_is_asked_of_all_users_text_and_given_little_of_it(tried, architecture):
    worker, victim = Watched(), {**TEXT["victim"], "architecture": architecture}
    made = tried(
        "span_tokens,defaults", "oracle", "bag_of_words", worker=worker, **TEXT | {"victim": victim}
    )
    assert [one.status for one in made] == ["not_applicable", "completed", "completed"]
    assert "places span the whole width of 16" in made[0].reason
    assert {(seen.batch_size, seen.length) for seen in worker.asked} == {(12, 48)}
    assert {(seen.batch_size, seen.length) for seen in worker.run} == {(4, 16)}
    assert worker.run[0].knowledge.truth.shape == (4, 16)


def test_images_too_few_for_the_whole_trials_are_a_failure(tried):
    (one,) = tried("random", trials=300, federation={"batch_size": 4})
    assert one.status == "failed"
    assert "300 trials of 4 images wanted" in one.reason


def test_search_without_a_budget_is_not_applicable(tried):
    (one,) = tried("dlg")
    assert one.status == "not_applicable"
    assert "needs 1 gradient evaluations, the budget is 0" in one.reason


def test_crash_is_a_failure_and_harms_no_other(tried, plugin):
    folder = plugin("crash", "raise ValueError('boom')")
    crash, fine = tried("crash", "random", plugins=folder)
    assert crash.status == "failed"
    assert "ValueError: boom" in crash.reason
    assert fine.status == "completed"
    assert failed([fine, crash])


@pytest.mark.parametrize(
    ("granted", "word"), [(0.2, "failed"), (0.3, "failed"), (0.4, "cut short")]
)
def test_attack_is_cut_short_where_its_protocol_grants_more_seconds(
    tried, plugin, monkeypatch, granted, word
):
    monkeypatch.setattr(module, "_SECONDS", 0.3)
    budget = {"seconds": granted, "memory_mib": 256}
    (one,) = tried("slow", plugins=plugin("slow", "time.sleep(5)"), budget=budget)
    assert (one.status, one.word) == ("timed_out", word)
    assert failed([one]) == (word == "failed")
    assert f" {word} " in table([one])


def test_table_joins_attacks_that_came_to_the_same(tried, plugin):
    made = tried("random", "prior_only", "dlg", plugins=plugin("unused"))
    rows = [line.split() for line in table(made).splitlines()[2:]]
    assert rows[0] == ["tiny", "none", "ok", "random,", "prior_only"]
    assert rows[1][:4] == ["tiny", "none", "n/a", "dlg"]
    assert set(module._WORDS.values()) == {"ok", "n/a", "unavailable", "failed"}
