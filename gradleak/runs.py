"""`gradleak.run`: the command of that name, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.errors import BenchmarkError
from benchmark.options import mirror
from benchmark.outputs import results_of

if TYPE_CHECKING:
    import pandas as pd


def run(
    suite: str | Path,
    *,
    attacks: Sequence[str] = (),
    defenses: Sequence[str] = (),
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    results: str | Path | None = None,
    data: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    isolate: bool = False,
    device: str = "auto",
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
) -> pd.DataFrame:
    """Run what is missing of a suite, a protocol, or a protocol file of your own.

    Args:
        suite: its name, or the file.
        attacks: labels as `gradleak list attacks` names them; none are those of the suite.
        defenses: likewise.
        trials: at most the first so many of each seed.
        seeds: other seeds than the protocol's.
        results: folder of the records; else `results`, or `own-results` beside what is your own.
        data: local mirror of data sets and weights; else $GRADLEAK_DATA.
        plugins: folders of more submissions, whose attacks run in processes of their own.
        isolate: run every attack in a process of its own.
        device: `auto`, `cpu` or `cuda`.
        jobs: processes that make cells; 0 as many as this machine has room for.
        engine: `local`, or `ray` for a cluster's machines.
        address: with ray, of the cluster; else one of this machine.

    Returns:
        The records in that folder, a row a trial; see `load_results`.

    Raises:
        BenchmarkError: what does not fit, in one line; or a submission that failed on every trial.
    """
    from benchmark.records import load_results
    from benchmark.running.order import Order
    from benchmark.running.start import carry_out

    folders = tuple(map(Path, plugins))
    place = None if results is None else Path(results)
    order = Order(
        suite=str(suite),
        attacks=tuple(attacks),
        defenses=tuple(defenses),
        trials=trials,
        seeds=None if seeds is None else tuple(seeds),
        device=device,
        results=results_of(place, (str(suite),), folders),
        mirror=mirror(None if data is None else Path(data)),
        plugins=folders,
        isolate=isolate,
        jobs=jobs,
        engine=engine,
        address=address,
    )
    if code := carry_out(order, only_plan=False):
        raise BenchmarkError(f"{suite}: the run ended with code {code}; its records are kept")
    return load_results(order.results)
