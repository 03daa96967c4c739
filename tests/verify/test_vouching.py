import pytest

from benchmark.attestations import Attestations, Standing
from benchmark.registry import Registry
from benchmark.verify.rerun import Compared
from benchmark.verify.sample import Stratum
from benchmark.verify.vouching import Voucher

MINE, HARNESS = ("attack", "random"), ("harness", "")


@pytest.fixture
def vouch(bench, provenance, tmp_path):
    """Return what a voucher keeps of strata, each by what moved, after each of some outcomes."""
    cell = bench().cell("random")
    record = cell.record(provenance, trial=0, status="completed")

    def kept(strata, words):
        chosen = [Stratum(cell, (record,), (0,), moved, 0.0) for moved in strata]
        attested = Attestations(tmp_path)
        standing = Standing(attested, Registry(), ())
        voucher = Voucher(chosen, attested, standing, provenance)
        after = []
        for stratum, word in zip(chosen, words, strict=False):
            voucher.take(Compared(stratum, word, {"psnr": 0.1}))
            path = attested.path
            after.append(len(path.read_text().splitlines()) if path.is_file() else 0)
        known = Attestations(tmp_path)
        now = {part: standing.now(part).fingerprint for part in (MINE, HARNESS)}
        return after, {part: known.equal(part, "old", now[part]) for part in now}

    return kept


def test_fingerprint_is_attested_when_its_last_cell_has_agreed_whatever_is_left(vouch):
    both = {MINE: "old", HARNESS: "old"}
    after, equal = vouch([both, both, {HARNESS: "old"}], ["equal", "within tolerance"])
    assert after == [0, 1]
    assert equal == {MINE: True, HARNESS: False}


def test_one_cell_that_differs_keeps_its_fingerprints_unattested(vouch):
    both = {MINE: "old", HARNESS: "old"}
    after, equal = vouch([both, both, {MINE: "old"}], ["equal", "differs", "equal"])
    assert after == [0, 0, 0]
    assert equal == {MINE: False, HARNESS: False}


def test_cell_that_could_not_run_says_nothing_for_or_against(vouch):
    moved = {MINE: "old"}
    assert vouch([moved], ["no time left"]) == ([0], {MINE: False, HARNESS: False})
    after, equal = vouch([moved, moved], ["equal", "unavailable"])
    assert after == [0, 1]
    assert equal == {MINE: True, HARNESS: False}


def test_two_old_fingerprints_of_a_part_are_told_apart(vouch):
    after, equal = vouch([{MINE: "older"}, {MINE: "old"}], ["equal", "differs"])
    assert after == [1, 1]
    assert equal == {MINE: False, HARNESS: False}
