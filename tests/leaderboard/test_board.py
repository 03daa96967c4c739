import re
from urllib.parse import unquote

import pytest

from benchmark.errors import RecordError
from benchmark.leaderboard import board, telling

NOISE = "gaussian_noise,scale=0.01"
TEN = range(10)


def unlinked(text):
    return re.sub(r"\[((?:\\.|[^\]\\])*)\](?:\[[0-9a-f]+\]|\([^)]*\))", r"\1", text)


def table(text, first, number=0):
    """Return the rows of a table by their first cell, each by heading; links are left out.

    The table is the one of that number among those whose first column has that heading.
    """
    plain = re.sub(r"\[\^\w+\]|`|</?code>|<wbr>", "", unlinked(text))
    found = [t for t in re.findall(r"(?:^\|.*\n)+", plain, re.M) if t.startswith(f"| {first} |")]
    cells = [[c.strip() for c in line.split("|")[1:-1]] for line in found[number].splitlines()]
    return {row[0]: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[2:]}


def near(mean):
    return [mean + i / 10 for i in TEN]


@pytest.fixture
def full(folder):
    """Ten trials of two attacks, undefended and under noise, which only one of them reads."""
    folder.protocol().cell("oracle", *[160] * 10, control=True)
    for defense in ("none", NOISE):
        folder.cell("prior_only", *near(10), defense=defense, control=True)
        folder.cell("mine", *near(20), defense=defense)
    folder.cell("yours", *near(40)).cell("yours", *near(9.9), defense=NOISE)
    return folder


def test_board_opens_with_the_strongest_attack_of_a_threat_model_and_its_interval(full):
    (row,) = table(full.text(), "Threat model").values()
    assert row["Strongest attack"] == "yours, first in 1 of 1"
    assert re.fullmatch(r"40\.5 \\\[40\.\d+, 40\.\d+\\\]", row["Median protocol"])
    assert row["Prior"] == "10.4"
    assert row["Best defense"] == f"{NOISE}, holds in 0 of 1"


def test_attack_is_not_first_where_it_runs_alone(full):
    full.protocol("study").cell("mine", *near(90), protocol="study")
    full.cell("prior_only", *near(10), protocol="study", control=True)
    rows = table(full.text(), "Attack")
    assert {name: row["First in"] for name, row in rows.items()} == {
        "yours": "1 of 1",
        "mine": "0 of 1",
    }


def test_defense_is_told_by_its_worst_case_and_by_whether_it_holds(full):
    full.cell("mine", *near(10.1), defense="mjp").cell(
        "prior_only", *near(10), defense="mjp", control=True
    )
    rows = table(full.text(), "Defense")
    assert [row["Holds in"] for row in rows.values()] == ["—", "1 of 1", "0 of 1"]
    assert list(rows) == ["none", "mjp", NOISE]
    assert rows["none"]["Leaks in"] == rows[NOISE]["Leaks in"] == "1"
    assert rows[NOISE]["Worst case, median"] == "20.4"  # not 10.3, of the weaker attack


def test_attack_that_tells_no_more_than_the_prior_is_first_nowhere(folder):
    folder.protocol().cell("mine", *near(9))
    text = folder.cell("prior_only", *near(10), control=True).text()
    (row,) = table(text, "Threat model").values()
    assert row["Strongest attack"] == "none: nothing beyond the prior"
    assert "**9.45**" not in unlinked(text)


def test_defense_behind_which_no_attack_tells_more_than_the_prior_says_so(full):
    full.cell("mine", *near(9), defense="mjp")
    full.cell("prior_only", *near(10), defense="mjp", control=True)
    row = table(full.text(), "Defense")["mjp"]
    assert row["Worst case, median"] == row["Highest"] == "nothing beyond the prior"


def test_defense_has_one_row_at_the_strength_that_holds_and_a_page_with_all(full):
    for strength, read in (("weak", 30), ("strong", 10.1)):
        full.cell("mine", *near(read), defense=f"mjp,gamma={strength}")
        full.cell("prior_only", *near(10), defense=f"mjp,gamma={strength}", control=True)
    rows = table(full.text(), "Defense")
    assert list(rows) == ["none", "mjp,gamma=strong", NOISE]
    assert list(table(full.page("defenses"), "Defense")) == [
        "none",
        "mjp,gamma=strong",
        NOISE,
        "mjp,gamma=weak",
    ]


