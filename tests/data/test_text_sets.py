import dataclasses
import platform

import pytest

from benchmark.data import CATALOGUE, load_text
from benchmark.errors import BenchmarkError


def paragraphs(text):
    joined = (" ".join(part.split()) for part in text.split("\n\n"))
    return {part for part in joined if len(part) >= 40}


def test_no_two_users_share_a_paragraph_in_either_split():
    users = load_text("pydoc", "train").users | load_text("pydoc", "test").users
    assert len(users) > 50
    seen = set()
    for text in users.values():
        assert not paragraphs(text) & seen
        seen |= paragraphs(text)


def test_users_come_in_a_fixed_order_and_in_one_split():
    train, test = (list(load_text("pydoc", split).users) for split in ("train", "test"))
    assert train == sorted(train)
    assert not set(train) & set(test)
    assert abs(len(train) - len(test)) <= 1


def test_text_is_checked_only_where_the_python_version_is_known(monkeypatch):
    pydoc, key = CATALOGUE["pydoc"], f"test {platform.python_version()}"
    monkeypatch.setitem(CATALOGUE.read, "pydoc", dataclasses.replace(pydoc, digest={}))
    assert load_text("pydoc", "test").users
    monkeypatch.setitem(CATALOGUE.read, "pydoc", dataclasses.replace(pydoc, digest={key: "0" * 64}))
    with pytest.raises(BenchmarkError, match=rf"pydoc {key} .* the catalogue wants 0{{64}}"):
        load_text("pydoc", "test")
