"""`gradleak verified`, through the wall and the command line."""

import pytest
import torch

from benchmark.identity import ROOT
from benchmark.records import read_table
from benchmark.running.wall import trouble
from benchmark.seeds import Key

REDRAWS = """
import torch
from dataclasses import dataclass
from benchmark.api import Attack, Reconstruction
from benchmark.seeds import derive_seed

@dataclass(frozen=True)
class Plugin(Attack):
    def reconstruct(self, seen):
        side, drawn = seen.model.spec.size, seen.generator.initial_seed()
        names = (0, "tiny", "attack", "redraws", "none")
        known = drawn in {derive_seed(*names, trial) for trial in range(12)}
        level = 0.3 if known else 1.0
        return Reconstruction(torch.full((1, 1, side, side), level))
"""


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"sixteen bytes 16")
    return path


def test_key_within_the_repository_is_refused_in_one_line(gradleak, tiny):
    ended = gradleak("verified", tiny(), "--key", ROOT / "README.md")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "lies in the repository; wanted a file outside of it" in ended.err


def test_plan_tells_the_digits_to_publish_and_writes_nothing(gradleak, tiny, tmp_path, key):
    words = ("verified", tiny(), "--key", key, "--defense", "none", "--attack", "random", "--plan")
    ended = gradleak(*words)
    assert ended.code == 0
    digest = Key(key.read_bytes()).digest
    said = f"key {digest}: publish these digits before the run, and the key after it\n"
    assert ended.out.startswith(said)
    assert not list(tmp_path.glob("own-results*"))


def test_honest_attack_is_borne_out_and_its_records_lie_by_key_and_can_be_made_again(
    gradleak, tiny, tmp_path, key
):
    protocol = tiny(trials=10)
    asked = (protocol, "--defense", "none", "--attack", "position_closed_form,defaults")
    assert gradleak("run", *asked, "--attack", "prior_only").code == 0
    ended = gradleak("verified", *asked, "--key", key)
    assert ended.code == 0
    assert "verified\n" in ended.out
    (folder,) = (tmp_path / "own-results-verified").iterdir()
    frame = read_table(folder).frame
    assert set(frame["key"]) == {folder.name}
    assert set(frame["attack"]) == {"position_closed_form", "prior_only"}
    public = read_table(tmp_path / "own-results").frame
    assert not set(frame["psnr"]) & set(public["psnr"])
    words = ("verify", protocol, "--results", folder, "--key", key)
    assert "2 cells came out the same, 0 did not" in gradleak(*words).out
    again = gradleak("verified", *asked, "--key", key)
    assert "nothing is due" in again.out
    assert again.code == 0


@pytest.mark.slow
def test_two_processes_record_the_bits_of_one(gradleak, tiny, tmp_path, key, numbers):
    asked = (tiny(), "--attack", "position_closed_form,defaults", "--attack", "random")
    asked = (*asked, "--defense", "none", "--defense", "gaussian_noise,scale=0.1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as each of two has on two cores
    try:
        assert gradleak("run", *asked, "--attack", "prior_only").code == 0
        made = []
        for jobs in (2, 1):
            folder = tmp_path / "own-results-verified"
            assert gradleak("verified", *asked, "--key", key, "--jobs", jobs).code == 0
            (records,) = folder.iterdir()
            made.append(numbers(records))
            folder.rename(tmp_path / f"by {jobs}")
    finally:
        torch.set_num_threads(threads)
    assert len(made[0]) == 18
    assert made[0] == made[1]


def test_public_records_are_wanted(gradleak, tiny, tmp_path, key):
    asked = ("--defense", "none", "--attack", "position_closed_form,defaults", "--key", key)
    ended = gradleak("verified", tiny(), *asked)
    assert ended.code == 2
    assert "no public records to hold against; make some by gradleak run" in ended.err


@pytest.mark.slow
@pytest.mark.skipif(trouble() is not None, reason="no wall here")
def test_attack_from_outside_that_knows_public_seeds_is_flagged_through_the_wall(
    gradleak, tiny, tmp_path, plugin, key
):
    asked = (tiny(trials=12), "--defense", "none", "--attack", "redraws")
    asked = (*asked, "--plugins", plugin("redraws", source=REDRAWS))
    assert gradleak("run", *asked, "--attack", "prior_only").code == 0
    ended = gradleak("verified", *asked, "--key", key)
    assert "flagged" in ended.out
    assert ended.code == 3
