"""The bag of words as Decepticons has it: greedy counts from gradients of decoder and embedding.

Source: Fowl et al. (ICLR 2023, Decepticons), algorithms 2 and 3, after Wainakh et al. (2021).
`bag.py` is this benchmark's own, which clears the decoder's part first. Differences from the
printed algorithms:

- Algorithm 3 takes the smallest norm of those left; it is read as the largest, as in Wainakh et
  al.: the smallest, made smaller still, would be taken every time.
- Algorithm 2 takes rows of the embedding below zero; it is read as rows that are not zero.
- Where more tokens are found than there are places, for 1.5 deviations let pass one absent row in
  fifteen, none is counted for being found: the largest left is taken from the first place on. The
  paper says nothing of it. The other reading, the largest once each, leaves repetitions out: on
  three trials of WikiText, 1 x 32, `decepticon_published` then read 0.74 of GPT-2's tokens for
  0.98 by this one, and 0.56 of BERT's for 0.28, whose labels are larger than what it reads.
  This reading was made after those trials were seen; it was not chosen on public text.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from benchmark.toolbox.counts import nearest_counts
from benchmark.victims import TextVictim


def greedy_bag(
    update: Mapping[str, Tensor], model: nn.Module, count: int, *, cutoff: float = 1.5
) -> Tensor:
    """Return all tokens of an update with their multiplicities, ascending, (count,) int64.

    Algorithm 2 where every place is predicted by a decoder with a bias of its own, else 3.

    Args:
        update: gradients by name.
        model: the victim, for its parts.
        count: tokens of all sequences together.
        cutoff: of algorithm 3, standard deviations of log-norms above their mean.

    Returns:
        Nothing, (0,), where no token stands out, as of an update of zeros.
    """
    parts = TextVictim.of(model).anatomy
    embedding, bias = update[parts.token_embedding], parts.decoder.bias
    if bias is None or parts.masked or parts.tied:
        return by_norm(embedding, count, cutoff)
    return by_decoder_bias(bias.of(update), embedding, count)


def by_decoder_bias(bias: Tensor, embedding: Tensor, count: int) -> Tensor:
    """Return the tokens by algorithm 2.

    Args:
        bias: (vocabulary,), gradient of the decoder's: below zero, the token is a label.
        embedding: (vocabulary, any), gradient of the table: not zero, the token is read.
        count: of tokens.
    """
    return _greedy(-bias, (bias < 0) | embedding.any(1), count)


def by_norm(embedding: Tensor, count: int, cutoff: float = 1.5) -> Tensor:
    """Return the tokens by algorithm 3, from the gradient of the table (vocabulary, any)."""
    norms = embedding.norm(dim=1)
    logs = norms.clamp_min(torch.finfo(norms.dtype).tiny).log()
    return _greedy(norms, logs > logs.mean() + cutoff * logs.std(), count)


def _greedy(sizes: Tensor, present: Tensor, count: int) -> Tensor:
    """Return each present token once, and then the one of which most is left, again and again."""
    found = present.cpu().nonzero()[:, 0]
    if not len(found):
        return found
    once = int(len(found) <= count)
    left = sizes.double().cpu()[found]
    left = left if once else left.clamp_min(0)
    share = left / left.sum() * count  # in units of one token's impact
    return found.repeat_interleave(once + nearest_counts(share - once, count - once * len(found)))
