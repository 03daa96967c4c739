"""`gradleak check` of a stranger's folder: it, too, runs behind the wall."""

import socket

import pytest

from benchmark.conformance import asking
from benchmark.running.wall import trouble

IMPORTS = {
    "a write beside it": ("open('<place>', 'w')", "loads"),
    "a write into benchmark": ("open(benchmark.__file__, 'a')", "loads"),
    "a look into results": ("os.listdir('<root>/results')", "loads"),
    "a socket": ("socket.create_connection(('127.0.0.1', <port>))", "loads"),
    "forks": ("[os.fork() or time.sleep(9) for _ in range(200)]", "loads"),
    "an exit": ("os._exit(0)", "its process ended with exit code 0 after: says what it is"),
    "a row that is none": ("tell(b'{\"promise\": 1}\\n')", "an answer that makes no sense"),
    "a flood": ("while True: tell(b'x' * 2**20)", "an answer that makes no sense"),
    "an endless loop": ("while True: pass", "after: says what it is"),
}
SOURCE = """
import os, socket, stat, time, benchmark
print("here \\x1b[2J am I", flush=True)

def tell(words):
    for pipe in range(3, 20):
        try:
            mode = os.fstat(pipe).st_mode
            if stat.S_ISFIFO(mode):
                os.write(pipe, words)
        except OSError as error:
            if error.errno == 32:
                os._exit(0)

{case}
"""
QUICK = {"a write beside it", "a row that is none"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[] if c in QUICK else [pytest.mark.slow]) for c in IMPORTS]
)
def test_check_contains(gradleak, plugin, tmp_path, monkeypatch, case):
    if said := trouble():
        pytest.skip(said)
    monkeypatch.setattr(asking, "_LIMIT_SECONDS", 15.0 if "endless" in case else 60.0)
    body, wanted = IMPORTS[case]
    place = tmp_path / "written"
    tmp_path.chmod(0o777)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        for name, value in {"place": place, "root": asking.ROOT, "port": port}.items():
            body = body.replace(f"<{name}>", str(value))
        ended = gradleak("check", plugin("bad", source=SOURCE.format(case=body)))
    assert ended.code == 1
    (line,) = [one for one in ended.out.splitlines() if " fail " in one]
    assert wanted in line
    assert not place.exists()
    assert "bad printed:\nhere  am I" in ended.err  # to its author, without escapes


def test_check_without_bubblewrap_is_refused_in_one_line(gradleak, plugin, monkeypatch):
    monkeypatch.setattr("benchmark.running.wall.trouble", lambda: "bubblewrap is not installed")
    ended = gradleak("check", plugin("mine", source="raise SystemExit('imported')"))
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    assert "bubblewrap is not installed; or trust it by --trust-plugins" in ended.err
