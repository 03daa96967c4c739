import json
import os
import subprocess
import sys

import huggingface_hub
import pytest

from benchmark.data import load_tokenizer, tokenizers
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError

TEXT = "Hello world, gradient inversion!"
MIXED = "def f(x):\n\treturn  'café' + \"日本\"  # é\n"


@pytest.fixture(autouse=True)
def _no_other_place(monkeypatch):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)


@pytest.fixture(scope="module")
def pydoc():
    return load_tokenizer("pydoc")


@pytest.fixture
def published(monkeypatch):
    """Let a tokenizer have the vocabulary with this digest."""

    def expect(name, digest):
        changed = tokenizers._Published("owner/name", tokenizers._PUBLISHED[name].files, digest)
        monkeypatch.setitem(tokenizers._PUBLISHED, name, changed)

    return expect


def write_bert(folder, *words):
    path = folder / "tokenizers/bert-base-uncased/vocab.txt"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["[UNK]", "[MASK]", "a", *words]))
    return folder


def accepted(name, folder, published):
    """Return the tokenizer of a folder, whatever its vocabulary."""
    with pytest.raises(BenchmarkError) as raised:
        load_tokenizer(name, folder)
    published(name, str(raised.value).split("has sha256 ")[1].split(",")[0])
    return load_tokenizer(name, folder)


def test_trained_tokenizer_gives_back_any_text(pydoc):
    for text in (TEXT, MIXED, ""):
        ids = pydoc.encode(text)
        assert pydoc.decode(ids) == text
        assert all(0 <= token < pydoc.vocabulary for token in ids)
    assert pydoc.vocabulary == 4096


def test_trained_tokenizer_shortens_its_own_kind_of_text(pydoc):
    text = "The statement raises an exception if the expression evaluates to false. " * 4
    assert len(pydoc.encode(text)) < len(text) / 4


def test_mask_is_one_token_and_no_other_text_has_it(pydoc):
    assert pydoc.encode("[MASK]") == [pydoc.mask_token]
    assert pydoc.decode([pydoc.mask_token]) == "[MASK]"
    assert pydoc.mask_token not in pydoc.encode(MIXED)


def test_training_gives_the_same_tokens_in_another_process(pydoc):
    program = (
        "from benchmark.data import load_tokenizer; import json; "
        "print(json.dumps(load_tokenizer('pydoc').model.to_str()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert json.loads(done.stdout) == pydoc.model.to_str(), done.stderr


def test_pieces_are_one_a_token_and_read_as_the_text(pydoc):
    ids = pydoc.encode(TEXT)
    pieces = pydoc.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == TEXT
    assert any(piece.startswith(" ") for piece in pieces)
    assert pydoc.pieces([]) == []


def test_part_of_a_character_is_the_replacement_character(pydoc):
    ids = pydoc.encode("日")
    assert pydoc.pieces(ids) == ["\N{REPLACEMENT CHARACTER}"] * len(ids)
    assert len(ids) > 1


def test_second_call_returns_the_same_tokenizer(pydoc):
    assert load_tokenizer("pydoc") is pydoc


def test_word_pieces_lose_case_and_accents_and_keep_their_spaces(tmp_path, published):
    folder = write_bert(tmp_path, "caf", "##e", "b", ".")
    found = accepted("bert-base-uncased", folder, published)
    assert (found.vocabulary, found.mask_token) == (7, 1)
    ids = found.encode("A Café\tb. zebra")
    assert ids == [2, 3, 4, 5, 6, 0]
    assert found.pieces(ids) == [" a", " caf", "e", " b", ".", " [UNK]"]
    assert found.decode(ids) == "a cafe b. [UNK]"


def test_byte_level_tokenizer_reads_its_two_files(tmp_path, published, pydoc):
    folder = tmp_path / "tokenizers/gpt2"
    folder.mkdir(parents=True)
    saved = json.loads(pydoc.model.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(saved["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in saved["merges"])
    (folder / "vocab.bpe").write_text(f"#version: 0.2\n{merges}\n")
    found = accepted("gpt2", tmp_path, published)
    assert found.encode(MIXED) == pydoc.encode(MIXED)
    assert found.decode(found.encode(MIXED)) == MIXED


def test_file_of_the_hub_is_read_where_it_was_fetched(tmp_path, published, pydoc, monkeypatch):
    path = tmp_path / "tokenizer.json"
    pydoc.model.save(str(path))

    def cached(repository, file):
        return str(path) if (repository, file) == ("owner/name", "tokenizer.json") else None

    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    published("gpt2", "")
    assert accepted("gpt2", tmp_path, published).encode(TEXT) == pydoc.encode(TEXT)


def test_other_vocabulary_is_refused_with_its_file(tmp_path):
    wanted = tokenizers._PUBLISHED["bert-base-uncased"].digest
    with pytest.raises(BenchmarkError, match=rf"vocab\.txt: vocabulary has sha256 .*{wanted}"):
        load_tokenizer("bert-base-uncased", write_bert(tmp_path))


def test_broken_file_is_named(tmp_path):
    folder = tmp_path / "tokenizers/gpt2"
    folder.mkdir(parents=True)
    for file in ("encoder.json", "vocab.bpe"):
        (folder / file).write_text("{")
    with pytest.raises(BenchmarkError, match=r"encoder\.json: .*; wanted the tokenizer gpt2"):
        load_tokenizer("gpt2", tmp_path)


def test_missing_tokenizer_is_answered_with_places_and_commands():
    with pytest.raises(DataUnavailable) as raised:
        load_tokenizer("gpt2")
    assert raised.value.tried == [
        "GRADLEAK_DATA (not set)",
        "cache of the hub, openai-community/gpt2",
    ]
    assert raised.value.command == (
        "GRADLEAK_DATA=DIR, with DIR/tokenizers/gpt2/encoder.json "
        "or hf download openai-community/gpt2 tokenizer.json"
    )


def test_unknown_tokenizer_is_answered_with_the_known_ones():
    with pytest.raises(ProtocolError, match="'gpt3' is unknown; known are gpt2, bert-base-uncased"):
        load_tokenizer("gpt3")


def test_gpt2_gives_the_published_tokens_and_gives_text_back(user_mirror):
    gpt2 = load_tokenizer("gpt2", user_mirror("tokenizers"))
    assert gpt2.encode(TEXT) == [15496, 995, 11, 31312, 287, 9641, 0]
    assert gpt2.decode(gpt2.encode(MIXED)) == MIXED
    assert gpt2.pieces([15496, 995]) == ["Hello", " world"]
    assert (gpt2.vocabulary, gpt2.mask_token) == (50257, None)


def test_bert_gives_the_published_tokens(user_mirror):
    bert = load_tokenizer("bert-base-uncased", user_mirror("tokenizers"))
    assert bert.encode("Hello world") == [7592, 2088]
    assert (bert.vocabulary, bert.mask_token) == (30522, 103)
