import re

import pytest

from benchmark.leaderboard import board, costs
from benchmark.prices import Price, Prices
from benchmark.protocol import load_utility
from benchmark.records import Provenance

NAME = "digits_small_b"
PLACE = Provenance(commit=None, dirty=None, versions={}, hardware="a processor", threads=1)


@pytest.fixture
def priced(folder):
    """Keep accuracies of a defense, a seed each, and cells of the protocol beside them."""
    protocol = load_utility(NAME)
    for name in protocol.leakage:
        folder.protocol(name)

    def keep(defense, accuracies, reads=(), attack="mine", **said):
        for seed, accuracy in enumerate(accuracies):
            Prices(folder.path).add(
                Price(
                    protocol=NAME,
                    digest=protocol.digest,
                    defense=defense,
                    version="1",
                    harness="1",
                    seed=seed,
                    description=said,
                    rate=0.1,
                    accuracy=accuracy,
                    diagnostics={} if accuracy is None else {"consistency": accuracy / 2},
                    reason=None if accuracy is not None else "too narrow",
                    seconds=4,
                    sent=2**20,
                    provenance=PLACE,
                )
            )
        for at in (attack, "prior_only"):
            scores = reads if at == attack else [10.0] * len(reads)
            control = at == "prior_only"
            folder.cell(at, *scores, defense=defense, protocol=protocol.leakage[0], control=control)
        return folder

    return keep


READ, HIDDEN = [60.0] * 10, [10.0] * 10


def page(folder):
    return folder.page(f"price_{NAME}")


def test_a_row_tells_what_is_read_and_what_it_costs(priced):
    priced("none", [0.9, 0.92], READ)
    folder = priced("noise,scale=1", [0.7, 0.72], HIDDEN)
    assert "| `noise,scale=1` | 🟢 [10.00" in page(folder)
    assert "| 71.0 ± 1.4 | 20.0 | 35.5 | no epsilon | 4 | 1.0 |" in page(folder)


def test_the_worst_case_is_that_of_all_protocols_of_the_victim(priced):
    priced("none", [0.9], READ)
    folder = priced("signs", [0.89], HIDDEN)
    trained = load_utility(NAME).leakage[1]
    for at, scores in (("inverter", READ), ("prior_only", HIDDEN)):
        folder.cell(at, *scores, defense="signs", protocol=trained, control=at == "prior_only")
    assert "| `signs` | 🟥 [60.0" in page(folder)
    assert "Of the one defense that attacks met here, nothing holds." in page(folder)


def test_a_defense_s_row_on_the_board_links_to_what_it_costs(priced):
    priced("none", [0.9], READ)
    assert re.search(
        r"^\| `dear` \|.*\| \[40\.0\]\[\w+\] \|$", priced("dear", [0.5], HIDDEN).text(), re.M
    )


def test_what_is_lost_is_told_over_the_seeds_that_both_ran_with(priced):
    priced("none", [0.9, 0.5, 0.5], READ)
    assert "| 80.0 | 10.0 |" in page(priced("dear", [0.8], HIDDEN))


def test_the_sentence_names_the_least_costly_of_what_holds(priced):
    priced("none", [0.9], READ)
    priced("cheap", [0.89], READ)
    priced("dear", [0.5], HIDDEN)
    folder = priced("fair", [0.8], HIDDEN)
    said = "Of 3 defenses that attacks met here, 2 hold; the least costly of them, `fair`, loses"
    assert f"{said} 10.0 points, against no attack that knows it." in page(folder)
    assert said in folder.text()


def test_epsilon_stands_where_a_defense_promises_one(priced):
    priced("none", [0.9], READ)
    assert "| 3.2 |" in page(priced("dp", [0.5], HIDDEN, epsilon=3.21))


def test_a_defense_that_does_not_fit_says_why(priced):
    priced("none", [0.9], READ)
    assert "| n/a: too narrow |" in page(priced("narrow", [None]))


def test_picture_has_a_dot_a_defense_and_the_same_bytes_again(priced):
    priced("none", [0.9], READ)
    folder = priced("dear", [0.5], HIDDEN)
    folder.write()
    picture = folder.output.with_suffix("") / f"price_{NAME}.svg"
    first = picture.read_bytes()
    assert b"dear" in first
    folder.write()
    assert picture.read_bytes() == first


def test_prices_of_another_training_are_left_out(priced, monkeypatch):
    folder = priced("none", [0.9], READ)
    monkeypatch.setattr(costs, "utility_files", dict)
    assert "What does a defense cost" not in folder.text()
    assert board.PICTURE  # the rest is written
