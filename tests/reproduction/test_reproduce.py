import re

import pytest

from benchmark.published import published
from benchmark.published.verdicts import Kind

WIDEST = 1280  # pixels of a table
LETTER, PADDING = 7.5, 27  # pixels of a character and of a cell's sides, as GitHub draws them


@pytest.fixture
def reproduce(gradleak, tmp_path):
    """Run the command on an empty results folder of its own."""

    def run(*words):
        target = ["--results", tmp_path / "results", "--output", tmp_path / "page.md"]
        return gradleak("reproduce", *words, *target)

    return run


def tables(text):
    """Return the tables of a page as rows of cells."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[row.strip("| ").split(" | ") for row in block.splitlines()] for block in blocks]


def least_width(table):
    """Return the pixels of a table whose every line is broken where it may be."""
    words = [[re.split(r"[ -]|<br>", shown(cell)) for cell in row] for row in table]
    longest = [max(len(word) for row in words for word in row[i]) for i in range(len(table[0]))]
    return sum(LETTER * length + PADDING for length in longest)


def shown(cell):
    return re.sub(r"\]\[\w+\]|[\[*`]", "", cell)


def test_table_is_run_judged_and_written_and_not_run_again(reproduce, tmp_path):
    ended = reproduce("encrypted-vit-figure-3")
    assert ended.code == 0
    assert "12 records written" in ended.out
    lines = [line.rstrip() for line in ended.out.splitlines()]
    told = [line.endswith("not reproduced") for line in lines if line.endswith(" reproduced")]
    assert told == [False, False, True]
    page = (tmp_path / "page.md").read_bytes()
    section = page.decode().partition("### encrypted-vit-figure-3")[2]
    section = section.partition("###")[0]
    assert (section.count("| reproduced |"), section.count("| not reproduced |")) == (2, 1)
    again = reproduce("encrypted-vit-figure-3")
    assert "records written" not in again.out
    assert (tmp_path / "page.md").read_bytes() == page


def test_plan_says_what_is_due_and_writes_nothing(reproduce, tmp_path):
    ended = reproduce("encrypted_vit", "--plan")
    assert ended.code == 0
    assert "3 cells due with 36 trials" in ended.out
    assert "digits_small_b: 2 defenses, 20 trainings due" in ended.out
    assert not list(tmp_path.iterdir())


def test_page_is_written_from_records_alone_where_nothing_is_named(reproduce, tmp_path):
    ended = reproduce()
    assert ended.code == 0
    assert not (tmp_path / "results").exists()
    text = (tmp_path / "page.md").read_text()
    assert len(text.encode()) < 60_000
    assert text.index("| Paper |") < text.index("## april")
    summary, *rest = tables(text)
    once = sum(one.row.again is None for one in published("laptop"))
    assert summary[-1][:2] == ["all", str(once)]
    counts = [int(cell) for cell in summary[-1][2:] if cell.isdecimal()]
    assert sum(counts) == int(summary[-1][1])
    for table in rest:
        assert table[0][-1] == "Verdict"
        kinds = "|".join(map(re.escape, Kind.__args__))
        for row in table[2:]:
            assert re.match(kinds, row[-1].strip("*").replace("\u00a0", " ")), row


def test_every_number_stands_on_the_page(reproduce, tmp_path):
    reproduce()
    text = (tmp_path / "page.md").read_text()
    for one in published("laptop"):
        section = text.partition(f"### {one.table}\n")[2].partition("\n### ")[0]
        printed = one.value.text.replace("<", "&lt;")
        assert printed in section.replace("\u00a0", " "), (one.table, one.row.name)


@pytest.mark.parametrize("suite", ["laptop", "full"])
def test_no_table_is_wider_than_a_page(reproduce, tmp_path, suite):
    reproduce("--suite", suite)
    for table in tables((tmp_path / "page.md").read_text()):
        assert least_width(table) < WIDEST, table[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["april-table-9"], "no published table 'april-table-9'; known: april, april-figure-10"),
        (["april", "--suite", "huge"], "--suite 'huge': wanted laptop or full"),
        (["april", "--all"], "--all beside names of tables: wanted one of them"),
    ],
)
def test_wrong_request_ends_in_one_line_and_writes_nothing(reproduce, tmp_path, words, said):
    ended = reproduce(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert said in ended.err
    assert not list(tmp_path.iterdir())
