import json

import numpy as np
import pytest
from PIL import Image

from benchmark.data import load_images, load_text
from benchmark.data.own import Halves
from benchmark.data.own_hub import hub_set
from benchmark.data.own_images import own_images
from benchmark.data.own_text import own_text
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError

COMMIT = 40 * "0"


def draw(path, seed, side=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path):
    """Eight pictures, each another, of two classes."""
    for number in range(8):
        draw(tmp_path / "photos" / ("cat" if number < 5 else "dog") / f"{number}.png", number)
    return tmp_path / "photos"


def both(found, size=8):
    return [load_images(found, split, size) for split in ("train", "test")]


def test_every_image_is_in_one_half_with_the_label_of_its_folder(photos):
    found = own_images(photos, Halves())
    halves = both(found)
    assert [len(half.images) for half in halves] == [4, 4]
    assert {half.class_names for half in halves} == {("cat", "dog")}
    held = {image.numpy().tobytes() for half in halves for image in half.images[:]}
    assert len(held) == 8
    assert sum((half.labels == 0).sum() for half in halves) == 5


def test_pixels_are_those_of_the_file(photos):
    found = own_images(photos, Halves())
    half = load_images(found, "test", 8)
    (row, *_) = found.halves.rows(found.sums, "test", "")
    wanted = np.asarray(Image.open(photos / found.names[row])) / 255
    assert np.abs(half.images[0].permute(1, 2, 0).numpy() - wanted).max() < 1e-6


def test_another_seed_and_another_share_split_otherwise(photos):
    sums = own_images(photos, Halves()).sums
    rows = {seed: tuple(Halves(seed).rows(sums, "test", "")) for seed in range(5)}
    assert len(set(rows.values())) > 1
    assert len(Halves(0, 0.75).rows(sums, "train", "")) == 6


def test_copies_of_a_picture_are_never_parted(photos):
    for copy in range(4):
        draw(photos / "cat" / f"copy{copy}.png", 0)
    for seed in range(4):
        found = own_images(photos, Halves(seed))
        private = {found.sums[row] for row in found.halves.rows(found.sums, "test", "")}
        public = {found.sums[row] for row in found.halves.rows(found.sums, "train", "")}
        assert not private & public


def test_content_changes_with_a_pixel_and_with_a_label_and_not_with_the_place(photos):
    first = own_images(photos, Halves()).content
    moved = photos.rename(photos.with_name("moved"))
    assert own_images(moved, Halves()).content == first
    draw(moved / "cat" / "0.png", 99)
    changed = own_images(moved, Halves()).content
    assert changed != first
    (moved / "cat" / "0.png").rename(moved / "dog" / "0.png")
    assert own_images(moved, Halves()).content not in (first, changed)


def test_images_without_labels_are_of_the_second_of_two_classes(tmp_path):
    for number in range(4):
        draw(tmp_path / f"{number}.png", number)
    half = load_images(own_images(tmp_path, Halves()), "test", 8)
    assert half.class_names == ("not image", "image")
    assert half.labels.tolist() == [1, 1]


def test_image_that_changed_since_the_protocol_was_read_is_refused(photos):
    found = own_images(photos, Halves())
    half = load_images(found, "test", 8)
    for name in found.names:
        draw(photos / name, 1000)
    with pytest.raises(BenchmarkError, match=r"content has sha256 .*, the protocol wants"):
        half.images[:]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "no image in it or its folders"),
        (["a.png"], "1 different items; wanted two or more"),
        (["a.png", "c/b.png"], "images in it and in its folders"),
    ],
)
def test_folder_that_cannot_serve_is_refused(tmp_path, files, said):
    for number, name in enumerate(files):
        draw(tmp_path / name, number)
    with pytest.raises(ProtocolError, match=said):
        own_images(tmp_path, Halves())


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(ProtocolError, match="no such folder"):
        own_images(tmp_path / "none", Halves())


