import dataclasses
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import datasets
import huggingface_hub
import numpy as np
import pytest

from benchmark.data import CATALOGUE
from benchmark.data.fetch import fetch
from benchmark.data.images import READERS
from benchmark.data.mirror import read_mnist
from benchmark.data.pictures import Pictures
from benchmark.errors import BenchmarkError, DataUnavailable

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
LABELS = np.array([3, 1, 4, 1])
REVISION = CATALOGUE["mnist"].hub.revision


class Hub(BaseHTTPRequestHandler):
    """A hub of one file: answers ranges, and can hang up early or not know the file."""

    content, stops, ranges, known, asked = b"", None, True, True, []

    def do_HEAD(self):
        self.answer(self.content if self.known else None, 0)

    def do_GET(self):
        start = int((self.headers["Range"] or "bytes=0-")[6:-1]) if self.ranges else 0
        self.asked.append(start)
        self.answer(self.content if self.known else None, start)
        self.wfile.write(self.content[start : self.stops])

    def answer(self, content, start):
        code = 404 if content is None else 416 if start and start >= len(content) else 206
        self.send_response(200 if code == 206 and not start else code)
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(max(0, len(content or b"") - start)))
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Serve a small MNIST in place of the hub."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"image": list(PIXELS), "label": LABELS.tolist()}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    handler = type("Served", (Hub,), {"content": content, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/test.parquet"
    monkeypatch.setattr(huggingface_hub, "hf_hub_url", lambda *_, **__: url)
    mnist = CATALOGUE["mnist"]
    small = dataclasses.replace(
        mnist,
        digest={"test": Pictures(PIXELS, LABELS, "").digest()},
        hub=dataclasses.replace(mnist.hub, files={"test": "mnist/test.parquet"}),
    )
    monkeypatch.setitem(CATALOGUE.read, "mnist", small)
    yield handler
    server.shutdown()
    server.server_close()


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "mirror").mkdir()
    return tmp_path / "mirror"


def test_set_is_fetched_once_and_read_from_the_mirror(hub, mirror):
    (line,) = fetch("mnist", mirror)
    assert line == f"{mirror}/mnist/test.parquet: {len(hub.content)} bytes"
    assert files(mirror) == ["test.parquet"]
    read_hub = READERS["mnist"][1]
    assert np.array_equal(read_hub(CATALOGUE["mnist"], "test", mirror).pixels, PIXELS)
    assert [*fetch("mnist", mirror)] == [f"{mirror}/mnist/test.parquet: already there"]
    assert hub.asked == [0]


def test_interrupted_download_goes_on_where_it_stopped(hub, mirror):
    hub.stops = 1000
    with pytest.raises(DataUnavailable, match=r"hub ylecun/mnist \(\w+; give the same command"):
        next(fetch("mnist", mirror))
    assert files(mirror) == ["test.parquet.partial"]
    assert (mirror / "mnist/test.parquet.partial").stat().st_size == 1000
    hub.stops = None
    assert len([*fetch("mnist", mirror)]) == 1
    assert hub.asked == [0, 1000]
    assert (mirror / "mnist/test.parquet").read_bytes() == hub.content


@pytest.mark.parametrize("kept", [1000, None], ids=["part", "whole"])
def test_partial_file_is_no_matter_to_a_hub_without_ranges_or_when_it_is_whole(hub, mirror, kept):
    hub.ranges = kept is None
    (mirror / "mnist").mkdir()
    (mirror / "mnist/test.parquet.partial").write_bytes(hub.content[:kept])
    assert len([*fetch("mnist", mirror)]) == 1
    assert (mirror / "mnist/test.parquet").read_bytes() == hub.content


def test_file_with_another_digest_than_the_hub_states_is_deleted(hub, mirror):
    (mirror / "mnist").mkdir()
    (mirror / "mnist/test.parquet.partial").write_bytes(b"x" * 1000)
    wanted = hashlib.sha256(hub.content).hexdigest()
    with pytest.raises(BenchmarkError, match=rf"the file has sha256 \w{{64}}, .* states {wanted}"):
        next(fetch("mnist", mirror))
    assert files(mirror) == []


def test_content_with_another_digest_than_the_catalogue_s_is_deleted(hub, mirror, monkeypatch):
    other = dataclasses.replace(CATALOGUE["mnist"], digest={"test": "0" * 64})
    had = CATALOGUE["mnist"].digest["test"]
    monkeypatch.setitem(CATALOGUE.read, "mnist", other)
    with pytest.raises(BenchmarkError, match=rf"sha256 {had}, the catalogue wants 0{{64}}"):
        next(fetch("mnist", mirror))
    assert files(mirror) == []


def test_file_in_the_mirror_that_is_none_is_named_and_left(hub, mirror):
    (mirror / "mnist").mkdir()
    (mirror / "mnist/test.parquet").write_bytes(b"no parquet")
    with pytest.raises(BenchmarkError, match=r"test\.parquet: .*; wanted mnist test as parquet"):
        next(fetch("mnist", mirror))
    assert files(mirror) == ["test.parquet"]


def test_file_the_hub_does_not_know_is_unavailable_and_nothing_is_written(hub, mirror):
    hub.known = False
    with pytest.raises(DataUnavailable, match="get it by: hf download ylecun/mnist"):
        next(fetch("mnist", mirror))
    assert not [*mirror.iterdir()]


def test_command_offline_ends_in_one_line_and_writes_nothing(gradleak, mirror, monkeypatch):
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_url", lambda *_, **__: "http://127.0.0.1:9/test.parquet"
    )
    ended = gradleak("data", "fetch", "cifar10", "--data", mirror)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("gradleak: error: cifar10 is not available: tried hub uoft-cs/")
    assert ended.err.count("\n") == 1
    assert not [*mirror.iterdir()]


def test_command_fetches_and_says_where(gradleak, hub, mirror):
    ended = gradleak("data", "fetch", "mnist", "--data", mirror)
    assert ended.code == 0
    assert ended.out == f"{mirror}/mnist/test.parquet: {len(hub.content)} bytes\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("imagenet", "imagenet is not available: .*; get it by: gated: accept the terms"),
        ("digits", "digits is not available: .*; see gradleak show digits"),
        ("mnist", "no mirror to fetch mnist into; wanted --data DIR or GRADLEAK_DATA"),
        ("nonesuch", "no data set 'nonesuch'; known: "),
    ],
)
def test_set_that_cannot_be_fetched_is_answered_with_what_to_do(name, said):
    with pytest.raises(BenchmarkError, match=said):
        next(fetch(name, None))


def test_idx_files_are_preferred_to_what_was_fetched():
    assert READERS["mnist"][0] is read_mnist
