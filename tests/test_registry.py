import os
import sys

import pytest
import torch

from benchmark.contract import Attack, Defense
from benchmark.errors import PluginError
from benchmark.records import load_results
from benchmark.registry import Registry

DEFENSE = """
from dataclasses import dataclass
from benchmark.api import Defense
@dataclass(frozen=True)
class Plugin(Defense):
    pass
"""


def refusal(folder, *labels):
    """Return the one line with which a folder's attacks are refused."""

    def build():
        return [s.build() for s in Registry([folder]).select("attack", labels)]

    with pytest.raises(PluginError) as refused:
        build()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def fault(folder):
    """Return the one line on the submission of a folder that is broken."""
    ((at, said),) = Registry([folder]).broken.items()
    assert at.is_relative_to(folder)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(("kind", "base"), [("attack", Attack), ("defense", Defense)])
def test_every_submission_of_the_repository_is_found_and_built(kind, base):
    found = Registry().all(kind)
    assert {s.manifest.name for s in found} == set(Registry().names(kind))
    assert all(isinstance(submission.build(), base) for submission in found)
    assert not any(submission.outside for submission in found)


def test_finding_a_plugin_imports_nothing_of_it(plugin):
    folder = plugin("mine", source="raise RuntimeError")
    (found,) = Registry([folder]).find("attack", "mine")
    assert found.outside
    assert found.label == "mine"


def test_folder_of_a_single_submission_will_do(plugin):
    assert "mine" in Registry([plugin("mine") / "mine"]).names("attack")


def test_template_is_passed_over(plugin):
    folder = plugin("mine")
    (folder / "mine").rename(folder / "_mine")
    plugin("other")
    assert {"other"} == set(Registry([folder]).names("attack")) - set(Registry().names("attack"))


def test_name_selects_its_variants_and_arguments_or_defaults_one(plugin):
    folder = plugin("mine", "return grey(seen)", variants=[{}, {"level": 0.25}])
    registry = Registry([folder])
    assert [s.label for s in registry.find("attack", "mine")] == ["mine", "mine,level=0.25"]
    (one,) = registry.find("attack", "mine,level=0.75")
    assert (one.label, one.build().level) == ("mine,level=0.75", 0.75)
    assert [s.label for s in registry.find("attack", "mine,defaults")] == ["mine"]
    assert [s.label for s in registry.select("attack", ["mine", "mine,level=0.25"])] == [
        "mine",
        "mine,level=0.25",
    ]


def test_no_labels_select_all():
    registry = Registry()
    assert registry.select("defense", []) == registry.all("defense")


def test_kinds_have_names_of_their_own(plugin):
    folder = plugin("none", "return grey(seen)")
    assert "none" in Registry([folder]).names("attack")


def test_taken_name_is_refused_with_both_places(plugin):
    said = fault(plugin("mine", name="oracle"))
    assert "mine/submission.yaml: the attack oracle is taken by" in said
    assert "submissions/attacks/oracle" in said


def test_same_folder_twice_is_no_clash(plugin):
    folder = plugin("mine")
    assert "mine" in Registry([folder, folder]).names("attack")


def test_folder_without_submissions_is_refused(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: no submission.yaml in it or below"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"colour": "red"}, "submission.yaml: colour: Extra inputs are not permitted"),
        ({"kind": "assault"}, "submission.yaml: kind: "),
        ({"entry": "attack.py"}, "submission.yaml: entry: "),
        ({"name": "My Attack"}, "submission.yaml: name: "),
        ({"variants": [{"level": [1]}]}, "submission.yaml: variants.0.level"),
        ({"variants": [{"a\0b": 1}]}, "'mine,a\\x00b=1': wanted letters, digits and "),
        ({"variants": [{"level": "a b"}]}, "'mine,level=a b': wanted letters, digits and "),
    ],
)
def test_wrong_manifest_is_refused_by_file_and_key(plugin, manifest, said):
    assert said in fault(plugin("mine", **manifest))


def test_malformed_manifest_is_refused(plugin):
    folder = plugin("mine")
    (folder / "mine/submission.yaml").write_text("name: [")
    assert "mine/submission.yaml: malformed YAML" in fault(folder)


def test_manifest_that_is_a_pipe_is_refused(plugin):
    folder = plugin("mine")
    (folder / "mine/submission.yaml").unlink()
    os.mkfifo(folder / "mine/submission.yaml")
    assert "mine/submission.yaml: wanted a regular file" in fault(folder)


