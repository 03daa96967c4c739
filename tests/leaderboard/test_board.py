import re
import shutil
from urllib.parse import unquote

import pytest

from benchmark.errors import RecordError
from benchmark.leaderboard import write_board
from benchmark.records import cell_path, replace

NOISE = "gaussian_noise,scale=0.01"


def board(folder):
    """Write the board and return its text, with plain spaces."""
    write_board(folder.path, folder.output)
    return folder.output.read_text(encoding="utf-8").replace("\u00a0", " ")


def rows(text, heading):
    """Return the rows of the first table under a heading, by first column, without links."""
    table = re.search(rf"^#+ {heading}.*?(?<=\n)(\|.*?)\n\n", text, re.S | re.M)[1]
    plain = re.sub(r"\[((?:\\.|[^\]\\])*)\]\[[0-9a-f]+\]", r"\1", table).replace("`", "")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in plain.splitlines()]
    return {first: dict(zip(cells[0][1:], rest, strict=True)) for first, *rest in cells}


def page(folder):
    """Write the board and return the protocol's page, with plain spaces."""
    board(folder)
    return (folder.path / "vit" / "README.md").read_text(encoding="utf-8").replace("\u00a0", " ")


def details(folder):
    """Return the rows of the table of all metrics, by defense."""
    return rows(page(folder), "All metrics")


@pytest.fixture
def full(folder):
    """Two defenses, two attacks (one of them n/a under noise) and two controls."""
    folder.protocol().cell("oracle", 160, 160, 160, 160, control=True)
    for defense in ("none", NOISE):
        folder.cell("prior_only", 10, 11, 12, 11, defense=defense, control=True)
    folder.cell("dlg", 20, 21, 22, 21).cell("dlg", 13, 14, 15, 14, defense=NOISE)
    folder.cell("april", 40, 41, 42, 41)
    folder.cell("april", defense=NOISE, verdict="not_applicable", reason="no | position")
    return folder


def test_matrix_shows_known_means_with_deviation_and_trials(full):
    matrix = rows(board(full), "Attacks")
    assert matrix["none"]["dlg"] == "21.00 ± 0.82<br>(4)"
    assert matrix["none"]["april"] == "**41.00 ± 0.82<br>(4)**"


def test_worst_case_names_the_attack_and_no_control(full):
    matrix = rows(board(full), "Attacks")
    assert re.match(r"41\.00 \\\[40.*, 41.*\\\]<br>april$", matrix["none"]["Worst case"])
    assert matrix["gaussian_noise<br>scale=0.01"]["Worst case"].endswith("<br>dlg")
    assert "oracle" not in matrix["none"]


def test_worst_case_is_the_lowest_where_lower_is_better_for_the_attacker(folder):
    folder.protocol(primary="mse")
    folder.cell("dlg", {"mse": 0.5}).cell("april", {"mse": 0.1})
    text = board(folder)
    assert "mse (pixel^2), lower is worse for the client" in text
    assert rows(text, "Attacks")["none"]["Worst case"].endswith("<br>april")


def test_defenses_and_attacks_stand_from_the_most_leaking_with_none_first(folder):
    folder.protocol().cell("dlg", 20, 20).cell("april", 40, 40).cell("ig", 30, 30)
    folder.cell("dlg", 10, 10, defense="mjp").cell("dlg", 50, 50, defense="noise")
    matrix = rows(board(folder), "Attacks")
    assert list(matrix)[2:] == ["none", "noise", "mjp"]
    assert list(matrix["none"]) == ["Worst case", "april", "ig", "dlg"]


def test_controls_have_a_table_of_their_own(full):
    controls = board(full).split("**Controls**")[1].split("###")[0]
    assert "160.0 ± 0.0<br>(4)" in controls
    assert "dlg" not in controls


