"""Tokens of a text set, by the user who wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from benchmark.data.catalogue import Entry, Split, known
from benchmark.data.places import mirror_folder
from benchmark.data.text import load_text
from benchmark.data.tokenizers import Tokenizer
from benchmark.seeds import generator

_DRAWN = 16384  # tokens of a user who writes at random


@dataclass(frozen=True)
class TokenSet:
    """One split of a text set.

    Attributes:
        name: in the catalogue.
        split: `train` is public, `test` is private; a user is in one of them.
        users: (tokens,) int64 by user id, in a fixed order, shared by all who load the set.
        users_are: what a user is, in words.
    """

    name: str
    split: Split
    users: dict[str, Tensor]
    users_are: str

    def with_at_least(self, tokens: int) -> tuple[dict[str, Tensor], int]:
        """Return the users who wrote this many tokens, in order, and how many others there are."""
        kept = {user: text for user, text in self.users.items() if len(text) >= tokens}
        return kept, len(self.users) - len(kept)


def load_tokens(
    name: str | Entry,
    split: Split,
    tokenizer: Tokenizer,
    mirror: Path | None = None,
    *,
    skip_lines: int = 0,
) -> TokenSet:
    """Return a split by user, kept in memory for the next call.

    Args:
        name: in the catalogue; or the entry of a set that is in none.
        split: `train` or `test`.
        tokenizer: of `load_tokenizer`.
        mirror: folder of local copies; else the environment's GRADLEAK_DATA.
        skip_lines: at the head of each user's text, left out.

    Raises:
        ProtocolError: no such text set or split.
        DataUnavailable: it cannot be had here.
        BenchmarkError: the content is not what the catalogue says.
    """
    found = known(name, "text", split)
    return _load(found, split, tokenizer, mirror_folder(mirror), skip_lines)


@lru_cache(maxsize=16)
def _load(
    found: Entry, split: Split, tokenizer: Tokenizer, mirror: Path | None, skip_lines: int
) -> TokenSet:
    if found.name == "random_tokens":
        users = _draw(found, split, tokenizer)
    else:
        text = load_text(found, split, mirror).users
        users = {
            user: torch.tensor(tokenizer.encode(_body(said, skip_lines)), dtype=torch.int64)
            for user, said in text.items()
        }
    return TokenSet(found.name, split, users, found.users_are)


def _body(text: str, skip_lines: int) -> str:
    return "".join(text.splitlines(keepends=True)[skip_lines:])


def _draw(found: Entry, split: Split, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Return users whose tokens are uniform, each user from a stream of its own."""
    users = {}
    for user in range(found.size[split]):
        draw = generator(0, found.name, split, user)
        users[str(user)] = torch.randint(tokenizer.vocabulary, (_DRAWN,), generator=draw)
    return users
