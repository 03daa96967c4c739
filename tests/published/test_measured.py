from dataclasses import replace

import pandas as pd
import pytest

from benchmark.identity import harness_version
from benchmark.prices import Price, Prices
from benchmark.protocol import load_protocol, load_utility
from benchmark.published import Measured, NotRun, measured, published
from benchmark.records import Table
from benchmark.registry import Registry, exactly

REGISTRY = Registry(())


def number(table, row, column, suite="laptop"):
    (one,) = (
        one
        for one in published(suite)
        if (one.table, one.row.name, one.column.name) == (table, row, column)
    )
    return one


WHOLE = {"trial": -1, "reason": "for a reason"}  # a verdict on a cell
DLG = number("april-table-1", "DLG", "MNIST MSE")


class Folder:
    """A results folder whose table is in memory."""

    def __init__(self, path):
        self.path, self.rows = path, []
        path.mkdir()

    def trials(self, one, scores, **fields):
        """Add a trial of a number's cell for each score."""
        answer = one.answer
        attack = REGISTRY.find("attack", exactly(one.attack))[0]
        defense = REGISTRY.find("defense", answer.defense)[0]
        for trial, score in enumerate(scores):
            row = {
                "protocol": answer.protocol,
                "defense": answer.defense,
                "attack": one.attack,
                "seed": 0,
                "trial": trial,
                "status": "completed",
                "reason": None,
                "gradient_evaluations": 0.0,
                "protocol_digest": load_protocol(answer.protocol).digest,
                "attack_version": attack.version,
                "defense_version": defense.version,
                "harness_version": harness_version(),
                answer.metric: score,
            }
            self.rows.append(row | fields)
        return self

    def ours(self, one):
        return Measured(self.path, REGISTRY).ours(one)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = Folder(tmp_path / "results")
    monkeypatch.setattr(measured, "read_table", lambda _: Table(pd.DataFrame(made.rows)))
    return made


def test_mean_deviation_and_median_are_of_the_cell_s_trials(folder):
    found = folder.trials(DLG, [1.0, 2.0, 6.0]).ours(DLG)
    assert (found.mean, found.median, found.n) == (3.0, 2.0, 3)
    assert found.std == pytest.approx(7**0.5)


def test_number_is_told_in_the_paper_s_unit(folder):
    one = number("decepticons-dropout", "Dropout off", "Total accuracy")
    assert folder.trials(one, [0.5, 1.0]).ours(one).mean == 75


def test_trials_beyond_those_asked_for_are_left_out(folder):
    one = number("decepticons-dropout", "Dropout off", "Total accuracy")
    assert folder.trials(one, [1.0] * 25).ours(one).n == one.answer.trials == 20


def test_seeds_that_were_not_asked_for_are_left_out(folder):
    folder.trials(DLG, [1.0, 2.0]).trials(DLG, [9.0], seed=7)
    assert folder.ours(DLG).mean == 1.5


def test_share_of_the_paper_s_steps_is_told_where_gradients_were_spent(folder):
    assert folder.trials(DLG, [1.0], gradient_evaluations=80.0).ours(DLG).share == 0.1


def test_share_is_of_the_attack_s_own_paper_where_the_ledger_says_none(folder):
    one = replace(DLG, answer=DLG.answer.model_copy(update={"steps": None}))
    assert folder.trials(one, [1.0], gradient_evaluations=400.0).ours(one).share == 0.5


def test_closed_form_has_no_share(folder):
    assert folder.trials(DLG, [1.0]).ours(DLG).share is None


@pytest.mark.parametrize(
    ("fields", "said", "due"),
    [
        ({"attack_version": "0"}, "records of another version alone", True),
        ({"protocol_digest": "other"}, "records of another version alone", True),
        ({"harness_version": "0"}, "records of another version alone", True),
        ({"attack": "tag"}, "no records", True),
        (
            {"status": "not_applicable", "trial": -1, "reason": "no head"},
            "not applicable: no head",
            False,
        ),
        (
            {"status": "unavailable", "trial": -1, "reason": "no data"},
            "unavailable: no data",
            False,
        ),
        ({"normalised_mse": float("nan")}, "normalised_mse has no number in these records", False),
    ],
)
def test_what_was_not_measured_has_a_reason(folder, fields, said, due):
    assert folder.trials(DLG, [1.0], **fields).ours(DLG) == NotRun(said, due)


def test_failed_trials_count_with_their_score(folder):
    folder.trials(DLG, [1.0]).trials(DLG, [3.0], seed=0)
    folder.rows[-1] |= {"trial": 1, "status": "failed"}
    assert folder.ours(DLG).mean == 2.0


def test_missing_folder_holds_no_records(tmp_path):
    found = Measured(tmp_path / "none", REGISTRY).ours(DLG)
    assert found == NotRun("no records", due=True)


def test_rate_that_was_not_tuned_is_a_reason(folder):
    one = replace(DLG, answer=DLG.answer.model_copy(update={"attack": "dlg,rate=tuned"}))
    assert "make it by: gradleak tune april_mnist_b --attack dlg" in folder.ours(one).reason


def test_parameters_are_counted_as_the_paper_counts_them(tmp_path):
    for row, count in (("With position embedding", 7_123_210), ("Without", 7_116_682)):
        found = Measured(tmp_path, REGISTRY).ours(number("april-table-2", row, "Parameters"))
        assert (found.mean, found.exact, found.enough) == (count, True, True)


def test_lost_accuracy_is_of_the_same_seeds(tmp_path, provenance):
    one = number("encrypted-vit-table-1", "Lost by encryption", "Accuracy")
    protocol, prices = load_utility(one.answer.protocol), Prices(tmp_path)

    def train(label, seed, accuracy):
        (defense,) = REGISTRY.find("defense", label)
        prices.add(
            Price(
                protocol=protocol.name,
                digest=protocol.digest,
                defense=label,
                version=defense.version,
                harness=harness_version(),
                seed=seed,
                description={},
                rate=0.1,
                accuracy=accuracy,
                seconds=1.0,
                sent=1,
                provenance=provenance,
            )
        )

    assert Measured(tmp_path, REGISTRY).ours(one) == NotRun("no trainings", due=True)
    for seed, plain, encrypted in ((0, 0.9, 0.8), (1, 0.8, 0.8), (99, 0.5, 0.1)):
        train("none", seed, plain)
        train("model_encryption", seed, encrypted)
    train("model_encryption", 2, 0.1)
    found = Measured(tmp_path, REGISTRY).ours(one)
    assert found.mean == pytest.approx(5)
    assert found.n == 2
