import json
import os
from pathlib import Path

import pytest
import yaml

from benchmark.errors import ProtocolError
from benchmark.protocol import (
    SuitePart,
    load_protocol,
    load_suite,
    protocol_files,
    protocols_of,
    suite_files,
)
from benchmark.protocol import files as module
from benchmark.registry import Registry

FROZEN = sorted(Path(__file__).parents[1].glob("results/*/protocol.json"))


def load(path, **changes):
    """Load the tiny protocol with keys changed, None being a key left out."""
    content = yaml.safe_load(path.read_text()) | changes
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, sort_keys=False))
    return load_protocol(str(path))


def refusal(path, text):
    path.write_text(text)
    with pytest.raises(ProtocolError) as refused:
        load_protocol(str(path))
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", protocol_files())
def test_shipped_protocol_loads(name):
    assert load_protocol(name).name == name


@pytest.mark.parametrize("name", suite_files())
def test_shipped_suite_holds_protocols(name):
    assert set(protocols_of(name)) <= set(protocol_files())


@pytest.mark.parametrize("name", suite_files())
def test_shipped_suite_keeps_to_registered_submissions(name):
    registry = Registry()
    for part in load_suite(name):
        assert all(registry.find("attack", attack) for attack in part.attacks)
        assert all(registry.find("defense", defense) for defense in part.defenses)


def test_protocol_by_itself_chooses_no_submissions():
    (part,) = load_suite("quick_digits_a")
    assert (part.attacks, part.defenses, part.trials) == ((), (), None)


