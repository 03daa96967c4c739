import os
import threading
import time

import pytest

from benchmark.running.channel import (
    LONGEST_REASON,
    Answer,
    Channel,
    NonsenseError,
    SilenceError,
    one_line,
    say,
)


@pytest.fixture
def pipes():
    """A channel, and the child's ends of its two pipes."""
    (theirs, ours), (read, write) = os.pipe(), os.pipe()
    ends = [
        os.fdopen(ours, "wb", buffering=0),
        os.fdopen(read, "rb", buffering=0),
        os.fdopen(theirs, "rb", buffering=0),
        os.fdopen(write, "wb", buffering=0),
    ]
    yield Channel(*ends[:2]), ends[2], ends[3]
    for end in ends:
        end.close()


def soon():
    return time.monotonic() + 0.2


def answering(pipes, *parts):
    """Answer the first request by these bytes, then be silent."""

    def child():
        theirs.readline()
        for part in parts:
            write.write(part)

    channel, theirs, write = pipes
    thread = threading.Thread(target=child)
    thread.start()
    return channel, thread


def test_answers_come_with_the_bytes_behind_them(pipes):
    def child():
        request = theirs.readline()
        for data in (b"one\n", b"", b"3" * 100_000):
            say(write, Answer(status="completed"), [data])
        assert request == b'{"what": 1}\n'

    channel, theirs, write = pipes
    thread = threading.Thread(target=child)
    thread.start()
    answers = channel.ask({"what": 1}, 3, time.monotonic() + 10, 100_000)
    thread.join()
    assert [data for _, data in answers] == [b"one\n", b"", b"3" * 100_000]
    assert {answer.status for answer, _ in answers} == {"completed"}


@pytest.mark.parametrize(
    "said",
    [
        b"junk\n",
        b"null\n",
        b"[1]\n",
        b"{}\n",
        b'{"status":"made up"}\n',
        b'{"status":"failed","more":1}\n',
        b'{"status":"failed","kind":"defense"}\n',
        b'{"status":"failed","peak_bytes":NaN}\n',
        b'{"status":"failed","peak_bytes":-1}\n',
        b'{"status":"completed","size":-1}\n',
        b'{"status":"completed","size":11}\n',
        b'{"status":"failed","reason":"two\\nlines"}\n',
        b'{"status":"failed","reason":"\\u0000"}\n',
        b'{"status":"failed","reason":"\\ud800"}\n',
        b'{"status":"failed","reason":"\\u202e"}\n',
        b'{"status":"failed","reason":"%b"}\n' % (b"x" * (LONGEST_REASON + 1)),
        b'{"status":"not_applicable","missing":["the moon"]}\n',
        b"[" * 10_000 + b"\n",
        b" " * 2**14 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_answer_is_nonsense(pipes, said):
    channel, thread = answering(pipes, said)
    with pytest.raises(NonsenseError):
        channel.ask({}, 1, time.monotonic() + 5, largest=10)
    thread.join()


def test_answer_that_comes_before_the_question_is_nonsense(pipes):
    channel, _, write = pipes
    say(write, Answer(status="completed"))
    with pytest.raises(NonsenseError):
        channel.ask({}, 1, soon())


def test_bytes_that_are_announced_and_do_not_come_are_waited_for_no_longer_than_told(pipes):
    channel, thread = answering(pipes, b'{"status":"completed","size":10}\nfive5')
    with pytest.raises(TimeoutError):
        channel.ask({}, 1, soon(), largest=10)
    thread.join()


def test_child_that_does_not_read_is_waited_for_no_longer_than_told(pipes):
    channel, _, _ = pipes
    with pytest.raises(TimeoutError):
        channel.ask({"long": "x" * 2**20}, 1, soon())


def test_child_that_closed_its_end_is_silent(pipes):
    channel, _, write = pipes
    write.close()
    with pytest.raises(SilenceError):
        channel.ask({}, 1, soon())


@pytest.mark.parametrize("text", ["a\nb\tc", "\x00\x1b[31m", "x" * 999, "\ud800", "‮ evil", ""])
def test_every_text_can_be_said_in_one_line(text):
    assert Answer(status="failed", reason=one_line(text)).reason is not None
