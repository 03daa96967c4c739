"""Words of a package that are imported when first asked for, so that the rest of it is instant."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping


def lazily(package: str, homes: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return a package's `__getattr__` (PEP 562).

    Args:
        package: its name.
        homes: the words by the module that holds them; `.name` is one of the package's own.
    """
    home = {word: module for module, words in homes.items() for word in words}

    def find(word: str) -> object:
        if word not in home:
            raise AttributeError(f"module {package!r} has no attribute {word!r}")
        return getattr(importlib.import_module(home[word], package), word)

    return find