def test_suite_of_suites_keeps_the_choices_of_each(tmp_path, monkeypatch):
    (tmp_path / "suites").mkdir()
    texts = {
        "one": "{name: one, title: One, protocols: [quick_digits_a], attacks: [oracle], trials: 2}",
        "all": "{name: all, title: All, protocols: [quick_faces_b], suites: [one]}",
        "self": "{name: self, title: In itself, suites: [self]}",
    }
    files = {name: tmp_path / f"suites/{name}.yaml" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    monkeypatch.setattr(module, "suite_files", lambda: files)
    own, inner = load_suite("all")
    assert (own.protocols[0].name, own.attacks, own.trials) == ("quick_faces_b", (), None)
    assert (inner.protocols[0].name, inner.attacks, inner.trials) == (
        "quick_digits_a",
        ("oracle",),
        2,
    )
    with pytest.raises(ProtocolError, match="the suite self is within itself"):
        load_suite("self")


def test_suite_of_one_is_a_protocol_by_name_or_path(tiny):
    assert load_suite(str(tiny())) == [SuitePart((load_protocol(str(tiny())),))]
    assert load_suite("quick_digits_a") == [SuitePart((load_protocol("quick_digits_a"),))]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("colour: red", "{line}: unknown key 'colour'"),
        ("data: {name: digits, size: 8, pixels: 9}", "{line}: unknown key 'data.pixels'"),
        ("budget: {seconds: 1}", "{line}: the key 'budget.memory_mib' is missing"),
        ("budget: {seconds: 0, memory_mib: 1}", "{line}: budget.seconds: "),
        ("trials: many", "{line}: trials: "),
        ("seeds: []", "{line}: seeds: "),
        (
            "budget: {seconds: 1, memory_mib: 1, gradient_evaluations: -1}",
            "{line}: budget.gradient_evaluations: ",
        ),
        (
            "threat: {grants: [public_network]}",
            "{path}: public_network is granted; wanted the key public_network too",
        ),
        (
            "public_network: {architecture: april_b}",
            "{path}: public_network is described; wanted it among threat.grants too",
        ),
        (
            "threat: {grants: [trained_inverter]}",
            "{path}: trained_inverter is granted; wanted the key inverter too",
        ),
        (
            "inverter: {hidden: 3000}",
            "{path}: inverter is described; wanted trained_inverter granted too",
        ),
        ("threat: {grants: [truth]}", "{path}: a protocol cannot grant truth"),
        ("threat: {grants: [labels, weather]}", "{line}: threat.grants.1: "),
        ("data: {name: cats, size: 8}", "{path}: no data set 'cats'"),
        ("metrics: [psnr, beauty]", "{path}: metric 'beauty' is unknown; known: psnr,"),
        ("primary: ssim", "the primary metric ssim is not among the metrics"),
        ("seeds: [1, 2, 1]", "a seed stands twice"),
        ("federation: {algorithm: fedavg}", "fedavg wants local_rate, and local_steps or epochs"),
        ("federation: {local_steps: 2}", "local_steps is of fedavg; the algorithm is fedsgd"),
        (
            "federation: {algorithm: fedavg, local_steps: 0, local_rate: 0.1}",
            "{line}: federation.local_steps: ",
        ),
        (
            "federation: {algorithm: fedavg, epochs: 1, local_batch: 2, local_rate: 0.1}",
            "local_batch 2 of a batch of 1; wanted no more",
        ),
        ("federation: {secure_aggregation: true}", "secure_aggregation of one user; wanted users"),
        ("federation: {users: 0}", "{line}: federation.users: "),
        ("name: other", "{line}: name 'other' is not the file's own"),
        ("name: Tiny Protocol", "{line}: name: "),
    ],
)
def test_wrong_setting_is_refused_with_file_and_line(tiny, line, said):
    path = tiny()
    key = line.split(":")[0]
    content = yaml.safe_load(path.read_text())
    content.pop(key, None)
    lines = [*yaml.safe_dump(content, sort_keys=False).splitlines(), line]
    message = refusal(path, "\n".join(lines))
    assert said.format(path=path, line=f"{path}:{len(lines)}") in message


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ProtocolError, match=r"pipe\.yaml: wanted a regular file"):
        load_protocol(str(tmp_path / "pipe.yaml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: tiny\ntitle: [1, 2\n", ":3: malformed YAML: "),
        ("name: tiny\n\ttitle: a\n", ":2: malformed YAML: "),
        ("name: tiny\ntitle: a\nname: tiny\n", ":3: the key 'name' stands twice"),
        ("name: tiny\ndata:\n  size: 4\n  size: 8\n", ":4: the key 'size' stands twice"),
        ("- name\n", ":1: wanted a mapping of keys, got list"),
        ("", ":1: wanted a mapping of keys, got NoneType"),
        ("a: 1\n---\nb: 2\n", ":2: malformed YAML: "),
        ("a: 1\nb: " + "[" * 200_000, ":2: nested deeper than 50 levels"),
        (BOMB, ": more than 10000 values, its aliases written out"),
        ("a: 1\n" * 300_000, ": 1500000 bytes; wanted 1048576 at most"),
        ("title: 2026-13-45\n", ": malformed YAML: month must be in 1..12"),
        (f"version: {'9' * 6000}\n", ": malformed YAML: Exceeds the limit"),
    ],
    ids=lambda text: text[:20],
)
def test_malformed_file_is_refused_with_its_line(tiny, text, said):
    path = tiny()
    assert f"{path}{said}" in refusal(path, text)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ProtocolError, match=r"none\.yaml: cannot be read: No such file"):
        load_protocol(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("load", "wanted"), [(load_protocol, "protocol"), (load_suite, "suite or protocol")]
)
def test_unknown_name_is_refused_with_those_there_are(load, wanted):
    with pytest.raises(ProtocolError, match=f"no {wanted} 'nonesuch'; known: .*quick_digits_a"):
        load("nonesuch")


def test_suite_naming_no_protocol_is_refused(tmp_path, monkeypatch):
    (tmp_path / "suites").mkdir()
    text = "name: bad\ntitle: Bad\nprotocols: [nonesuch]\n"
    (tmp_path / "suites/bad.yaml").write_text(text)
    monkeypatch.setattr(module, "suite_files", lambda: {"bad": tmp_path / "suites/bad.yaml"})
    with pytest.raises(ProtocolError, match="no protocol 'nonesuch'"):
        load_suite("bad")


