import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from benchmark.leaderboard.pages import pages
from benchmark.metrics import Excerpt
from benchmark.records import Record, read_folder

PAGE = Path("vit/none/dlg.md")


def excerpt(truth, answer, certain=None):
    exact = [one == other for one, other in zip(truth, answer, strict=True)]
    return Excerpt(truth=truth, answer=answer, exact=exact, certain=certain)


CAT = excerpt(["The", " quick", " cat"], ["The", " quick", " dog"], [True, False, False])


@pytest.fixture
def written(folder):
    """Return a function that records trials with excerpts and returns the cell's page."""

    def write(*excerpts, **fields):
        for trial, each in enumerate(excerpts):
            score = {"total_accuracy": 0.2 + trial / 10, "bleu": None}
            folder.cell("dlg", score, **{"trial": trial, "excerpt": each, **fields})
        return pages(read_folder(folder.path).records)[PAGE]

    return write


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
    assert "### Trial 0, seed 0: 2 of 3 exact\n\n| Truth | Reconstruction |\n" in page
    assert "\n| The quick cat | <ins><b>The</b></ins> <b>quick</b> dog |\n" in page


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
    assert page.rows[-1] == ["".join(NASTY).strip(), "".join(answer).strip()]
    assert page.marked["ins"] == "".join(answer).lstrip()
    assert (page.marked["b"] == page.marked["ins"]) == right
    assert not page.foreign


def test_every_token_keeps_its_own_mark_whatever_stands_beside_it(written):
    answer = [one if place % 2 else "x" for place, one in enumerate(NASTY)]
    page = Cells(written(excerpt(NASTY, answer)))
    assert page.rows[-1][1] == "".join(answer)
    assert page.marked["b"].replace(" ", "") == "".join(NASTY[1::2]).replace(" ", "")


def test_line_ends_and_what_does_not_print_stay_in_their_line(written):
    page = written(excerpt(["a\n", "b\r\n", "c\r", "d\u2028", "e\tf", "\x00", "\u202e"], [""] * 7))
    assert "| a⏎b⏎c⏎d⏎e f\ufffd\ufffd | · · · · · · · |" in page


def test_scores_are_means_over_the_trials_with_their_meaning(written):
    page = written(CAT, CAT, CAT).replace("\u00a0", " ")
    (row,) = re.findall(r"^\| `total_accuracy` .*$", page, re.M)
    columns = [cell.strip() for cell in row.split("|")[1:-1]]
    assert columns[1:3] == ["share of the tokens right in id and place", "0.30 ± 0.10"]
    assert columns[4] == "3"
    (row,) = re.findall(r"^\| `bleu` .*$", page, re.M)
    assert row.count("—") == 3


def test_failed_trials_are_counted_and_named(written):
    page = written(CAT, CAT, status="timed_out")
    assert "2 failed trial(s)" in page
    assert "2 of 3 exact (timed out)" in page


def test_trials_beyond_the_eighth_are_in_the_records(written):
    page = written(*[CAT] * 10)
    assert page.count("### Trial") == 8
    assert page.endswith("\n\n… 2 more in [the records file](dlg.jsonl).\n")


def test_eight_trials_are_all(written):
    assert "more in" not in written(*[CAT] * 8)


def test_only_cells_with_excerpts_have_a_page(folder):
    folder.cell("dlg", 20, excerpt=CAT).cell("ig", 20, 21).cell("tag", verdict="not_applicable")
    folder.cell("dlg,scale=0.1", 20, excerpt=CAT, defense="noise,std=0.01")
    assert list(pages(read_folder(folder.path).records)) == [
        Path("vit/noise,std=0.01/dlg,scale=0.1.md"),
        PAGE,
    ]


def test_page_links_to_the_records_it_is_made_of(folder):
    folder.cell("dlg,scale=0.1", 20, excerpt=CAT)
    ((path, page),) = pages(read_folder(folder.path).records).items()
    (link,) = re.findall(r"\[Records\]\((.*)\)", page)
    assert (folder.path / path.parent / link).is_file()


def test_same_records_give_the_same_pages_whatever_their_order(written, folder):
    written(*[CAT] * 3)
    folder.cell("dlg", 20, excerpt=CAT, defense="noise")
    records = read_folder(folder.path).records
    first = pages(records)
    assert list(pages(records[::-1]).items()) == list(first.items())


def test_later_record_of_a_trial_counts(written):
    written(CAT)
    page = written(excerpt(["The"], ["The"]))
    assert page.count("### Trial") == 1
    assert "1 of 1 exact" in page


def test_line_without_excerpt_is_as_it_was_and_one_with_it_is_read_back(folder):
    folder.cell("dlg", 20).cell("ig", 20, excerpt=CAT)
    plain, full = read_folder(folder.path).records
    assert plain.line().endswith('"hardware":"a processor"}}')
    assert "excerpt" not in plain.line()
    assert Record.model_validate_json(full.line()).excerpt == CAT
