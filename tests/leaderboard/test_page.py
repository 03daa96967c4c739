import json
import re

import pytest

from benchmark.leaderboard import board
from benchmark.leaderboard.given import Given
from tests.leaderboard.test_board import NOISE, near, table, unlinked


@pytest.fixture
def full(folder):
    """Two defenses, two attacks (one of them n/a under noise) and two controls, ten trials each."""
    folder.protocol(trials=10).cell("oracle", *[160] * 10, control=True)
    for defense in ("none", NOISE):
        folder.cell("prior_only", *near(10), defense=defense, control=True)
        folder.cell("mine", *near(20), defense=defense)
    folder.cell("yours", *near(40))
    folder.cell("yours", defense=NOISE, verdict="not_applicable", reason="no | position")
    return folder


def test_matrix_shows_known_means_with_deviation_and_the_worst_case_in_bold(full):
    rows = table(full.page(), "Attack")
    assert rows["mine"]["none"] == "20.45 ± 0.30"
    assert rows["yours"]["none"] == "**40.45 ± 0.30**"
    assert rows["yours"]["gaussian_noise<br>scale=0.01"] == "n/a"
    assert rows["mine"]["gaussian_noise<br>scale=0.01"].startswith("**")


def test_controls_have_a_table_of_their_own(full):
    rows = table(full.page(), "Control")
    assert rows["oracle"]["none"] == "160.0 ± 0.0"
    assert set(rows) == {"oracle", "prior_only"}


def test_defenses_stand_from_the_most_leaking_with_none_first(full):
    full.cell("mine", *near(50), defense="mjp")
    rows = table(full.page(), "Defense")
    assert list(rows) == ["none", "mjp", NOISE]
    assert rows["none"][""] == "🟥 leaks"
    assert rows["none"]["Worst case by"] == "yours"
    assert rows["none"]["More than the prior alone"].startswith("30.0")
    assert (rows["mjp"][""], rows["mjp"]["More than the prior alone"]) == ("⬜ open", "—")


def test_worst_case_is_the_lowest_where_lower_is_better_for_the_attacker(folder):
    folder.protocol(primary="mse")
    folder.cell("mine", {"mse": 0.5}).cell("yours", {"mse": 0.1})
    page = folder.page()
    assert "By mse (pixel^2), lower is worse for the client" in page
    assert table(page, "Defense")["none"]["Worst case by"] == "yours"


def test_ranking_counts_the_prior_for_an_attack_that_does_not_apply(full):
    page = full.page()
    heads = r"\| 1 \| `yours` \| \[40.*?\]\[\w+\] \| 1 \| \[25\.4"
    assert re.search(heads, page)  # 40.45 and the prior's 10.45
    assert "2 | `mine` |" in page
    assert "Compared over all defenses on 20 trials: 1 pair(s) by sign flips" in page


def test_page_says_which_attack_is_not_ranked_for_want_of_the_prior(full):
    full.rows = [
        row for row in full.rows if (row["defense"], row["attack"]) != (NOISE, "prior_only")
    ]
    assert f"Not ranked over all defenses: `yours` has no trial under `{NOISE}`" in full.page()


def test_cells_that_did_not_run_say_why_once(full):
    for defense in ("none", NOISE):
        full.cell("late", defense=defense, verdict="unavailable", reason="no weights <here>")
    page = full.page()
    assert f"- **n/a**: no \\| position: `yours` under `{NOISE}`." in page
    assert "- **unavailable**: no weights &lt;here>: `late` under every defense." in page


def test_attack_that_fits_nowhere_has_no_row_and_one_reason(full):
    for defense in ("none", NOISE):
        full.cell("idle", defense=defense, verdict="not_applicable", reason="no gradients")
    page = full.page()
    assert "idle" not in table(page, "Attack")
    assert "- **n/a**: no gradients: `idle` under every defense." in page


def test_a_cell_that_never_ran_is_a_dash(full):
    rows = table(full.cell("third", *near(15)).page(), "Attack")
    assert rows["third"]["gaussian_noise<br>scale=0.01"] == "—"


