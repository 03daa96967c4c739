"""What closed forms read of families of models: kept in a file, told as a page and as a list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict
from tabulate import tabulate

FILE = Path(__file__).with_name("victims.json")
FORMS = ("position_closed_form", "span_closed_form", "position_closed_form,prior=total_variation")

_HEAD = """# Which models give an image away

One photograph of 224 px, its gradient at random weights, batch size known, no defense: PSNR in
dB that closed forms read, the median of {trials} images and [the least, the most]. Above 48.1 dB
every pixel is right to one level of 8 bits. `gradleak survey` measures this and writes the page;
`gradleak list victims` prints it; `gradleak audit` tells the same of a model of your own, at its
own weights.

- **Positions**: `position_closed_form`, from the gradient of learned positions; exact where patches
  are fewer than the width, whatever blocks follow.
- **Span**: `span_closed_form`, from the first attention's gradient alone, so that a client that
  withholds or fixes its positions is read too; wants the width less the tokens to be no less than
  the patches, or than the pixels of a patch.
- **With a prior**: positions, and total variation where they leave pixels open.
"""


class Surveyed(BaseModel):
    """One model of random weights, and what closed forms read of one image's gradient.

    Attributes:
        declined: why no closed form applies; then nothing else is told.
        scores: PSNR in dB by form, an image each; empty where it does not apply.
        reasons: why a form does not.
        seconds: median of a form's solve.
        layer_scale: by which blocks are scaled down at their start, so that little of a gradient
            tells positions apart; None without.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    declined: str | None = None
    size: int = 0
    patches: int = 0
    prefix: int = 0
    width: int = 0
    pixels: int = 0
    scores: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    seconds: dict[str, float] = {}
    layer_scale: float | None = None
    provenance: dict[str, Any]

    def limit(self) -> str:
        """Return what limits the closed forms, by shapes.

        Positions give as many equations of a patch as the width, one a patch. The span gives the
        width less its tokens, of the place of a patch in the span of all patches.
        """
        if self.declined is not None:
            return self.declined
        said = []
        if self.patches >= self.width:
            said.append(f"positions: {self.patches} patches, width {self.width}")
        unknowns = min(self.patches, self.pixels)
        equations = max(self.width - self.patches - self.prefix, 0)
        if (reason := self.reasons.get(FORMS[1])) is not None:
            said.append(f"no span: {reason}")
        elif equations < unknowns:
            said.append(f"span: {equations} equations for {unknowns} unknowns of a patch")
        scaled = "" if self.layer_scale is None else f", LayerScale of {self.layer_scale:.0e}"
        return "; ".join([*said, f"rounding of float32{scaled}"])


def read() -> dict[str, Surveyed]:
    """Return what is measured, by name."""
    if not FILE.is_file():
        return {}
    return {each["name"]: Surveyed.model_validate(each) for each in json.loads(FILE.read_text())}


def write(found: Sequence[Surveyed]) -> None:
    """Keep what is measured."""
    FILE.write_text(json.dumps([each.model_dump(mode="json") for each in found], indent=1) + "\n")


def page(found: Sequence[Surveyed]) -> str:
    """Return the page: a table of what was read, and one of what declines, with the reason."""
    read = [each for each in found if each.declined is None]
    other = [each for each in found if each.declined is not None]
    trials = max((len(told) for each in read for told in each.scores.values()), default=0)
    headers = ["Model", "Patches", "Width", "Pixels", "Positions", "Span", "With a prior", "Limit"]
    rows = [
        [f"`{e.name}`", e.patches, e.width, e.pixels, *(_told(e, f) for f in FORMS), e.limit()]
        for e in read
    ]
    sure = "Attacks that are no closed form, searches, are not tried here."
    blocks = [_HEAD.format(trials=trials), _table(headers, rows)]
    if other:
        blocks += ["## Models that closed forms do not fit", sure]
        blocks.append(_table(["Model", "Why"], [[f"`{e.name}`", e.limit()] for e in other]))
    return "\n".join(f"{block.strip()}\n" for block in blocks)


def rows(found: Sequence[Surveyed]) -> tuple[list[str], list[list[object]]]:
    """Return headers and rows of `gradleak list victims`."""
    headers = ["model", "positions, dB", "span, dB", "what limits it"]
    return headers, [
        [each.name, *(_middle(each, form) for form in FORMS[:2]), each.limit()] for each in found
    ]


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


def _middle(each: Surveyed, form: str) -> str:
    return f"{median(each.scores[form]):.0f}" if form in each.scores else "-"


def _told(each: Surveyed, form: str) -> str:
    told = each.scores.get(form)
    if not told:
        return "—"
    text = f"{median(told):.1f} [{min(told):.0f}, {max(told):.0f}]"
    return text.replace(" ", "\u00a0")  # on one line
