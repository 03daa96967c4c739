import pytest

from benchmark.attestations import Attestation, Attestations, Standing
from benchmark.errors import RecordError
from benchmark.records import append, read_table
from benchmark.registry import Registry
from benchmark.running.plan import file_of_cell


def attestation(old, new, part="attack", name="random"):
    return Attestation(
        part=part,
        name=name,
        version="1",
        old=old,
        new=new,
        cells=1,
        trials=2,
        largest={"psnr": 0.1},
        commit=None,
        dirty=None,
    )


def test_fingerprints_are_equal_along_a_chain_and_for_that_part_alone(tmp_path):
    attested = Attestations(tmp_path)
    attested.add(attestation("a", "b"))
    attested.add(attestation("b", "c"))
    for one in (attested, Attestations(tmp_path)):
        assert one.equal(("attack", "random"), "a", "c")
        assert one.equal(("attack", "random"), "d", "d")
        assert not one.equal(("attack", "random"), "a", "d")
        assert not one.equal(("attack", "oracle"), "a", "c")
        assert not one.equal(("defense", "random"), "a", "c")


def test_line_that_is_no_attestation_is_refused_by_its_number(tmp_path):
    Attestations(tmp_path).add(attestation("a", "b"))
    path = tmp_path / "attestations.jsonl"
    path.write_text(path.read_text() + '{"part":"attack"}\n')
    with pytest.raises(RecordError, match=r"attestations\.jsonl:2: not an attestation"):
        Attestations(tmp_path)


def test_line_that_a_kill_cut_off_is_no_attestation_and_the_next_one_replaces_it(tmp_path):
    Attestations(tmp_path).add(attestation("a", "b"))
    path = tmp_path / "attestations.jsonl"
    line = path.read_text()
    path.write_text(line + line[:20])
    attested = Attestations(tmp_path)
    assert attested.equal(("attack", "random"), "a", "b")
    attested.add(attestation("b", "c"))
    assert [len(each) for each in path.read_text().splitlines()] == [len(line) - 1] * 2


@pytest.fixture
def moved(bench, provenance, tmp_path):
    """Write two records of a cell, and one whose attack had another fingerprint."""
    cell = bench().cell("random")
    made = [cell.record(provenance, trial=trial, status="completed") for trial in range(3)]
    identity = cell.identity.model_copy(update={"attack_fingerprint": "old"})
    made[1] = made[1].model_copy(update={"identity": identity})
    append(file_of_cell(cell, tmp_path), made)
    return made


def test_record_of_a_source_that_moved_is_unverified_until_it_is_attested(moved, tmp_path):
    attested = Attestations(tmp_path)
    standing = Standing(attested, Registry(), ())
    assert standing.unverified(moved) == [moved[1]]
    assert standing.moved("random", "none", moved[1].identity) == {("attack", "random"): "old"}
    assert standing.count(read_table(tmp_path).frame)["unverified"] == {"random": 1}
    attested.add(attestation("old", moved[0].identity.attack_fingerprint))
    assert standing.unverified(moved) == []
    assert not any(standing.count(read_table(tmp_path).frame).values())


def test_submission_that_is_no_more_stands_on_nothing(moved, tmp_path):
    standing = Standing(Attestations(tmp_path), Registry(), ())
    assert standing.now(("attack", "nonesuch")) is None
    assert standing.raised("tiny", "nonesuch,a=1", "none", moved[0].identity) == []
    assert set(standing.moved("nonesuch,a=1", "none", moved[0].identity)) == {
        ("attack", "nonesuch")
    }


@pytest.mark.parametrize(
    ("field", "part"),
    [
        ("protocol_digest", ("protocol", "tiny")),
        ("attack_version", ("attack", "random")),
        ("defense_version", ("defense", "none")),
        ("harness_version", ("harness", "")),
    ],
)
def test_record_of_another_version_is_outdated_and_not_unverified(
    bench, provenance, tmp_path, field, part
):
    cell = bench().cell("random")
    of = cell.identity.model_copy(update={field: "0", "attack_fingerprint": "old"})
    record = cell.record(provenance, trial=0, status="completed")
    append(file_of_cell(cell, tmp_path), [record.model_copy(update={"identity": of})])
    standing = Standing(Attestations(tmp_path), Registry(), [cell.protocol])
    assert standing.raised("tiny", "random", "none", of) == [part]
    assert standing.raised("tiny", "random", "none", cell.identity) == []
    counted = standing.count(read_table(tmp_path).frame)
    assert counted == {"outdated": {"random": 1}, "unverified": {}}
