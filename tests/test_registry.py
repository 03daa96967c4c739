import pytest
import torch

from benchmark.contract import Attack, Defense
from benchmark.errors import PluginError
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
    said = refusal(plugin("mine", name="oracle"))
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
    ],
)
def test_wrong_manifest_is_refused_by_file_and_key(plugin, manifest, said):
    assert said in refusal(plugin("mine", **manifest))


def test_malformed_manifest_is_refused(plugin):
    folder = plugin("mine")
    (folder / "mine/submission.yaml").write_text("name: [")
    assert "mine/submission.yaml: malformed YAML" in refusal(folder)


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
        ("oracle,speed=3", "Oracle: Oracle.__init__() got an unexpected keyword argument 'speed'"),
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
    with pytest.raises(PluginError, match="adaptive_to: no defense 'nonesuch'; known: "):
        Registry([folder])


def test_only_an_attack_is_adaptive(plugin):
    folder = plugin("knows", kind="defense", adaptive_to=["sign_update"])
    with pytest.raises(PluginError, match="adaptive_to is an attack's alone"):
        Registry([folder])


def test_number_may_be_written_with_an_exponent_alone():
    (found,) = Registry().find("defense", "gaussian_noise,scale=1e-05")
    assert found.build().scale == 1e-05
    assert found.label == "gaussian_noise,scale=1e-05"