def users(place):
    found = own_text(place, Halves())
    return {**load_text(found, "train").users, **load_text(found, "test").users}, found


def test_text_is_by_file_by_user_or_by_paragraph(tmp_path):
    folder = tmp_path / "letters"
    folder.mkdir()
    for name in ("ann", "bob"):
        (folder / f"{name}.txt").write_text(f"I am {name}")
    lines = [{"user": "ann", "text": "one"}, {"user": 2, "text": "x"}, {"user": "ann", "text": "2"}]
    (tmp_path / "said.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "book.txt").write_text("First.\nStill first.\n\nSecond.\n")
    assert users(folder)[0] == {"ann.txt": "I am ann", "bob.txt": "I am bob"}
    assert users(tmp_path / "said.jsonl")[0] == {"ann": "one\n\n2", "2": "x"}
    read, found = users(tmp_path / "book.txt")
    assert read == {"paragraph 1": "First.\nStill first.", "paragraph 2": "Second."}
    assert found.users_are == "paragraphs of a file"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"user": "a"}', r"a.jsonl:1: no user and text; wanted a JSON object"),
        ("a.jsonl", b'{"user": "a", "text": "b"}\nnonsense', r"a.jsonl:2: Expecting value"),
        ("a.jsonl", b"[" * 200_000, r"a.jsonl:1: "),
        ("a.txt", b"\xff", "not UTF-8"),
        ("a.txt", b"one paragraph", "1 different items"),
        ("none.txt", None, "No such file"),
    ],
)
def test_text_that_cannot_serve_is_refused_in_one_line(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ProtocolError, match=said) as refused:
        own_text(tmp_path / name, Halves())
    assert "\n" not in str(refused.value)


def test_hub_without_a_network_is_unavailable_in_one_line(monkeypatch):
    import huggingface_hub

    def offline(*_args, **_options):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(huggingface_hub, "get_session", offline)
    with pytest.raises(DataUnavailable) as missing:
        load_images(hub_set("image", "who/what", COMMIT, None, Halves()), "test", 8)
    assert "\n" not in str(missing.value)
    assert f"hf download who/what --repo-type dataset --revision {COMMIT}" in str(missing.value)


@pytest.fixture
def downloaded(monkeypatch, tmp_path):
    """Return a folder that the hub's library takes for its copy of who/what at the commit."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub/datasets--who--what/snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def test_hub_set_is_read_by_its_columns(downloaded, photos):
    import datasets

    names = [str(path) for path in sorted(photos.rglob("*.png"))]
    rows = {"picture": names, "kind": [1, 0] * 4, "said": [f"text {n}" for n in range(8)]}
    features = datasets.Features(
        picture=datasets.Image(),
        kind=datasets.ClassLabel(names=["a", "b"]),
        said=datasets.Value("string"),
    )
    table = datasets.Dataset.from_dict(rows, features=features)
    table.to_parquet(downloaded / "train.parquet")
    halves = both(hub_set("image", "who/what", COMMIT, ("picture", "kind"), Halves()))
    assert [len(half.labels) for half in halves] == [4, 4]
    assert halves[0].class_names == ("a", "b")
    assert halves[0].images[:].shape == (4, 3, 8, 8)
    text = load_text(hub_set("text", "who/what", COMMIT, ("said",), Halves()), "test")
    assert len(text.users) == 4
    with pytest.raises(ProtocolError, match="no column 'image'; known: picture, kind, said"):
        load_images(hub_set("image", "who/what", COMMIT, None, Halves()), "test", 8)


def test_hub_set_without_data_is_refused_in_one_line(downloaded):
    (downloaded / "README.md").write_text("empty")
    with pytest.raises(ProtocolError, match=f"who/what@{COMMIT}: ") as refused:
        load_images(hub_set("image", "who/what", COMMIT, None, Halves()), "test", 8)
    assert "\n" not in str(refused.value)