def test_failed_trials_are_counted_and_shown_with_their_reason(folder):
    folder.protocol().cell("mine", 30, 30, 30).cell("mine", 30)
    folder.rows[2] |= {"status": "failed", "reason": "loss is NaN", "psnr": 12}
    page = folder.page()
    assert table(page, "Attack")["mine"]["none"] == "**24 ± 10<br>(3, 1 failed)**"
    assert "- **1 failed**: loss is NaN: `mine` under every defense." in page


def test_attacks_stand_with_what_they_read_and_how_they_differ_from_their_papers(folder):
    folder.protocol().cell("decepticon", *near(1)).cell("own", *near(2))
    page = folder.page()
    assert "| malicious server, batch size, length, public text |" in unlinked(page)
    assert "- `decepticon`, Decepticons (Fowl et al., ICLR 2023): rungs are read by" in page
    assert "- `own`, not registered here: no difference told." in page


def test_note_of_a_metric_stands_with_its_numbers(folder):
    folder.protocol(metrics=["psnr", "fft2d"]).cell("mine", {"psnr": 20, "fft2d": 0.1})
    assert "GradViT and MJP print no formula" in folder.page()


def details(folder):
    """Return the rows of the table of all metrics, by defense."""
    return table(folder.page().split("## All metrics")[1], "Defense")


def test_the_table_of_all_metrics_names_the_one_that_no_trial_has(folder):
    folder.protocol(metrics=["psnr", "mse", "lpips"])
    folder.cell("mine", *[{"psnr": n, "mse": 2e-5, "lpips": None} for n in (20, 22)])
    assert "No trial has `lpips`: unavailable" in folder.page()
    assert details(folder)["none"]["mse (pixel^2)"] == "2.0e-05 ± 0"
    assert details(folder)["none"]["s/trial"] == "2"


def test_score_against_what_a_client_put_in_stands_apart_where_a_defense_changed_it(folder):
    folder.protocol().cell("mine", 20, 22)
    assert "put in" not in folder.page()
    changed = {"psnr": 10, "mse": 0.1, "psnr_input": 30, "mse_input": 0.001}
    folder.cell("mine", changed, changed, defense="mjp")
    rows = table(folder.page().split("These defenses change what the client puts in")[1], "Defense")
    assert set(rows) == {"mjp"}
    assert rows["mjp"]["psnr (dB)"] == "30.00 ± 0.00"


def test_what_a_paper_prints_of_a_cell_stands_beneath_ours_in_our_unit(folder):
    folder.protocol("april_cifar10_b", metrics=["psnr", "ssim"])
    scores = {"psnr": 20, "ssim": 0.9}
    for attack in ("dlg", "mine"):
        folder.cell(attack, scores, scores, protocol="april_cifar10_b")
    page = folder.page("april_cifar10_b").split("## All metrics")[1]
    told = [line for line in page.splitlines() if "0.959 ± 0.045" in line]
    assert len(told) == 1
    assert "`dlg`" in told[0]


def test_full_table_shows_the_best_and_the_worst_trial_for_the_attacker(folder):
    folder.protocol().cell("mine", 20.25, 41, 10)
    row = details(folder)["none"]
    assert (row["best psnr"], row["worst psnr"]) == ("41", "10")
    assert not [name for name in row if name.startswith("breached")]


def test_best_trial_is_the_lowest_where_lower_is_better_for_the_attacker(folder):
    folder.protocol(primary="mse").cell("mine", {"mse": 0.5}, {"mse": 0.25})
    row = details(folder)["none"]
    assert float(row["best mse"]) < float(row["worst mse"])


@pytest.mark.parametrize(
    ("metric", "at", "heading", "share"),
    [("psnr", 30, "breached (psnr ≥ 30)", "75%"), ("mse", 0.1, "breached (mse ≤ 0.1)", "25%")],
)
def test_full_table_shows_the_share_of_trials_breached(folder, metric, at, heading, share):
    scores = [{"psnr": p, "mse": m} for p, m in ((31, 0.5), (30, 0.2), (29, 0.1), (50, 1))]
    folder.protocol(breach={"metric": metric, "at": at}).cell("mine", *scores)
    assert details(folder)["none"][heading] == share


