import ast

import pytest

from benchmark import identity
from benchmark.identity import harness_fingerprint, inherited, sources
from benchmark.registry import Registry
from benchmark.versions import is_raised


def fingerprint(folder, name="mine"):
    return Registry([folder]).find("attack", name)[0].fingerprint


def test_fingerprint_follows_the_source_and_not_the_title(plugin):
    first = fingerprint(plugin("mine", "return grey(seen)"))
    assert fingerprint(plugin("mine", "return grey(seen)", title="Renamed", paper="New")) == first
    assert fingerprint(plugin("mine", "level = 1; return grey(seen)")) != first


def test_fingerprint_does_not_depend_on_where_the_folder_lies(plugin, tmp_path):
    folder = plugin("mine", "return grey(seen)")
    first = fingerprint(folder)
    assert fingerprint(folder.rename(tmp_path / "moved")) == first


def test_fingerprint_follows_a_neighbouring_file(plugin):
    folder = plugin("mine", "return grey(seen)")
    first = fingerprint(folder)
    (folder / "mine/more.py").write_text("LEVEL = 1")
    assert fingerprint(folder) != first


def test_sources_follow_the_toolbox_from_file_to_file(plugin, tmp_path):
    toolbox = tmp_path / "benchmark/toolbox"
    (toolbox / "deep").mkdir(parents=True)
    (toolbox / "near.py").write_text("from benchmark.toolbox.deep import far")
    for name in ("deep/__init__.py", "deep/far.py", "unused.py"):
        (toolbox / name).touch()
    folder = plugin("mine", source="from benchmark.toolbox import near")
    found = {path.relative_to(tmp_path).as_posix() for path in sources(folder, tmp_path)}
    wanted = {"near.py", "deep/__init__.py", "deep/far.py"}
    assert found == {f"benchmark/toolbox/{name}" for name in wanted} | {"plugins/mine/attack.py"}


def test_fingerprint_of_a_file_that_is_no_python_is_still_one(plugin):
    assert len(fingerprint(plugin("mine", source="def broken(:"))) == 16


SAID = """
import math

LEVEL = 2.0

def doubled(value):
    whole = LEVEL * value
    return [math.sqrt(whole), None]
"""


@pytest.fixture
def meaning(tmp_path):
    """Return the fingerprint of a text."""

    def read(text):
        path = tmp_path / "a.py"
        path.write_text(text)
        return identity.fingerprint([path], tmp_path)

    identity._meaning.cache_clear()
    return lambda text: (identity._meaning.cache_clear(), read(text))[1]


def test_comments_docstrings_and_formatting_leave_the_fingerprint(meaning):
    words = SAID.replace("import math\n", '"""A module."""\nimport math  # why\n')
    words = words.replace("value):\n", 'value):\n    """Twice."""\n')
    words = words.replace("LEVEL = 2.0\n", 'LEVEL = (2.0)\n"""A unit."""\n')
    assert ast.dump(ast.parse(words)) != ast.dump(ast.parse(SAID))
    assert meaning(words) == meaning(SAID)


@pytest.mark.parametrize(
    ("was", "now"), [("2.0", "2.1"), ("whole", "twice"), ("sqrt", "exp"), ("None", "0")]
)
def test_constants_and_names_move_the_fingerprint(meaning, was, now):
    assert meaning(SAID.replace(was, now)) != meaning(SAID)


def test_harness_s_fingerprint_follows_a_metric_and_no_attack(tmp_path):
    (tmp_path / "benchmark/metrics").mkdir(parents=True)
    (tmp_path / "benchmark/toolbox").mkdir()
    metric = tmp_path / "benchmark/metrics/ssim.py"
    for part in ("seeds.py", "cell.py", "toolbox/solve.py", "metrics/ssim.py"):
        (tmp_path / "benchmark" / part).write_text("A = 1")

    def read():
        harness_fingerprint.cache_clear()
        identity._meaning.cache_clear()
        return harness_fingerprint(tmp_path)

    first = read()
    (tmp_path / "benchmark/toolbox/solve.py").write_text("A = 2")
    assert read() == first
    metric.write_text("A = 2")
    assert read() != first
    harness_fingerprint.cache_clear()


def test_version_is_inherited_from_a_package_and_from_a_submission(monkeypatch, plugin):
    toolbox = identity.ROOT / "benchmark/toolbox"
    used = [toolbox / "matching/loop.py", toolbox / "labels.py"]
    assert inherited(used) == {}
    monkeypatch.setitem(identity.TOOLBOX, "matching", 3)
    monkeypatch.setitem(identity.TOOLBOX, "labels", 2)
    assert inherited(used) == {"labels": 2, "matching": 3}
    source = "from benchmark.toolbox.matching import Search\n"
    folder = plugin("mine", source=source, version=5)
    (mine,) = Registry([folder]).find("attack", "mine")
    assert mine.version.startswith("5+")
    assert "matching.3" in mine.version.split("+")


def test_every_package_of_the_toolbox_has_a_version():
    within = (identity.ROOT / "benchmark/toolbox").iterdir()
    packages = {each.stem for each in within if not each.stem.startswith("_")}
    assert packages == identity.TOOLBOX.keys()


@pytest.mark.parametrize(
    ("now", "was", "raised"),
    [
        ("1", "1", False),
        ("2", "1", True),
        ("1+noise.2", "1+noise.2", False),
        ("1+noise.3", "1+noise.2", True),
        ("1+noise.2", "1", True),  # the package was at 1, or is imported only now
        ("1", "1+noise.2", False),
        ("1+matching.2", "1+matching.2+noise.2", False),
        ("2", "1+noise.2", True),
    ],
)
def test_version_is_raised_by_itself_or_by_a_package_still_imported(now, was, raised):
    assert is_raised(now, was) is raised
