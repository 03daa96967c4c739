import io
import struct
import time

import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.data import images, load_images
from benchmark.data.formats.recordio import RecordFile, identities
from benchmark.errors import BenchmarkError, DataUnavailable

MAGIC = struct.pack("<I", 0xCED7230A)
PEOPLE = [2, 1, 3, 0, 2, 1, 2]  # images of each


def picture(grey):
    content = io.BytesIO()
    Image.new("RGB", (112, 112), (grey, grey, grey)).save(content, "JPEG")
    return content.getvalue()


def packed(content, *labels):
    """Return a record's content: header, further labels, image."""
    first, further = (labels[0], ()) if len(labels) == 1 else (0.0, labels)
    header = struct.pack("<IfQQ", len(further), first, 0, 0)
    return header + struct.pack(f"<{len(further)}f", *further) + content


def framed(content):
    """Return a record as RecordIO writes it: cut where its content holds the magic number."""
    cuts = [at for at in range(0, len(content) - 3, 4) if content[at : at + 4] == MAGIC]
    starts, ends = [0, *(at + 4 for at in cuts)], [*cuts, len(content)]
    record = b""
    for part, (start, end) in enumerate(zip(starts, ends, strict=True)):
        flag = 0 if not cuts else 1 if not part else 3 if part == len(cuts) else 2
        record += MAGIC + struct.pack("<I", flag << 29 | end - start) + content[start:end]
        record += b"\0" * (-len(record) % 4)
    return record


def write(folder, contents):
    """Write records with the keys from 0, and return their offsets."""
    folder.mkdir(parents=True, exist_ok=True)
    offsets, rec = [], b""
    for content in contents:
        offsets.append(len(rec))
        rec += framed(content)
    (folder / "train.rec").write_bytes(rec)
    lines = [f"{key}\t{offset}\n" for key, offset in enumerate(offsets)]
    (folder / "train.idx").write_text("".join(lines))
    return offsets


def published(people=PEOPLE):
    """Return records as InsightFace lays them out; an image's grey is ten times its key."""
    count, first, records = sum(people), 1, []
    for person, images_ in enumerate(people):
        records += [packed(picture(10 * (first + n)), person, 0) for n in range(images_)]
        first += images_
    table, first = [], 1
    for images_ in people:
        table.append(packed(b"", first, first + images_))
        first += images_
    return [packed(b"", count + 1, count + 1 + len(people)), *records, *table]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    images._load.cache_clear()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ms_celeb_1m"


def opened(folder):
    return RecordFile(folder / "train.rec", folder / "train.idx")


def test_images_and_people_are_those_of_the_table(tmp_path, folder):
    write(folder, published())
    train, test = (load_images("ms_celeb_1m", s, 112, tmp_path) for s in ("train", "test"))
    assert train.labels.tolist() == [0, 0, 5]
    assert test.labels.tolist() == [1, 2, 2, 2, 4, 4, 6, 6]
    assert len(train.class_names) == 7
    greys = (test.images[torch.arange(8)].mean((1, 2, 3)) * 255).round().tolist()
    assert greys == [30, 40, 50, 60, 70, 80, 100, 110]


def test_index_in_any_order_is_the_same(tmp_path, folder):
    write(folder, published())
    lines = (folder / "train.idx").read_text().splitlines(keepends=True)
    (folder / "train.idx").write_text("".join(reversed(lines)))
    found = load_images("ms_celeb_1m", "train", 112, tmp_path)
    greys = (found.images[torch.arange(3)].mean((1, 2, 3)) * 255).round().tolist()
    assert greys == [10, 20, 90]


def test_file_without_a_table_is_all_images(folder):
    write(folder, [packed(picture(9), 4), packed(picture(9), 2, 7), packed(picture(9), 0)])
    rows, labels, people = identities(opened(folder))
    assert (rows.tolist(), labels.tolist(), people) == ([0, 1, 2], [4, 2, 0], 5)


@pytest.mark.parametrize("cuts", [1, 3])
def test_content_that_held_the_magic_number_is_joined_again(folder, cuts):
    content = MAGIC.join([b"abcd" * (n + 1) for n in range(cuts)]) + MAGIC + b"xyz"
    write(folder, [packed(b"first", 0), packed(content, 1), packed(b"last", 2)])
    records = opened(folder)
    assert [records.content(row) for row in range(3)] == [b"first", content, b"last"]
    assert (folder / "train.rec").read_bytes().count(MAGIC) == 3 + cuts