def test_what_holds_everywhere_and_what_leaks_everywhere_is_said_in_a_sentence(full):
    full.cell("mine", *near(10.1), defense="mjp")
    full.cell("prior_only", *near(10), defense="mjp", control=True)
    said = "1 of 2 defenses holds in every protocol that it was tried in: "
    assert f"{said}`mjp` (reliable in 0 of 1); 1 leak in every" in full.text()


def test_defense_is_told_over_all_threat_models_and_apart_on_its_page(full):
    full.protocol("known", threat={"server": "honest_but_curious", "grants": ["keys"]})
    for defense in ("none", NOISE):
        there = {"defense": defense, "protocol": "known", "threat": "a server with keys"}
        full.cell("prior_only", *near(10), control=True, **there)
        full.cell("mine", *near(50), **there)
    rows = table(full.text(), "Defense")
    assert rows[NOISE]["Holds in"] == "0 of 2"
    apart = [table(full.page("defenses"), "Defense", which)[NOISE] for which in (0, 1)]
    assert sorted(row["Worst case, median"] for row in apart) == ["20.4", "50.5"]


def test_defense_is_not_counted_where_nothing_leaks_undefended(folder):
    folder.protocol()
    for defense in ("none", "mjp"):
        folder.cell("prior_only", *near(10), defense=defense, control=True)
        folder.cell("mine", *near(10), defense=defense)
    text = folder.text()
    assert "none tried on ten trials" in text
    assert "🟢 10.4" in unlinked(text)


def test_attack_of_few_trials_is_told_and_not_ranked(full):
    text = full.cell("late", *near(50)[:4]).text()
    assert "Too few to rank, under 10 trials: `late`." in text
    assert table(text, "Attack", 1)["late"]["vit<br>(10)"].replace("*", "") == "50.2 (4)"
    page = table(full.page(), "Rank")
    assert {row["Attack"]: rank for rank, row in page.items()} == {
        "yours": "1",
        "mine": "2",
        "late": "too few (4)",
    }


def test_no_interval_of_under_ten_trials_is_printed(folder):
    text = folder.protocol().cell("mine", *near(20)[:9]).page()
    assert r"\[" not in text + folder.text()


def test_search_under_its_papers_budget_is_told_with_its_share_and_not_ranked(full):
    full.cell("gradvit", *near(5), gradient_evaluations=2400)
    text = full.text()
    assert "under their papers' budgets: `gradvit`[^gradvit] 2 %" in text
    assert table(text, "Attack", 1)["gradvit"]["vit<br>(10)"] == "5.45, 2 %"
    page = full.page()
    assert "| not ranked | `gradvit` |" in page
    assert "2 % of 120,000" in page
    assert "[^gradvit]: `gradvit`: the image prior is" in text


def test_search_that_had_its_papers_budget_is_ranked(full):
    full.cell("gradvit", *near(5), gradient_evaluations=120_000)
    assert "120,000 of 120,000" in full.text()


def test_defense_that_only_poor_searches_met_is_open(full):
    full.cell("gradvit", *near(9), defense="mjp", gradient_evaluations=10)
    full.cell("prior_only", *near(10), defense="mjp", control=True)
    assert table(full.text(), "Defense")[NOISE]
    assert "⬜ 9.45" in unlinked(full.text())


def test_defense_does_not_hold_where_a_few_trials_read_more_than_the_prior(full):
    for defense in ("mjp",):
        full.cell("prior_only", *near(10), defense=defense, control=True)
        full.cell("mine", *near(10), defense=defense)
        full.cell("late", 90, 90, defense=defense)
    assert "⬜ 90.0 (2)" in unlinked(full.text())


def test_variants_of_a_method_stand_as_one_on_the_board(full):
    full.cell("mine,rate=2", *near(30))
    assert table(full.text(), "Attack", 1)["mine"]["vit<br>(10)"] == "30.4"


def test_protocols_of_another_metric_of_tokens_are_told_apart(folder):
    for name, primary in (("a", "total_accuracy"), ("b", "token_accuracy")):
        folder.protocol(name, ["total_accuracy", "token_accuracy"], primary, track="text")
        scores = [{"total_accuracy": 0.1, "token_accuracy": 0.9}] * 10
        folder.cell("mine", *scores, protocol=name)
    headings = re.findall(r"^\*\*Text: open server\*\* · (\S+)$", folder.text(), re.M)
    assert headings == [r"total\_accuracy", r"token\_accuracy"]


