"""Which tokens belong to one example: attention tells, because it never joins two of them.

In head h the gradients of a query's and a key's weights hold `Theta = C S_h C'`: C (n, n) are the
tokens' coordinates in their span, S_h the gradient at the attention's logits, zero between tokens
of two examples. So the projector on one example's tokens, `Pi = C E C^-1`, fulfils
`Pi Theta = Theta Pi'` in every head. Of Theta only `B_q = A_q Theta` and `B_k = A_k Theta'` are
observed, A_q and A_k the weights on the span; multiplied by them from both sides,

    A_q X B_k' - B_q X' A_k' = 0

is linear in X = Pi and holds nothing unknown. The projectors span its solutions, which are the
right singular vectors of the smallest singular values. Needs no labels, and no position.
Identified from counts alone where heads * head size^2 >= n^2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.linalg import cho_solve, cholesky
from scipy.sparse.linalg import LinearOperator, lobpcg
from threadpoolctl import threadpool_limits
from torch import Tensor

_GUARDS = 2  # singular vectors beyond those wanted, so that these converge
_TOLERANCE = 1e-9  # of the squared singular values, where the largest is about 1
_STEPS = 60  # 13 to 60 seen
_TOGETHER = 2**30  # entries of a matrix beyond which OpenBLAS's threads write outside it
_RIDGE = 2e-6  # keeps the float32 factor positive: the least eigenvalue is beneath its rounding
_QUIETEST = 1e-3  # the least noise of a row, as a share of the median's


@dataclass(frozen=True)
class Equations:
    """The equations of all heads, with rows of equal noise and the prefix tokens projected out.

    Attributes:
        query: (heads, rows, n), A_q.
        query_theta: (heads, rows, n), B_q = A_q Theta, from the key's gradient.
        key: (heads, rows, n), A_k.
        key_theta: (heads, rows, n), B_k = A_k Theta', from the query's gradient.
    """

    query: Tensor
    query_theta: Tensor
    key: Tensor
    key_theta: Tensor

    @classmethod
    def observed(
        cls,
        query: Tensor,
        key: Tensor,
        query_gradient: Tensor,
        key_gradient: Tensor,
        *,
        span: Tensor,
        common: Tensor,
    ) -> Equations:
        """Return the equations of one attention.

        Args:
            query: (heads, head size, width), the weights.
            key: (heads, head size, width).
            query_gradient: (heads, head size, width).
            key_gradient: (heads, head size, width).
            span: (width, tokens) orthonormal, of the attention's inputs.
            common: (tokens, c) orthonormal, the tokens that all examples share, in the span; they
                are projected out of both sides, and n = tokens - c.
        """
        rest = complement(common)
        sides = [
            _readings(weights, gradients, span, common, rest)
            for weights, gradients in ((query, key_gradient), (key, query_gradient))
        ]
        (a_q, b_q), (a_k, b_k) = sides
        size = [part.flatten(1).norm(dim=1) for part in (a_q, b_k, b_q, a_k)]
        scale = (size[0] * size[1] * size[2] * size[3]) ** -0.25  # heads count alike
        return cls(*(scale[:, None, None] * part for part in (a_q, b_q, a_k, b_k)))

    @property
    def tokens(self) -> int:
        """The n of the n x n unknowns."""
        return self.query.shape[-1]

    def to(self, device: torch.device) -> Equations:
        """Return the equations on a device, where they are then solved."""
        parts = (self.query, self.query_theta, self.key, self.key_theta)
        return Equations(*(part.to(device) for part in parts))

    def residual(self, x: Tensor) -> Tensor:
        """Return `A_q X B_k' - B_q X' A_k'` of X (any, n, n) as (heads, any, rows, rows)."""
        a_q, b_q, a_k, b_k = self._stacked
        return a_q @ x @ b_k.mT - b_q @ x.mT @ a_k.mT

    def adjoint(self, residual: Tensor) -> Tensor:
        """Return the transpose of `residual`, (heads, any, rows, rows) -> (any, n, n)."""
        a_q, b_q, a_k, b_k = self._stacked
        return (a_q.mT @ residual @ b_k - a_k.mT @ residual.mT @ b_q).sum(0)

    @cached_property
    def _stacked(self) -> tuple[Tensor, ...]:
        return tuple(
            part[:, None] for part in (self.query, self.query_theta, self.key, self.key_theta)
        )


def solutions(equations: Equations, count: int) -> Tensor:
    """Return the `count` best solutions (count, n, n) of the equations, orthonormal.

    Smallest eigenvectors of the normal equations by LOBPCG. Theta's singular values spread over
    seven orders of magnitude, and the unknowns are scaled by a Kronecker product of means over the
    heads; on timm's ViT that leaves a gap of 1e-8, so the preconditioner is a float32 Cholesky
    factor: n^4 / 2 floats of memory are touched, n^4 are held.
    """
    scaled = _Scaled(equations)
    n, solve = equations.tokens, scaled.preconditioner()
    draws = torch.Generator().manual_seed(0)  # a start, not a choice: all starts end alike
    start = torch.randn(n * n, count + _GUARDS, dtype=torch.float64, generator=draws).numpy()
    device = equations.query.device
    with warnings.catch_warnings():  # the refinement is the judge of what converged
        warnings.simplefilter("ignore", UserWarning)
        values, vectors = lobpcg(
            _operator(n, scaled.normal, device),
            start,
            M=_operator(n, solve, device),
            tol=_TOLERANCE,
            maxiter=_STEPS,
            largest=False,
        )
    best = vectors[:, np.argsort(values)[:count]]
    found = scaled.unscale(_matrices(best, n).to(device)).cpu().flatten(1)
    return torch.linalg.qr(found.T)[0].T.unflatten(1, (n, n))


class _Scaled:
    """The normal equations in unknowns Y, X = U (scale * Y) V', whose diagonal is about 1."""

    def __init__(self, equations: Equations) -> None:
        self.equations = equations
        a_q, b_q, a_k, b_k = (
            equations.query, equations.query_theta, equations.key, equations.key_theta
        )  # fmt: skip
        left, self.left = torch.linalg.eigh(_gram(a_q, a_q).sum(0) + _gram(a_k, a_k).sum(0))
        right, self.right = torch.linalg.eigh(_gram(b_q, b_q).sum(0) + _gram(b_k, b_k).sum(0))
        tiny = torch.finfo(left.dtype).eps
        left, right = (part.clamp_min(tiny * part[-1]) for part in (left, right))
        self.scale = torch.outer(left, right).rsqrt()

    def unscale(self, y: Tensor) -> Tensor:
        return self.left @ (self.scale * y) @ self.right.T

    def normal(self, y: Tensor) -> Tensor:
        product = self.equations.adjoint(self.equations.residual(self.unscale(y)))
        return self.scale * (self.left.T @ product @ self.right)

    def preconditioner(self) -> Callable[[Tensor], Tensor]:
        """Return the approximate inverse of `normal`."""
        n, dense = self.equations.tokens, self._dense()
        if dense.is_cuda:
            factor = torch.linalg.cholesky(dense)
            return lambda y: _solved(factor, y)
        with threadpool_limits(1 if dense.numel() > _TOGETHER else None):
            lower = cholesky(dense.numpy().T, lower=True, overwrite_a=True, check_finite=False)

        def solve(y: Tensor) -> Tensor:
            right = np.asfortranarray(y.flatten(1).T.numpy(), dtype=np.float32)
            return _matrices(cho_solve((lower, True), right, check_finite=False), n)

        return solve

    def _dense(self) -> Tensor:
        """Return `normal` as a float32 matrix (n^2, n^2), a block of n rows at a time."""
        given, n, scale = self.equations, self.equations.tokens, self.scale.float()
        a_q, a_k = ((part @ self.left).float() for part in (given.query, given.key))
        b_q, b_k = ((part @ self.right).float() for part in (given.query_theta, given.key_theta))
        left = torch.cat([_gram(a_q, a_q), _gram(a_k, a_k)])
        right = torch.cat([_gram(b_k, b_k), _gram(b_q, b_q)]).flatten(1)
        left_cross = torch.cat([_gram(a_q, b_q), _gram(a_k, b_k)])
        right_cross = torch.cat([_gram(b_k, a_k), _gram(b_q, a_q)]).flatten(1)
        dense = scale.new_empty(n, n, n, n)
        for i in range(n):
            straight = (left[:, i].T @ right).view(n, n, n)  # k, j, l
            crossed = (left_cross[:, i].T @ right_cross).view(n, n, n)  # l, j, k
            torch.sub(straight.transpose(0, 1), crossed.permute(1, 2, 0), out=dense[i])
            dense[i] *= scale[i][:, None, None] * scale
        dense = dense.view(n * n, n * n)
        dense.diagonal().add_(_RIDGE)
        return dense