def test_two_files_of_one_name_are_refused(tmp_path):
    for folder in ("vision", "text"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.yaml").touch()
    with pytest.raises(ProtocolError, match=r"the name same is taken by .*same\.yaml"):
        protocol_files(tmp_path)


def test_title_and_description_leave_the_digest(tiny):
    digest = load_protocol(str(tiny())).digest
    assert load(tiny(), title="Other", description="Other.").digest == digest


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"data": {"name": "faces", "size": 8}},
        {"data": {"name": "digits", "size": 16}},
        {"victim": {"architecture": "april_a", "width": 32, "depth": 1, "patch": 4}},
        {"victim": {"architecture": "april_b", "width": 32, "depth": 2, "patch": 4}},
        {"federation": {"batch_size": 2}},
        {"threat": {"grants": ["batch_size"]}},
        {"trials": 4},
        {"seeds": [1]},
        {"budget": {"seconds": 6, "memory_mib": 256}},
        {"budget": {"seconds": 30, "memory_mib": 257}},
        {"budget": {"seconds": 30, "memory_mib": 256, "gradient_evaluations": 1}},
        {"threat": {"grants": ["public_network"]}, "public_network": {"architecture": "april_b"}},
        {"metrics": ["mse", "psnr"]},
        {"primary": "mse"},
    ],
    ids=str,
)
def test_every_other_setting_changes_the_digest(tiny, change):
    digest = load_protocol(str(tiny())).digest
    assert load(tiny(), **change).digest != digest


def test_defaults_said_aloud_leave_the_digest(tiny):
    digest = load_protocol(str(tiny())).digest
    assert load(tiny(), federation={"batch_size": 1}, primary="psnr").digest == digest
    budget = {"seconds": 30, "memory_mib": 256, "gradient_evaluations": 0}
    assert load(tiny(), budget=budget).digest == digest


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.parent.name)
def test_protocol_of_committed_records_keeps_its_digest(path):
    assert load_protocol(path.parent.name).digest == json.loads(path.read_text())["digest"]


def test_public_network_s_own_settings_change_the_digest(tiny):
    granted = {"threat": {"grants": ["public_network"]}}
    first, second = (
        load(tiny(), **granted, public_network={"architecture": name})
        for name in ("april_a", "april_b")
    )
    assert first.digest != second.digest


def test_protocol_that_names_no_metrics_measures_images(tiny):
    assert "label_accuracy" not in load(tiny(), metrics=None).metrics
    named = load(tiny(), metrics=["psnr", "label_accuracy"])
    assert named.metrics == ("psnr", "label_accuracy")


def test_granted_gradients_reach_the_budget(tiny):
    budget = {"seconds": 30, "memory_mib": 256, "gradient_evaluations": 800}
    assert load(tiny(), budget=budget).budget.budget().gradient_evaluations == 800
    assert load(tiny(), budget=budget | {"gradient_evaluations": 0}).budget.budget() == (
        load_protocol(str(tiny())).budget.budget()
    )


def test_frozen_protocol_is_plain_data_with_the_digest(tiny):
    protocol = load_protocol(str(tiny()))
    frozen = protocol.frozen()
    assert frozen.pop("digest") == protocol.digest
    assert load(tiny(), **frozen) == protocol


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"title: caf\xe9\n", "malformed YAML"),
        (b"title: 2024-13-45\n", "malformed YAML"),
        (b"a: &x [*x]\n", "malformed YAML"),
    ],
)
def test_file_that_no_loader_reads_is_malformed(tmp_path, content, said):
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    with pytest.raises(ProtocolError) as refused:
        load_protocol(str(path))
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("said", "steps", "each"),
    [
        ({"local_steps": 5}, 5, 6),
        ({"epochs": 2}, 2, 6),
        ({"epochs": 2, "local_batch": 4}, 4, 4),
    ],
)
def test_epochs_are_as_many_steps_as_their_batches(tiny, said, steps, each):
    settings = {"algorithm": "fedavg", "batch_size": 6, "local_rate": 0.1, **said}
    local = load_protocol(str(tiny(federation=settings))).federation.local()
    assert (local.steps, local.batch_size, local.rate) == (steps, each, 0.1)
