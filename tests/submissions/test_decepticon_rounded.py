"""What a server that knows of the rounding reads of rounded updates."""

import pytest


@pytest.fixture(scope="module")
def pydoc(quick):
    return quick("quick_pydoc_transformer3")


def test_tokens_whose_rows_were_rounded_away_are_read_from_the_bins(pydoc):
    (plain,) = pydoc.run("decepticon,defaults", "quantise,bits=6", trials=1)
    (knowing,) = pydoc.run("decepticon_rounded", "quantise,bits=6", trials=1)
    assert knowing.metrics["total_accuracy"] >= 0.95
    assert plain.metrics["total_accuracy"] < knowing.metrics["total_accuracy"]


def test_where_nothing_was_rounded_away_both_read_the_same(pydoc):
    (plain,) = pydoc.run("decepticon,defaults", "half_precision,format=bfloat16", trials=1)
    (knowing,) = pydoc.run("decepticon_rounded", "half_precision,format=bfloat16", trials=1)
    assert plain.metrics["total_accuracy"] == knowing.metrics["total_accuracy"] == 1


@pytest.mark.parametrize("defense", ["none", "sign_update", "gaussian_noise,scale=0.1"])
def test_no_rounding_is_told_of_other_defenses(pydoc, defense):
    (record,) = pydoc.run("decepticon_rounded", defense, trials=1)
    assert record.status == "not_applicable"
    assert "describes no rounding" in record.reason