def test_failed_trials_are_counted_and_shown_with_their_reason(folder):
    folder.protocol().cell("dlg", 30, 30)
    cell_path(folder.path, "vit", "none", "dlg").rename(folder.path / "kept")
    folder.cell("dlg", 0, 0, 12, status="failed", reason="loss is NaN")
    path = cell_path(folder.path, "vit", "none", "dlg")
    late = path.read_text().splitlines()[2]
    path.write_text((folder.path / "kept").read_text() + late + "\n")
    text = board(folder)
    assert rows(text, "Attacks")["none"]["dlg"] == "**24 ± 10<br>(3, 1 failed)**"
    assert "- **1 failed**: loss is NaN: `dlg` under every defense." in page(folder)


def test_cells_that_did_not_run_say_why_once(full):
    for defense in ("none", NOISE):
        full.cell("gradvit", defense=defense, verdict="unavailable", reason="no weights <here>")
    text = board(full)
    noise = rows(text, "Attacks")["gaussian_noise<br>scale=0.01"]
    assert (noise["april"], noise["gradvit"]) == ("n/a", "unavailable")
    assert f"- **n/a**: no \\| position: `april` under `{NOISE}`." in text
    assert text.count("no weights") == 1
    assert "- **unavailable**: no weights &lt;here>: `gradvit` under every defense." in text


def test_attack_that_fits_nowhere_has_no_column_and_one_reason(full):
    for defense in ("none", NOISE):
        full.cell("idlg", defense=defense, verdict="not_applicable", reason="no gradients granted")
    text = board(full)
    assert "idlg" not in rows(text, "Attacks")["none"]
    assert "idlg" not in rows(text, "Ranking: open server")
    assert "- **n/a**: no gradients granted: `idlg` under every defense." in text


def test_a_cell_that_never_ran_is_a_dash(full):
    matrix = rows(board(full.cell("ig", 15, 15)), "Attacks")
    assert matrix["gaussian_noise<br>scale=0.01"]["ig"] == "—"


def test_ranking_counts_the_prior_for_an_attack_that_does_not_apply(full):
    ranking = rows(board(full), "Ranking: open server")
    assert ranking["april"]["Over all defenses"].startswith("26.00 ")  # 41 and the prior's 11
    assert ranking["april"]["Did not run"] == "n/a under 1"
    assert [row["Rank, all"] for row in ranking.values()][2:] == ["1", "2"]
    assert "oracle" not in ranking


def test_board_says_which_attack_is_not_ranked_for_want_of_the_prior(full):
    cell_path(full.path, "vit", NOISE, "prior_only").unlink()
    text = board(full)
    assert rows(text, "Ranking")["april"]["Rank, all"] == "—"
    assert f"Not ranked over all defenses: `april` has no trial under `{NOISE}`" in text


def test_each_threat_model_has_its_own_ranking(full):
    full.cell("ig", 30, 30, threat="labels granted")
    assert list(rows(board(full), "Ranking: labels granted"))[2:] == ["ig"]


def test_the_same_trials_have_the_same_interval_throughout(folder):
    text = board(folder.protocol().cell("dlg", 20, 23, 31, 39, 12))
    worst = rows(text, "Attacks")["none"]["Worst case"].removesuffix("<br>dlg")
    assert rows(text, "Ranking")["dlg"]["On none"] == worst


def test_same_records_give_the_same_bytes_whatever_their_order(full, tmp_path):
    full.cell("ig", *[(7 * trial**3) % 23 + trial / 7 for trial in range(24)])
    first = board(full)
    assert board(full) == first
    copy = tmp_path / "again" / "results"
    for path in sorted(full.path.rglob("*"), reverse=True):
        target = copy / path.relative_to(full.path)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            if path.suffix == ".jsonl":
                target.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    write_board(copy, copy.parent / "leaderboard.md")
    for name in ("leaderboard.md", "results/vit/README.md"):
        assert (copy.parent / name).read_bytes() == (full.path.parent / name).read_bytes()


