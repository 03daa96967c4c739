import re

import pytest

from benchmark.leaderboard import board, costs
from benchmark.prices import Price, Prices
from benchmark.protocol import load_utility
from benchmark.records import Provenance

NAME, TEXT = "digits_small_b", "pydoc_small_transformer"
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
                    slowdown=2.5,
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


@pytest.fixture
def text_priced(folder):
    """Keep perplexities of a defense, a seed each, and cells of the protocol beside them."""
    protocol = load_utility(TEXT)
    (beside,) = protocol.leakage
    folder.protocol(beside, ("total_accuracy",), "total_accuracy", track="text")

    def keep(defense, perplexities, reads=()):
        for seed, perplexity in enumerate(perplexities):
            Prices(folder.path).add(
                Price(
                    protocol=TEXT,
                    digest=protocol.digest,
                    defense=defense,
                    version="1",
                    harness="1",
                    seed=seed,
                    description={},
                    rate=0.1,
                    perplexity=perplexity,
                    reason=None if perplexity is not None else "too narrow",
                    seconds=4,
                    sent=2**20,
                    provenance=PLACE,
                )
            )
        for at in ("mine", "prior_only"):
            told = [{"total_accuracy": one if at == "mine" else 0.1} for one in reads]
            folder.cell(at, *told, defense=defense, protocol=beside, control=at == "prior_only")
        return folder

    return keep


READ, HIDDEN = [60.0] * 10, [10.0] * 10


def page(folder):
    return folder.page(f"price_{NAME}")


def test_a_row_tells_what_is_read_and_what_it_costs(priced):
    priced("none", [0.9, 0.92], READ)
    folder = priced("noise,scale=1", [0.7, 0.72], HIDDEN)
    assert "| `noise,scale=1` | 🟢 [10.00" in page(folder)
    assert "| 71.0 ± 1.4 | 20.0 | 35.5 | no epsilon | 2.5 | 1.0 |" in page(folder)


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


def test_what_gains_less_than_is_shown_loses_nothing(priced):
    priced("none", [0.9], READ)
    assert "| 90.0 | 0.0 |" in page(priced("kind", [0.9003], HIDDEN))


def test_the_sentence_names_the_least_costly_of_what_holds(priced):
    priced("none", [0.9], READ)
    priced("cheap", [0.89], READ)
    priced("dear", [0.5], HIDDEN)
    folder = priced("fair", [0.8], HIDDEN)
    said = "Of 3 defenses that attacks met here, 2 hold; the least costly of them, `fair`, loses"
    assert f"{said} 10.0 points, against no attack that knows it." in page(folder)
    assert said in folder.text()


def test_the_sentence_of_one_that_holds_compares_it_with_nothing(priced):
    priced("none", [0.9], READ)
    priced("cheap", [0.89], READ)
    told = page(priced("dear", [0.5], HIDDEN))
    assert "Of 2 defenses that attacks met here, 1 holds: `dear` loses 40.0 points" in told


def test_epsilon_stands_where_a_defense_promises_one(priced):
    priced("none", [0.9], READ)
    told = page(priced("dp", [0.5], HIDDEN, epsilon=3.21, delta=1e-5))
    assert "| 3.2 |" in told
    assert "Epsilon is at a delta of 1e-05." in told


def test_an_epsilon_of_another_training_names_its_rounds(priced):
    priced("none", [0.9], READ)
    folder = priced("short", [0.5], HIDDEN, epsilon=3.21, rounds=1000)
    assert "| 3.2 of 1000 rounds |" in page(folder)
    folder = priced("own", [0.5], HIDDEN, epsilon=4.56, rounds=load_utility(NAME).training.rounds)
    assert "| 4.6 |" in page(folder)


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


READ_TEXT, HIDDEN_TEXT = [0.9] * 10, [0.1] * 10


def test_text_is_told_by_perplexity_and_costs_what_is_added(text_priced):
    text_priced("none", [500.0, 510.0], READ_TEXT)
    text_priced("narrow", [None])
    text_priced("dear", [900.0, 930.0], HIDDEN_TEXT)
    folder = text_priced("fair", [600.0, 620.0], HIDDEN_TEXT)
    told = folder.page(f"price_{TEXT}")
    assert re.search(r"^\| Defense .* \| Perplexity \| +Added \|", told, re.M)
    assert "| 610.0 ± 14.1 | 105.0 |" in told
    assert re.findall(r"^\| `(\w+)` ", told, re.M) == ["none", "fair", "dear", "narrow"]
    said = "the least costly of them, `fair`, adds 105.0 to the perplexity"
    assert f"{said}, against no attack that knows it." in told
    assert "| n/a: too narrow |" in told


def test_cost_of_a_defense_is_told_in_the_track_s_own_figure(priced, text_priced):
    priced("none", [0.9], READ)
    priced("dear", [0.5], HIDDEN)
    text_priced("none", [500.0], READ_TEXT)
    text = text_priced("dear", [900.0], HIDDEN_TEXT).text()
    assert "holds in 1 of 1, [40.0]" in text
    assert re.search(r"\[40\.0\]\[\w+\] points lost", text)
    assert re.search(r"\[400\.0\]\[\w+\] of perplexity added", text)


def test_picture_of_text_has_a_logarithmic_axis(text_priced):
    text_priced("none", [500.0], READ_TEXT)
    folder = text_priced("dear", [5000.0], HIDDEN_TEXT)
    folder.write()
    picture = (folder.output.with_suffix("") / f"price_{TEXT}.svg").read_text()
    assert "perplexity, lower is better" in picture
    assert "1000" in picture
