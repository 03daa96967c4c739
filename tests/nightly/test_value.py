import pytest

from benchmark.nightly.value import by_value
from benchmark.records import append, file_of
from benchmark.registry import Registry
from benchmark.running.plan import groups


@pytest.fixture
def arranged(bench, tmp_path, provenance):
    """Return protocols and defenses in the order of a night of some seconds.

    A trial of `dear` takes 100 s, one of `cheap` 1 s and one of `middle` 10 s, three a cell.
    """
    registry = Registry()
    made = []
    for name, taken in (("dear", 100.0), ("cheap", 1.0), ("middle", 10.0)):
        one = bench(name=name)
        cell = one.cell("random", "withhold_position")
        record = cell.record(provenance, trial=0, status="completed", seconds=taken)
        append(file_of(tmp_path, name, "random"), [record])
        defenses = [registry.find("defense", d)[0] for d in ("none", "withhold_position")]
        attacks = registry.select("attack", ["random"])
        made += groups([one.protocol], defenses, attacks, None, None)

    def arrange(seconds, ranks):
        shared = {"seconds": seconds, "device": "cpu", "cores": 1}
        found = by_value(made, tmp_path, ranks, **shared)
        return [(group.protocol.name, group.defense.label) for group in found]

    return arrange


def test_what_completes_a_protocol_comes_first_and_in_it_what_is_cheapest(arranged):
    order = arranged(100.0, {})
    assert [name for name, _ in order[::2]] == ["cheap", "middle", "dear"]
    assert order[0] == ("cheap", "withhold_position")  # one of its trials is there already


def test_attacks_that_share_a_rank_come_before_those_that_are_told_apart(arranged):
    ranks = {("dear", "random"): 1, ("dear", "dlg"): 1, ("middle", "random"): 1}
    assert [name for name, _ in arranged(10.0, ranks)[::2]] == ["cheap", "dear", "middle"]
    assert [name for name, _ in arranged(10000.0, ranks)[::2]] == ["cheap", "middle", "dear"]