def test_what_an_update_of_a_victim_gives_away_is_told_by_its_size(folder):
    for name, size in (("one", 1), ("many", 8)):
        folder.protocol(name, federation={"batch_size": size}).cell(
            "mine", *near(20), protocol=name
        )
    rows = re.findall(r"^\| `vit_small` \| (.*?) \|", folder.text(), re.M)
    assert rows == ["1 image, honest server", "8 images, honest server"]


def test_protocols_of_a_suite_share_a_matrix_and_those_of_none_come_last(folder):
    for name in ("quick_digits_a", "own"):
        folder.protocol(name).cell("mine", *near(20), protocol=name)
    text = folder.text()
    assert text.index("## Suite `quick`") < text.index("## Protocols of no suite")


def test_many_protocols_stand_below_one_another(folder):
    for i in range(8):
        folder.protocol(f"p{i}").cell("mine", *near(20 + i), protocol=f"p{i}")
    text = folder.text()
    assert table(text, "Protocol")["p3 (10)"]["mine"] == "**23.4**"
    (label,) = re.findall(r"\*\*\[23\.4\]\[(\w+)\]\*\*", text)
    assert f"[{label}]: results/p3/mine.jsonl" in text


def test_every_number_of_a_table_is_a_link_to_something_that_exists(full):
    full.output = full.path.parent / "site" / "board.md"
    full.protocol("bert").cell("mine", *near(21), protocol="bert")
    full.write()
    pages = sorted((full.output.with_suffix("")).glob("*.md"))
    assert len(pages) == 3
    for written in (full.output, *pages):
        text = written.read_text(encoding="utf-8")
        defined = dict(re.findall(r"^\[([0-9a-f]+)\]: (\S+)$", text, re.M))
        assert set(re.findall(r"\]\[([0-9a-f]+)\]", text)) == set(defined)
        for url in [*defined.values(), *re.findall(r"\]\(([^)#]+)\)", text)]:
            assert (written.parent / unquote(url)).exists(), url
        for line in re.findall(r"^\|.*\|$", text, re.M):
            bare = re.sub(r"\[(?:\\.|[^\]\\])*\](\[[0-9a-f]+\]|\([^)]*\))|`[^`]*`", "", line)
            assert not re.search(r"\d\.\d", re.sub(r"<code>.*?</code>", "", bare)), line


def test_same_records_give_the_same_bytes_whatever_their_order(full):
    full.cell("third", *[(7 * trial**3) % 23 + trial / 7 for trial in range(24)])

    def everything():
        full.write()
        pages = [full.output, *full.output.with_suffix("").iterdir()]
        return {path.name: path.read_bytes() for path in pages}

    first = everything()
    assert {"leaderboard.md", "defenses.md", "summary.svg", "vit.md"} == set(first)
    assert everything() == first
    full.rows.reverse()
    assert everything() == first


def test_stale_pages_are_removed_and_foreign_ones_are_kept(full):
    full.protocol("bert").cell("mine", *near(21), protocol="bert").write()
    pages = full.output.with_suffix("")
    (pages / "notes.md").write_text("by hand\n")
    full.rows = [row for row in full.rows if row["protocol"] == "vit"]
    full.write()
    assert {path.name for path in pages.iterdir()} == {
        "defenses.md",
        "notes.md",
        "summary.svg",
        "vit.md",
    }


def test_picture_is_read_on_light_and_dark_ground(full):
    full.write()
    svg = (full.output.with_suffix("") / "summary.svg").read_text()
    assert "![" in full.output.read_text()
    assert "<dc:date>" not in svg
    assert "#ffffff" not in svg
    assert "#000000" not in svg


def test_later_of_two_records_of_a_trial_counts(folder):
    folder.protocol().cell("mine", *[1] * 10).cell("mine", *[30] * 10)
    assert table(folder.text(), "Attack", 1)["mine"]["vit<br>(10)"].strip("*") == "30.0"


def test_records_of_another_digest_are_left_out_and_counted(full):
    text = full.cell("old", 99, 99, protocol_digest="older").text()
    assert "2 record(s) were made by other versions of protocols" in text
    assert "`old`" not in text
    assert "2 record(s) were made by another version of this protocol" in full.page()


