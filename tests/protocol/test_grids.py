import pytest

from benchmark.errors import ProtocolError
from benchmark.protocol import PROTOCOLS, protocol_files
from benchmark.protocol.grids import expand, grid_files, write

SMALL = """\
name: small
folder: text
template: |
  name: $name
  $note
  size: $size of $colour
fields: {name: "${size}_$colour", note: "", shade: dark}
axes:
  size: {large: {shade: pale}, little: {}}
  colour: {red: {}, blue: {colour: "$shade blue"}}
parts:
  - each: {size: [large, little], colour: [red]}
    exceptions:
      - {where: {size: [large]}, fields: {note: "note: seldom"}}
  - each: {size: [large], colour: [blue]}
    fields: {name: other}
"""


@pytest.fixture
def small(tmp_path):
    """Write the small grid, one of its lines changed, and return its file."""

    def write(old="", new=""):
        assert old in SMALL
        path = tmp_path / "grids/small.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(SMALL.replace(old, new, 1))
        return path

    return write


def told(path):
    """Return what protocols hold below their first line, by name."""
    return {file.stem: text.partition("\n")[2] for file, text in expand(path).items()}


@pytest.mark.parametrize("path", grid_files(), ids=lambda path: path.stem)
def test_committed_protocols_are_their_grid_s(path):
    for file, text in expand(path).items():
        assert file.read_text() == text, f"{file}: run python -m benchmark.protocol.grids"


def test_no_protocol_says_it_is_of_a_grid_that_has_it_not():
    expanded = {file for path in grid_files() for file in expand(path)}
    files = set(protocol_files().values())
    assert {file for file in files if file.read_text().startswith("# From grids/")} == expanded


def test_a_grid_is_no_protocol():
    assert not {path.stem for path in grid_files()} & set(protocol_files())
    assert len(grid_files()) == len(list(PROTOCOLS.glob("grids/*")))


def test_every_combination_of_a_part_s_values_is_filled_in(small):
    assert told(small()) == {
        "large_red": "name: large_red\nnote: seldom\nsize: large of red\n",
        "little_red": "name: little_red\nsize: little of red\n",
        "other": "name: other\nsize: large of pale blue\n",
    }


def test_a_later_axis_wins_over_an_earlier(small):
    path = small("blue: {colour:", "blue: {shade: deep, colour:")
    assert told(path)["other"].endswith("of deep blue\n")


def test_protocols_are_written_beside_the_grids_folder(small):
    folder = small().parent.parent
    (folder / "text").mkdir()
    write(folder)
    assert sorted(protocol_files(folder)) == ["large_red", "little_red", "other"]
    first = (folder / "text/other.yaml").read_text().splitlines()[0]
    assert first == "# From grids/small.yaml, by python -m benchmark.protocol.grids"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("colour: [blue]", "colour: [green]", ":15: colour has no 'green'"),
        ("colour: [blue]", "tone: [blue]", ":15: tone has no 'blue'"),
        ("where: {size: [large]}", "where: {colour: [blue]}", ":14: colour has no 'blue'"),
        ("name: other", "name: large_red", ": large_red comes out twice"),
        ("of $colour", "of $hue", ": no field 'hue'"),
        ("of $colour", "of $ ", ": Invalid placeholder"),
        ("shade: pale", "shade: $shade", ": fields that name one another in a circle"),
        ("folder: text", "folder: attic", ":2: folder: "),
        ("name: small", "name: tiny", ":1: name 'tiny' is not the file's own"),
    ],
)
def test_wrong_grid_is_refused_in_one_line(small, old, new, said):
    path = small(old, new)
    with pytest.raises(ProtocolError) as refused:
        expand(path)
    assert str(refused.value).startswith(f"{path}{said}")
    assert "\n" not in str(refused.value)
