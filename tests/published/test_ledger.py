import pytest
import yaml

from benchmark.errors import BenchmarkError, ProtocolError
from benchmark.metrics import OF_INPUT
from benchmark.protocol import load_protocol, load_utility
from benchmark.published import (
    OF_TRAINING,
    SUITES,
    chosen,
    load_ledger,
    published,
    published_for,
)
from benchmark.registry import Registry, exactly

TABLES = {
    "april": [
        *("april-table-1", "april-table-2"),
        *(f"april-figure-{i}" for i in (4, 5, 6, 7, 9, 10)),
    ],
    "decepticons": [
        "decepticons-dropout",
        "decepticons-noisy-rows",
        "decepticons-bag-of-words",
        "decepticons-aggregates",
        "decepticons-long-sequences",
    ],
    "encrypted_vit": ["encrypted-vit-table-1", "encrypted-vit-figure-3"],
    "gradvit": [*(f"gradvit-table-{i}" for i in range(1, 6)), "gradvit-iip"],
    "mjp": [f"mjp-table-{i}" for i in range(1, 10)],
}
SMALL = {
    "name": "small",
    "title": "A paper",
    "source": "Someone",
    "tables": {
        "small-table-1": {
            "place": "Table 1",
            "title": "Two attacks",
            "setting": "One image.",
            "answer": {"protocol": "quick_digits_a", "defense": "none", "metric": "psnr"},
            "columns": [{"name": "PSNR", "better": "higher"}],
            "rows": [{"name": "prior", "answer": {"attack": "prior_only"}, "values": ["9 ± 1"]}],
        }
    },
}


@pytest.fixture
def small(tmp_path):
    """Write the small ledger with its one row changed, and return its folder."""

    def write(column=None, **row):
        content = yaml.safe_load(yaml.safe_dump(SMALL))
        table = content["tables"]["small-table-1"]
        table["rows"][0] |= row
        table["columns"][0] |= column or {}
        folder = tmp_path / "papers"
        folder.mkdir(exist_ok=True)
        (folder / "small.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        load_ledger.cache_clear()
        return folder

    return write


def test_every_table_of_the_five_papers_is_in_the_ledger():
    assert {name: list(paper.tables) for name, paper in load_ledger().items()} == TABLES


@pytest.mark.parametrize("suite", SUITES)
def test_what_answers_a_number_exists(suite):
    registry, seen = Registry(()), set()
    for one in published(suite):
        answer = one.answer
        if answer.needs is not None:
            continue
        named = {
            (("defense", answer.defense)),
            ("attack", one.attack),
            ("defense", answer.baseline),
        }
        for kind, label in {pair for pair in named if pair[1]} - seen:
            registry.find(kind, exactly(label))[0].build()
            seen.add((kind, label))
        if answer.measure in OF_TRAINING:
            chosen_there = registry.select("defense", load_utility(answer.protocol).defenses)
            assert answer.defense in {submission.label for submission in chosen_there}
        else:
            metrics = load_protocol(answer.protocol).metrics
            assert not answer.metric or answer.metric.removesuffix(OF_INPUT) in metrics


def test_some_number_of_every_paper_is_answered_on_a_laptop():
    answered = {one.paper.name for one in published("laptop") if one.answer.needs is None}
    assert answered == set(TABLES)


def test_what_only_one_suite_has_is_told_of_that_one():
    found = {
        suite: {one.answer.protocol for one in published(suite) if one.table == "april-table-1"}
        for suite in SUITES
    }
    assert {"april_mnist_b", "april_cifar10_b"} < found["laptop"]
    assert found["full"] == {"full_mnist_b", "full_cifar10_b", "full_imagenet_vit_b16"}


def test_column_s_arguments_join_the_row_s_attack():
    labels = {one.attack for one in published("full") if one.column.name == "ImageNet MSE"}
    assert "dlg,steps=5000" in labels


def test_published_number_is_found_by_its_cell():
    one = published_for("april_mnist_b", "dlg", "none", "normalised_mse")
    assert (one.table, one.row.name, one.value.text) == (
        "april-table-1",
        "DLG",
        "1.291e-04 ± 2.954e-04",
    )
    assert published_for("april_mnist_b", "dlg", "none", "psnr") is None
    assert published_for("digits_small_b_leakage", "position_closed_form", "none", "psnr") is None


def test_tables_are_chosen_by_their_name_or_their_paper_s():
    assert chosen(["april"]) == TABLES["april"]
    assert chosen(["mjp-table-5", "april", "april-table-1"]) == ["mjp-table-5", *TABLES["april"]]
    with pytest.raises(BenchmarkError, match="no published table 'april-table-3'; known: april, "):
        chosen(["april-table-3"])


def test_needs_are_lifted_where_a_cell_has_an_answer(small):
    answer = {"attack": "prior_only", "laptop": {"needs": "a GPU"}}
    lifted = {"PSNR": {"laptop": {"needs": None}}}
    for cells, needs in (({}, "a GPU"), (lifted, None)):
        (one,) = published("laptop", small(answer=answer, cells=cells))
        assert one.answer.needs == needs
    (one,) = published("full", small(answer=answer))
    assert one.answer.needs is None


def test_differences_of_table_column_and_row_add_up(small):
    folder = small(
        {"answer": {"differs": ["a", "b"]}}, answer={"needs": "x", "differs": ["b", "c"]}
    )
    (one,) = published("laptop", folder)
    assert one.answer.differs == ("a", "b", "c")


@pytest.mark.parametrize(
    ("column", "row", "said"),
    [
        ({}, {"values": [1, 2]}, "prior: 2 values of 1 columns"),
        ({}, {"values": [9]}, "prior, PSNR: wanted a tolerance"),
        ({}, {"values": ["nine"]}, "prior, PSNR: 'nine' is no number"),
        ({}, {"answer": {}}, "prior, PSNR: wanted attack, or what it needs"),
        ({}, {"answer": {"attack": "random", "protocol": "none_such"}}, "no protocol 'none_such'"),
        ({}, {"answer": {"attack": "random", "metric": "beauty"}}, "no metric 'beauty'"),
        ({}, {"again": "prior"}, "prior: its numbers are not those of 'prior' above it"),
        ({}, {"cells": {"SSIM": {}}}, "prior: no column 'SSIM'"),
        ({"better": "left"}, {}, "better"),
        ({"colour": "red"}, {}, "unknown key 'tables.small-table-1.columns.0.colour'"),
    ],
)
def test_wrong_ledger_is_refused_with_file_and_line(small, column, row, said):
    folder = small(column, **row)
    with pytest.raises(ProtocolError) as error:
        load_ledger(folder)
    assert str(error.value).startswith(f"{folder / 'small.yaml'}:")
    assert int(str(error.value).removeprefix(f"{folder / 'small.yaml'}:").split(":")[0]) > 1
    assert said in str(error.value)
