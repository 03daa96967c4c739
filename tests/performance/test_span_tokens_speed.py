"""Seconds that `span_tokens` needs on GPT-2 in full, and what inner products save.

Beside DAGER, where `GRADLEAK_PEERS` names the folder of its runner, both are run in turn on the
same words, as frequent as in text; the ratio is of the seconds to read an update. DAGER does not
read a sequence's last token, a label alone.
"""

import operator
import time

import pytest
import torch

from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.registry import Registry
from benchmark.toolbox.text.spans import (
    attention_span,
    off_span,
    predicted_places,
    token_candidates,
)
from benchmark.victims import TextSpec, build, weights

VOCABULARY, LENGTH = 50_257, 32


@pytest.fixture(scope="module")
def gpt2():
    spec = TextSpec(architecture="gpt2", vocabulary=VOCABULARY, length=LENGTH)
    return build(spec, torch.Generator().manual_seed(0))


def drawn(sequences):
    """Return words as frequent as in text, (sequences, LENGTH)."""
    draws = torch.Generator().manual_seed(0)
    frequency = 1 / torch.arange(2.0, VOCABULARY + 2)
    drawn = torch.multinomial(frequency, sequences * LENGTH, replacement=True, generator=draws)
    return drawn.view(sequences, LENGTH)


def see(model, tokens):
    """Return what an attacker sees of a batch."""
    parameters = model.weights()
    gradients = torch.autograd.grad(model.loss(TextBatch(tokens)), list(parameters.values()))
    update = Update(dict(zip(parameters, gradients, strict=True)))
    known = Knowledge(batch_size=len(tokens), length=LENGTH)
    draws = torch.Generator().manual_seed(0)
    return Observation(update, model, known, Budget(600, 2**32), draws)


@pytest.mark.parametrize("sequences", [1, 4])
@pytest.mark.benchmark(group="span_tokens, GPT-2, 32 tokens")
def test_every_token_of_gpt2(benchmark, gpt2, sequences):
    tokens = drawn(sequences)
    seen = see(gpt2, tokens)
    attack = Registry().find("attack", "span_tokens")[0].build()
    answer = benchmark.pedantic(attack.reconstruct, (seen,), rounds=1)
    assert sorted(answer.tokens.tolist()) == sorted(tokens.tolist())


@pytest.mark.parametrize("sequences", [1, 4])
@pytest.mark.benchmark(group="span_tokens, beside DAGER")
def test_beside_dager(benchmark, gpt2, side_by_side, private_tokens, sequences):
    tokens = private_tokens(0, 0, sequences, LENGTH, "zipf")
    seen, attack = see(gpt2, tokens), Registry().find("attack", "span_tokens")[0].build()

    def ours():
        started = time.perf_counter()
        answer = attack.reconstruct(seen)
        seconds = time.perf_counter() - started
        right = sorted(answer.tokens.tolist()) == sorted(tokens.tolist())
        return {"seconds_read": seconds, "accuracy": float(right)}

    size = ("--sequences", sequences, "--length", LENGTH, "--threads", torch.get_num_threads())
    taken = operator.itemgetter("seconds_read")
    works = {"dager": ("run_dager.py", *size), "ours": ours}
    found = benchmark.pedantic(side_by_side, (works, taken), rounds=1)
    info = benchmark.extra_info
    for who, one in found.items():
        info[f"seconds_{who}"], info[f"accuracy_{who}"] = taken(one), one["accuracy"]
    info["ratio_dager"] = taken(found["dager"]) / taken(found["ours"])
    assert info["accuracy_ours"] == 1


@pytest.mark.benchmark(group="every token at every position against the span")
def test_inner_products_against_forming_every_input(benchmark, gpt2):
    seen = see(gpt2, drawn(1))
    rank = predicted_places(gpt2, 1, LENGTH)
    span = attention_span(seen.update, gpt2, 0, rank, seen.generator)
    benchmark.pedantic(token_candidates, (gpt2, span, rank, 2), rounds=3)
    known, norm = weights(gpt2), gpt2.network.transformer.h[0].ln_1
    words, position = known["transformer.wte.weight"], known["transformer.wpe.weight"][0]
    started = time.perf_counter()
    with torch.no_grad():
        one = off_span(span, norm(words + position)).norm(dim=1)
    formed = (time.perf_counter() - started) * rank
    ratio = formed / benchmark.stats.stats.min
    benchmark.extra_info["ratio_formed_to_inner_products"] = ratio
    assert one.isfinite().all()
    assert ratio > 1.5
