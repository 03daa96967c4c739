import dataclasses

import pytest

from benchmark.records import append
from benchmark.registry import Registry
from benchmark.running.plan import (
    distinct,
    due_cells,
    file_of_cell,
    groups,
    is_current,
    outdated,
    replaced,
    survey,
)


@pytest.fixture
def cell(bench):
    """Cells of the tiny protocol, by attack and changes of it."""

    def make(attack="random", **changes):
        return bench(**changes).cell(attack)

    return make


@pytest.fixture
def due(tmp_path):
    """Return the trials due of a cell."""

    def read(cell, trials=3):
        (group,) = groups([cell.protocol], [cell.defense], [cell.attack], None, trials)
        return [trials for _, trials in due_cells(group, tmp_path / "results", cell.seed)]

    return read


@pytest.fixture
def keep(tmp_path, provenance):
    """Write records of a cell by trial."""

    def write(cell, *trials, status="completed"):
        path = file_of_cell(cell, tmp_path / "results")
        append(path, [cell.record(provenance, trial=trial, status=status) for trial in trials])

    return write


def test_groups_stand_in_order_and_default_to_the_protocol(bench):
    protocol = bench(seeds=[4, 5]).protocol
    registry = Registry()
    defenses = registry.find("defense", "gaussian_noise")
    attacks = registry.all("attack")
    made = groups([protocol], defenses, attacks, None, None)
    assert [group.defense for group in made] == defenses
    assert (made[0].seeds, made[0].trials, made[0].attacks) == ((4, 5), (0, 1, 2), tuple(attacks))
    (chosen,) = groups([protocol], defenses[:1], attacks, [9], 2)
    assert (chosen.seeds, chosen.trials) == ((9,), (0, 1))
    assert [cell.seed for cell in chosen.cells(9)] == [9] * len(attacks)


def test_cell_that_two_suites_name_stands_where_it_has_most_trials(bench):
    protocol, registry = bench().protocol, Registry()
    defenses = registry.find("defense", "none")
    random, oracle, prior = (
        registry.find("attack", n)[0] for n in ("random", "oracle", "prior_only")
    )
    few, many, again = (
        groups([protocol], defenses, attacks, None, trials)
        for attacks, trials in (([random, oracle], 2), ([oracle, prior], 3), ([random, prior], 2))
    )
    made = distinct(few + many + again)
    assert [group.attacks for group in made] == [(random,), (oracle, prior)]
    assert [len(group.trials) for group in made] == [2, 3]


def test_all_trials_are_due_at_first_and_none_at_last(cell, due, keep):
    assert due(cell()) == [[0, 1, 2]]
    keep(cell(), 0, 1, 2)
    assert due(cell()) == []


def test_missing_trials_are_due(cell, due, keep):
    keep(cell(), 1)
    assert due(cell()) == [[0, 2]]
    assert due(cell(), trials=1) == [[0]]


@pytest.mark.parametrize("status", ["failed", "timed_out"])
def test_failed_trial_is_not_due_again(cell, due, keep, status):
    keep(cell(), 0, 1, 2, status=status)
    assert due(cell()) == []


def test_not_applicable_cell_is_done(cell, due, keep):
    keep(cell(), None, status="not_applicable")
    assert due(cell()) == []


def test_unavailable_cell_is_always_due(cell, due, keep):
    keep(cell(), None, status="unavailable")
    assert due(cell()) == [[0, 1, 2]]


@pytest.mark.parametrize("change", [{"seeds": [1]}, {"version": 2}, {"trials": 4}], ids=str)
def test_change_of_the_protocol_makes_all_due(cell, due, keep, change):
    keep(cell(), 0, 1, 2)
    assert due(cell(**change)) == [[0, 1, 2]]


def test_change_of_words_makes_nothing_due(cell, due, keep):
    keep(cell(), 0, 1, 2)
    assert due(cell(title="Other", description="Other.")) == []


def test_same_record_under_another_seed_does_not_count(cell, due, keep):
    keep(cell(), 0, 1, 2)
    assert due(dataclasses.replace(cell(), seed=1)) == [[0, 1, 2]]


def changed(record, field):
    identity = record.identity.model_copy(update={field: "other"})
    return record.model_copy(update={"identity": identity})


@pytest.mark.parametrize(
    "field", ["protocol_digest", "defense_version", "attack_version", "harness_version"]
)
def test_record_of_another_version_is_not_current(cell, provenance, field):
    record = cell().record(provenance, trial=0, status="completed")
    assert is_current(record, cell())
    assert not is_current(changed(record, field), cell())


@pytest.mark.parametrize("part", ["defense", "attack", "harness"])
def test_record_of_another_fingerprint_is_still_current(cell, provenance, part):
    record = cell().record(provenance, trial=0, status="completed")
    assert is_current(changed(record, f"{part}_fingerprint"), cell())


def test_records_that_count_no_more_are_told(cell, provenance):
    made = [cell().record(provenance, trial=t, status="completed") for t in (0, 0, 1)]
    verdict = cell().record(provenance, status="unavailable")
    old = changed(made[2], "attack_version")
    other = made[2].model_copy(update={"defense": "another"})
    assert replaced([*made, verdict, old, other], cell()) == [made[0], old, verdict]


def test_trials_of_other_arguments_do_not_count(plugin, bench, due, keep, tmp_path):
    made = bench(plugin("mine", "return grey(seen)", variants=[{"level": 0.5}]))
    keep(made.cell("mine"), 0, 1, 2)
    other = made.registry.find("attack", "mine,level=0.25")
    (group,) = groups([made.protocol], [made.cell("mine").defense], other, None, None)
    assert [trials for _, trials in due_cells(group, tmp_path / "results", 0)] == [[0, 1, 2]]


def test_outdated_are_the_records_of_other_versions_that_are_due_again(cell, provenance):
    made = [cell().record(provenance, trial=t, status="completed") for t in range(3)]
    old = [changed(record, "attack_version") for record in made]
    verdict = changed(cell().record(provenance, status="not_applicable"), "attack_version")
    assert outdated([*old, verdict, made[1]], cell(), [0, 2]) == [old[0], old[2], verdict]
    assert outdated([*old, verdict, *made], cell(), []) == []


def test_survey_finds_what_is_due_under_every_seed_and_what_is_damaged(bench, keep, tmp_path):
    made = bench(seeds=[0, 1])
    cell = made.cell("random")
    keep(cell, 0, 2)
    path = file_of_cell(cell, tmp_path / "results")
    path.write_text(path.read_text() + "a foreign line\n")
    attacks = [*made.registry.find("attack", "random"), *made.registry.find("attack", "oracle")]
    chosen = groups([made.protocol], [cell.defense], attacks, None, None)
    found = survey(chosen, tmp_path / "results")
    assert [(c.attack.label, c.seed, trials) for c, trials in found.due] == [
        ("random", 0, [1]),
        ("oracle", 0, [0, 1, 2]),
        ("random", 1, [0, 1, 2]),
        ("oracle", 1, [0, 1, 2]),
    ]
    assert [record.trial for record in found.records] == [0, 2]
    assert found.outdated == []
    assert [line.split(": ")[0] for line in found.damaged] == [f"{path}:5"]
