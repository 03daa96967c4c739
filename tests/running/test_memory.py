import mmap
import sys

import pytest
from torch import nn

from benchmark.running import memory
from benchmark.running.memory import Peak, resident

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
MIB = 2**20


def fresh(mebibytes):
    """Return memory asked of the system: a tensor may get what an allocator kept from before."""
    pages = mmap.mmap(-1, mebibytes * MIB)
    for page in range(0, len(pages), mmap.PAGESIZE):
        pages[page] = 1
    return pages


def test_peak_is_measured_above_the_start_though_freed_before_the_end():
    held = fresh(64)  # not counted
    with Peak(nn.Linear(1, 1)) as peak:
        fresh(96).close()
    assert 90 * MIB < peak.bytes < 110 * MIB
    held.close()


def test_later_peak_forgets_an_earlier_one():
    with Peak(nn.Linear(1, 1)):
        fresh(96).close()
    with Peak(nn.Linear(1, 1)) as peak:
        pass
    assert peak.bytes < 8 * MIB


def test_peak_is_unknown_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_CLEAR", tmp_path)
    with Peak(nn.Linear(1, 1)) as peak:
        pass
    assert peak.bytes is None


def test_unknown_status_field_is_none(monkeypatch, tmp_path):
    assert resident("VmRSS") > MIB
    assert resident("VmNothing") is None
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "none")
    assert resident("VmRSS") is None
