"""ViT: a transformer over patches of an image.

A. Dosovitskiy et al., "An image is worth 16x16 words", 2020.  Weights have the names of timm's checkpoints.
"""

from __future__ import annotations

from typing import Any

from tenon.errors import ShapeError
from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.containers import Sequential
from tenon.nn.convolution import Conv2d
from tenon.nn.linear import Linear
from tenon.nn.module import Module, Parameter
from tenon.nn.normalization import LayerNorm
from tenon.ops.activations import gelu
from tenon.ops.creation import zeros
from tenon.ops.joining_and_axes import concat, reshape, swapaxes
from tenon.ops.shape import broadcast_to
from tenon.ops.splitting import chunk
from tenon.random import normal
from tenon.records import dataclass


@dataclass(frozen=True)
class ViTConfig:
    """Sizes, by timm's names."""

    img_size: int = 224
    patch_size: int = 16
    in_chans: int = 3
    num_classes: int = 1000
    embed_dim: int = 768
    depth: int = 12
    num_heads: int = 12
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    eps: float = 1e-6


class PatchEmbedding(Module):
    """Images [N, C, H, W] to patches [N, places, width]."""

    def __init__(self, config: ViTConfig):
        self.proj = Conv2d(config.in_chans, config.embed_dim, config.patch_size, config.patch_size)

    def forward(self, x: Any) -> Any:
        x = self.proj(x)
        return swapaxes(reshape(x, (x.shape[0], x.shape[1], -1)), 1, 2)


class Attention(Module):
    """Attention of several heads."""

    def __init__(self, config: ViTConfig):
        self.heads = config.num_heads
        self.qkv = Linear(config.embed_dim, 3 * config.embed_dim, bias=config.qkv_bias)
        self.proj = Linear(config.embed_dim, config.embed_dim)

    def forward(self, x: Any) -> Any:
        q, k, v = (split_heads(part, self.heads) for part in chunk(self.qkv(x), 3, axis=-1))
        return self.proj(merge_heads(scaled_dot_product_attention(q, k, v)))


class MLP(Module):
    """Two layers with a GELU between them."""

    def __init__(self, config: ViTConfig):
        wide = int(config.embed_dim * config.mlp_ratio)
        self.fc1, self.fc2 = Linear(config.embed_dim, wide), Linear(wide, config.embed_dim)

    def forward(self, x: Any) -> Any:
        return self.fc2(gelu(self.fc1(x)))


class Block(Module):
    """Attention and a network, each of a normalised input, and added to it."""

    def __init__(self, config: ViTConfig):
        self.norm1, self.norm2 = (LayerNorm(config.embed_dim, eps=config.eps) for _ in range(2))
        self.attn, self.mlp = Attention(config), MLP(config)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(PublicModel):
    """Images [N, 3, H, W] to scores of classes [N, classes]; with no classes, the vector of the first token.

    >>> model = tn.models.ViT(img_size=8, patch_size=4, embed_dim=6, depth=1, num_heads=2, num_classes=5)
    >>> model(tn.zeros(1, 3, 8, 8)).shape
    (1, 5)
    """

    Config = ViTConfig

    def build(self, config: ViTConfig) -> None:
        places = (config.img_size // config.patch_size) ** 2
        self.cls_token = Parameter(zeros(1, 1, config.embed_dim))
        self.pos_embed = Parameter(normal(0.0, 0.02, (1, places + 1, config.embed_dim)))
        self.patch_embed = PatchEmbedding(config)
        self.blocks = Sequential(*(Block(config) for _ in range(config.depth)))
        self.norm = LayerNorm(config.embed_dim, eps=config.eps)
        if config.num_classes:
            self.head = Linear(config.embed_dim, config.num_classes)

    def features(self, x: Any) -> Any:
        """Images to a vector for each patch, after one for all: [N, places + 1, width]."""
        size = self.config.img_size
        if tuple(x.shape[-2:]) != (size, size):
            raise ShapeError(f"ViT: images of {size} x {size} were expected, not {x.type}")
        x = self.patch_embed(x)
        first = broadcast_to(self.cls_token, (x.shape[0], 1, x.shape[2]))
        return self.norm(self.blocks(concat([first, x], axis=1) + self.pos_embed))

    def forward(self, x: Any) -> Any:
        first = self.features(x)[:, 0]
        return self.head(first) if self.config.num_classes else first