def test_broken_submission_disables_only_itself(plugin):
    folder = plugin("mine", colour="red")
    plugin("other", adaptive_to=["nonesuch"])
    plugin("third")
    registry = Registry([folder])
    assert {path.name for path in registry.broken} == {"mine", "other"}
    assert "third" in registry.names("attack")
    assert "colour: Extra inputs" in refusal(folder, "mine")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "raise RuntimeError('on import\\nand more')",
            "cannot be imported: RuntimeError: on import",
        ),
        ("def broken(:", "cannot be imported: SyntaxError: "),
        ("import nonesuch", "cannot be imported: ModuleNotFoundError: No module named 'nonesuch'"),
        ("", "wanted a class Plugin that is a Attack"),
        ("Plugin = 3", "wanted a class Plugin that is a Attack"),
        ("class Plugin: pass", "wanted a class Plugin that is a Attack"),
        (DEFENSE, "wanted a class Plugin that is a Attack"),
        ("from benchmark.api import Attack\nclass Plugin(Attack): pass", "is not a dataclass"),
        (DEFENSE.replace("Defense", "Attack"), "Can't instantiate abstract class Plugin"),
    ],
)
def test_broken_code_is_refused_with_its_file(plugin, source, said):
    message = refusal(plugin("mine", source=source), "mine")
    assert "mine/attack.py: " in message
    assert said in message


def test_missing_module_is_refused(plugin):
    assert "elsewhere.py: cannot be imported" in refusal(
        plugin("mine", entry="elsewhere:Plugin"), "mine"
    )


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("nonesuch", "no attack 'nonesuch'; known: adaptive_matching, april_closed_form,"),
        ("none", "no attack 'none'"),
        ("oracle,fast", "attack 'oracle,fast': wanted oracle,key=value"),
        ("oracle,speed=3", "attack oracle,speed=3: no argument 'speed'; there is none"),
    ],
)
def test_label_that_selects_nothing_is_refused(plugin, label, said):
    assert said in refusal(plugin("mine"), label)


def test_plugin_may_import_its_neighbour(plugin):
    source = "from .more import Plugin"
    folder = plugin("mine", source=source)
    body = "return Reconstruction(torch.full((1, 1, 8, 8), self.level))"
    text = (plugin("other", body) / "other/attack.py").read_text()
    (folder / "mine/more.py").write_text(text)
    (found,) = Registry([folder]).find("attack", "mine")
    answer = found.build().reconstruct(None)
    assert torch.equal(answer.images, torch.full((1, 1, 8, 8), 0.5))


def test_attack_names_defenses_that_there_are(plugin):
    folder = plugin("knows", adaptive_to=["sign_update"])
    assert "knows" in Registry([folder]).adaptive_to("sign_update")
    plugin("knows", adaptive_to=["nonesuch"])
    assert "adaptive_to: no defense 'nonesuch'; known: " in fault(folder)


def test_only_an_attack_is_adaptive(plugin):
    folder = plugin("knows", kind="defense", adaptive_to=["sign_update"])
    assert "adaptive_to is an attack's alone" in fault(folder)


def test_only_a_defense_has_a_strength(plugin):
    assert "strength is a defense's alone" in fault(plugin("strong", strength="level"))


def test_number_may_be_written_with_an_exponent_alone():
    (found,) = Registry().find("defense", "gaussian_noise,scale=1e-05")
    assert found.build().scale == 1e-05
    assert found.label == "gaussian_noise,scale=1e-05"


@pytest.fixture
def package(tmp_path, monkeypatch, plugin):
    """Install a tiny package with a submission, as pip would: files and metadata on the path."""

    def install(points="inverse = inverse_kit.methods"):
        site = tmp_path / "site"
        methods = site / "inverse_kit" / "methods"
        methods.mkdir(parents=True)
        (site / "inverse_kit" / "__init__.py").write_text("raise RuntimeError('imported')")
        plugin("mine", "return grey(seen)").joinpath("mine").rename(methods / "mine")
        info = site / "inverse_kit-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inverse-kit\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[gradleak.submissions]\n{points}\n")
        monkeypatch.syspath_prepend(str(site))
        return methods

    return install


def test_installed_package_is_found_by_its_entry_point_and_not_imported(package):
    folder = package()
    (found,) = Registry().find("attack", "inverse/mine")
    assert (found.label, found.folder) == ("inverse/mine", folder / "mine")
    assert found.outside
    assert "inverse_kit" not in sys.modules
    assert found.build().level == 0.5


def test_installed_package_takes_no_name_of_the_repository(package):
    folder = package("inverse = inverse_kit.methods")
    manifest = folder / "mine" / "submission.yaml"
    manifest.write_text(manifest.read_text().replace("name: mine", "name: oracle"))
    assert {"oracle", "inverse/oracle"} <= set(Registry().names("attack"))


def test_installed_package_that_is_not_there_disables_only_itself(package):
    package("inverse = elsewhere.methods")
    registry = Registry()
    assert list(registry.broken.values()) == ["inverse: its submissions cannot be found"]
    assert "oracle" in registry.names("attack")


def test_runs_of_an_installed_package_have_records_of_their_own(package, gradleak, tiny, tmp_path):
    package()
    results = tmp_path / "results"
    words = ("run", tiny(), "--attack", "inverse/mine", "--defense", "none", "--results", results)
    assert gradleak(*words).code == 0
    frame = load_results(results)
    assert set(frame["attack"]) == {"inverse/mine"}
    assert set(frame["status"]) == {"completed"}
    again = gradleak(*words)
    assert "0 due" in again.out


def test_name_with_a_slash_is_a_package_s_alone(plugin):
    assert "name: wanted no /" in fault(plugin("mine", name="numpy/mine"))