def test_share_breached_is_a_dash_where_no_trial_has_the_metric(folder):
    folder.protocol(breach={"metric": "mse", "at": 0.1})
    folder.cell("mine", {"psnr": 10, "mse": None}, {"psnr": 11, "mse": None})
    assert details(folder)["none"]["breached (mse ≤ 0.1)"] == "—"


def test_provenance_and_a_command_close_a_page(full):
    page = full.page()
    assert "Commits: `0123456789ab`. Hardware: a processor. Versions: torch 2.11." in page
    assert "gradleak run vit --attack yours --defense none --seeds 0\n" in page


def test_command_makes_the_trials_of_its_cell_and_no_variant_beside_it(folder):
    folder.protocol(trials=9).cell("mine", 40, 41).cell("mine,rate=0.2", 20, 21)
    command = "gradleak run vit --attack mine,defaults --defense none --trials 2 --seeds 0\n"
    assert command in folder.page()


def test_setting_is_told_in_words(full):
    assert (
        "data cifar10 (size 32, split test); victim vit\\_small (weights random); "
        "federation fedsgd (batch size 1); 10 trials a seed (seeds 0); "
        "honest-but-curious server, granted labels "
        "(class B of Carletti et al. (2025), informed eavesdropper)."
    ) in full.page()


def test_a_protocol_without_descriptive_fields_is_shown_by_its_name(full):
    fields = {"name": "vit", "digest": "d1", "metrics": ["psnr"], "primary": "psnr"}
    full.frozen().write_text(str(fields).replace("'", '"'))
    assert full.page().startswith("# vit\n")


def test_a_cell_of_two_versions_is_pointed_at(full):
    full.rows[-2]["attack_version"] = 2
    assert "`yours` under `none` mixes 2 versions" in full.page()


def test_many_defenses_stand_in_several_tables(full):
    for i in range(7):
        full.cell("mine", *near(15 + i), defense=f"d{i}")
    tables = [set(table(full.page(), "Attack", number)["mine"]) for number in (0, 1)]
    assert [len(each) for each in tables] == [6, 3]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({"knows": 30.0, "other": 30.5}, "| `knows` |"),
        ({"knows": 30.0, "other": 40.0}, "| `knows`: sees less, unreliable |"),
        ({"other": 40.0}, "| none: unreliable |"),
    ],
)
def test_a_worst_case_is_reliable_by_an_attack_that_knows_the_defense(
    folder, monkeypatch, scores, said
):
    known = {"knows": Given(adaptive_to=("noise",), own=True), "other": Given(own=True)}
    monkeypatch.setattr(board, "given", lambda labels, _: {name: known[name] for name in labels})
    folder.protocol()
    for name, score in scores.items():
        folder.cell(name, *[score + i / 100 for i in range(10)], defense="noise,scale=1")
    assert said in folder.page()


def test_what_no_commit_holds_is_told_and_not_ranked(full):
    full.cell("changed", *near(50), dirty=True)
    page = full.page()
    assert "| not ranked | `changed` |" in page
    assert "| 1 | `yours` |" in page
    assert "10 record(s) of `changed` were made from a checkout with changes of its own" in page
    assert "Commits: `0123456789ab`, `0123456789ab` (dirty)." in page
    assert "Not ranked where made from code that no commit holds: `changed`." in full.text()


def test_page_tells_what_differential_privacy_promises_and_that_others_promise_none(full):
    assert "Epsilon" not in full.page()
    said = {"epsilon": 2.1013, "delta": 1e-5, "rounds": 1000, "sampling_rate": 0.01}
    full.cell("mine", *near(11), defense="dp_sgd,noise=1.0", description=json.dumps(said))
    assert (
        "Epsilon and delta: `dp_sgd,noise=1.0` is (2.1, 1e-05)-private over 1,000 rounds at a "
        "sampling rate of 0.01. No other defense here has an epsilon."
    ) in full.page()
