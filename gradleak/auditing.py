"""`gradleak.audit`: what does this update of my model give away?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.contract import (
    Anatomy,
    Budget,
    Grant,
    ImageBatch,
    LocalTraining,
    Observation,
    TextBatch,
    ThreatModel,
    Update,
    Victim,
    observe,
)
from benchmark.errors import BenchmarkError
from benchmark.registry import Registry
from benchmark.seeds import generator
from benchmark.victims import ImageVictim, TextVictim
from gradleak.judging import CONSISTENT, distance
from gradleak.report import Report
from gradleak.running import Runner
from gradleak.updates import Sent, in_gradients, read_difference, read_update
from gradleak.wrapping import wrap

_MEMORY = 4 * 2**30  # bytes that a search may fill with rows


def audit(
    model: nn.Module,
    update: Sent | None = None,
    *,
    before: Mapping[str, Tensor] | None = None,
    after: Mapping[str, Tensor] | None = None,
    rate: float | None = None,
    steps: int = 1,
    size: int | None = None,
    length: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    batch_size: int | None = None,
    labels: int | Sequence[int] | Tensor | None = None,
    truth: Tensor | None = None,
    tokenizer: Any = None,  # noqa: ANN401  (whatever has decode)
    mask_token: int | None = None,
    seconds: float = 60.0,
    attacks: Sequence[str] | None = None,
    anatomy: Anatomy | None = None,
) -> Report:
    """Read what an update of a model gives away of the batch behind it, and report it.

    Every attack of the board that fits an honest server runs, closed forms first, until the time is
    spent; searches are left out once the batch has been read exactly. The model is copied and
    stays as it is, and so does the update. Loss is the mean cross entropy, dropout off.

    Args:
        model: a vision transformer whose structure is found (timm, `transformers`, torchvision),
            GPT2LMHeadModel or BertForMaskedLM, at the weights that the client was sent.
        update: gradients by parameter name, in a list in the order of `named_parameters`, or the
            module whose `.grad` they are; with `rate` a difference of weights, after less before.
        before: state dict of the weights sent; the model's own where not given.
        after: state dict of the weights returned, in place of an update.
        rate: learning rate of the client's SGD, which makes an update a difference of weights.
        steps: of SGD behind that difference.
        size: side of the square images in pixels, else what the model's positions are made for.
        length: tokens of a sequence, else what the positions' gradient or the truth tells.
        mean: of the normalisation of pixels in [0, 1], a channel; else what timm states, or 0.
        std: likewise, or 1.
        batch_size: images or sequences; else as the truth's, or 1.
        labels: of the images, where the server knows them.
        truth: images in [0, 1], (batch, channel, height, width), or tokens (batch, length); kept
            from the attacks, and scores are computed.
        tokenizer: has `decode`; makes text of tokens, and names the mask token.
        mask_token: of a masked language model, where no tokenizer says it.
        seconds: for all attacks together.
        attacks: labels as `gradleak list attacks` names them; None is all.
        anatomy: where the model keeps its parts, for one that is not understood.

    Raises:
        NotApplicable: the model is not understood; the reason in one line.
        BenchmarkError: names, shapes or arguments that do not fit, in one line.
    """
    started = time.perf_counter()
    mask = mask_token if mask_token is not None else getattr(tokenizer, "mask_token_id", None)
    victim = wrap(
        model, size=size, mean=mean, std=std, mask_token=mask, weights=before, anatomy=anatomy
    )
    sent, local = _sent(model, victim, update, before, after, rate, steps, batch_size or 1)
    if seconds <= 0:
        raise BenchmarkError(f"seconds is {seconds}; wanted more than 0")
    count = batch_size or (1 if truth is None else len(truth))
    seen = observation(victim, sent, local, count, labels, length, truth, seconds)
    if truth is not None:
        truth = _checked(truth, seen)
    registry = Registry()
    chosen = registry.select("attack", attacks or ())
    if attacks is None:
        chosen = [
            each
            for each in chosen
            if not each.manifest.control and each.manifest.server == "honest_but_curious"
        ]
    runner = Runner(seen, truth, started + seconds)
    return Report(
        model=type(model).__name__,
        parameters=sum(weight.numel() for weight in victim.weights().values()),
        granted=_granted(victim, seen, truth),
        notes=_notes(seen, truth),
        findings=tuple(runner.run(chosen)),
        truth=truth,
        tokenizer=tokenizer,
        seconds=time.perf_counter() - started,
    )


def _sent(
    model: nn.Module,
    victim: Victim,
    update: Sent | None,
    before: Mapping[str, Tensor] | None,
    after: Mapping[str, Tensor] | None,
    rate: float | None,
    steps: int,
    batch_size: int,
) -> tuple[Update, LocalTraining | None]:
    """Return the update in units of a gradient, and how its client trained."""
    if (update is None) == (after is None):
        raise BenchmarkError("wanted an update, or after= with rate=; one of both")
    if after is not None and rate is None:
        raise BenchmarkError("after= is a state dict of trained weights; wanted rate= beside it")
    if rate is not None and (rate <= 0 or steps < 1):
        raise BenchmarkError(f"rate {rate} and steps {steps}; wanted more than 0, and 1 or more")
    weights = victim.weights()
    if after is not None:
        own = dict(model.named_parameters()) if before is None else before
        update = read_difference(own, after, list(weights))
    assert update is not None
    found = read_update(update, weights)
    if rate is None:
        return found, None
    return in_gradients(found, rate, steps), LocalTraining(steps, batch_size, rate)


def observation(
    victim: Victim,
    update: Update,
    local: LocalTraining | None,
    batch_size: int,
    labels: int | Sequence[int] | Tensor | None,
    length: int | None,
    truth: Tensor | None,
    seconds: float,
) -> Observation:
    """Return what an honest server sees of an update, with the facts that `audit` is given."""
    facts: dict[Grant, Any] = {Grant.BATCH_SIZE: batch_size}
    if isinstance(victim, TextVictim):
        told = None if truth is None else truth.shape[-1]
        facts[Grant.LENGTH] = length or told or _length(victim, update)
    elif labels is not None:
        known = torch.as_tensor(labels, dtype=torch.int64).flatten()
        classes = ImageVictim.of(victim).spec.classes
        if len(known) != batch_size or not 0 <= int(known.min()) <= int(known.max()) < classes:
            raise BenchmarkError(
                f"labels {known.tolist()}: wanted {batch_size} from 0 to {classes - 1}"
            )
        facts[Grant.LABELS] = known
    return observe(
        ThreatModel(grants=frozenset(facts)),
        update=update,
        model=victim,
        budget=Budget(seconds, _MEMORY),
        generator=generator(0, "audit"),
        facts=facts,
        defense={"name": "none"},
        local=local,
    )


def _length(victim: TextVictim, update: Update) -> int:
    """Return the tokens of a sequence, which the positions' gradient tells.

    A causal model's last token is read by nothing, so that its position has no gradient.
    """
    gradient = update.get(victim.anatomy.position)
    if gradient is None:
        raise BenchmarkError("the update has no gradient of the positions; wanted length=")
    used = int((gradient != 0).any(dim=1).sum())
    return used if victim.masked else used + 1


def _checked(truth: Tensor, seen: Observation) -> Tensor:
    """Return the truth on the CPU.

    Raises:
        BenchmarkError: it is no batch of the observation's shape.
    """
    if isinstance(seen.model, TextVictim):
        wanted: tuple[int, ...] = (seen.batch_size, seen.length)
        fits = truth.dtype == torch.int64
        kind = "tokens int64"
    else:
        spec = ImageVictim.of(seen.model).spec
        wanted = (seen.batch_size, spec.channels, spec.size, spec.size)
        fits = truth.is_floating_point() and 0 <= float(truth.min()) and float(truth.max()) <= 1
        kind = "images in [0, 1]"
    if tuple(truth.shape) != wanted or not fits:
        raise BenchmarkError(
            f"truth is {tuple(truth.shape)} of {truth.dtype}; wanted {kind} {wanted}"
        )
    truth = truth.detach().cpu()
    return truth.float() if truth.is_floating_point() else truth


def _granted(victim: Victim, seen: Observation, truth: Tensor | None) -> tuple[str, ...]:
    """Return what the attacks were given, a line a fact."""
    lines = ["the model's weights, and the update in full precision as it was given"]
    lines.append(f"batch size {seen.batch_size}")
    if isinstance(victim, TextVictim):
        lines.append(f"{seen.length} tokens a sequence")
    else:
        spec = ImageVictim.of(victim).spec
        mean, std = ([round(x, 4) for x in each] for each in (spec.mean, spec.std))
        lines.append(f"images of {spec.channels} x {spec.size} x {spec.size}, pixels in [0, 1]")
        lines.append(f"normalisation by mean {mean} and std {std}")
        known = seen.knowledge.labels
        lines.append("no labels" if known is None else f"labels {known.tolist()}")
    if (local := seen.knowledge.local) is not None:
        lines.append(f"local training: {local.steps} steps of SGD at rate {local.rate:g}")
    if missing := sorted(victim.weights().keys() - set(seen.update)):
        lines.append(f"{len(missing)} parameters sent nothing, {missing[0]} first")
    lines.append(
        "an honest but curious server"
        if truth is None
        else "an honest but curious server; the truth was kept for scoring alone"
    )
    return tuple(lines)


def _notes(seen: Observation, truth: Tensor | None) -> tuple[str, ...]:
    """Return what a reader must know of the truth: whether it made the update."""
    labels = seen.knowledge.labels
    if truth is None:
        return (
            "Without the truth, verdicts rest on how far the reconstruction's own gradient is "
            "from the update; a small distance is strong evidence, and no proof.",
        )
    if isinstance(seen.model, TextVictim):
        batch: Any = None if seen.model.masked else TextBatch(truth)
    else:
        batch = None if labels is None else ImageBatch(truth, labels)
    if batch is None or seen.knowledge.local is not None:
        return ()
    if (off := distance(seen, batch)) > CONSISTENT:
        return (
            f"The truth's own gradient is {off:.0%} of the update's norm away from it: "
            "normalisation, labels, loss or weights are not those of the client, or the update "
            "was protected.",
        )
    return ()
