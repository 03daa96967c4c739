"""Where a command writes if it is not told: what is one's own stays beside what is one's own.

The repository's `results/` and `leaderboard.md` are committed, and hold its own protocols and
submissions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmark.errors import BenchmarkError
from benchmark.protocol.places import is_outside

RESULTS = Path("results")
BOARD = Path("leaderboard.md")
OWN_RESULTS = "own-results"


def results_of(
    given: Path | None,
    names: Sequence[str] = (),
    plugins: Sequence[Path] | None = None,
    protocols: Path | None = None,
) -> Path:
    """Return the folder of the records.

    Args:
        given: by the user, who decides.
        names: of protocols and suites, or their files; records lie beside the first from outside.
        plugins: folders of submissions, likewise.
        protocols: a folder of protocols; records lie in it.
    """
    if given is not None:
        return given
    beside = [Path(name).parent for name in names if is_outside(name)]
    beside += [] if protocols is None else [protocols]
    beside += [folder.resolve().parent for folder in plugins or ()]
    return beside[0] / OWN_RESULTS if beside else RESULTS


def canaries_of(results: Path) -> Path:
    """Return the folder of the verified runs of a results folder, in it a folder a key."""
    return results.absolute().with_name(f"{results.absolute().name}-verified")


def board_of(given: Path | None, results: Path) -> Path:
    """Return the file of the board: beside a results folder other than the usual one.

    Raises:
        BenchmarkError: the results folder has no name, so that nothing lies beside it.
    """
    if given is not None:
        return given
    if results.resolve() == RESULTS.resolve():
        return BOARD
    if not results.name:
        raise BenchmarkError(f"--results {results}: wanted --output FILE too")
    return results.with_name(f"{results.name}-leaderboard.md")
