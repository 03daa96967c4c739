"""A report as one HTML file: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Callable, Sequence
from html import escape
from importlib.metadata import version
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from benchmark.metrics import assignment, sequence_assignment
from benchmark.registry import Registry
from gradleak.report import Finding, Report

_SHOWN = 8  # images or sequences of a batch
_PACKAGES = ("gradleak", "torch", "timm", "transformers", "numpy")
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1c2430;background:#f5f6f8;margin:0}
main{max-width:60rem;margin:auto;padding:1.5rem}
section{background:#fff;border-radius:10px;padding:1.2rem 1.6rem;margin:1rem 0;
box-shadow:0 1px 3px #0002}
h1{font-size:1.5rem;line-height:1.3;margin:.4rem 0}h2{font-size:1.05rem;margin:.2rem 0 .6rem}
.model{color:#5a6472;margin:0}.exact{color:#b00020}.partly{color:#a15c00}
.nothing{color:#2b5f8a}.not{color:#6b7280}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{text-align:left;padding:.35rem .6rem .35rem 0;border-top:1px solid #e4e7ec;
vertical-align:top}th{border-top:0;color:#5a6472;font-weight:600}
code{font-size:.88rem;white-space:nowrap}ul{margin:.2rem 0;padding-left:1.2rem}
.pairs{display:flex;flex-wrap:wrap;gap:1.2rem}figure{margin:0}
figcaption{font-size:.85rem;color:#5a6472}
img{width:224px;height:224px;image-rendering:pixelated;border-radius:4px;display:block}
.text{font-family:ui-monospace,monospace;font-size:.9rem;white-space:pre-wrap;
background:#f5f6f8;border-radius:6px;padding:.7rem;margin:.3rem 0 .8rem;overflow-wrap:anywhere}
mark{background:#ffd9dc;color:inherit}.key{font-size:.85rem;color:#5a6472}
"""


def page(reports: Sequence[Report]) -> str:
    """Return the HTML of reports, one after the other."""
    body = "".join(map(_report, reports))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>GradLeak audit</title><style>{_STYLE}</style></head>"
        f"<body><main>{body}{_lowering()}{_versions()}</main></body></html>\n"
    )


def _report(report: Report) -> str:
    kind = report.verdict.split()[0]
    about = f"{report.model}, {report.parameters:,} parameters, audited in {report.seconds:.1f} s"
    head = (
        f'<section><h1 class="{kind}">{escape(report.headline)}</h1>'
        f'<p class="model">{escape(about)}</p>{_items(report.notes)}</section>'
    )
    return head + _shown(report) + _findings(report) + _granted(report)


def _shown(report: Report) -> str:
    best = report.best
    if best is None:
        return ""
    title = f"<h2>What {escape(best.attack)} reads of the update</h2>"
    inner = _images(report, best) if best.images is not None else _texts(report, best)
    return f"<section>{title}{inner}</section>"


def _images(report: Report, best: Finding) -> str:
    assert best.images is not None
    read, truth = best.images, report.truth
    figures = []
    if truth is not None:
        read = read[torch.as_tensor(assignment(truth.double(), read.double()))]
    for row in range(min(len(read), _SHOWN)):
        pictures = _figure(read[row], "reconstruction")
        if truth is not None:
            pictures = _figure(truth[row], "original") + pictures
        figures.append(f'<div class="pairs">{pictures}</div>')
    return "".join(figures)


def _figure(image: Tensor, caption: str) -> str:
    levels = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    grid = levels.permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(grid[..., 0] if grid.shape[2] == 1 else grid[..., :3]).save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _texts(report: Report, best: Finding) -> str:
    assert best.tokens is not None
    read, truth, piece = best.tokens, report.truth, _pieces(report.tokenizer)
    if truth is not None:
        read = read[sequence_assignment(truth, read)]
    lines = []
    for row in range(min(len(read), _SHOWN)):
        right = [False] * read.shape[1] if truth is None else (read[row] == truth[row]).tolist()
        tokens = zip(read[row].tolist(), right, strict=True)
        spans = (_token(piece(token), exact) for token, exact in tokens)
        if truth is not None:
            own = "".join(escape(piece(token)) for token in truth[row].tolist())
            lines.append(f'<div class="key">original</div><div class="text">{own}</div>')
        lines.append(
            f'<div class="key">reconstruction</div><div class="text">{"".join(spans)}</div>'
        )
    if truth is not None:
        lines.append('<p class="key"><mark>Marked</mark> tokens are exact in id and place.</p>')
    return "".join(lines)


def _token(said: str, exact: bool) -> str:
    return f"<mark>{escape(said)}</mark>" if exact else escape(said)


def _pieces(tokenizer: Any) -> Callable[[int], str]:  # noqa: ANN401
    def piece(token: int) -> str:
        if token < 0:
            return " ? "
        return f"{token} " if tokenizer is None else str(tokenizer.decode([token]))

    return piece


def _findings(report: Report) -> str:
    rows = []
    for each in report.findings:
        kind = each.verdict.split()[0] if each.ran else "not"
        told = each.reason or f"{each.measured}; {each.seconds:.2g} s"
        rows.append(
            f"<tr><td><code>{escape(each.attack)}</code></td>"
            f'<td class="{kind}">{each.verdict}</td><td>{escape(told)}</td></tr>'
        )
    head = "<tr><th>attack</th><th>verdict</th><th>measured, or why not</th></tr>"
    return f"<section><h2>Every attack</h2><table>{head}{''.join(rows)}</table></section>"


def _granted(report: Report) -> str:
    return f"<section><h2>What the attacks were given</h2>{_items(report.granted)}</section>"


def _lowering() -> str:
    """Return the board's defenses, and the attacks that know how to meet each."""
    registry, rows = Registry(), []
    for name in registry.names("defense"):
        if name == "none":
            continue
        manifest = registry.find("defense", f"{name},defaults")[0].manifest
        met = ", ".join(registry.adaptive_to(name)) or "none"
        rows.append(
            f"<tr><td><code>{name}</code></td><td>{escape(manifest.title)}</td>"
            f"<td>{escape(met)}</td></tr>"
        )
    head = "<tr><th>defense</th><th>what it does</th><th>attacks made to meet it</th></tr>"
    return (
        "<section><h2>How to lower the leak</h2><p>The board measures these defenses against every "
        "attack, and of some what they cost in accuracy; see its worst cases before choosing "
        "one (<code>gradleak leaderboard</code>). Noise lowers what closed forms read; "
        "withholding or fixing the positions alone does not stop them. A larger batch and more "
        "local steps make reading harder and promise nothing.</p>"
        f"<table>{head}{''.join(rows)}</table></section>"
    )


def _versions() -> str:
    said = [f"{name} {version(name)}" for name in _PACKAGES]
    return f'<p class="key">{escape(", ".join([*said, f"python {platform.python_version()}"]))}</p>'


def _items(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
