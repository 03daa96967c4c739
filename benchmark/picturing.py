"""The picture of `gradleak picture`: originals and reconstructions side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmark.cell import Cell
from benchmark.errors import ProtocolError
from benchmark.leaderboard.gallery import draw, rows
from benchmark.protocol import load_protocol
from benchmark.registry import Registry
from benchmark.running.device import device_named
from benchmark.running.inprocess import InProcess
from benchmark.running.wall import demand_trust
from benchmark.tracks import VisionSetting, load_setting


def picture(
    protocol: str,
    output: Path,
    attacks: Iterable[str],
    defenses: Iterable[str],
    trials: int,
    seed: int,
    mirror: Path | None,
    plugins: Iterable[Path] | None,
    trust: bool = False,
) -> None:
    """Write a PNG of a row an attack and defense, a column an image.

    Raises:
        ProtocolError: no such protocol, or one of text.
        PluginError: no such submission, or one from outside that is not trusted.
    """
    chosen, registry = load_protocol(protocol), Registry(plugins or ())
    cells = [
        Cell(chosen, one, attack, seed)
        for attack in registry.select("attack", attacks)
        for one in registry.select("defense", defenses)
    ]
    for cell in () if trust else cells:
        demand_trust(cell.attack)
        demand_trust(cell.defense)
    setting = load_setting(chosen, mirror, device_named("auto"))
    if not isinstance(setting, VisionSetting):
        raise ProtocolError(f"{protocol} is of text; a picture shows images")
    columns = range(min(trials, chosen.trials))
    draw(rows(cells, setting, setting.round(seed), InProcess(), columns), output)
