import dataclasses

import pytest
import torch

from benchmark.data import CATALOGUE, TokenSet, load_text, load_tokenizer, load_tokens
from benchmark.errors import ProtocolError


@pytest.fixture(scope="module")
def pydoc():
    return load_tokenizer("pydoc")


@pytest.fixture
def few(monkeypatch):
    """Let few users write at random."""
    found = dataclasses.replace(CATALOGUE["random_tokens"], size={"train": 3, "test": 4})
    monkeypatch.setitem(CATALOGUE.read, "random_tokens", found)


def test_tokens_of_each_user_are_those_of_their_text(pydoc):
    for split in ("train", "test"):
        found, text = load_tokens("pydoc", split, pydoc), load_text("pydoc", split).users
        assert (found.name, found.split, found.users_are) == ("pydoc", split, "help topics")
        assert list(found.users) == list(text)
        assert all(tokens.dtype == torch.int64 for tokens in found.users.values())
        assert {user: pydoc.decode(ids.tolist()) for user, ids in found.users.items()} == text


def test_users_with_fewer_tokens_are_left_out_and_counted():
    users = {
        user: torch.arange(count) for user, count in zip("abcde", (3, 0, 9, 4, 1), strict=True)
    }
    kept, skipped = TokenSet("pydoc", "test", users, "help topics").with_at_least(4)
    assert list(kept) == ["c", "d"]
    assert skipped == 3
    assert kept["c"] is users["c"]


def test_user_without_text_has_no_tokens(pydoc, tmp_path, monkeypatch):
    unchecked = dataclasses.replace(CATALOGUE["shakespeare"], digest={})
    monkeypatch.setitem(CATALOGUE.read, "shakespeare", unchecked)
    (tmp_path / "text/shakespeare").mkdir(parents=True)
    (tmp_path / "text/shakespeare/input.txt").write_text("GHOST:")
    (tokens,) = load_tokens("shakespeare", "test", pydoc, tmp_path).users.values()
    assert (tokens.shape, tokens.dtype) == ((0,), torch.int64)


def test_random_tokens_fill_the_vocabulary_evenly(pydoc, few):
    found = load_tokens("random_tokens", "test", pydoc)
    assert len(found.users) == 4
    tokens = torch.cat(list(found.users.values()))
    assert tokens.dtype == torch.int64
    counts = torch.bincount(tokens, minlength=pydoc.vocabulary)
    assert len(counts) == pydoc.vocabulary
    mean = len(tokens) / pydoc.vocabulary  # 16, so that a Poisson draw lies within 1 to 50
    assert counts.min() >= 1
    assert counts.max() < 50
    assert (counts.double().var() / mean).item() == pytest.approx(1, abs=0.2)


def test_random_users_and_splits_have_streams_of_their_own(pydoc, few):
    users = [
        text
        for split in ("train", "test")
        for text in load_tokens("random_tokens", split, pydoc).users.values()
    ]
    agreements = [(one == other).sum() for n, one in enumerate(users) for other in users[n + 1 :]]
    assert max(agreements) < 40  # 4 of 16384 by chance


def test_random_tokens_are_the_same_each_time(pydoc, few, monkeypatch):
    first = load_tokens("random_tokens", "test", pydoc).users["0"]
    changed = dataclasses.replace(CATALOGUE["random_tokens"], size={"test": 1})
    monkeypatch.setitem(CATALOGUE.read, "random_tokens", changed)
    again = load_tokens("random_tokens", "test", pydoc).users
    assert len(again) == 1
    assert torch.equal(again["0"], first)


def test_second_call_returns_the_same_set(pydoc):
    assert load_tokens("pydoc", "test", pydoc) is load_tokens("pydoc", "test", pydoc)


def test_images_are_no_tokens(pydoc):
    with pytest.raises(ProtocolError, match="'digits' holds image; text sets are pydoc, ran"):
        load_tokens("digits", "test", pydoc)


def test_lines_at_the_head_of_each_text_are_left_out():
    pydoc = load_tokenizer("pydoc")
    whole = load_text("pydoc", "test").users
    found = load_tokens("pydoc", "test", pydoc, skip_lines=3).users
    for user, tokens in found.items():
        assert pydoc.decode(tokens.tolist()) == whole[user].split("\n", 3)[3]
