"""From the solutions of the attention's equations to each example's tokens."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

_DRAWS = 40  # random members of the solutions
_APART = 0.1  # gap over width: groups nearer than this were none, even refined
_PASSES = 5  # towards the member whose eigenvalues stand evenly


def token_groups(solutions: Tensor, least: int, most: int) -> list[Tensor] | None:
    """Return an orthonormal basis (n, tokens) of each example's tokens; None where none stand out.

    A member `sum alpha_b Pi_b` of the solutions has the eigenvalue alpha_b on the span of example
    b. Which member is free: the one is taken whose groups of eigenvalues lie furthest apart, in
    units of the widest group. First among random ones; then towards even eigenvalues, for which
    the projectors that it gives are a good guess.

    Args:
        solutions: (examples, n, n), a basis of the solutions.
        least: tokens that an example has at least.
        most: tokens that an example has at most; with `least` it makes the sizes known.
    """
    count, n, _ = solutions.shape
    if not count * least <= n <= count * most:
        return None
    draws = torch.Generator().manual_seed(0)  # a search for a good member, not a choice of answer
    best, groups = _APART, None
    for _ in range(_DRAWS):
        member = torch.tensordot(torch.randn(count, generator=draws).double(), solutions, 1)
        apart, found = _split(member, count, least, most)
        if apart > best:
            best, groups = apart, found
    if groups is None:
        return None
    for _ in range(_PASSES):
        joined = torch.cat(groups, dim=1)
        sizes = torch.tensor([group.shape[1] for group in groups])
        even = torch.repeat_interleave(torch.arange(1.0, count + 1).double(), sizes)
        wanted = torch.linalg.solve(joined.T, (joined * even).T).T  # sum over b of b * Pi_b
        alpha = solutions.flatten(1) @ wanted.flatten()
        apart, found = _split(torch.tensordot(alpha, solutions, 1), count, least, most)
        if found is None or apart <= best:
            break
        best, groups = apart, found
    return groups


def _split(member: Tensor, count: int, least: int, most: int) -> tuple[float, list[Tensor] | None]:
    """Return how far apart a member's groups of eigenvalues lie, and a basis of each."""
    values, vectors = torch.linalg.eig(member)
    order = values.real.argsort()
    values, vectors = values[order], vectors[:, order]
    if least == most:
        ends = torch.arange(1, count) * most
    else:
        ends = values.real.diff().topk(count - 1).indices.sort().values + 1
    parts = values.tensor_split(ends)
    if any(not least <= len(part) <= most for part in parts):
        return 0.0, None
    gaps = [float(b.real[0] - a.real[-1]) for a, b in pairwise(parts)]
    width = max(float((part - part.mean()).abs().square().mean()) ** 0.5 for part in parts)
    bases = []
    for group in vectors.tensor_split(ends, dim=1):
        both = torch.cat([group.real, group.imag], dim=1)  # a pair spans what a real basis does
        bases.append(torch.linalg.svd(both, full_matrices=False)[0][:, : group.shape[1]])
    return min(gaps) / max(width, torch.finfo(values.real.dtype).tiny), bases
