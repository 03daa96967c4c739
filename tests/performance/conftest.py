import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

HERE = Path(__file__).parent
ROUNDS = 3
Work = Sequence[object] | Callable[[], dict[str, Any]]


@pytest.fixture
def peers() -> Path:
    """Return the folder of other implementations' runners; skip where none is named."""
    named = os.environ.get("GRADLEAK_PEERS")
    if not named:
        pytest.skip("GRADLEAK_PEERS names no folder of other implementations")
    return Path(named).resolve()


@pytest.fixture
def private_tokens(peers) -> Callable[..., Tensor]:
    """Return what draws the tokens that the peers' runners read, from the folder's own source."""
    return runpy.run_path(str(peers / "common.py"))["private_tokens"]


@pytest.fixture
def side_by_side(peers) -> Callable[..., dict[str, dict[str, Any]]]:
    """Do works in turn: a peer's, words for its runner, which prints a line of JSON, or our own.

    One after the other, and so again: a machine that is busy is busy for all of them. Of each work
    the round of the least seconds is told, for another process can only make it slower.
    """
    places = [peers / "deps", HERE / "peers", peers, HERE.parents[1]]
    path = os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")])

    def done(work: Work) -> dict[str, Any]:
        if callable(work):
            return work()
        runner, *words = map(str, work)
        command = [sys.executable, "-P", "-W", "ignore", str(peers / runner), *words]
        ended = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
        )
        assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr.strip()[-400:]}"
        return json.loads(ended.stdout.splitlines()[-1])

    def run(
        works: dict[str, Work], seconds: Callable[[dict[str, Any]], float]
    ) -> dict[str, dict[str, Any]]:
        rounds = [{who: done(work) for who, work in works.items()} for _ in range(ROUNDS)]
        return {who: min((each[who] for each in rounds), key=seconds) for who in works}

    return run
