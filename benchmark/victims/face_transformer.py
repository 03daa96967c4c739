"""The Face Transformer of Zhong and Deng (arXiv 2103.14803), which GradViT attacks on faces.

Their ViT-P12S8 is a ViT on 112 px whose 12 px patches slide by 8 px over an image padded by 4 px
of zeros: as many tokens as 8 px patches that tile it, and every pixel is read. Width 512, depth
20, 8 heads, MLP of four widths, pre-norm, no bias on q, k, v, one class token, a final norm;
positions and class token start from N(0, 1). The blocks are those of APRIL's Architecture B.
Difference: a linear head on the class token instead of their CosFace head, and no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmark.victims.april import BlockB

WIDTH, DEPTH, HEADS, PATCH = 512, 20, 8, 12


class FaceTransformer(nn.Module):
    """Image classifier with overlapping patches, (batch, channel, size, size) to (batch, classes).

    Args:
        channels: of the images.
        size: side of the image in pixels; a multiple of the stride.
        classes: of the labels.
        patch: side of a patch in pixels; a multiple of 3, for the stride is two thirds of it.
        width: of the embedding; a multiple of `heads`.
        depth: number of blocks.
        heads: of the attention.
    """

    def __init__(
        self,
        *,
        channels: int,
        size: int,
        classes: int,
        patch: int = PATCH,
        width: int = WIDTH,
        depth: int = DEPTH,
        heads: int = HEADS,
    ) -> None:
        super().__init__()
        if patch % 3:
            raise ValueError(f"patches of {patch} px slide by two thirds; wanted a multiple of 3")
        self.patch, self.stride = patch, 2 * patch // 3
        if size % self.stride or width % heads:
            raise ValueError(
                f"{patch} px patches at every {self.stride} px must fit {size} px and "
                f"{heads} heads {width}"
            )
        self.unfold = nn.Unfold(patch, stride=self.stride, padding=patch - self.stride)
        self.patch_embed = nn.Linear(channels * patch**2, width)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, (size // self.stride) ** 2 + 1, width))
        self.blocks = nn.ModuleList([BlockB(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patch_embed(self.unfold(images).transpose(1, 2))  # (batch, patch, width)
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), tokens], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))
