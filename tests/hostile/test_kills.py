"""What ends an attack's process, or forges what it says; the run goes on."""

import os
import time

import pytest
import torch

from benchmark.errors import PluginError
from benchmark.registry import Registry
from benchmark.running import process
from benchmark.running.sandbox import Sandbox

DEADLY = {
    "Python that swallows the alarm": (
        "while True:\n  try: time.sleep(9)\n  except BaseException: pass",
        "and was killed",
    ),
    "SIGSTOP": ("os.kill(os.getpid(), signal.SIGSTOP)", "and was killed"),
    "everyone killed": (
        "for pid in (os.getppid(), 1, -1, os.getpid()):\n"
        "  try: os.kill(pid, 9)\n"
        "  except OSError: pass",
        "its process died",
    ),
    "a size of 64 GiB": ('say(b\'{"status":"completed","size":68719476736}\\n\')', "no sense"),
}
SLOW = {
    "seconds that are NaN": ('say(b\'{"status":"completed","seconds":NaN}\\n\')', "no sense"),
    "C that never ends": (
        "import collections; collections.deque(itertools.count(), maxlen=0)",
        "and was killed",
    ),
    "a line that never ends": (
        "signal.alarm(0)\nwhile True: say(b'x' * 1000)",
        "no sense",
    ),
    "an answer that is cut": (
        'say(b\'{"status":"completed","size":999}\\nabc\')\nos._exit(0)',
        "no sense",
    ),
    "seconds that are negative": (
        'say(b\'{"status":"completed","seconds":-1823}\\n\')',
        "no sense",
    ),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "its process died: signal SIGINT"),
    "exit of C": ("os._exit(0)", "its process died: exit code 0"),
    "segmentation fault": ("ctypes.string_at(0)", "its process died: signal SIGSEGV"),
    "an answer, then another": (
        'say(b\'{"status":"completed","size":0}\\n\' * 2)\nreturn grey(seen)',
        "no sense",
    ),
    "patience": ("signal.alarm(0)\nsignal.setitimer(0, 0)\ntime.sleep(60)", "and was killed"),
}
SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in SLOW]


@pytest.mark.parametrize("name", [*DEADLY, *SLOWLY])
def test_what_kills_its_process_is_recorded_and_the_run_goes_on(stage, before, quickly, name):
    case, reason = (DEADLY | SLOW)[name]
    record = stage.play(case, brief=reason == "and was killed")
    assert record.status == ("timed_out" if reason == "and was killed" else "failed")
    assert reason in record.reason
    assert record.seconds < 60
    assert stage.honest() == before


@pytest.mark.parametrize("how", ["killed"])
def test_daemon_does_not_outlive_its_parent(stage, before, how):
    mark = f"{10**6 + os.getpid()}"
    case = f"subprocess.Popen(['/bin/sleep', '{mark}'], start_new_session=True)\nreturn grey(seen)"
    assert stage.play(case).status == "completed"
    assert mark in processes()
    stage.sandbox._children["hostile"].kill()
    until = time.monotonic() + 5
    while mark in processes() and time.monotonic() < until:
        time.sleep(0.01)
    assert mark not in processes()


IMPORTS = {
    "exit of C, once it finds no files of the run": (
        "import os\ntry: open('results/quick_digits_a/random.jsonl')\n"
        "except FileNotFoundError: os._exit(0)",
        "its process could not start: its process died: exit code 0",
    ),
}
SLOW_IMPORTS = {
    "HTML in lines": ("raise ValueError('<b>\\n\\x00' * 999)", "ValueError: <b>"),
    "100 GiB": ("bytearray(100 << 30)", "MemoryError"),
    "forever": ("while True: pass", "and was killed"),
}
SLOWLY_IMPORTED = [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW_IMPORTS.values()]


@pytest.mark.usefixtures("_wall")
@pytest.mark.parametrize(("source", "reason"), [*IMPORTS.values(), *SLOWLY_IMPORTED], ids=str)
def test_hostile_import_is_refused_in_one_line(plugin, monkeypatch, source, reason):
    monkeypatch.setattr(process, "STARTING_SECONDS", 60.0)
    (found,) = Registry([plugin("bad", source=source)]).find("attack", "bad")
    with Sandbox(torch.device("cpu")) as sandbox:
        with pytest.raises(PluginError, match=reason) as raised:
            sandbox.load(found)
        assert sandbox.wall == "bubblewrap"
    assert str(raised.value).isprintable()


def processes():
    """Return the arguments of every process here."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                found |= set(file.read().split("\0"))
        except OSError:
            continue
    return found
