"""Pictures: the originals, and below them what each attack makes of them under each defense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from benchmark.cell import Cell, negotiate, run_stack
from benchmark.errors import BenchmarkError
from benchmark.federation import DefendedRound, Round
from benchmark.metrics import assignment
from benchmark.metrics.psnr import psnr
from benchmark.tracks import VisionSetting
from benchmark.worker import Worker

_SIDE, _CAPTION, _EMPTY = 1.15, 0.24, 0.42  # inches: a picture, the number below, a row of none
_MARGIN, _LETTER = 0.3, 0.06  # inches: beside the names, and for each of their letters


@dataclass(frozen=True)
class Row:
    """One row of a picture; a missing image has a word in its place."""

    name: str
    images: tuple[Tensor | None, ...]
    captions: tuple[str, ...]


def rows(
    cells: Sequence[Cell],
    setting: VisionSetting,
    plain: Round,
    worker: Worker,
    trials: Sequence[int],
) -> list[Row]:
    """Run cells of one protocol and seed, and return the originals and a row for each cell.

    A column is an image: a trial has as many as its batch, each beside the answer paired with it.
    """
    truths: list[Any] = [plain.truths[trial] for trial in trials]
    originals = [image for truth in truths for image in truth.images]
    drawn = [Row("original", tuple(originals), ("",) * len(originals))]
    for cell in cells:
        defended = DefendedRound(plain, cell.defense.build(), cell.defense.label)
        name = f"{cell.attack.label}\ndefense: {cell.defense.label.replace(',', ', ')}"
        verdict, defended = negotiate(cell, setting, defended, worker, trials[0])
        if verdict.status in ("not_applicable", "unavailable"):
            caption = verdict.status.replace("_", " ")
            drawn.append(Row(name, (None,) * len(originals), (caption,) * len(originals)))
            continue
        outcomes = run_stack(cell, setting, defended, worker, trials)
        images: list[Tensor | None] = []
        captions: list[str] = []
        for truth, outcome in zip(truths, outcomes, strict=True):
            answer = None if outcome.reconstruction is None else outcome.reconstruction.images
            if answer is None:
                images += [None] * len(truth.images)
                captions += [outcome.status] * len(truth.images)
                continue
            answer = answer.clamp(0, 1)
            for original, made in zip(
                truth.images, answer[assignment(truth.images, answer)], strict=True
            ):
                images.append(made)
                captions.append(f"{psnr(original, made):.1f} dB")
        drawn.append(Row(name, tuple(images), tuple(captions)))
    return drawn


def draw(rows: Sequence[Row], output: Path) -> None:
    """Write rows of images as a PNG file.

    Raises:
        BenchmarkError: the file cannot be written.
    """
    columns = len(rows[0].images)
    margin = _MARGIN + _LETTER * max(len(line) for row in rows for line in row.name.split("\n"))
    heights = [_SIDE + _CAPTION if any(i is not None for i in r.images) else _EMPTY for r in rows]
    width, height = margin + _SIDE * columns, sum(heights)
    figure = Figure(figsize=(width, height), dpi=120, facecolor="white")
    FigureCanvasAgg(figure)
    for i, row in enumerate(rows):
        top = height - sum(heights[:i])
        side = heights[i] - _CAPTION
        for j, (image, caption) in enumerate(zip(row.images, row.captions, strict=True)):
            left, bottom, wide = margin + j * _SIDE + 0.04, top - side, _SIDE - 0.08
            if image is not None:
                box = (left / width, bottom / height, wide / width, wide / height)
                axes = figure.add_axes(box)
                axes.axis("off")
                grey = image.shape[0] == 1
                pixels = image[0] if grey else image.permute(1, 2, 0)
                axes.imshow(pixels.numpy(), cmap="gray" if grey else None, vmin=0, vmax=1)
            under = bottom - 0.13 if image is not None else top - side / 2
            place = ((left + wide / 2) / width, under / height)
            figure.text(*place, caption, ha="center", va="center", fontsize=7, color="#444444")
        middle = (top - side / 2) / height
        figure.text((margin - 0.12) / width, middle, row.name, ha="right", va="center", fontsize=8)
    try:
        figure.savefig(output, metadata={"Software": "gradleak"})
    except OSError as error:
        raise BenchmarkError(f"{output}: cannot be written: {error.strerror or error}") from error
