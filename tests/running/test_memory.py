import sys

import pytest
import torch
from torch import nn

from benchmark.running import memory
from benchmark.running.memory import Peak, resident

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
MIB = 2**20


def test_peak_is_measured_above_the_start_though_freed_before_the_end():
    held = torch.ones(64 * MIB // 4)  # not counted
    with Peak(nn.Linear(1, 1)) as peak:
        torch.ones(96 * MIB // 4)
    assert 90 * MIB < peak.bytes < 110 * MIB
    assert held.sum() > 0


def test_later_peak_forgets_an_earlier_one():
    with Peak(nn.Linear(1, 1)):
        torch.ones(96 * MIB // 4)
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