def complement(basis: Tensor) -> Tensor:
    """Return an orthonormal basis (n, n - c) of what is orthogonal to `basis` (n, c)."""
    return torch.linalg.qr(basis, mode="complete")[0][:, basis.shape[1] :]


def _readings(
    weights: Tensor, gradients: Tensor, span: Tensor, common: Tensor, rest: Tensor
) -> tuple[Tensor, Tensor]:
    """Return A and A Theta of every head, (heads, rows, n) each, their rows of equal noise.

    What a row of the gradient leaves off the span tells its noise. The rows that the common tokens
    reach are projected out, and the others turned to the weights' singular vectors, each over the
    root of its value: the noise of an equation is the sum of two rows', here taken for their
    product.
    """
    left, right = [], []
    for weight, gradient in zip(weights, gradients, strict=True):
        inside = gradient @ span
        noise = (gradient - inside @ span.T).norm(dim=1, keepdim=True)
        typical = noise.median().clamp_min(torch.finfo(noise.dtype).tiny)
        noise = noise.clamp_min(_QUIETEST * typical)
        a, b = weight @ span / noise, inside / noise
        free = complement(torch.linalg.qr(a @ common)[0]).T
        a, b = free @ a @ rest, free @ b @ rest
        turn, values, _ = torch.linalg.svd(a, full_matrices=False)
        turn = turn / values.sqrt()
        left.append(turn.T @ a)
        right.append(turn.T @ b)
    return torch.stack(left), torch.stack(right)


def _solved(factor: Tensor, y: Tensor) -> Tensor:
    """Return the solutions (any, n, n) of `factor @ factor.T`, (n * n, n * n) in float32."""
    columns = y.flatten(1).T.to(factor.dtype)
    return torch.cholesky_solve(columns, factor).T.to(y.dtype).reshape(y.shape)


def _gram(one: Tensor, other: Tensor) -> Tensor:
    return one.mT @ other


def _matrices(columns: np.ndarray, n: int) -> Tensor:
    """Return vectors, the columns (n * n, any), as matrices (any, n, n) in float64."""
    return torch.from_numpy(np.ascontiguousarray(columns.T, dtype=np.float64)).view(-1, n, n)


def _operator(n: int, function: Callable[[Tensor], Tensor], device: torch.device) -> LinearOperator:
    """Return a function of matrices (any, n, n) as scipy's operator on columns (n * n, any)."""

    def columns(given: np.ndarray) -> np.ndarray:
        matrices = _matrices(given.reshape(n * n, -1), n)
        return function(matrices.to(device)).cpu().flatten(1).T.numpy()

    return LinearOperator((n * n, n * n), matvec=columns, matmat=columns, dtype=np.float64)
