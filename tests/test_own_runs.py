"""What a person brings and what it leaves: everything beside their own files, nothing here."""

import subprocess

import numpy as np
import pytest
from PIL import Image

from benchmark.identity import ROOT
from benchmark.outputs import board_of, results_of
from benchmark.records import read_folder
from benchmark.running.runner import Runner

FEW = ["--defense", "none", "--attack", "position_closed_form", "--attack", "prior_only"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with pictures and a text, in which the commands are given."""
    draws = np.random.default_rng(0)
    for number in range(10):
        folder = tmp_path / "photos" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draws.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    words = "the cat saw a dog run home in the rain while birds sang".split()
    said = (" ".join(draws.choice(words, 40)) for _ in range(8))
    (tmp_path / "letters.txt").write_text("\n\n".join(said))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def status():
    told = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return told.stdout


def test_own_images_and_text_run_to_a_board_of_ones_own(home, gradleak):
    before = status()
    assert gradleak("new", "protocol", "photos", "--folder", "photos").code == 0
    assert gradleak("new", "protocol", "letters", "--text", "letters.txt").code == 0
    images = gradleak("run", "photos.yaml", *FEW)
    assert (images.code, images.err) == (0, "")
    text = gradleak("run", "letters.yaml", "--defense", "none", "--attack", "span_tokens")
    assert "next: gradleak leaderboard --results own-results" in text.out.splitlines()
    board = gradleak("leaderboard", "--results", "own-results")
    assert (board.code, board.out) == (0, "wrote own-results-leaderboard.md\n")
    page = (home / "own-results-leaderboard" / "photos.md").read_text()
    assert "> **Note:** Own data, photos: " in page
    assert (home / "own-results-leaderboard" / "letters.md").is_file()
    made = {path.name for path in home.iterdir()} - {"photos", "letters.txt"}
    assert made == {
        *("photos.yaml", "letters.yaml"),
        *("own-results", "own-results-leaderboard.md", "own-results-leaderboard"),
    }
    assert status() == before


def test_records_lie_beside_the_protocol_wherever_the_command_is_given(
    home, gradleak, monkeypatch, tmp_path_factory
):
    gradleak("new", "protocol", "photos", "--folder", "photos")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    ended = gradleak("run", home / "photos.yaml", *FEW)
    assert f"records written to {home / 'own-results'}" in ended.out
    assert read_folder(home / "own-results").records
    assert not list(elsewhere.iterdir())


def test_a_picture_that_changes_makes_its_protocol_due_again(home, gradleak):
    gradleak("new", "protocol", "photos", "--folder", "photos")
    gradleak("run", "photos.yaml", *FEW)
    again = gradleak("run", "photos.yaml", *FEW)
    assert "2 cells, 0 due with 0 trials" in again.out
    assert "nothing is due; next: gradleak leaderboard --results own-results" in again.out
    (home / "photos" / "cat" / "1.png").unlink()
    assert "2 cells, 2 due with 8 trials" in gradleak("run", "photos.yaml", *FEW, "--plan").out


def test_new_protocol_runs_as_it_is_and_replaces_nothing(home, gradleak):
    ended = gradleak("new", "protocol", "mine")
    assert ended.out == "wrote mine.yaml\nnext: gradleak run mine.yaml --defense none\n"
    assert gradleak("run", "mine.yaml", *FEW).code == 0
    for words, said in (
        (["mine"], "mine.yaml: there already; wanted another name"),
        (["Mine-2"], "name 'Mine-2': wanted a-z, 0-9 and _, a letter first"),
        (["b", "--folder", "none"], "none: no such file or folder"),
        (["b", "--folder", "photos", "--text", "letters.txt"], "together: wanted one of them"),
    ):
        refused = gradleak("new", "protocol", *words)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert said in refused.err


def test_protocols_of_a_folder_are_known_by_name(home, gradleak):
    (home / "mine").mkdir()
    gradleak("new", "protocol", "mine/plain.yaml")
    ended = gradleak("run", "plain", "--protocols", "mine", *FEW)
    assert "records written to mine/own-results" in ended.out
    missing = gradleak("run", "plan", "--protocols", "mine", *FEW)
    assert "no suite or protocol 'plan'; did you mean plain?" in missing.err
    nowhere = gradleak("run", "plain", "--protocols", "nowhere", *FEW)
    assert "nowhere: no such folder; --protocols wants one of YAML files" in nowhere.err


def test_results_of_ones_own_things_lie_beside_them(home):
    assert str(results_of(None, ("quick",))) == "results"
    assert results_of(None, ("quick",), [home / "plugins"]) == home / "own-results"
    assert results_of(home / "mine", ("a/b.yaml",), [home]) == home / "mine"
    assert str(results_of(None, ("a/b.yaml",))) == "a/own-results"
    inside = str(ROOT / "protocols" / "vision" / "quick_digits_b.yaml")
    assert str(results_of(None, (inside,))) == "results"


def test_board_lies_beside_its_results(home):
    assert str(board_of(None, home / "results")) == "leaderboard.md"
    assert str(board_of(None, results_of(None, ("quick",)))) == "leaderboard.md"
    assert board_of(None, home / "mine") == home / "mine-leaderboard.md"
    assert board_of(home / "a.md", home / "mine") == home / "a.md"


def test_run_ends_with_a_table_of_scores_and_why_attacks_did_not_fit(home, gradleak):
    gradleak("new", "protocol", "mine")
    ended = gradleak("run", "mine.yaml", *FEW, "--attack", "dlg", "--attack", "span_tokens")
    lines = ended.out.splitlines()
    assert "mine: mean psnr in dB, higher reads more" in lines
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert float(rows["position_closed_form"][-1]) > 60 > 20 > float(rows["prior_only"][-1])
    assert "n/a: dlg: searches: needs 1 gradient evaluations, the budget is 0" in lines
    assert any(line.startswith("n/a: span_tokens, ") for line in lines)


def test_interrupted_run_says_what_is_kept_and_how_to_go_on(home, gradleak, monkeypatch):
    def interrupted(self, groups, until):
        raise KeyboardInterrupt

    gradleak("new", "protocol", "mine")
    monkeypatch.setattr(Runner, "run", interrupted)
    ended = gradleak("run", "mine.yaml", *FEW)
    assert ended.code == 130
    assert ended.err == (
        "gradleak: interrupted: 0 records are kept in own-results; "
        "the same command goes on from there\n"
    )
