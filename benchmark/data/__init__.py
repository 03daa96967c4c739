from typing import TYPE_CHECKING

from benchmark.data.catalogue import CATALOGUE, Entry, entry
from benchmark.lazy import lazily

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
__getattr__ = lazily(
    __name__,
    {
        ".images": ("ImageSet", "load_images"),
        ".text": ("TextSet", "load_text"),
        ".tokenizers": ("Tokenizer", "load_tokenizer"),
        ".tokens": ("TokenSet", "load_tokens"),
        ".weights": ("find_weights",),
    },
)
