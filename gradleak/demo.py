"""`gradleak audit --demo`: a photograph and a text that come with the dependencies."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmark.data import load_images, load_tokenizer
from gradleak.auditing import audit
from gradleak.loading import gradient_of
from gradleak.report import Report

_TEXT = (
    "My name is Ada Lovelace, I was born on the tenth of December and my password is "
    "engine; please keep this message to yourself and do not send it to anyone."
)


def demonstrate(seconds: float) -> list[Report]:
    """Audit a ViT-S/16 that saw a photograph, and a GPT-2 of 4 blocks that read a text.

    Weights are random, from seed 0; no image and no text reaches an attack.
    """
    import timm

    torch.manual_seed(0)
    vit = timm.create_model("vit_small_patch16_224")
    image = load_images("photographs", "test", 224).images[:1]
    tokenizer = load_tokenizer("pydoc")
    sizes: dict[str, Any] = {"n_embd": 768, "n_layer": 4, "n_head": 12, "n_positions": 64}
    config = GPT2Config(**sizes, vocab_size=tokenizer.vocabulary, bos_token_id=0, eos_token_id=0)
    gpt2 = GPT2LMHeadModel(config)
    tokens = torch.tensor([tokenizer.encode(_TEXT)[:64]])
    chosen = ["position_closed_form,defaults", "span_closed_form,defaults"]
    return [
        audit(vit, gradient_of(vit, image, [3]), truth=image, seconds=seconds, attacks=chosen),
        audit(
            gpt2,
            gradient_of(gpt2, tokens, None),
            truth=tokens,
            tokenizer=tokenizer,
            seconds=seconds,
            attacks=["span_tokens,defaults", "bag_of_words"],
        ),
    ]
