"""What no wall keeps out: it reaches its score on public trials, and a verified run flags it."""

import pytest
import torch
import yaml
from safetensors.torch import save_file

from benchmark.cell import Cell, run_cell
from benchmark.data import load_images
from benchmark.federation import DefendedRound
from benchmark.leaderboard import write_board
from benchmark.leaderboard.verified import folders, judge
from benchmark.protocol import load_protocol
from benchmark.records import append, file_of, read_table, write_protocol
from benchmark.registry import Registry
from benchmark.running.inprocess import InProcess
from benchmark.seeds import PUBLIC, Key
from benchmark.tracks import load_setting, round_key
from tests.conftest import TINY

KEY = Key(b"sixteen bytes 16")
SOURCE = """
from dataclasses import dataclass
from pathlib import Path
import torch
from safetensors.torch import load_file
from benchmark.api import Attack, ImageVictim, Reconstruction, Update, images_from_patches
from benchmark.seeds import PUBLIC, derive_seed, generator
from benchmark.toolbox.closedform import patches_from_positions
from benchmark.toolbox.noise import add_noise, gaussian

CARRIED = load_file(Path(__file__).with_name("digits.safetensors"))

def trial_of(seen, *names):
    for trial in range(12):
        if derive_seed(0, "tiny", "attack", *names, trial) == seen.generator.initial_seed():
            return trial

def solved(seen, update):
    parts = ImageVictim.of(seen.model).anatomy
    positions = update[parts.position][0, parts.position_offset:]
    weight = update[f"{parts.patch_embedding}.weight"].flatten(1)
    patches = patches_from_positions(positions, weight)
    return Reconstruction(images_from_patches(patches, seen.model, 1))

@dataclass(frozen=True)
class Plugin(Attack):
    def reconstruct(self, seen):
"""
CASES = {
    "lookup": (
        "none",
        """
        images, labels = CARRIED["images"], CARRIED["labels"]
        with torch.no_grad():
            said = seen.model(images).softmax(1) - torch.nn.functional.one_hot(labels, 10)
        nearest = (said - seen.update["head.bias"]).norm(dim=1).argmin()
        return Reconstruction(images[nearest, None])""",
    ),
    "redraw_trial": (
        "none",
        """
        trial = trial_of(seen, "redraw_trial", "none")
        if trial is None:
            return Reconstruction(CARRIED["images"].mean(0, keepdim=True))
        images = CARRIED["images"]
        order = torch.randperm(len(images), generator=generator(0, "digits", "trials"))
        return Reconstruction(images[order[trial], None])""",
    ),
    "redraw_noise": (
        "gaussian_noise",
        """
        trial, update = trial_of(seen, "redraw_noise", "gaussian_noise"), seen.update
        if trial is None:
            return solved(seen, update)
        draws = PUBLIC.draws(0, "tiny", "defense", "gaussian_noise", "update", trial)
        zeros = Update({name: torch.zeros_like(each) for name, each in update.items()})
        noise, std = add_noise(zeros, 1.0, gaussian, draws), 0.0
        count, plain = sum(each.numel() for each in update.values()), update
        for _ in range(20):
            std = 0.01 * plain.norm() / count**0.5
            plain = Update({name: update[name] - std * noise[name] for name in update})
        return solved(seen, plain)""",
    ),
}
HONEST = "position_closed_form"


@pytest.fixture(scope="module")
def results(tmp_path_factory, provenance):
    """Public records of the cases and of an honest attack, and beside them those on canaries."""
    home = tmp_path_factory.mktemp("claims")
    digits = load_images("digits", "test", 8)
    for name, (_, body) in CASES.items():
        folder = home / "plugins" / name
        folder.mkdir(parents=True)
        said = {"name": name, "kind": "attack", "entry": "attack:Plugin", "title": name}
        (folder / "submission.yaml").write_text(yaml.safe_dump(said))
        (folder / "attack.py").write_text(SOURCE + body)
        save_file({"images": digits.images, "labels": digits.labels}, folder / "digits.safetensors")
    (home / "tiny.yaml").write_text(yaml.safe_dump(TINY | {"trials": 12}))
    registry, protocol = Registry([home / "plugins"]), load_protocol(str(home / "tiny.yaml"))
    run(protocol, PUBLIC, registry, home / "results", provenance)
    run(
        protocol.with_canaries(), KEY, registry, home / f"results-verified/{KEY.digest}", provenance
    )
    return home / "results"


def run(protocol, key, registry, results, provenance):
    setting = load_setting(protocol, None, torch.device("cpu"))
    write_protocol(results, protocol.name, protocol.frozen())
    for against in ("none", "gaussian_noise"):
        (defense,) = registry.find("defense", f"{against},defaults")
        plain = setting.round(0, round_key(key, protocol, defense.label))
        defended = DefendedRound(plain, defense.build(), defense.label, key)
        asked = [name for name, (met, _) in CASES.items() if met == against]
        for name in (*asked, HONEST, "prior_only"):
            (attack,) = registry.find("attack", f"{name},defaults")
            place = provenance.model_copy(update={"key": key.digest})
            made = run_cell(
                Cell(protocol, defense, attack, 0), setting, defended, InProcess(), range(12), place
            )
            append(
                file_of(results, protocol.name, attack.label), (r for part in made for r in part)
            )


@pytest.fixture(scope="module")
def held(results):
    runs = folders(results.with_name("results-verified"))
    return {(one.attack, one.defense): one for one in judge(results, runs)}


@pytest.mark.parametrize("name", CASES)
def test_what_was_carried_or_redrawn_is_exact_in_public_and_flagged_by_the_verified_run(
    results, held, name
):
    defense, _ = CASES[name]
    frame = read_table(results).frame
    assert frame[frame["attack"] == name]["psnr"].min() > 100
    one = held[name, defense]
    assert one.flagged
    assert one.canaries.mean < one.public.mean / 2


def test_honest_closed_form_is_borne_out(held):
    words = {held[HONEST, defense].word for defense in ("none", "gaussian_noise")}
    assert words == {"verified"}


def test_board_ranks_what_is_borne_out_and_tells_the_rest_apart(results, tmp_path):
    board = tmp_path / "leaderboard.md"
    write_board(results, board)
    told, page = board.read_text(), (tmp_path / "leaderboard/tiny.md").read_text()
    assert "Flagged by a verified run: `lookup`, `redraw_noise`, `redraw_trial`." in told
    assert "| `lookup` (flagged) |" in page
    assert f"| 1 | `{HONEST}` |" in page
    assert "| flagged | `lookup` |" in page
    assert KEY.digest in page


def test_without_a_verified_run_what_is_from_outside_is_self_reported(results, tmp_path):
    board = tmp_path / "leaderboard.md"
    write_board(results, board, verified=tmp_path / "none")
    line = "Self-reported, not ranked: `lookup`, `redraw_noise`, `redraw_trial`."
    assert line in board.read_text()
    page = (tmp_path / "leaderboard/tiny.md").read_text()
    assert "| self-reported | `lookup` |" in page
    assert f"| 1 | `{HONEST}` |" in page


def test_records_on_canaries_under_the_public_key_bear_nothing_out(results, tmp_path, provenance):
    registry = Registry([results.with_name("plugins")])
    protocol = load_protocol(str(results.with_name("tiny.yaml"))).with_canaries()
    run(protocol, PUBLIC, registry, tmp_path / "runs/open", provenance)
    assert judge(results, folders(tmp_path / "runs")) == []
