"""Names, manifests and folders that should not become paths, pages or promises."""

import os
import time

import pytest

from benchmark.errors import PluginError
from benchmark.registry import Registry, Submission
from benchmark.running import wall
from benchmark.running.sandbox import Sandbox

ODD = ["../x", "a/b", "<b>x</b>", "a\0b", "a\nb", "\ud800", "x" * 151, "", ".hidden", "‮evil"]


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_odd_name_is_refused(plugin, name):
    folder = plugin("good")
    manifest = folder / "good/submission.yaml"
    quoted = "".join(f"\\u{ord(each):04x}" for each in name)
    manifest.write_text(f'name: "{quoted}"\nkind: attack\nentry: attack:Plugin\ntitle: t\n')
    registry = Registry([folder])  # which goes on without it
    try:
        assert not [each for each in registry.all("attack") if each.outside]
        (said,) = registry.broken.values()
    except PluginError as error:
        said = str(error)
    assert "submission.yaml" in said or "wanted letters" in said
    assert "\n" not in said


@pytest.mark.parametrize("value", ODD[:-3] + ODD[-1:], ids=range(len(ODD) - 2))
def test_odd_variant_disables_itself_alone(plugin, value):
    registry = Registry([plugin("good", variants=[{"level": value}])])
    assert not [each for each in registry.all("attack") if each.outside]
    (said,) = registry.broken.values()
    assert "wanted letters, digits" in said
    assert "\n" not in said


@pytest.mark.parametrize("label", ["good,level=../../x", "good,level=<b>", "good,level=a/b"])
def test_odd_label_of_a_user_is_refused(plugin, label):
    with pytest.raises(PluginError, match="wanted letters, digits"):
        Registry([plugin("good")]).find("attack", label)


def test_control_from_outside_is_refused(plugin):
    registry = Registry([plugin("cheat", control=True, grants=["truth"])])
    (said,) = registry.broken.values()
    assert "a yardstick is the repository's own" in said
    assert "cheat" not in registry.names("attack")


def test_every_file_of_a_plugin_is_in_its_digest_and_a_pipe_is_not_waited_for(plugin):
    folder = plugin("good") / "good"

    def digest():
        (found,) = Registry([folder.parent]).find("attack", "good")
        return Submission(found.manifest, folder).fingerprint

    plain = digest()
    (folder / "table.bin").write_bytes(b"1")
    with_table = digest()
    (folder / "table.bin").write_bytes(b"2")
    assert len({plain, with_table, digest()}) == 3
    os.mkfifo(folder / "pipe.py")
    (folder / "deep.py").write_text("(" * 10_000)
    began = time.monotonic()
    digest()
    assert time.monotonic() - began < 5


def test_folder_that_holds_the_harness_is_refused(plugin, monkeypatch, tmp_path):
    (found,) = Registry([plugin("good")]).find("attack", "good")
    monkeypatch.setattr(wall, "ROOT", found.folder / "checkout")
    with pytest.raises(PluginError, match="wanted a folder of its own"):
        wall.walled(["true"], found, [tmp_path], user=0, gpu=False)


def test_without_bubblewrap_outside_code_is_refused_with_what_installs_it(
    gradleak, plugin, tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(wall, "trouble", wall_is_missing)
    monkeypatch.setattr("benchmark.running.sandbox.trouble", wall_is_missing)
    folder, results = plugin("mine", "return grey(seen)"), tmp_path / "results"
    words = ("run", tiny(), "--plugins", folder, "--results", results, "--attack", "mine")
    ended = gradleak(*words)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "attack mine comes from outside" in ended.err
    assert "apt install bubblewrap; or trust it by --trust-plugins" in ended.err


def wall_is_missing():
    return "bubblewrap is not installed; get it by: apt install bubblewrap"


def test_defense_from_outside_is_imported_behind_the_wall_alone(
    gradleak, plugin, tiny, tmp_path, monkeypatch
):
    monkeypatch.delenv("HARNESS", raising=False)
    source = "import os; os.environ['HARNESS'] = 'here'; raise SystemExit('imported')"
    folder = plugin("odd", source=source, kind="defense")
    words = ("run", tiny(), "--plugins", folder, "--results", tmp_path / "r", "--defense", "odd")
    ended = gradleak(*words)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "SystemExit: imported" in ended.err
    assert "HARNESS" not in os.environ
    monkeypatch.setattr(wall, "trouble", wall_is_missing)
    assert "defense odd comes from outside: bubblewrap is not installed" in gradleak(*words).err


def test_a_sandbox_says_which_wall_it_has(torch_cpu):
    with Sandbox(torch_cpu, trust=True) as trusting:
        assert trusting.wall == "absent"


@pytest.fixture
def torch_cpu():
    import torch

    return torch.device("cpu")