def test_every_score_is_a_link_to_a_file_that_exists(full):
    full.output = full.path.parent / "site" / "board.md"
    board(full)
    for written in (full.output, full.path / "vit" / "README.md"):
        text = written.read_text(encoding="utf-8")
        defined = dict(re.findall(r"^\[(r\d+)\]: (\S+)$", text, re.M))
        used = re.findall(r"\]\[(r\d+)\]", text)
        assert set(used) == set(defined)
        for url in defined.values():
            assert (written.parent / unquote(url)).exists(), url
        for table in re.findall(r"^\|.*\|$", text, re.M):
            unlinked = re.sub(r"\[(?:\\.|[^\]\\])*\]\[[0-9a-f]+\]|`[^`]*`", "", table)
            assert "±" not in unlinked
            assert not re.search(r"\d\.\d", unlinked), table


def test_a_link_is_defined_once_on_the_whole_board(full):
    full.protocol("bert").cell("dlg", 20, 21, protocol="bert")
    labels = re.findall(r"^\[([0-9a-f]+)\]:", board(full), re.M)
    assert len(labels) == len(set(labels)) > 10


def test_the_table_of_all_metrics_names_the_one_that_no_trial_has(folder):
    folder.protocol(metrics=["psnr", "mse", "lpips"])
    text = page(folder.cell("dlg", *[{"psnr": n, "mse": 2e-5, "lpips": None} for n in (20, 22)]))
    assert "No trial has `lpips`: unavailable" in text
    assert "2.0e-05 ± 0<br>\\[2.0e-05, 2.0e-05\\]" in text
    assert "| [2][" in text  # seconds a trial


def test_provenance_and_a_command_close_a_page(full):
    text = page(full)
    assert "Commits: `0123456789ab` (dirty). Hardware: a processor." in text
    assert "gradleak run vit --attack april --defense none --seeds 0\n" in text


def test_command_makes_the_trials_of_its_cell_and_no_variant_beside_it(folder):
    folder.protocol(trials=9).cell("dlg", 40, 41).cell("dlg,rate=0.2", 20, 21)
    assert "gradleak run vit --attack dlg,defaults --defense none --trials 2 --seeds 0\n" in page(
        folder
    )


def test_setting_is_told_in_words(full):
    assert (
        "data cifar10 (size 32, split test); victim vit\\_small (weights random); "
        "federation fedsgd (batch size 1); 4 trials a seed (seeds 0); "
        "honest-but-curious server, granted labels."
    ) in board(full)


def test_a_protocol_without_descriptive_fields_is_shown_by_its_name(full):
    fields = {"name": "vit", "digest": "d1", "metrics": ["psnr"], "primary": "psnr"}
    replace(full.path / "vit" / "protocol.json", str(fields).replace("'", '"'))
    assert "\n## vit\n" in board(full)


ENTRY = "[ViT on CIFAR-10](#vit-on-cifar-10-vit)<br>vit"


def test_contents_link_to_the_heading_and_show_the_strongest_attack_beside_the_prior(full):
    text = board(full)
    assert "\n## ViT on CIFAR-10 (vit)\n" in text
    assert rows(text, "Vision")[ENTRY] == {
        "Metric": "psnr (dB)",
        "Strongest attack, undefended": "april",
        "It reaches": "41.00 ± 0.82",
        "Prior alone": "11.00 ± 0.82",
    }


def test_contents_show_dashes_for_a_protocol_that_nothing_attacked_undefended(folder):
    entry = rows(board(folder.protocol().cell("dlg", 9, defense=NOISE)), "Vision")[ENTRY]
    assert list(entry.values())[1:] == ["—", "—", "—"]


def test_records_of_another_digest_are_left_out_and_counted(full):
    full.cell("ig", 99, 99, protocol_digest="older")
    text = board(full)
    assert "2 record(s) were made by another version of this protocol" in text
    assert "`ig`" not in text


def test_a_protocol_with_old_records_only_says_so(folder):
    text = board(folder.protocol().cell("dlg", 99, protocol_digest="older"))
    assert "1 record(s) were made by another version" in text
    assert "### Attacks" not in text


