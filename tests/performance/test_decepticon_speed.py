"""Seconds the malicious server needs: its weights and the read-out, without the client's gradient.

The reference is an open implementation's, in seconds on two idle cores, server and read-out
together; random tokens, as there.
"""

import copy

import pytest
import torch

from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.registry import Registry
from benchmark.seeds import generator
from benchmark.victims import LanguageSpec, build_language

CASES = [  # architecture, sequences, length, reference seconds, its accuracy
    ("transformer3", 1, 512, 2 + 7.8, 0.95),
    ("transformer3", 32, 32, 2 + 18.6, 0.77),
    ("transformer3", 8, 32, 2 + 4.3, 0.94),
    ("gpt2", 1, 512, 60 + 1.2, 0.98),
    ("gpt2", 8, 32, 2 + 1.1, 0.93),
    ("gpt2", 32, 32, 3 + 17.6, 0.90),
]


@pytest.mark.parametrize(
    ("architecture", "sequences", "length", "reference_seconds", "accuracy"), CASES
)
@pytest.mark.benchmark(group="decepticon, one update")
def test_server_and_read_out(
    benchmark, architecture, sequences, length, reference_seconds, accuracy
):
    spec = LanguageSpec(
        architecture=architecture, activation="relu", vocabulary=50257, length=length
    )
    victim = build_language(spec, generator(0, "victim"))
    attack = Registry().find("attack", "decepticon")[0].build()
    public, tokens = (
        torch.randint(50257, (sequences * 4, length), generator=generator(0, name))
        for name in ("public", "private")
    )
    tokens = tokens[:sequences]
    known = Knowledge(batch_size=sequences, length=length, public_text=public)
    sent = attack.corrupt(copy.deepcopy(victim), known, generator(0, "server"))
    named = sent.weights()
    gradients = torch.autograd.grad(sent.loss(TextBatch(tokens)), named.values())
    update = Update(dict(zip(named, gradients, strict=True)))
    seen = Observation(update, sent, known, Budget(60, 2**32), generator(0, "read"))

    def serve():
        attack.corrupt(victim, known, generator(0, "server"))  # the same weights every time
        return attack.reconstruct(seen)

    answer = benchmark.pedantic(serve, rounds=3)
    # found sequences in any order; random ones have a first token each
    order = [int((answer.tokens == row).sum(1).argmax()) for row in tokens]
    right = float((answer.tokens[order] == tokens).double().mean())
    benchmark.extra_info["accuracy"] = right
    benchmark.extra_info["ratio_reference"] = reference_seconds / benchmark.stats.stats.min
    assert right >= accuracy
