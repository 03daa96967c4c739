"""What one image's gradient gives away, by model: measured by `gradleak survey`, kept in a file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import torch

from benchmark.contract import ImageBatch, Stack
from benchmark.data import load_images
from benchmark.errors import BenchmarkError, NotApplicable
from benchmark.federation import fedsgd
from benchmark.registry import Registry
from benchmark.running.inprocess import attempt, verdict
from benchmark.running.provenance import provenance
from benchmark.victims import ImageVictim
from gradleak.auditing import observation
from gradleak.families import FORMS, Surveyed, read, write
from gradleak.judging import score_images
from gradleak.wrapping import wrap

TRIALS = 10
_CLASSES, _SIZE, _SECONDS = 10, 224, 600.0  # photographs are of 224 px
FAMILIES = (
    *("vit_tiny_patch16_224", "vit_small_patch16_224", "vit_base_patch16_224"),
    *("vit_base_patch32_224", "vit_base_patch8_224", "vit_large_patch32_224"),
    *("deit_tiny_patch16_224", "deit_small_patch16_224", "deit_base_distilled_patch16_224"),
    *("deit3_small_patch16_224", "deit3_base_patch16_224"),
    *("vit_base_patch16_siglip_224", "vit_base_patch16_clip_224", "vit_base_patch32_clip_224"),
    *("vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2"),
    *("vit_so150m_patch16_reg4_gap_256", "vit_betwixt_patch16_reg4_gap_256"),
    *("vit_medium_patch16_gap_256", "vit_wee_patch16_reg1_gap_256", "flexivit_base"),
    *("cait_xxs24_224", "cait_s24_224", "eva02_tiny_patch14_224", "eva02_base_patch14_224"),
    *("beit_base_patch16_224", "vit_small_patch16_dinov3", "vit_relpos_base_patch16_224"),
    *("mobilevit_s", "swin_tiny_patch4_window7_224", "convnext_tiny", "resnet50"),
)
"""By timm's names: what is read of each, or why nothing is."""


def survey(names: Sequence[str], trials: int) -> Iterator[Surveyed]:
    """Measure models that are not in the file, write each into it, and yield it.

    Args:
        names: of timm's models; none are all of `FAMILIES`.
        trials: photographs, a gradient each.

    Raises:
        BenchmarkError: no such model.
    """
    found = read()
    for name in names or FAMILIES:
        if name not in found or names:
            found[name] = measure(name, trials)
            order = [*FAMILIES, *found]
            rows = sorted(found.values(), key=lambda each: order.index(each.name))
            write(rows)
        yield found[name]


def measure(name: str, trials: int) -> Surveyed:
    """Return what closed forms read of gradients of one photograph each, at random weights.

    Raises:
        BenchmarkError: no such model.
    """
    import timm

    # the file that is written is part of the checkout, and would call it dirty
    place = provenance(torch.device("cpu")).model_dump(mode="json", exclude={"dirty"})
    torch.manual_seed(0)
    try:
        network = timm.create_model(name, num_classes=_CLASSES)
        made: Any = network
        if made.default_cfg["input_size"][-1] != _SIZE and hasattr(network, "pos_embed"):
            network = timm.create_model(name, num_classes=_CLASSES, img_size=_SIZE)
    except RuntimeError as error:
        raise BenchmarkError(f"timm has no model {name!r}") from error
    try:
        victim = ImageVictim.of(wrap(network))
    except NotApplicable as reason:
        return Surveyed(name=name, declined=str(reason), provenance=place)
    parts = victim.anatomy
    images = load_images("photographs", "test", parts.size)
    rows = torch.randperm(len(images.labels), generator=torch.Generator().manual_seed(0))[:trials]
    registry = Registry()
    forms = {form: registry.find("attack", form)[0].build() for form in FORMS}
    scores: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    seconds: dict[str, list[float]] = {}
    for trial, row in enumerate(rows.tolist()):
        image, label = images.images[torch.tensor([row])], torch.tensor([trial % _CLASSES])
        update = fedsgd(victim, ImageBatch(image, label))
        seen = observation(victim, update, None, 1, None, None, None, _SECONDS)
        for form, attack in forms.items():
            asked = verdict(attack, seen)
            if asked.status != "applies":
                reasons[form] = asked.reason or asked.status
                continue
            started = time.perf_counter()
            outcome = attempt(attack, Stack([seen]))[0]
            answer = outcome.reconstruction
            if answer is None or answer.images is None:
                reasons[form] = outcome.reason or "no answer"
                continue
            seconds.setdefault(form, []).append(time.perf_counter() - started)
            told = score_images(image, answer.images.clamp(0, 1), victim.spec.std)["psnr"]
            scores.setdefault(form, []).append(told or 0.0)
    return Surveyed(
        name=name,
        size=parts.size,
        patches=parts.patches,
        prefix=parts.prefix_tokens,
        width=parts.width,
        pixels=parts.channels * parts.patch**2,
        scores=scores,
        reasons=reasons,
        seconds={form: median(each) for form, each in seconds.items()},
        layer_scale=_layer_scale(victim),
        provenance=place,
    )


def _layer_scale(victim: ImageVictim) -> float | None:
    """Return the mean of what scales the blocks' branches, where it is far from 1."""
    named, ends = victim.weights().items(), (".gamma", "gamma_1")
    scales = [weight.detach() for name, weight in named if name.endswith(ends)]
    mean = float(torch.cat(scales).abs().mean()) if scales else 1.0
    return mean if mean < 0.1 else None