def test_a_cell_of_two_source_versions_is_pointed_at(full):
    path = cell_path(full.path, "vit", "none", "dlg")
    path.write_text(path.read_text().replace('"attack_digest":"x"', '"attack_digest":"y"', 1))
    assert "`dlg` under `none` mixes 2 versions" in board(full)


def test_damaged_lines_are_returned_and_counted(full):
    path = cell_path(full.path, "vit", "none", "dlg")
    path.write_text("{half a line\n" + path.read_text())
    (damaged,) = write_board(full.path, full.output)
    assert damaged.startswith(f"{path}:1: not a record")
    assert "1 damaged line(s)" in full.output.read_text()


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_records_is_an_error_and_nothing_is_written(folder, exists):
    if exists:
        folder.path.mkdir()
    with pytest.raises(RecordError, match="results: no re") as caught:
        write_board(folder.path, folder.output)
    assert "\n" not in str(caught.value)
    assert not folder.output.exists()


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
    path = full.path / "vit" / "protocol.json"
    replace(path, str(fields).replace("'", '"'))
    with pytest.raises(RecordError, match=message) as caught:
        write_board(full.path, full.output)
    assert str(caught.value).startswith(f"{path}: ")
    assert not full.output.exists()


def test_records_without_their_protocol_are_an_error(full):
    (full.path / "vit" / "protocol.json").unlink()
    with pytest.raises(RecordError, match=r"protocol\.json: missing"):
        write_board(full.path, full.output)


def test_a_file_in_another_cells_place_is_an_error(full):
    path = cell_path(full.path, "vit", "none", "dlg")
    path.rename(path.with_name("ig.jsonl"))
    with pytest.raises(RecordError, match=r"dlg\.jsonl: records name this file"):
        write_board(full.path, full.output)


def test_full_table_shows_the_best_and_the_worst_trial_for_the_attacker(folder):
    folder.protocol().cell("dlg", 20.25, 41, 10).cell("dlg", 7, defense="noise")
    row = details(folder)
    assert (row["none"]["best psnr"], row["none"]["worst psnr"]) == ("41", "10")
    assert (row["noise"]["best psnr"], row["noise"]["worst psnr"]) == ("7.000", "7.000")
    assert not [name for name in row["none"] if name.startswith("breached")]


def test_best_trial_is_the_lowest_where_lower_is_better_for_the_attacker(folder):
    folder.protocol(primary="mse").cell("dlg", {"mse": 0.5}, {"mse": 0.25})
    row = details(folder)["none"]
    assert float(row["best mse"]) < float(row["worst mse"])


@pytest.mark.parametrize(
    ("metric", "at", "heading", "share"),
    [("psnr", 30, "breached (psnr ≥ 30)", "75%"), ("mse", 0.1, "breached (mse ≤ 0.1)", "25%")],
)
def test_full_table_shows_the_share_of_trials_breached(folder, metric, at, heading, share):
    scores = [{"psnr": p, "mse": m} for p, m in ((31, 0.5), (30, 0.2), (29, 0.1), (50, 1))]
    folder.protocol(breach={"metric": metric, "at": at}).cell("dlg", *scores)
    assert details(folder)["none"][heading] == share


def test_share_breached_is_a_dash_where_no_trial_has_the_metric(folder):
    folder.protocol(breach={"metric": "mse", "at": 0.1}).cell("dlg", {"psnr": 10}, {"psnr": 11})
    assert details(folder)["none"]["breached (mse ≤ 0.1)"] == "—"


@pytest.mark.parametrize("breach", [3, {"metric": "psnr"}, {"metric": "ssim", "at": 1}])
def test_breach_that_cannot_be_read_is_named_with_its_file(folder, breach):
    folder.protocol(breach=breach).cell("dlg", 10)
    with pytest.raises(RecordError, match=r"vit/protocol\.json: breach is .*; wanted one of its"):
        board(folder)
