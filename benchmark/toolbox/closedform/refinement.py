"""Gauss-Newton on the attention's equations, for the images' spans as they stand together.

`projectors.py` solves for any matrices X; true ones are projectors on spans that fill the whole
space together, `C E_b C^-1` of one basis C. With `C (I + Z)`, Z zero within each image, the
equations of all images are linear in Z to first order. Far fewer unknowns are left, n^2 less a
block an image, and what rounding did to the solutions of the linear system comes off.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, lsmr
from torch import Tensor

from benchmark.toolbox.closedform.projectors import Equations

_STEPS = 6  # two or three settle it
_GAIN = 0.9  # a step that leaves more of the residual than this is the last
_INNER = 4  # iterations of each least-squares solve, a token: twice as many gave little more
_PRECISION = 1e-10


def refine(equations: Equations, groups: list[Tensor]) -> tuple[list[Tensor], float]:
    """Return better bases (n, tokens) of each image's tokens, and the equations' residual there.

    As given where none is found, judged by the residual alone: about 1 of spans at random.
    """
    ends = np.cumsum([0] + [group.shape[1] for group in groups])
    images = [slice(a, b) for a, b in pairwise(ends.tolist())]
    basis = torch.cat(groups, dim=1)
    step = _Linearised(equations, basis, images)
    for _ in range(_STEPS):
        new = _Linearised(equations, basis + basis @ step.solve(), images)
        if not new.size < step.size:
            break
        settled = new.size > _GAIN * step.size
        basis, step = new.basis, new
        if settled:
            break
    return [torch.linalg.qr(basis[:, own])[0] for own in images], step.size


class _Linearised:
    """The equations at one basis, and what a small Z does to them.

    Of image b's projector, with `a = A_q C`, `k = A_k C`, `t = B_q C^-T`, `s = B_k C^-T` and their
    columns of its tokens, the residual is `a_b s_b' - t_b k_b'`. Z moves it by
    `(aZ)_b s_b' - a_b (sZ')_b' - t_b (kZ)_b' + (tZ')_b k_b'`.
    """

    def __init__(self, equations: Equations, basis: Tensor, images: list[slice]) -> None:
        self.basis, self.images = basis, images
        dual = torch.linalg.inv(basis).T
        self.a, self.k = equations.query @ basis, equations.key @ basis
        self.t, self.s = equations.query_theta @ dual, equations.key_theta @ dual
        left = (self.a.square() + self.k.square()).sum((0, 1)).sqrt()
        right = (self.t.square() + self.s.square()).sum((0, 1)).sqrt()
        self.scale = 1 / torch.outer(left, right)  # of the unknowns: columns of norm about 1
        for own in images:
            self.scale[own, own] = 0
        self.residual = torch.stack(
            [
                self.a[..., b] @ self.s[..., b].mT - self.t[..., b] @ self.k[..., b].mT
                for b in images
            ]
        )
        self.size = float(self.residual.norm())

    def solve(self) -> Tensor:
        """Return the Z (n, n) of least residual, to first order."""
        n = len(self.basis)
        operator = LinearOperator(
            (self.residual.numel(), n * n),
            matvec=lambda z: self._move(torch.from_numpy(z).view(n, n)).flatten().numpy(),
            rmatvec=lambda r: self._transposed(torch.from_numpy(r).view_as(self.residual)).numpy(),
            dtype=np.float64,
        )
        found = lsmr(
            operator,
            -self.residual.flatten().numpy(),
            atol=_PRECISION,
            btol=_PRECISION,
            conlim=0,
            maxiter=_INNER * n,
        )[0]
        return self.scale * torch.from_numpy(found).view(n, n)

    def _move(self, unscaled: Tensor) -> Tensor:
        z = self.scale * unscaled
        a, k, t, s = self.a @ z, self.k @ z, self.t @ z.T, self.s @ z.T
        moved = [
            a[..., b] @ self.s[..., b].mT
            - self.a[..., b] @ s[..., b].mT
            - self.t[..., b] @ k[..., b].mT
            + t[..., b] @ self.k[..., b].mT
            for b in self.images
        ]
        return torch.stack(moved)

    def _transposed(self, residual: Tensor) -> Tensor:
        parts = list(zip(residual, self.images, strict=True))
        a = torch.cat([r @ self.s[..., b] for r, b in parts], dim=-1)
        s = torch.cat([r.mT @ self.a[..., b] for r, b in parts], dim=-1)
        k = torch.cat([r.mT @ self.t[..., b] for r, b in parts], dim=-1)
        t = torch.cat([r @ self.k[..., b] for r, b in parts], dim=-1)
        z = _inner(self.a, a) - _inner(s, self.s) - _inner(self.k, k) + _inner(t, self.t)
        return (self.scale * z).flatten()


def _inner(one: Tensor, other: Tensor) -> Tensor:
    """Return the sum over heads of `one.T @ other`, both (heads, rows, n)."""
    return one.flatten(0, 1).T @ other.flatten(0, 1)
