from itertools import chain, combinations

import pytest
import torch
from torch import nn

from benchmark.contract import (
    CONTROL_GRANTS,
    Budget,
    DataStatistics,
    Grant,
    ImageBatch,
    ThreatModel,
    Update,
    observe,
)
from benchmark.errors import ProtocolError

OPEN = sorted(set(Grant) - CONTROL_GRANTS)
SUBSETS = list(chain.from_iterable(combinations(OPEN, n) for n in range(len(OPEN) + 1)))
FACTS = {
    "batch_size": 3,
    "labels": torch.tensor([1, 2, 3]),
    "data_statistics": DataStatistics(torch.zeros(1, 2, 2), torch.zeros(1), torch.ones(1)),
    "public_network": nn.Linear(1, 1),
    "public_images": ImageBatch(torch.zeros(2, 1, 2, 2), torch.tensor([4, 5])),
    "trained_inverter": nn.Linear(1, 1),
    "pixel_levels": 256,
    "length": 5,
    "public_text": torch.tensor([[1, 2, 3]]),
    "client_keys": {"matrix": torch.eye(2), "order": torch.tensor([0, 2, 1])},
}


def seen_under(grants, **more):
    return observe(
        ThreatModel(grants=frozenset(grants)),
        update=Update({"a": torch.ones(1)}),
        model=nn.Linear(1, 1),
        budget=Budget(1, 1),
        generator=torch.Generator(),
        defense={"name": "none"},
        facts={Grant(name): fact for name, fact in FACTS.items()},
        **more,
    )


def assert_equal(found, wanted):
    if isinstance(wanted, (DataStatistics, ImageBatch)):
        found, wanted = vars(found), vars(wanted)
    if isinstance(wanted, nn.Module):
        assert found is wanted
        return
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("grants", SUBSETS, ids=lambda grants: "+".join(grants) or "nothing")
def test_door_lets_through_what_is_granted_and_nothing_else(grants):
    known = seen_under(grants).knowledge
    for grant in Grant:
        found = getattr(known, grant.value)
        if grant in grants:
            assert_equal(found, FACTS[grant.value])
        else:
            assert found is None


def test_granted_facts_are_copies_that_an_attack_may_write_to():
    known = seen_under(OPEN).knowledge
    for tensor in (
        known.labels,
        known.public_text,
        *known.client_keys.values(),
        *vars(known.data_statistics).values(),
    ):
        tensor.add_(1)
    assert FACTS["public_text"].tolist() == [[1, 2, 3]]
    assert FACTS["labels"].tolist() == [1, 2, 3]
    assert FACTS["client_keys"]["order"].tolist() == [0, 2, 1]
    assert all(tensor.max() <= 1 for tensor in vars(FACTS["data_statistics"]).values())


def test_defense_is_always_described_by_a_copy():
    said = {"name": "none"}
    known = seen_under([]).knowledge
    said["name"] = "other"
    assert known.defense == {"name": "none"}


@pytest.mark.parametrize("grant", sorted(CONTROL_GRANTS))
def test_no_threat_model_grants_what_is_for_controls(grant):
    with pytest.raises(ProtocolError, match=f"cannot grant {grant.value}$"):
        ThreatModel(grants=frozenset({grant, Grant.LABELS}))


def test_control_is_given_its_facts_apart():
    truth = torch.ones(3, 1, 2, 2)
    known = seen_under([], control={Grant.TRUTH: truth}).knowledge
    assert known.truth is truth
    assert known.other_update is None
    assert known.labels is None


def test_what_is_known_ahead_is_what_is_granted_of_the_facts_there_are():
    threat = ThreatModel("malicious", frozenset({Grant.BATCH_SIZE, Grant.LABELS}))
    known = threat.known({Grant.BATCH_SIZE: 3, Grant.LENGTH: 5}, {"name": "none"})
    assert (known.batch_size, known.length, known.labels) == (3, None, None)
    assert str(threat) == "malicious server, granted batch_size, labels"


def test_threat_model_is_said_in_words():
    assert str(ThreatModel()) == "honest-but-curious server, granted nothing"
    granted = ThreatModel(grants=frozenset({Grant.LABELS, Grant.BATCH_SIZE}))
    assert str(granted).endswith("granted batch_size, labels")
