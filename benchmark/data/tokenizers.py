"""The papers' tokenizers, from local files alone, and one trained on text inside Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.data.places import mirror_file, mirror_folder
from benchmark.data.text import load_text
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Model
    from tokenizers.models import BPE

_MASK = "[MASK]"
_TRAINED = 4096  # tokens of the vocabulary that is trained here


@dataclass(frozen=True)
class _Published:
    """Where a tokenizer is found, and the sha256 of its tokens by id, each with a zero byte."""

    repository: str
    files: tuple[str, ...]  # in the mirror
    digest: str


_PUBLISHED = {
    "gpt2": _Published(
        "openai-community/gpt2",
        ("encoder.json", "vocab.bpe"),
        "970836353b582d0ba0d5c98793475f40b8572cee0edd67fc5c50f5bca13f14df",
    ),
    "bert-base-uncased": _Published(
        "google-bert/bert-base-uncased",
        ("vocab.txt",),
        "7fcb8cd30dada37c5ea1b8c4515a164faace91a25818e35e6bc40588257505ac",
    ),
}


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text to tokens and back; nothing is added, padded or cut.

    Attributes:
        name: as a protocol names it.
        vocabulary: number of tokens; ids are smaller.
        mask_token: id of the token that hides another; None where there is none.
        model: the library's tokenizer.
    """

    name: str
    vocabulary: int
    mask_token: int | None
    model: Model = field(repr=False)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self.model.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens; WordPiece has lost its case and spacing."""
        return self.model.decode(ids, skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return what each token adds to a text, with the space it may begin with.

        Bytes that are a part of a character are the replacement character.
        """
        # After another token, for the first of a text has no space and may keep its ##.
        before = self.encode("a")
        pairs = [[*before, token] for token in ids]
        return [text[1:] for text in self.model.decode_batch(pairs, skip_special_tokens=False)]


def load_tokenizer(name: str, mirror: Path | None = None) -> Tokenizer:
    """Return a tokenizer, kept in memory for the next call.

    Args:
        name: `gpt2` (byte-level BPE), `bert-base-uncased` (WordPiece), or `pydoc`: a byte-level
            BPE of at most 4096 tokens, trained on the public half of Python's help topics.
        mirror: folder of local copies; else the environment's GRADLEAK_DATA. Files that are not
            there may be in the Hugging Face hub's cache; nothing is fetched.

    Raises:
        ProtocolError: no such tokenizer.
        DataUnavailable: with the command that would fetch it.
        BenchmarkError: a file is broken or holds another vocabulary.
    """
    if name not in (*_PUBLISHED, "pydoc"):
        known = ", ".join((*_PUBLISHED, "pydoc"))
        raise ProtocolError(f"tokenizer {name!r} is unknown; known are {known}")
    return _load(name, None if name == "pydoc" else mirror_folder(mirror))


@lru_cache(maxsize=16)
def _load(name: str, mirror: Path | None) -> Tokenizer:
    model = _train() if name == "pydoc" else _read(name, _PUBLISHED[name], mirror)
    return Tokenizer(name, model.get_vocab_size(), model.token_to_id(_MASK), model)


def _read(name: str, published: _Published, mirror: Path | None) -> Model:
    """Return a published tokenizer from the mirror, or from the hub's cache."""
    folder = f"tokenizers/{name}"
    try:
        files = [mirror_file(name, f"{folder}/{file}", mirror) for file in published.files]
    except DataUnavailable as missing:
        files = [_cached(name, published.repository, missing)]
    try:
        model = _model(files)
    except Exception as error:  # the library raises no narrower one
        raise BenchmarkError(f"{files[0]}: {error}; wanted the tokenizer {name}") from error
    tokens = sorted(vocabulary := model.get_vocab(), key=vocabulary.__getitem__)
    digest = hashlib.sha256("".join(f"{token}\0" for token in tokens).encode()).hexdigest()
    if digest != published.digest:
        raise BenchmarkError(
            f"{files[0]}: vocabulary has sha256 {digest}, {name} has {published.digest}"
        )
    return model


def _cached(name: str, repository: str, missing: DataUnavailable) -> Path:
    """Return the one file that the hub has of a tokenizer, where it lies on this machine."""
    import huggingface_hub

    path = huggingface_hub.try_to_load_from_cache(repository, "tokenizer.json")
    if isinstance(path, str):
        return Path(path)
    tried = [*missing.tried, f"cache of the hub, {repository}"]
    command = f"{missing.command} or hf download {repository} tokenizer.json"
    raise DataUnavailable(f"tokenizer {name}", tried, command) from missing


def _model(files: Sequence[Path]) -> Model:
    """Return the tokenizer of the hub's file, of BPE's two, or of WordPiece's vocabulary."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    paths = [str(file) for file in files]
    if files[0].name == "tokenizer.json":
        return Tokenizer.from_file(paths[0])
    if len(files) == 2:
        return _byte_level(models.BPE.from_file(*paths))
    model = Tokenizer(models.WordPiece.from_file(paths[0], unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(lowercase=True)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.decoder = decoders.WordPiece()
    return model


def _byte_level(bpe: BPE) -> Model:
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    model = Tokenizer(bpe)
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    return model


def _train() -> Model:
    """Return a BPE of the public help topics; the same text gives the same tokens."""
    from tokenizers import models, pre_tokenizers, trainers

    model = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=_TRAINED,
        special_tokens=[_MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(load_text("pydoc", "train").users.values(), trainer)
    return model
