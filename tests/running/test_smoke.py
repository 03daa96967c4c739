import pytest

from benchmark.registry import Registry
from benchmark.running import smoke as module
from benchmark.running.inprocess import InProcess
from benchmark.running.plan import groups
from benchmark.running.smoke import failed, smoke, table

GRANTED = {"seconds": 5, "memory_mib": 256, "gradient_evaluations": 90}


class Watched(InProcess):
    """A worker that notes the gradients granted when asked, and when run."""

    def __init__(self):
        self.asked, self.run = [], []

    def applies(self, submission, seen):
        self.asked.append(seen.budget.gradient_evaluations)
        return super().applies(submission, seen)

    def reconstruct(self, submission, stack):
        self.run += [seen.budget.gradient_evaluations for seen in stack]
        return super().reconstruct(submission, stack)


@pytest.fixture
def tried(bench, provenance):
    """Smoke attacks on the tiny protocol."""

    def run(*attacks, plugins=None, worker=None, setting=None, **changes):
        made = bench(plugins, **changes)
        registry = Registry([plugins] if plugins else [])
        chosen = groups(
            [made.protocol],
            registry.find("defense", "none"),
            registry.select("attack", attacks),
            None,
            None,
        )
        worker = worker or InProcess()
        return list(
            smoke(
                chosen,
                load=setting or (lambda group: made.setting),
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
    assert (worker.asked, worker.run) == ([90], [least])


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
