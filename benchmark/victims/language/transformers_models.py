"""GPT-2 and BERT of the library `transformers`, each as three steps; slow to import.

Random weights start as the library starts them, N(0, 0.02^2) for the most part.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

from benchmark.errors import ProtocolError

if TYPE_CHECKING:
    from benchmark.victims.language.spec import TextSpec


class Gpt2(GPT2LMHeadModel):  # type: ignore[no-untyped-call]
    """GPT-2 (Radford et al., 2019): causal, norms before, decoder tied to the embedding."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the tokens' embeddings, without positions, (batch, length, width)."""
        return self.transformer.wte(tokens)

    def states(self, embeddings: Tensor) -> Tensor:
        """Return what the decoder reads, (batch, length, width), from the tokens' embeddings."""
        return self.transformer(inputs_embeds=embeddings).last_hidden_state

    def logits(self, states: Tensor) -> Tensor:
        """Return (..., vocabulary) from (..., width)."""
        return self.lm_head(states)


class Bert(BertForMaskedLM):  # type: ignore[no-untyped-call]
    """BERT (Devlin et al., 2019), a masked language model: norms after, decoder tied, no pooler."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the tokens' embeddings, without positions, (batch, length, width)."""
        return self.bert.embeddings.word_embeddings(tokens)

    def states(self, embeddings: Tensor) -> Tensor:
        """Return what the head reads, (batch, length, width), from the tokens' embeddings."""
        return self.bert(inputs_embeds=embeddings).last_hidden_state

    def logits(self, states: Tensor) -> Tensor:
        """Return (..., vocabulary) from (..., width)."""
        return self.cls(states)


def gpt2(spec: TextSpec, folder: Path | None) -> Gpt2:
    """Make GPT-2 from torch's global stream: 124,439,808 parameters with 1,024 positions."""
    options: dict[str, Any] = {
        "activation_function": {"gelu": "gelu_new"}.get(spec.activation or "gelu", "relu"),
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), spec.dropout),
        "use_cache": False,
        "attn_implementation": "eager",  # the fused kernels cannot be differentiated twice
    }
    if folder is not None:
        return _pretrained(Gpt2, folder, spec, options)
    sizes = {"n_embd": spec.width, "n_layer": spec.depth, "n_head": spec.heads}
    sizes |= {"n_inner": spec.mlp, "n_positions": spec.length, "vocab_size": spec.vocabulary}
    return Gpt2(GPT2Config(**options, **_given(sizes), bos_token_id=None, eos_token_id=None))


def bert(spec: TextSpec, folder: Path | None) -> Bert:
    """Make BERT from torch's global stream: 109,514,298 parameters with 512 positions."""
    options: dict[str, Any] = {
        "hidden_act": spec.activation or "gelu",
        **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), spec.dropout),
        "pad_token_id": None,  # nothing is padded, and a padding token would have no gradient
        "attn_implementation": "eager",  # the fused kernels cannot be differentiated twice
    }
    if folder is not None:
        return _pretrained(Bert, folder, spec, options)
    mlp = spec.mlp or (4 * spec.width if spec.width else None)
    sizes = {"hidden_size": spec.width, "num_hidden_layers": spec.depth}
    sizes |= {"num_attention_heads": spec.heads, "intermediate_size": mlp}
    sizes |= {"max_position_embeddings": spec.length, "vocab_size": spec.vocabulary}
    return Bert(BertConfig(**options, **_given(sizes)))


def _given(sizes: dict[str, int | None]) -> dict[str, Any]:
    return {name: value for name, value in sizes.items() if value is not None}


def _pretrained(
    kind: Any,  # noqa: ANN401  (either class)
    folder: Path,
    spec: TextSpec,
    options: dict[str, Any],
) -> Any:  # noqa: ANN401
    logger: Any = logging
    logger.disable_progress_bar()
    logger.set_verbosity_error()  # heads of the file that the victim lacks are no news
    network = kind.from_pretrained(folder, local_files_only=True, use_safetensors=True, **options)
    rows, positions = network.config.vocab_size, network.config.max_position_embeddings
    if spec.vocabulary != rows or spec.length > positions:
        raise ProtocolError(
            f"{spec.architecture}: pretrained weights read {positions} of {rows} tokens; "
            f"got length {spec.length} and vocabulary {spec.vocabulary}"
        )
    return network.float()  # whatever the file was saved in
