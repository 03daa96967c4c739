"""Orthogonal matching pursuit over the tokens that may stand in each place of a lone sequence.

Places are read in turn, the factors of all others fitted anew beside each candidate, until none
changes. Noise of one size on all entries makes squares likelihoods, to which what is known of
factors and how common a token is in public text are added; so no level is chosen, and where noise
leaves nothing the commonest token stands.

Source: Mallat and Zhang (1993) and Rubinstein et al. (2008), as Fowl et al. (ICLR 2023,
Decepticons, appendix G) propose. Difference: theirs looks for the jumps of each column; here atoms
are whole tokens, so that no dictionary is learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor

from submissions.attacks.decepticon.denoise import jumps
from submissions.attacks.decepticon_denoised.atoms import Atoms

_SPREAD = 0.1  # of factors, over their mean: codes of labels spread by 0.075, norms by less
_ROUGH = 0.3  # of their mean, as long as no place has been read
_SWEEPS = 12  # over all places; two or three change the last
_DOUBTFUL = 4  # places whose token is tried everywhere, so many at a time


@dataclass(frozen=True)
class Pursuit:
    """A gradient in units of its noise, and what may explain it.

    Attributes:
        atoms: tokens in places.
        sums: (rows + 1, width + 1), of all rows before each, in units of the noise.
        common: (tokens,), logarithm of how common each is.
        held: (places, tokens), product of each atom with the gradient.
    """

    atoms: Atoms
    sums: Tensor
    common: Tensor
    held: Tensor

    @staticmethod
    def of(atoms: Atoms, sums: Tensor, common: Tensor) -> Pursuit:
        """Multiply each atom with the gradient."""
        pairs = zip(atoms.rows, atoms.vectors, strict=True)
        held = torch.stack([(sums[rows] * vectors).sum(1) for rows, vectors in pairs])
        return Pursuit(atoms, sums, common, held)

    def read(self, factor: float) -> Tensor:
        """Return the likeliest token of each place, (places,) int64.

        Args:
            factor: of atoms, in units of the noise, about.
        """
        tokens, spread = self.start(factor), _ROUGH * factor
        for _ in range(_SWEEPS):
            before = tokens.clone()
            for place in range(len(tokens)):
                tokens[place] = self.scores(place, tokens, factor, spread).argmax()
            factor = self.mean_factor(tokens, factor)
            spread = _SPREAD * factor
            if torch.equal(tokens, before):
                tokens = self.exchanged(tokens, factor, spread)
                if torch.equal(tokens, before):
                    break
        return tokens

    def exchanged(self, tokens: Tensor, factor: float, spread: float) -> Tensor:
        """Return the tokens with two of them changed at a time, where that is likelier.

        Any two change places; and one whose factor is off goes where another stands, and its own
        place is read anew. Each alone would be less likely, by the jump that it leaves.
        """
        best = self.likelihood(tokens, factor, spread)
        for one, other in combinations(range(len(tokens)), 2):
            trial = tokens.clone()
            trial[[one, other]] = tokens[[other, one]]
            if (likely := self.likelihood(trial, factor, spread)) > best:
                tokens, best = trial, likely
        for one, other in product(self.doubtful(tokens, factor, spread), range(len(tokens))):
            trial = tokens.clone()
            trial[other] = tokens[one]
            if one != other:
                trial[one] = self.scores(one, trial, factor, spread).argmax()
                if (likely := self.likelihood(trial, factor, spread)) > best:
                    tokens, best = trial, likely
        return tokens

    def doubtful(self, tokens: Tensor, factor: float, spread: float) -> list[int]:
        """Return the few places whose factors, fitted freely, are farthest off, if beyond usual."""
        held = self.held[torch.arange(len(tokens)), tokens]
        found = torch.linalg.lstsq(self.atoms.products(tokens), held[:, None]).solution[:, 0]
        off = (found - factor).abs()
        farthest: list[int] = off.argsort(descending=True)[:_DOUBTFUL].tolist()
        return [place for place in farthest if off[place] > 2 * spread]

    def likelihood(self, tokens: Tensor, factor: float, spread: float) -> float:
        """Return the log-likelihood of tokens (places,) but for a constant."""
        prior = spread**-2
        square = self.atoms.products(tokens) + prior * torch.eye(len(tokens))
        held = self.held[torch.arange(len(tokens)), tokens] + prior * factor
        lower = torch.linalg.cholesky(square)
        explained = torch.linalg.solve_triangular(lower, held[:, None], upper=False)
        common = self.common[tokens].sum() - lower.diagonal().log().sum()
        return float(explained.square().sum() / 2 + common)

    def start(self, factor: float) -> Tensor:
        """Return the places' tokens by jumps alone, one a place; the commonest where none is left.

        Rows between a jump and an atom's last are missed. Two places that took one jump would
        drive each other to wrong ones.
        """
        from scipy.optimize import linear_sum_assignment

        rows = self.sums.diff(dim=0)
        edges, lost = jumps(rows, len(self.held))
        bounds = torch.cat([edges.new_zeros(1), edges + 1, edges.new_tensor([len(rows)])])
        sizes = bounds.diff().clamp_min(1)
        tokens = self.common.argmax().repeat(len(self.held))
        if not len(edges):
            return tokens
        squares = factor**2 / 2 * self.atoms.vectors.square().sum(2)
        likely = []
        weights = 1 / (1 / sizes[:-1] + 1 / sizes[1:])
        for edge, weight, vector in zip(edges, weights, lost, strict=True):
            missed = (self.atoms.rows - edge - 1).abs()
            explained = factor * weight * (self.atoms.vectors @ vector.float())
            likely.append((explained - (weight + missed) * squares + self.common).max(1))
        gain, token = (torch.stack(each) for each in zip(*likely, strict=True))
        jump, place = linear_sum_assignment(-gain.clamp_min(float(self.common.min())).numpy())
        kept = gain[jump, place] > self.common.max()
        tokens[place[kept]] = token[jump, place][kept]
        return tokens

    def scores(self, place: int, tokens: Tensor, factor: float, spread: float) -> Tensor:
        """Return each token's log-likelihood in a place but for a constant, (tokens,).

        Args:
            place: the place.
            tokens: (places,), of all places.
            factor: the mean of factors.
            spread: their standard deviation.
        """
        prior = spread**-2
        others = torch.arange(len(tokens)) != place
        vectors, rows = (each[others] for each in self.atoms.chosen(tokens))
        square = self.atoms.products(tokens)[others][:, others]
        held = self.held[others, tokens[others]] + prior * factor
        lower = torch.linalg.cholesky(square + prior * torch.eye(len(rows)))
        shared = (self.atoms.vectors[place] @ vectors.T).double()
        shared *= torch.minimum(self.atoms.rows[place, :, None], rows)
        shared = torch.linalg.solve_triangular(lower, shared.T, upper=False)
        explained = torch.linalg.solve_triangular(lower, held[:, None], upper=False)[:, 0]
        wanted = self.held[place] + prior * factor - explained @ shared
        own = self.atoms.rows[place] * self.atoms.vectors[place].square().sum(1).double()
        left = own + prior - shared.square().sum(0)
        return wanted.square() / (2 * left) - left.log() / 2 + self.common

    def mean_factor(self, tokens: Tensor, least: float) -> float:
        """Return the factor that fits best if all places have the same; at least a tenth."""
        held = self.held[torch.arange(len(tokens)), tokens].sum()
        return max(float(held / self.atoms.products(tokens).sum()), least / 10)
