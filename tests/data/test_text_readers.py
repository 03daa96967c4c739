import dataclasses
import gzip
import hashlib
import json
from pathlib import Path

import datasets
import pytest

from benchmark.data import CATALOGUE, hub, load_text, text_readers
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError

ARTICLES = """
 = Du Fu =

 A poet of the Tang .
 = 1 <unk> / s =

 = = Life = =

 Little is known .

 = <unk> =

 A crater .
""".replace("\n", " \n")  # as the set ends its lines
WANTED = {
    "0 Du Fu": "= Du Fu =\nA poet of the Tang .\n= 1 <unk> / s =\n= = Life = =\nLittle is known .",
    "1 <unk>": "= <unk> =\nA crater .",
}


@pytest.fixture(autouse=True)
def _no_other_place(monkeypatch):
    def unavailable(found, split):
        raise hub.unavailable(found, split, "no network")

    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(hub, "_fetch", unavailable)


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Write files of a mirror whose content the catalogue does not check."""
    for name, found in CATALOGUE.items():
        monkeypatch.setitem(CATALOGUE.read, name, dataclasses.replace(found, digest={}))

    def write(path, content):
        place = tmp_path / "text" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return write


def json_lines(*rows):
    return gzip.compress("\n".join(map(json.dumps, rows)).encode(), mtime=0)


def users(name, mirror):
    return [load_text(name, split, mirror).users for split in ("train", "test")]


def test_article_begins_at_a_heading_that_stands_alone_and_has_one_equals_sign(mirror):
    folder = mirror("wikitext2/test.txt", ARTICLES)
    assert load_text("wikitext", "test", folder).users == WANTED


def test_public_articles_are_the_validation_split(mirror):
    folder = mirror("wikitext2/valid.txt", " = Homarus = \n \n A lobster . \n")
    assert list(load_text("wikitext", "train", folder).users) == ["0 Homarus"]


def test_hub_and_mirror_give_the_same_articles(mirror, tmp_path, monkeypatch):
    lines = [f"{line}\n" if line.strip() else "" for line in ARTICLES.split("\n")]
    for path in ("wikitext/test-00000-of-00001", "wikitext103/train-00000-of-00002"):
        datasets.Dataset.from_dict({"text": lines}).to_parquet(tmp_path / f"{path}.parquet")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    assert load_text("wikitext", "test", tmp_path).users == WANTED
    few = dataclasses.replace(CATALOGUE["wikitext103"], size={"test": 1})
    monkeypatch.setitem(CATALOGUE.read, "wikitext103", few)
    assert list(load_text("wikitext103", "test", tmp_path).users) == ["0 Du Fu"]


def test_missing_articles_are_answered_with_both_places_and_commands(tmp_path):
    with pytest.raises(DataUnavailable) as raised:
        load_text("wikitext", "test", tmp_path)
    tried, command = raised.value.tried, raised.value.command
    assert tried[0] == str(tmp_path / "text/wikitext2/test.txt")
    assert "Salesforce/wikitext" in tried[1]
    assert command.startswith("GRADLEAK_DATA=DIR, with DIR/text/wikitext2/test.txt or hf download")
    assert CATALOGUE["wikitext"].hub.revision in command


def test_every_second_speaker_is_private_and_one_name_is_one_speaker(mirror):
    text = "Page:\nSir,\nwelcome.\n\nNURSE:\nPeter!\n\n\nPAGE:\nHere.\n\nGhost:\n\nNurse:\nMy fan."
    train, test = users("shakespeare", mirror("shakespeare/input.txt", text))
    assert train == {"NURSE": "Peter!\nMy fan."}
    assert test == {"PAGE": "Sir,\nwelcome.\nHere.", "GHOST": ""}


def test_authors_of_each_site_are_users_in_turn(mirror):
    posts = [{"id": 1, "text": "hops"}, {"id": 2, "text": "malt"}]
    rows = [
        {"site": "beer", "user_id": 8, "posts": posts},
        {"site": "beer", "user_id": 9, "posts": posts[:1]},
        {"site": "history", "user_id": 8, "posts": posts[1:]},
    ]
    folder = mirror("stackexchange_users/users.jsonl.gz", json_lines(*rows))
    train, test = users("stackexchange", folder)
    assert train == {"beer 9": "hops"}
    assert test == {"beer 8": "hops\n\nmalt", "history 8": "malt"}


def test_blocks_are_joined_from_their_posts(mirror):
    posts = [{"id": f"java/{number}", "text": f"question {number}"} for number in range(3)]
    mirror("stackoverflow/posts.jsonl.gz", json_lines(*posts))
    blocks = {"java-000": {"posts": ["java/0", "java/2"]}, "java-001": {"posts": ["java/1"]}}
    folder = mirror("stackoverflow/blocks.json", json.dumps(blocks))
    train, test = users("stackoverflow", folder)
    assert train == {"java-001": "question 1"}
    assert test == {"java-000": "question 0\n\nquestion 2"}


@pytest.mark.parametrize(
    ("name", "path", "content"),
    [
        ("wikitext", "wikitext2/test.txt", b"\xff"),
        ("shakespeare", "shakespeare/input.txt", b"\xff"),
        ("stackexchange", "stackexchange_users/users.jsonl.gz", b"no gzip"),
        ("stackexchange", "stackexchange_users/users.jsonl.gz", json_lines({"site": "beer"})),
        ("stackexchange", "stackexchange_users/users.jsonl.gz", json_lines(3)),
        ("stackoverflow", "stackoverflow/posts.jsonl.gz", json_lines({"id": 1})[:-12]),
    ],
)
def test_broken_file_is_named(mirror, name, path, content):
    folder = mirror(path, content)
    with pytest.raises(BenchmarkError, match=rf"{Path(path).name}: .*; wanted "):
        load_text(name, "test", folder)


def test_other_content_is_refused_with_its_file(mirror, monkeypatch):
    folder = mirror("shakespeare/input.txt", "PAGE:\nSir.")
    known = hashlib.sha256(b"PAGE\0Sir.\0").hexdigest()
    right = dataclasses.replace(CATALOGUE["shakespeare"], digest={"test": known})
    monkeypatch.setitem(CATALOGUE.read, "shakespeare", right)
    assert load_text("shakespeare", "test", folder).users
    wrong = dataclasses.replace(right, digest={"test": "0" * 64})
    monkeypatch.setitem(CATALOGUE.read, "shakespeare", wrong)
    with pytest.raises(BenchmarkError, match=rf"input\.txt: .*{known}, .* wants 0{{64}}"):
        load_text("shakespeare", "test", folder)


def test_random_tokens_are_no_text():
    with pytest.raises(ProtocolError, match="'random_tokens' holds tokens and no text"):
        load_text("random_tokens", "test")


def test_every_text_set_says_its_users_and_has_a_reader():
    sets = {name: found for name, found in CATALOGUE.items() if found.kind == "text"}
    assert sets.keys() == text_readers.READERS.keys() | {"random_tokens"}
    assert all(
        found.users_are and found.size.keys() == {"train", "test"} for found in sets.values()
    )


@pytest.mark.parametrize("name", ["wikitext", "shakespeare", "stackexchange", "stackoverflow"])
def test_mirror_holds_as_many_users_as_the_catalogue_says_each_in_one_split(name, user_mirror):
    train, test = users(name, user_mirror("text"))
    assert {"train": len(train), "test": len(test)} == CATALOGUE[name].size
    assert not set(train.values()) & set(test.values()) - {""}
