"""The direction of imports: a file imports from smaller numbers, or from its own folder."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LAYERS = (
    ("errors", "git", "lazy", "seeds", "versions"),
    ("contract", "documents", "identity", "options"),
    ("metrics", "data", "manifest", "victims"),
    ("toolbox", "protocol", "registry", "federation", "records"),
    (
        "api",
        "stats",
        "listing",
        "tracks",
        "attestations",
        "exporting",
        "tunings",
        "prices",
        "flower",
        "outputs",
    ),
    ("worker",),
    ("cell", "published"),
    ("running", "leaderboard"),
    ("verify", "picturing", "history", "utility", "conformance", "scaffold", "comparing"),
    ("reproduction", "merging"),
    ("nightly",),
    ("commands",),
    ("cli",),
)
NUMBER = {name: number for number, names in enumerate(LAYERS) for name in names}
NAMED = {  # what the board must know: the floor of every score, and the column undefended
    ("stats.py", "prior_only"),
    ("commands/telling.py", "none"),
    ("running/tune.py", "none"),
    ("running/scores.py", "none"),
    ("conformance/fitting.py", "none"),
    ("leaderboard/section.py", "none"),
    ("leaderboard/picture.py", "none"),  # matplotlib's, of fonts and of faces
    ("leaderboard/studies.py", "none"),
}


def sources(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    return files


@cache
def statements(path, *, typing=True):
    """Return every node of a file; for type checking too, if wanted."""
    body = ast.parse(path.read_text()).body
    chosen = [each for each in body if typing or not isinstance(each, ast.If)]
    return [node for each in chosen for node in ast.walk(each)]


def imports(path, *, typing=True):
    """Return the modules a file imports anywhere in it; for type checking too, if wanted."""
    for node in statements(path, typing=typing):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(path):
    return path.relative_to(ROOT / "benchmark").parts[0].removesuffix(".py")


def test_every_part_of_the_benchmark_has_a_layer():
    parts = {part(path) for path in sources("benchmark")} - {"__init__"}
    assert parts <= set(NUMBER)


def test_imports_go_to_smaller_numbers():
    upward = set()
    for path in sources("benchmark"):
        for module in imports(path):
            package, _, rest = module.partition(".")
            other = rest.split(".")[0]
            if package == "benchmark" and other != part(path):
                assert other in NUMBER, f"{path}: imports {module}"
                if NUMBER[other] >= NUMBER[part(path)]:
                    upward.add(f"{part(path)} imports {other}")
    assert not upward


def module(path):
    """Return the name by which a file is imported."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_file_imports_itself_by_way_of_others():
    files = {
        module(path): path for folder in ("benchmark", "submissions") for path in sources(folder)
    }
    graph = {
        name: {
            next(m for m in (found, found.rpartition(".")[0]) if m in files)
            for found in imports(path, typing=False)
            if found in files or found.rpartition(".")[0] in files
        }
        - {name, name.rpartition(".")[0]}  # a package's own words come from its files
        for name, path in files.items()
    }
    TopologicalSorter(graph).prepare()  # a CycleError names the files


def test_the_benchmark_imports_no_submission():
    for path in sources("benchmark"):
        assert not [name for name in imports(path) if name.split(".")[0] == "submissions"], path


def test_submissions_import_only_the_api_the_toolbox_and_one_another():
    allowed = ("benchmark.api.", "benchmark.toolbox.")
    for path in sources("submissions"):
        ours = [name for name in imports(path) if name.split(".")[0] == "benchmark"]
        assert not [name for name in ours if not name.startswith(allowed)], path


@pytest.mark.parametrize("kind", ["attack", "defense"])
def test_the_benchmark_names_no_submission_but_where_the_board_needs_it(kind):
    manifests = [yaml.safe_load(p.read_text()) for p in ROOT.glob("submissions/*/*/*.yaml")]
    names = {each["name"] for each in manifests if each["kind"] == kind}
    names -= {"random", "dropout"}  # also how weights may start, and what networks do
    assert names
    for path in sources("benchmark"):
        constants = {
            node.value
            for node in statements(path)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        where = path.relative_to(ROOT / "benchmark").as_posix()
        assert {(where, name) for name in names & constants} <= NAMED
