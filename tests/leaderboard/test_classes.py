import pytest

from benchmark.leaderboard.classes import threat_class

HONEST, MALICIOUS = "honest_but_curious", "malicious"


@pytest.mark.parametrize(
    ("server", "grants", "algorithm", "letter"),
    [
        (HONEST, [], "fedsgd", "A"),
        (HONEST, ["batch_size", "labels"], "fedsgd", "B"),
        (HONEST, ["batch_size"], "fedavg", "C"),
        (HONEST, ["batch_size", "public_network"], "fedsgd", "D"),
        (HONEST, ["public_text"], "fedavg", "D"),
        (MALICIOUS, ["batch_size"], "fedsgd", "F"),
        (MALICIOUS, ["public_text"], "fedsgd", "G"),
    ],
)
def test_class_is_the_least_that_holds_all_that_is_granted(server, grants, algorithm, letter):
    threat = {"server": server, "grants": grants}
    assert threat_class(threat, {"algorithm": algorithm}) == letter


def test_page_names_the_class_of_its_adversary(folder):
    threat = {"server": HONEST, "grants": ["batch_size"]}
    page = folder.protocol(threat=threat).cell("mine", 20).page()
    assert "class B of Carletti et al. (2025), informed eavesdropper" in page
