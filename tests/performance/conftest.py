import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROUNDS = 3


@pytest.fixture
def side_by_side() -> Callable[..., dict[str, dict[str, Any]]]:
    """Run programs of the folder `GRADLEAK_PEERS` in turn; skip where none is named.

    Each of them, a peer's or our own, prints what it found in a line of JSON. They are run one
    after the other, and so again: a machine that is busy is busy for all of them. Of each the
    round of the least seconds is told, for another process can only make it slower.
    """
    named = os.environ.get("GRADLEAK_PEERS")
    if not named:
        pytest.skip("GRADLEAK_PEERS names no folder of other implementations")
    folder = Path(named).resolve()
    places = [str(folder / "deps"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}

    def ran(command: Sequence[object]) -> dict[str, Any]:
        words = [sys.executable, "-W", "ignore", *map(str, command)]
        ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, f"{' '.join(words)}: {ended.stderr.strip()[-400:]}"
        return json.loads(ended.stdout.splitlines()[-1])

    def run(
        programs: dict[str, Sequence[object]], seconds: Callable[[dict[str, Any]], float]
    ) -> dict[str, dict[str, Any]]:
        rounds = [{who: ran(command) for who, command in programs.items()} for _ in range(ROUNDS)]
        return {who: min((each[who] for each in rounds), key=seconds) for who in programs}

    return run
