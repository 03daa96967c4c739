"""Architectures A and B of the APRIL paper (Lu et al., CVPR 2022, Fig. 1, section 4, Table 2).

The parameter counts of its Table 2 pin Architecture B down: width 384, depth 4, 4 heads, MLP of
four widths, pre-norm, no bias on q, k, v, a biased output projection, a biased linear patch
embedding, one class token, learnable positions, a linear head and no final norm. Architecture A
stacks the same parts without residuals, its first attention directly on the position embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, DEPTH, HEADS, MLP_RATIO, PATCH = 384, 4, 4, 4, 7


class Attention(nn.Module):
    """Multi-head self-attention, (batch, token, width) to the same; q, k, v in one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.num_heads, width // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, head, token, width / heads)
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


class Mlp(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, MLP_RATIO * width)
        self.fc2 = nn.Linear(MLP_RATIO * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class BlockA(nn.Module):
    """Attention, norm, MLP, stacked without residuals."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = Attention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(self.attn(x)))


class BlockB(nn.Module):
    """The pre-norm residual block of ViT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class AprilTransformer(nn.Module):
    """Image classifier of the APRIL paper, (batch, channel, size, size) to (batch, classes).

    Args:
        block: `BlockA` or `BlockB`.
        size: side of the image in pixels; a multiple of `patch`.
    """

    def __init__(
        self,
        block: type[BlockA] | type[BlockB],
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
        if size % patch or width % heads:
            raise ValueError(f"{patch} px patches must tile {size} px and {heads} heads {width}")
        self.patch = patch
        self.patch_embed = nn.Linear(channels * patch**2, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList([block(width, heads) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        patches = functional.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        tokens = self.patch_embed(patches)  # (batch, patch, width)
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), tokens], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])
