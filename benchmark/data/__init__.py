import importlib
from typing import TYPE_CHECKING

from benchmark.data.catalogue import CATALOGUE, Entry, entry

if TYPE_CHECKING:
    from benchmark.data.images import ImageSet, load_images
    from benchmark.data.text import TextSet, load_text
    from benchmark.data.tokenizers import Tokenizer, load_tokenizer
    from benchmark.data.tokens import TokenSet, load_tokens
    from benchmark.data.weights import find_weights

__all__ = [
    "CATALOGUE",
    "Entry",
    "ImageSet",
    "TextSet",
    "TokenSet",
    "Tokenizer",
    "entry",
    "find_weights",
    "load_images",
    "load_text",
    "load_tokenizer",
    "load_tokens",
]

# torch is imported when images or weights are first asked for, not to list the catalogue.
_HOMES = {
    "ImageSet": "images",
    "load_images": "images",
    "TextSet": "text",
    "load_text": "text",
    "Tokenizer": "tokenizers",
    "load_tokenizer": "tokenizers",
    "TokenSet": "tokens",
    "load_tokens": "tokens",
    "find_weights": "weights",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
