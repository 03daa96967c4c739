"""Protocols that would never be read, or never end: each is one line."""

import os

import pytest

from benchmark.documents import read_document
from benchmark.errors import ProtocolError

LEVELS = [f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]" for i in range(9)]
BAD = {
    "aliases of aliases": "\n".join(["a: &a [x,x,x,x,x,x,x,x,x,x]", *LEVELS]),
    "6000 digits": f"trials: {'9' * 6000}",
    "a date that is none": "title: 2026-13-45",
}


@pytest.mark.parametrize("case", BAD)
def test_protocol_is_refused_in_one_line(tmp_path, case):
    file = tmp_path / "bad.yaml"
    file.write_text(BAD[case])
    with pytest.raises(ProtocolError) as raised:
        read_document(file)
    assert "\n" not in str(raised.value)


def test_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ProtocolError, match="no file"):
        read_document(tmp_path / "pipe.yaml")
