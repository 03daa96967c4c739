import pytest
import yaml

from benchmark.data.catalogue import CATALOGUE
from benchmark.errors import BenchmarkError
from benchmark.listing import listing, shown
from benchmark.metrics import METRICS
from benchmark.protocol import load_protocol, protocol_files
from benchmark.registry import Registry

NAMES = {
    "attacks": [s.label for s in Registry().all("attack")],
    "defenses": [s.label for s in Registry().all("defense")],
    "protocols": list(protocol_files()),
    "data": list(CATALOGUE),
    "metrics": list(METRICS),
}


@pytest.mark.parametrize("kind", NAMES)
def test_list_has_a_row_for_each(kind):
    rows = listing(kind, ()).splitlines()[2:]
    assert [row.split()[0] for row in rows] == NAMES[kind]


@pytest.mark.parametrize("kind", NAMES)
def test_list_fits_a_width_and_keeps_its_names(kind):
    lines = listing(kind, (), 100).splitlines()
    assert [row.split()[0] for row in lines[2:]] == NAMES[kind]
    assert max(map(len, lines)) <= 100
    assert any("…" in line for line in lines) == (listing(kind, ()) != listing(kind, (), 100))


def test_list_and_show_know_plugins(plugin):
    folder = plugin("mine", "return grey(seen)", title="My own", variants=[{"level": 0.25}])
    rows = [row.split()[:3] for row in listing("attacks", (folder,)).splitlines()]
    assert ["mine,level=0.25", "My", "own"] in rows
    entry = yaml.safe_load(shown("mine", (folder,)))
    assert entry["arguments"] == {"level": 0.25}
    assert shown("mine,defaults", (folder,)).count("level: 0.5") == 1
    plugin("other", colour="red")
    assert "broken: " in listing("attacks", (folder,)).splitlines()[-1]
    assert "broken: " not in listing("attacks", ())
    assert entry["folder"] == str(folder / "mine")
    assert entry["fingerprint"] == Registry([folder]).find("attack", "mine")[0].fingerprint


def test_protocol_is_shown_whole():
    entry = yaml.safe_load(shown("quick_digits_a", ()))
    assert entry.pop("kind") == "protocol"
    assert entry == load_protocol("quick_digits_a").frozen()


def test_suite_is_shown_with_its_protocols():
    assert "quick_digits_a" in yaml.safe_load(shown("quick", ()))["protocols"]


@pytest.mark.parametrize("name", ["mnist", "psnr"])
def test_data_and_metrics_are_shown(name):
    entry = yaml.safe_load(shown(name, ()))
    assert entry["name"] == name
    assert len(entry["description"]) > 10


def test_all_that_share_a_name_are_shown(plugin):
    both = plugin("psnr", "return grey(seen)")
    assert [e["kind"] for e in yaml.safe_load_all(shown("psnr", (both,)))] == ["attack", "metric"]


def test_variants_are_shown_each():
    entries = list(yaml.safe_load_all(shown("gaussian_noise", ())))
    assert len(entries) == len(Registry().find("defense", "gaussian_noise"))


@pytest.mark.parametrize("ask", [listing, shown])
def test_unknown_name_is_refused(ask):
    with pytest.raises(BenchmarkError, match="nonesuch"):
        ask("nonesuch", ())