def test_offset_that_is_no_record_is_named(tmp_path, folder):
    offsets = write(folder, published())
    lines = (folder / "train.idx").read_text().splitlines()
    lines[3] = f"3\t{offsets[3] + 8}"
    (folder / "train.idx").write_text("\n".join(lines))
    found = load_images("ms_celeb_1m", "test", 112, tmp_path)
    with pytest.raises(BenchmarkError, match=rf"train\.rec: offset {offsets[3] + 8}: 0x.*; wanted"):
        found.images[torch.tensor([0])]
    lines[12] = f"12\t{offsets[12] + 4}"  # an identity's record
    (folder / "train.idx").write_text("\n".join(lines))
    with pytest.raises(BenchmarkError, match=rf"offset {offsets[12] + 4}: no record begins here"):
        identities(opened(folder))


@pytest.mark.parametrize("offset", [-4, 6, 10**12])
def test_offset_outside_the_file_is_named_on_opening(folder, offset):
    write(folder, published())
    with (folder / "train.idx").open("a") as file:
        file.write(f"99\t{offset}\n")
    with pytest.raises(BenchmarkError, match=rf"train\.rec: offset {offset}: key 99 points here"):
        opened(folder)


def test_record_cut_off_by_the_end_of_the_file_is_named(folder):
    offsets = write(folder, [packed(picture(9), 0), packed(picture(9), 1)])
    content = (folder / "train.rec").read_bytes()
    (folder / "train.rec").write_bytes(content[:-40])
    with pytest.raises(BenchmarkError, match=rf"offset {offsets[1]}: the file ends within its"):
        opened(folder).content(1)


def test_image_that_does_not_decode_is_named_with_its_offset(tmp_path, folder):
    contents = published()
    contents[3] = packed(b"no image", 1, 0)
    offsets = write(folder, contents)
    found = load_images("ms_celeb_1m", "test", 112, tmp_path)
    with pytest.raises(BenchmarkError, match=rf"train\.rec: offset {offsets[3]}: cannot identify"):
        found.images[torch.tensor([0])]


@pytest.mark.parametrize("index", ["0\tx\n", "0\n1\n", "", "0 1 2\n"])
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_index_that_is_none_is_named(folder, index):
    write(folder, published())
    (folder / "train.idx").write_text(index)
    with pytest.raises(BenchmarkError, match=r"train\.idx: .*; wanted (lines of )?key and offset"):
        opened(folder)


def test_table_that_does_not_match_the_images_is_named(folder):
    contents = published()
    contents[-2] = packed(b"", 9, 11)
    write(folder, contents)
    with pytest.raises(BenchmarkError, match="7 identities hold 12 images; record 0 says 11"):
        identities(opened(folder))
    write(folder, published()[:-1])
    with pytest.raises(BenchmarkError, match=r"train\.rec: its index has no key 18"):
        identities(opened(folder))


def test_table_of_more_than_the_index_has_is_named(folder):
    write(folder, [packed(b"", 1e9, 2e9), *published()[1:]])
    with pytest.raises(BenchmarkError, match="images of 1000000000 identities; its index has 19 k"):
        identities(opened(folder))


@pytest.mark.parametrize("label", [0.5, -1, 1e9])
def test_label_that_is_no_identity_is_named(folder, label):
    write(folder, [packed(picture(9), label)])
    with pytest.raises(BenchmarkError, match="a label is no identity"):
        identities(opened(folder))


def test_missing_index_is_unavailable(tmp_path, folder):
    write(folder, published())
    (folder / "train.idx").unlink()
    with pytest.raises(DataUnavailable, match=r"tried .*train\.idx"):
        load_images("ms_celeb_1m", "test", 112, tmp_path)


@pytest.mark.slow
def test_a_million_records_open_in_two_seconds(folder):
    count, people = 1_000_000, 10_000
    words = np.zeros((1 + count + people, 12), "<u4")  # 48 bytes a record, two labels each
    words[:, :3] = 0xCED7230A, 40, 2
    labels = words.view("<f4")[:, 8:10]
    labels[0] = 1 + count, 1 + count + people
    labels[1 + count :, 0] = 1 + np.arange(people) * (count // people)
    labels[1 + count :, 1] = labels[1 + count :, 0] + count // people
    folder.mkdir()
    words.tofile(folder / "train.rec")
    with (folder / "train.idx").open("w") as file:
        file.writelines(f"{key}\t{48 * key}\n" for key in range(len(words)))
    start = time.perf_counter()
    rows, found, several = identities(opened(folder))
    assert time.perf_counter() - start < 2
    assert (len(rows), several) == (count, people)
    assert np.array_equal(found, np.repeat(np.arange(people), count // people))
