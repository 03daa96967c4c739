import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

from benchmark.leaderboard import excerpts
from benchmark.metrics import Excerpt

TEXT = {"track": "text", "metrics": ("total_accuracy",), "primary": "total_accuracy"}


def excerpt(truth, answer, certain=None):
    exact = [one == other for one, other in zip(truth, answer, strict=True)]
    return Excerpt(truth=truth, answer=answer, exact=exact, certain=certain)


CAT = excerpt(["The", " quick", " cat"], ["The", " quick", " dog"], [True, False, False])


def read(folder, *told, attack="dlg", defense="none", **fields):
    """Add a text cell with an excerpt a trial."""
    folder.cell(
        attack,
        *[{"total_accuracy": 0.2 + i / 10} for i in range(len(told))],
        defense=defense,
        has_excerpt=True,
    )
    folder.excerpts += [
        SimpleNamespace(
            **{
                "protocol": "vit",
                "attack": attack,
                "defense": defense,
                "seed": 0,
                "trial": trial,
                "status": "completed",
                "excerpt": each,
                **fields,
            }
        )
        for trial, each in enumerate(told)
    ]
    return folder


def texts(folder):
    """Write the board and return the pages of text by name, with plain spaces."""
    folder.write()
    found = sorted(folder.output.with_suffix("").glob("*_text*.md"))
    return {path.name: path.read_text().replace("\u00a0", " ") for path in found}


@pytest.fixture
def written(folder):
    """Return a function that writes a cell with excerpts and returns the page of its protocol."""
    folder.protocol(**TEXT)
    return lambda *told, **fields: texts(read(folder, *told, **fields))["vit_text.md"]


class Cells(HTMLParser):
    """The text of the last row of a page's tables, by column, and what of it is marked."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.open, self.marked, self.foreign = [], [], {"b": "", "ins": ""}, set()
        self.feed(MarkdownIt("commonmark").enable("table").render(page))

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
            self.marked, self.foreign = {"b": "", "ins": ""}, set()
        elif tag == "td":
            self.rows[-1].append("")
        elif "td" in self.open:
            self.foreign |= {tag} - {"b", "ins"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if "td" in self.open:
            self.rows[-1][-1] += text
            for tag in self.marked.keys() & set(self.open):
                self.marked[tag] += text


def test_truth_stands_beside_the_reconstruction_with_its_marks(written):
    page = written(CAT)
    assert "## `dlg` under `none`" in page
    row = "| 0, seed 0 | 2 of 3 | The quick cat | <ins><b>The</b></ins> <b>quick</b> dog |"
    assert row in page


def test_run_of_equal_marks_is_marked_once(written):
    same = ["a", " b", "c", " d"]
    assert "| <b>a bc d</b> |" in written(excerpt(same, same))


def test_missing_token_is_a_dot(written):
    page = written(excerpt(["The", " quick", " cat"], ["", "", " cat"]))
    assert "| · · <b>cat</b> |" in page


NASTY = [
    *("**bold**", "|", " _a_", "<b>", "</td>", "&amp;", " `code`", " [x](y)", " ~~gone~~", " $x$"),
    *("\\", " ![p](q)", " <!--", " https://a.example", "#", " *", "*", '"', "_", "'", " 1.", " -"),
]


@pytest.mark.parametrize("right", [True, False])
def test_nothing_in_the_text_is_read_as_markdown_or_html(written, right):
    answer = NASTY if right else NASTY[::-1]
    page = Cells(written(excerpt(NASTY, answer, [True] * len(NASTY))))
    assert page.rows[-1][2:] == ["".join(NASTY).strip(), "".join(answer).strip()]
    assert page.marked["ins"] == "".join(answer).lstrip()
    assert (page.marked["b"] == page.marked["ins"]) == right
    assert not page.foreign


def test_every_token_keeps_its_own_mark_whatever_stands_beside_it(written):
    answer = [one if place % 2 else "x" for place, one in enumerate(NASTY)]
    page = Cells(written(excerpt(NASTY, answer)))
    assert page.rows[-1][3] == "".join(answer)
    assert page.marked["b"].replace(" ", "") == "".join(NASTY[1::2]).replace(" ", "")


def test_line_ends_and_what_does_not_print_stay_in_their_line(written):
    page = written(excerpt(["a\n", "b\r\n", "c\r", "d\u2028", "e\tf", "\x00", "\u202e"], [""] * 7))
    assert "| a⏎b⏎c⏎d⏎e f\ufffd\ufffd | · · · · · · · |" in page


def test_score_of_a_cell_links_to_its_records(written, folder):
    page = written(CAT, CAT, CAT)
    label = re.search(r"total_accuracy \[0\.30 ± 0\.10\]\[(\w+)\]\.", page)[1]
    assert f"[{label}]: ../results/vit/dlg.jsonl" in page


def test_trial_that_did_not_complete_says_so(written):
    assert "| 0, seed 0 (timed out) |" in written(CAT, status="timed_out")


def test_trials_beyond_the_eighth_are_in_the_records(written):
    page = written(*[CAT] * 10)
    assert page.count(", seed 0 |") == 8
    assert "2 more in [the records][" in page


def test_eight_trials_are_all(written):
    assert "more in" not in written(*[CAT] * 8)


def test_all_attacks_and_defenses_of_a_protocol_share_a_page(folder):
    folder.protocol(**TEXT)
    read(read(folder, CAT), CAT, attack="tag", defense="noise,std=0.01")
    folder.cell("ig", {"total_accuracy": 0.1})
    ((name, page),) = texts(folder).items()
    assert name == "vit_text.md"
    assert re.findall("^## (.*)$", page, re.M) == [
        "`dlg` under `none`",
        "`tag` under `noise,std=0.01`",
    ]
    assert "[What was read](vit_text.md)" in folder.page()


def test_page_that_would_be_too_long_is_a_page_an_attack(folder, monkeypatch):
    monkeypatch.setattr(excerpts, "LARGEST_PAGE", 10)
    folder.protocol(**TEXT)
    read(read(folder, CAT), CAT, attack="tag,scale=0.1")
    assert list(texts(folder)) == ["vit_text_dlg.md", "vit_text_tag,scale=0.1.md"]
    assert "[what `dlg` read](vit_text_dlg.md)" in folder.page()


def test_protocol_without_excerpts_has_no_page_of_text(folder):
    folder.protocol().cell("dlg", 20)
    assert texts(folder) == {}


def test_later_record_of_a_trial_counts(written):
    written(CAT)
    page = written(excerpt(["The"], ["The"]))
    assert page.count(", seed 0 |") == 1
    assert "| 1 of 1 |" in page
