"""What the board says of the rates that searches ran at."""

import pytest
import yaml

from tests.leaderboard.test_board import near, table, unlinked

TUNED = "0.6, tuned on 8 public batches by its own objective, of 5 rates"
UNEQUAL = "Ranked without the same tuning: "


@pytest.fixture
def tune(folder):
    """Add tunings to the protocol's file, by label."""
    content = {}

    def add(label, rate, *, trials=8, version="1", default=0.2):
        content[label] = {
            "version": version,
            "protocol_digest": "d1",
            "default": default,
            "mismatch": {default / 9: 0.9, default / 3: 0.9, default: 0.9, 3 * default: 0.9, 9: 1},
            "rate": rate,
            "trials": trials,
            "seed": 0,
            "command": "gradleak tune vit",
            "provenance": {"commit": None, "dirty": None, "versions": {}, "hardware": "one"},
        }
        (folder.path / "vit/tuning.yaml").write_text(yaml.safe_dump(content))

    folder.protocol(data={"name": "unknown"})
    return add


def test_tuned_rate_and_one_that_was_not_are_told_beside_each_rank(folder, tune):
    tune("dlg", 0.6)
    folder.cell("dlg,rate=0.6", *near(30)).cell("tag", *near(20)).cell("mine", *near(10))
    for page in (folder.page(), folder.text()):
        assert TUNED in unlinked(page)
        assert "0.1, not tuned" in page
    rows = table(folder.page(), "Rank")
    assert rows["1"]["Rate"] == TUNED
    assert rows["3"]["Rate"] == "—"  # no search: it has no rate


def test_default_that_the_tuning_chose_is_tuned(folder, tune):
    tune("dlg", 0.2)
    folder.cell("dlg", *near(30))
    assert "0.2, tuned on 8 public batches" in unlinked(folder.page())


def test_rate_of_another_version_of_the_attack_is_not_tuned(folder, tune):
    tune("dlg", 0.6, version="0")
    folder.cell("dlg,rate=0.6", *near(30))
    assert "0.6, not tuned" in folder.page()


def test_where_the_tuned_rate_ran_the_others_are_not_ranked(folder, tune):
    tune("dlg", 0.6)
    folder.cell("dlg,rate=0.6", *near(30)).cell("dlg", *near(40)).cell("mine", *near(10))
    assert "| not ranked | `dlg` |" in folder.page()
    assert table(folder.text(), "Attack", 1)["dlg"]["vit<br>(10)"] == "30.4"


def test_rate_stays_ranked_until_the_tuned_one_has_ten_trials(folder, tune):
    tune("dlg", 0.6)
    folder.cell("dlg,rate=0.6", 30, 31).cell("dlg", *near(40)).cell("mine", *near(10))
    assert "| 1 | `dlg` |" in folder.page()


def test_words_searched_and_words_given_are_tuned_apart(folder, tune):
    tune("dlg,words=searched", 0.6)
    folder.cell("dlg", *near(40)).cell("dlg,words=searched,rate=0.6", *near(30))
    rows = table(folder.page(), "Rank")
    assert (rows["1"]["Attack"], rows["1"]["Rate"]) == ("dlg", "0.2, not tuned")
    assert (rows["2"]["Attack"], rows["2"]["Rate"]) == ("dlg,words=searched,rate=0.6", TUNED)


@pytest.mark.parametrize(
    ("of_tag", "said"),
    [
        (None, "`dlg,rate=0.6` (tuned on 8 batches), `tag` (not tuned)."),
        ({"trials": 3}, "`dlg,rate=0.6` (tuned on 8 batches), `tag` (tuned on 3 batches)."),
        ({}, None),
    ],
)
def test_searches_ranked_without_the_same_tuning_are_marked(folder, tune, of_tag, said):
    tune("dlg", 0.6)
    if of_tag is not None:
        tune("tag", 0.1, default=0.1, **of_tag)
    folder.cell("dlg,rate=0.6", *near(30)).cell("tag", *near(20))
    page, text = folder.page(), folder.text()
    if said is None:
        assert UNEQUAL not in page + text
    else:
        assert UNEQUAL + said in page
        assert f"{UNEQUAL}`dlg,rate=0.6`, `tag` in vit." in text


def test_a_board_without_searches_says_nothing_of_rates(folder):
    folder.protocol().cell("mine", *near(10))
    assert "Rate |" not in folder.page() + folder.text()
