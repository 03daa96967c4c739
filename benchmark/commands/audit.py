"""`gradleak audit`: files in, a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from benchmark.errors import BenchmarkError


def audit(
    model: Annotated[
        str | None,
        typer.Option(help="timm:NAME, or hf:FOLDER with a config.json.", metavar="MODEL"),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Its weights as the client was sent them.", metavar="FILE")
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option(
            help="Gradients by name; without it the gradient of the input.", metavar="FILE"
        ),
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option("--input", help="The truth: an image, or text for hf:FOLDER.", metavar="FILE"),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Of the images, where known.", metavar="3,7")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Images or sequences.", min=1)] = 1,
    rate: Annotated[
        float | None,
        typer.Option(help="Where the update is a difference of weights, SGD's rate.", metavar="R"),
    ] = None,
    steps: Annotated[int, typer.Option(help="Of SGD behind that difference.", min=1)] = 1,
    attack: Annotated[
        list[str] | None, typer.Option(help="Only this; may be repeated.", metavar="NAME")
    ] = None,
    seconds: Annotated[float, typer.Option(help="For all attacks together.")] = 60.0,
    output: Annotated[Path, typer.Option(help="The report.", metavar="FILE")] = Path("report.html"),
    demo: Annotated[
        bool, typer.Option("--demo", help="A photograph and a text that come with this program.")
    ] = False,
) -> None:
    """Audit one model and update: what does it give away? Writes one HTML file."""
    import gradleak
    from gradleak.demo import demonstrate
    from gradleak.report import save

    if demo:
        reports = demonstrate(seconds)
    elif model is None:
        raise BenchmarkError("wanted --model, or --demo")
    elif update is None and input_ is None:
        raise BenchmarkError("wanted --update, or --input to compute one from")
    else:
        from gradleak.loading import gradient_of, load_model, read_image, read_tensors, read_text

        sent = None if update is None else read_tensors(update)
        network, tokenizer = load_model(model, checkpoint, sent)
        known = _labels(labels)
        given: dict[str, Any] = {"labels": known, "batch_size": batch_size}
        if input_ is not None:
            reader = read_image if tokenizer is None else read_text
            given["truth"] = reader(input_, network, tokenizer)
        if sent is None:
            sent = gradient_of(network, given["truth"], known)
        reports = [
            gradleak.audit(
                network,
                sent,
                tokenizer=tokenizer,
                rate=rate,
                steps=steps,
                seconds=seconds,
                attacks=attack,
                **given,
            )
        ]
    save(reports, output)
    for report in reports:
        print(report)
    print(f"wrote {output}")


def _labels(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BenchmarkError(f"--labels {text!r}: wanted whole numbers, as 3,7") from None
