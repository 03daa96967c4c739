"""A foreign torch module as a victim: a copy of it whose parts are known."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmark.contract import Anatomy, Victim
from benchmark.errors import BenchmarkError, NotApplicable
from benchmark.victims import (
    ImageAnatomy,
    ImageSpec,
    ImageVictim,
    TextAnatomy,
    TextSpec,
    TextVictim,
)
from benchmark.victims.found.structure import image_anatomy
from benchmark.victims.huggingface_models import logits_alone

_LANGUAGE = {"GPT2LMHeadModel": "gpt2", "BertForMaskedLM": "bert_base"}
"""By class of `transformers`: the architecture whose anatomy and steps are known."""


class OwnImageVictim(ImageVictim):
    """A network of a user's own that reads images, with its anatomy."""

    def __init__(self, network: nn.Module, spec: ImageSpec, parts: ImageAnatomy) -> None:
        super().__init__(network, spec)
        self._parts = parts

    @property
    def anatomy(self) -> ImageAnatomy:
        """Where it keeps its parts."""
        return self._parts

    @property
    def head(self) -> str:
        """Prefix of the last linear layer."""
        return self._parts.head


class OwnTextVictim(TextVictim):
    """A network of a user's own that reads text in three steps, with its anatomy."""

    def __init__(self, network: nn.Module, spec: TextSpec, parts: TextAnatomy) -> None:
        super().__init__(network, spec)
        self._parts = parts

    @property
    def anatomy(self) -> TextAnatomy:
        """Where it keeps its parts."""
        return self._parts

    @property
    def masked(self) -> bool:
        """Whether it guesses masked tokens."""
        return self._parts.masked


def wrap(
    model: nn.Module,
    *,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    mask_token: int | None = None,
    weights: Mapping[str, Tensor] | None = None,
    anatomy: Anatomy | None = None,
) -> Victim:
    """Return a module as a victim: a copy in evaluation mode, whose names are the module's.

    Args:
        model: a vision transformer, GPT2LMHeadModel, BertForMaskedLM, or with an anatomy any
            network that is one, of text with the methods `embed`, `states` and `logits`.
        size: side of its images in pixels; None is what its positions are made for.
        mean: of its normalisation, a channel; None is what the model says, else 0.
        std: likewise, else 1.
        mask_token: what stands for a token to guess, of a masked language model.
        weights: a state dict to take the place of the module's own.
        anatomy: where it keeps its parts; None finds it.

    Raises:
        NotApplicable: the module is not understood, with the reason.
        BenchmarkError: the weights are not the module's.
    """
    network = copy.deepcopy(model).eval().float().requires_grad_(True)
    if weights is not None:
        _load(network, weights)
    _unfuse(network)
    if isinstance(anatomy, TextAnatomy) or type(model).__name__ in _LANGUAGE:
        return _text(network, mask_token, cast("TextAnatomy | None", anatomy)).eval()
    network.register_forward_hook(logits_alone)
    parts = anatomy if isinstance(anatomy, ImageAnatomy) else image_anatomy(network, size)
    stated_mean, stated_std = stated_normalisation(model, parts.channels)
    spec = ImageSpec(
        architecture=type(model).__name__,
        channels=parts.channels,
        size=parts.size,
        classes=cast("nn.Linear", network.get_submodule(parts.head)).out_features,
        mean=_each(mean, stated_mean, "mean"),
        std=_each(std, stated_std, "std"),
    )
    victim = OwnImageVictim(network, spec, parts)
    return victim.to(victim.device).eval()


def stated_normalisation(
    model: nn.Module, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std that a model states of its inputs, as timm's do; else 0 and 1."""
    stated: Any = getattr(model, "pretrained_cfg", None) or {}
    mean, std = stated.get("mean"), stated.get("std")
    if mean is None or std is None or len(mean) != channels:
        return (0.0,) * channels, (1.0,) * channels
    return tuple(map(float, mean)), tuple(map(float, std))


def _each(given: Sequence[float] | None, stated: tuple[float, ...], name: str) -> tuple[float, ...]:
    if given is None:
        return stated
    if len(given) != len(stated):
        raise BenchmarkError(f"{name} has {len(given)} channels; the model reads {len(stated)}")
    return tuple(float(number) for number in given)


def _text(network: Any, mask_token: int | None, anatomy: TextAnatomy | None) -> TextVictim:  # noqa: ANN401
    name = _LANGUAGE.get(type(network).__name__)
    if name is not None:
        from benchmark.victims.language import transformers_models as known  # slow to import

        network.__class__ = {"gpt2": known.Gpt2, "bert_base": known.Bert}[name]
        vocabulary = int(network.config.vocab_size)
        length = int(network.config.max_position_embeddings)
    else:
        assert anatomy is not None
        if lacks := [step for step in ("embed", "states", "logits") if not hasattr(network, step)]:
            raise NotApplicable(f"a {type(network).__name__} has no method {lacks[0]}")
        named = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        vocabulary, length = anatomy.vocabulary, len(named[anatomy.position])
    masked = anatomy.masked if anatomy is not None else name == "bert_base"
    if masked and mask_token is None:
        raise BenchmarkError(
            "a masked language model: wanted mask_token, or a tokenizer that has one"
        )
    spec = TextSpec(
        architecture=name or ("bert_base" if masked else "gpt2"),
        vocabulary=vocabulary,
        length=length,
        mask_token=mask_token,
    )
    if anatomy is None:
        return TextVictim(network, spec)
    return OwnTextVictim(network, spec, anatomy)


def _load(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    own = dict(network.named_parameters())
    if missing := sorted(own.keys() - weights.keys()):
        raise BenchmarkError(f"before holds no {missing[0]}, which is a parameter of the model")
    for name, parameter in own.items():
        if weights[name].shape != parameter.shape:
            raise BenchmarkError(
                f"before: {name} is {tuple(weights[name].shape)}; the model's is "
                f"{tuple(parameter.shape)}"
            )
    known = {**own, **dict(network.named_buffers())}
    with torch.no_grad():
        for name, tensor in known.items():
            if name in weights:
                tensor.copy_(weights[name])


def _unfuse(network: nn.Module) -> None:
    """Have attention computed by kernels that can be differentiated twice."""
    for module in network.modules():
        if hasattr(module, "fused_attn"):
            cast("Any", module).fused_attn = False
    if hasattr(network, "set_attn_implementation"):
        cast("Any", network).set_attn_implementation("eager")
