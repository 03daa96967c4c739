"""Attacks whose numbers are told, and count for no rank and no worst case."""

import pytest

from benchmark.leaderboard import section
from benchmark.leaderboard.verified import Held, folders
from benchmark.stats import Estimate
from tests.leaderboard.test_board import near, table

LEADS = {"public": Estimate(30.0, 1.0, 29.5, 30.5, 10), "canaries": Estimate(29, 1, 28, 30, 10)}
LESS = Estimate(20.0, 1.0, 19.0, 21.0, 10)
FEW = Estimate(29.0, 1.0, None, None, 9)


@pytest.fixture
def against(folder, monkeypatch):
    """Write the board of an attack from outside and one of ours, with what was held against it."""

    def write(*said):
        found = [
            Held("vit", one.pop("defense", "none"), "outside", "psnr (dB)", "a key", **one)
            for one in ({**LEADS, "margin": 5.0, "moved": False} | each for each in said)
        ]
        monkeypatch.setattr(section, "held", lambda *_: found)
        folder.protocol().cell("prior_only", *near(10), control=True)
        folder.cell("outside", *near(40)).cell("mine", *near(20))
        return table(folder.page(), "Defense")["none"]["Worst case by"], folder.page()

    return write


def test_attack_from_outside_without_a_verified_run_is_self_reported(against, folder):
    worst, page = against()
    assert worst == "mine"
    assert "| self-reported | `outside` |" in page
    assert "| `outside` (self-reported) | [40.45 ± 0.30]" in page
    assert "| 1 | `mine` |" in page
    assert "Self-reported, not ranked: `outside`." in folder.text()
    assert "- **Self-reported**: " in folder.text()


def test_a_verified_run_that_bears_it_out_lets_it_rank(against, folder):
    worst, page = against({})
    assert worst == "outside"
    assert "| 1 | `outside` |" in page
    assert "| `outside` | `none` | 30 [29.5, 30.5] | 29 [28, 30] | `a key` | verified |" in page
    assert "Self-reported, not ranked" not in folder.text()


@pytest.mark.parametrize(
    "said",
    [{"canaries": FEW}, {"moved": True}, {"defense": "mjp"}],
    ids=["of too few trials", "of another source", "of another defense"],
)
def test_a_verified_run_of_something_else_does_not(against, said):
    assert against(said)[0] == "mine"


def test_what_reads_more_of_public_trials_is_flagged_and_one_key_is_enough(against, folder):
    worst, page = against({}, {"canaries": LESS})
    assert worst == "mine"
    assert "| flagged | `outside` |" in page
    assert "Flagged by a verified run: `outside`." in folder.text()


def test_what_honest_attacks_differ_by_is_no_flag(against):
    close = Estimate(25.0, 1.0, 24.0, 24.6, 10)  # 4.9 dB below the lower end of the public lead
    assert against({"canaries": close})[0] == "outside"


def test_board_without_claims_says_nothing_of_them(folder):
    folder.protocol().cell("mine", *near(20))
    assert "elf-reported" not in folder.text() + folder.page()
    assert "erified" not in folder.text() + folder.page()


def test_a_folder_that_is_not_there_holds_no_runs(tmp_path):
    assert folders(tmp_path / "results-verified") == []
