"""Jigsaw APRIL: what a gradient tells under Masked Jigsaw Puzzles (MJP, Liu et al., 2205.12551).

Source: derived for this benchmark, after APRIL (Lu et al., CVPR 2022). A position that is masked
has no gradient, so the mask is read off. With D the gradients of the other positions, u that of the
unknown one, E those of the masked embeddings, one a column, E 1 = u, the patch embedding's gradient
is `D X' + E M'`, X the patches in view and M the masked ones. Off D it is `E M'` alone: its rows
for which u vanishes span V, the differences of masked patches. Off V all masked patches are one
patch a with the gradient u, and X and a are a least-squares solve, as in the position closed form.
Along V the equations hold nothing: X may trade with E, and every patch is known up to V. The
shuffle hides nothing more, for the network reads masked tokens as a set: the original of a masked
place lies in a + V too. So the likeliest image of little total variation in these sets is answered,
in its original order. Where the protocol grants gradients, the whole update is then matched from
there, with the masked positions at the unknown one, and pairs of masked patches change places
while the jumps at patches' edges fall.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    Stack,
    images_from_patches,
    to_images,
    to_patches,
)
from benchmark.toolbox.closedform import row_space, solve_gradient
from benchmark.toolbox.closedform.adaptive import check_prior, with_prior
from benchmark.toolbox.closedform.posterior import Posterior, Spread
from benchmark.toolbox.labels import labels_of_images
from benchmark.toolbox.matching import LBFGS, Search, SquaredDistance, search
from submissions.attacks.jigsaw_april.order import arrange


@dataclass(frozen=True)
class JigsawApril(Attack):
    """Least squares off the masked patches' differences, then the prior, matching and edges."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    steps: int = 100
    """Of L-BFGS, where the budget has gradients; 0 for the closed form alone."""

    def applies(self, seen: Observation) -> None:
        parts = ImageVictim.of(seen.model).anatomy
        if parts.unknown_position is None:
            raise NotApplicable("no masked patches share a position")
        wanted = {parts.position, parts.unknown_position, f"{parts.patch_embedding}.weight"}
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")
        check_prior(seen)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        seen = replace(seen, later=())
        masked = masked_patches(seen)
        posterior = jigsaw_posterior(seen, masked)
        patches = with_prior(posterior.mean, posterior, seen, "total_variation")
        answer = Reconstruction(images_from_patches(patches, seen.model, 1))
        if self.steps and seen.budget.gradient_evaluations and masked.sum() > 1:
            answer = self._matched(seen, masked, answer)
        return answer

    def _matched(self, seen: Observation, masked: Tensor, answer: Reconstruction) -> Reconstruction:
        """Return the answer moved until the update is its own, and its masked patches in order."""
        assert answer.images is not None
        images = answer.images.clamp(0, 1)
        victim = _unmasked(seen, masked)
        seen = replace(seen, model=victim)
        plan = Search(SquaredDistance(), self.steps, LBFGS(history=20), rate=1.0)
        parts = victim.anatomy
        matched = frozenset(name for name in seen.update if not _of_positions(name, victim))
        labels = labels_of_images(seen, images)
        (found,) = search(Stack([seen]), plan, [labels], matched, [images])
        if found.failure is not None or found.images is None or found.mismatch >= 1:
            return replace(answer, gradient_evaluations=found.gradient_evaluations)
        patches = to_patches(found.images, parts.patch)[0]
        shape = (len(patches), parts.channels, parts.patch, parts.patch)
        order = arrange(patches.view(shape).clamp(0, 1), masked)
        return replace(found, images=to_images(patches[order][None], parts.patch, parts.size))


def masked_patches(seen: Observation) -> Tensor:
    """Return which patches of one image have no position of their own, (patches,) bool."""
    parts = ImageVictim.of(seen.model).anatomy
    return ~seen.update[parts.position][0, parts.position_offset :].cpu().any(1)


def jigsaw_posterior(seen: Observation, masked: Tensor) -> Posterior:
    """Return what the update tells of each place's original patch: a point, and V around it.

    Args:
        seen: of one image.
        masked: (patches,) bool.
    """
    victim = ImageVictim.of(seen.model)
    parts = victim.anatomy
    assert parts.unknown_position is not None
    own = (seen.update[parts.position] - _localising(victim, masked))[0, parts.position_offset :]
    in_view = own.double().cpu()[~masked].T  # (width, patches in view)
    shared = seen.update[parts.unknown_position].double().cpu().view(-1, 1)
    embedding = seen.update[f"{parts.patch_embedding}.weight"].flatten(1).double().cpu()
    count = int(masked.sum())
    open_ = embedding.new_zeros(embedding.shape[1], 0)
    if count > 1:
        off = torch.linalg.qr(torch.cat([in_view, shared], dim=1))[0]
        open_ = row_space(embedding - off @ (off.T @ embedding), count - 1, seen.generator)
    told = embedding - (embedding @ open_) @ open_.T
    solved = solve_gradient(torch.cat([in_view, shared], dim=1), told)
    mean = solved[-1].repeat(len(masked), 1)
    mean[~masked] = solved[:-1]
    wide = open_.new_full((open_.shape[1],), open_.shape[0] ** 0.5)  # a patch's whole length
    among = Spread(mean.new_zeros(len(mean), 0), mean.new_zeros(0), 1.0)
    return Posterior(mean, among, Spread(open_, wide, 0.0))


def _localising(victim: ImageVictim, masked: Tensor) -> Tensor:
    """Return what dense absolute localisation adds to the positions' gradient, which is public."""
    twin = copy.deepcopy(victim).requires_grad_(True)
    position = twin.weights()[twin.anatomy.position]
    error = twin.localisation(masked[None].to(twin.device))
    if not error.requires_grad:
        return torch.zeros_like(position)
    (gradient,) = torch.autograd.grad(error, position)
    return gradient


def _unmasked(seen: Observation, masked: Tensor) -> ImageVictim:
    """Return the victim with masked patches at the unknown position for good."""
    twin = copy.deepcopy(ImageVictim.of(seen.model))
    parts, known = twin.anatomy, twin.weights()
    assert parts.unknown_position is not None
    places = masked.nonzero()[:, 0] + parts.position_offset
    known[parts.position].data[0, places] = known[parts.unknown_position].data[0, 0]
    return twin


def _of_positions(name: str, model: ImageVictim) -> bool:
    """Tell whether a parameter's gradient is of positions, or of what localises them."""
    parts = model.anatomy
    return name in (parts.position, parts.unknown_position) or name.startswith("localiser.")