def test_a_protocol_with_old_records_only_says_so_on_its_page(folder):
    page = folder.protocol().cell("mine", 99, protocol_digest="older").page()
    assert "1 record(s) were made by another version" in page
    assert "## Attacks" not in page


@pytest.mark.parametrize(
    ("doubt", "words"),
    [("unverified", "are unverified"), ("outdated", "are of an older version, due again")],
)
def test_records_in_doubt_are_counted_and_named_on_the_page(full, doubt, words):
    given = {"count": lambda frame: {doubt: {"mine": 3}}}
    assert f"3 record(s) {words}" in full.text(**given)
    assert f"3 record(s) of `mine` {words}" in full.page(**given)
    assert words not in full.text()


def test_damaged_lines_are_returned_and_counted(full):
    full.damaged = ["x.jsonl:1: not a record"]
    assert full.write() == full.damaged
    assert "1 damaged line(s)" in full.output.read_text()


def test_failed_trials_are_counted_on_the_board(folder):
    folder.protocol().cell("mine", *near(20)[:8]).cell("yours", 1, 2, status="failed")
    assert "(2 of 10 trials)" in folder.text()


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_records_is_an_error_and_nothing_is_written(tmp_path, exists):
    results = tmp_path / "results"
    if exists:
        results.mkdir()
    with pytest.raises(RecordError, match="results: no re") as caught:
        board.write_board(results, tmp_path / "leaderboard.md")
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == [results] * exists


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"digest": "d1", "metrics": ["psnr"]}, "name is missing"),
        ({"name": "bert", "digest": "d1", "metrics": ["psnr"], "primary": "psnr"}, "'bert'"),
        ({"name": "vit", "digest": "d1", "metrics": ["psnr"], "primary": "mse"}, "not among psnr"),
        ({"name": "vit", "digest": "d1", "metrics": ["pnsr"], "primary": "pnsr"}, "unknown; known"),
        ({"name": "vit", "digest": "d1", "metrics": 3, "primary": "psnr"}, "not a frozen protocol"),
    ],
)
def test_a_malformed_protocol_is_an_error_that_names_its_file(full, fields, message):
    full.frozen().write_text(str(fields).replace("'", '"'))
    with pytest.raises(RecordError, match=message) as caught:
        full.write()
    assert str(caught.value).startswith(f"{full.frozen()}: ")
    assert not full.output.exists()


def test_records_without_their_protocol_are_an_error(full):
    full.frozen().unlink()
    with pytest.raises(RecordError, match=r"protocol\.json: missing"):
        full.write()


def test_a_file_that_is_not_in_its_place_is_an_error(full):
    full.file("mine").unlink()
    with pytest.raises(RecordError, match=r"mine\.jsonl: records name this file"):
        full.write()
    assert not full.output.exists()


@pytest.mark.parametrize("breach", [3, {"metric": "psnr"}, {"metric": "ssim", "at": 1}])
def test_breach_that_cannot_be_read_is_named_with_its_file(folder, breach):
    folder.protocol(breach=breach).cell("mine", 10)
    with pytest.raises(RecordError, match=r"vit/protocol\.json: breach is .*; wanted one of its"):
        folder.write()


def test_pages_told_by_several_processes_are_the_same(full, monkeypatch):
    alone = full.text(), full.page()
    monkeypatch.setattr(telling, "MANY", 1)
    assert (full.text(), full.page()) == alone


def test_matrices_that_the_board_has_no_room_for_have_a_page_of_their_own(folder, monkeypatch):
    monkeypatch.setattr(board, "_ROOM", 100)
    for i in range(2):
        folder.protocol(f"p{i}").cell("mine", *near(20 + i), protocol=f"p{i}")
    (page,) = re.findall(r"\[2 protocols, on their own page\]\((.+)\)", folder.text())
    assert page.endswith("/no_suite.md")


def test_board_leads_to_published_numbers_where_they_stand_beside_it(folder):
    folder.protocol().cell("mine", 20, 22)
    assert "reproduction.md" not in folder.text()
    folder.output.with_name("reproduction.md").write_text("# Published\n")
    assert "[Published numbers beside ours](reproduction.md)" in folder.text()
