"""U-Net of a diffusion model: pictures with noise, and how much there is, to the noise.

J. Ho et al., "Denoising diffusion probabilistic models", 2020.  Weights have the names of diffusers' `UNet2DModel`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenon.errors import ArgumentError
from tenon.models.public_model import PublicModel
from tenon.models.shared_layers import activation, merge_heads, split_heads
from tenon.nn.attention import scaled_dot_product_attention
from tenon.nn.containers import ModuleList
from tenon.nn.convolution import Conv2d
from tenon.nn.dropout import Dropout
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.nn.normalization import GroupNorm
from tenon.ops.activations import silu
from tenon.ops.creation import arange
from tenon.ops.define import lift
from tenon.ops.exponential import exp
from tenon.ops.joining_and_axes import concat, reshape, swapaxes
from tenon.ops.repeating import pad
from tenon.ops.shape import broadcast_to
from tenon.ops.trigonometric import cos, sin
from tenon.ops.upsampling import interpolate
from tenon.records import dataclass
from tenon.types import float32


@dataclass(frozen=True)
class UNetConfig:
    """The fields of diffusers' `config.json` that are read."""

    in_channels: int = 3
    out_channels: int = 3
    block_out_channels: tuple[int, ...] = (224, 448, 672, 896)
    down_block_types: tuple[str, ...] = ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D")
    up_block_types: tuple[str, ...] = ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")
    layers_per_block: int = 2
    attention_head_dim: int | None = 8
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    act_fn: str = "silu"
    dropout: float = 0.0
    downsample_padding: int = 1
    add_attention: bool = True
    flip_sin_to_cos: bool = True
    freq_shift: float = 0


def sinusoidal_embedding(times: Any, size: int, cosines_first: bool = True, shift: float = 0) -> Any:
    """Times [N] as [N, size]: cosines and sines of them at wave lengths from 1 to 10,000."""
    half = size // 2
    angles = times.astype(float32)[:, None] * exp(arange(half, dtype=float32) * (-math.log(10_000) / (half - shift)))
    parts = [cos(angles), sin(angles)]
    return concat(parts if cosines_first else parts[::-1], axis=1)


class TimeEmbedding(Module):
    """Two layers over the waves of a time."""

    def __init__(self, size: int, width: int):
        self.linear_1, self.linear_2 = Linear(size, width), Linear(width, width)

    def forward(self, x: Any) -> Any:
        return self.linear_2(silu(self.linear_1(x)))


class TimedBlock(Module):
    """Two convolutions of normalised pictures, told the time between them, added to what comes in."""

    def __init__(self, inputs: int, outputs: int, config: UNetConfig):
        groups, eps = config.norm_num_groups, config.norm_eps
        self.norm1, self.conv1 = GroupNorm(groups, inputs, eps), Conv2d(inputs, outputs, 3, padding=1)
        self.time_emb_proj = Linear(config.block_out_channels[0] * 4, outputs)
        self.norm2, self.conv2 = GroupNorm(groups, outputs, eps), Conv2d(outputs, outputs, 3, padding=1)
        self.conv_shortcut = Conv2d(inputs, outputs, 1) if inputs != outputs else None
        self.dropout, self.act_fn = Dropout(config.dropout), config.act_fn

    def forward(self, x: Any, time: Any) -> Any:
        act = activation(self.act_fn)
        y = self.conv1(act(self.norm1(x))) + self.time_emb_proj(act(time))[:, :, None, None]
        y = self.conv2(self.dropout(act(self.norm2(y))))
        return y + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class SpatialAttention(Module):
    """Every place of a picture looks at all others."""

    def __init__(self, channels: int, config: UNetConfig):
        self.heads = 1 if config.attention_head_dim is None else channels // config.attention_head_dim
        self.group_norm = GroupNorm(config.norm_num_groups, channels, config.norm_eps)
        self.to_q, self.to_k, self.to_v = (Linear(channels, channels) for _ in range(3))
        self.to_out = ModuleList([Linear(channels, channels)])

    def forward(self, x: Any) -> Any:
        places = swapaxes(reshape(self.group_norm(x), (*x.shape[:2], x.shape[2] * x.shape[3])), 1, 2)
        q, k, v = (split_heads(project(places), self.heads) for project in (self.to_q, self.to_k, self.to_v))
        y = self.to_out[0](merge_heads(scaled_dot_product_attention(q, k, v)))
        return x + reshape(swapaxes(y, 1, 2), x.shape)


class Shrink(Module):
    """Half the size, by a convolution."""

    def __init__(self, channels: int, padding: int):
        self.conv, self.padding = Conv2d(channels, channels, 3, 2, padding), padding

    def forward(self, x: Any) -> Any:
        return self.conv(x if self.padding else pad(x, ((0, 0), (0, 0), (0, 1), (0, 1))))


class Grow(Module):
    """Twice the size, every element four times, then a convolution."""

    def __init__(self, channels: int):
        self.conv = Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return self.conv(interpolate(x, scale_factor=2))


class BlocksOfOneSize(Module):
    """Blocks at one size, each followed by attention where there is some."""

    def __init__(self, widths: Sequence[tuple[int, int]], attends: bool, config: UNetConfig):
        self.resnets = ModuleList([TimedBlock(inputs, outputs, config) for inputs, outputs in widths])
        self.attentions = ModuleList([SpatialAttention(outputs, config) for _, outputs in widths]) if attends else None

    def layer(self, k: int, x: Any, time: Any) -> Any:
        """What the block of this number, and its attention, make of pictures."""
        x = self.resnets[k](x, time)
        return x if self.attentions is None else self.attentions[k](x)


class Down(BlocksOfOneSize):
    """Keeps what each of its layers makes, for the way up."""

    def __init__(self, inputs: int, outputs: int, attends: bool, last: bool, config: UNetConfig):
        widths = [(outputs if k else inputs, outputs) for k in range(config.layers_per_block)]
        super().__init__(widths, attends, config)
        self.downsamplers = None if last else ModuleList([Shrink(outputs, config.downsample_padding)])

    def forward(self, x: Any, time: Any) -> tuple[Any, list[Any]]:
        kept = []
        for k in range(len(self.resnets)):
            x = self.layer(k, x, time)
            kept.append(x)
        if self.downsamplers is not None:
            x = self.downsamplers[0](x)
            kept.append(x)
        return x, kept


class Up(BlocksOfOneSize):
    """Reads beside its input what was kept on the way down, the last first."""

    def __init__(self, widths: Sequence[tuple[int, int]], attends: bool, last: bool, config: UNetConfig):
        super().__init__(widths, attends, config)
        self.upsamplers = None if last else ModuleList([Grow(widths[-1][1])])

    def forward(self, x: Any, kept: list[Any], time: Any) -> Any:
        for k in range(len(self.resnets)):
            x = self.layer(k, concat([x, kept.pop()], axis=1), time)
        return x if self.upsamplers is None else self.upsamplers[0](x)


class Middle(BlocksOfOneSize):
    """A block, attention, and a block."""

    def __init__(self, channels: int, config: UNetConfig):
        super().__init__([(channels, channels)] * 2, False, config)
        self.attentions = ModuleList([SpatialAttention(channels, config)] if config.add_attention else [])

    def forward(self, x: Any, time: Any) -> Any:
        x = self.resnets[0](x, time)
        for attend in self.attentions or ():
            x = attend(x)
        return self.resnets[1](x, time)


class UNet(PublicModel):
    """Pictures [N, C, H, W] with noise, at times [N] or one time, to the noise in them.

    >>> net = tn.models.UNet(block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1, attention_head_dim=4,
    ...                      down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    ...                      up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    >>> net(tn.zeros(2, 3, 16, 16), 5).shape
    (2, 3, 16, 16)
    """

    Config = UNetConfig

    def build(self, config: UNetConfig) -> None:
        widths = tuple(config.block_out_channels)
        kinds = ["DownBlock2D", "AttnDownBlock2D"], ["UpBlock2D", "AttnUpBlock2D"]
        for given, known in zip((config.down_block_types, config.up_block_types), kinds, strict=True):
            if len(given) != len(widths) or not set(given) <= set(known):
                raise ArgumentError(f"UNet: its blocks are {', '.join(given)}",
                                    hint=f"one of {' and '.join(known)} for each of {len(widths)} widths")
        self.conv_in = Conv2d(config.in_channels, widths[0], 3, padding=1)
        self.time_embedding = TimeEmbedding(widths[0], widths[0] * 4)
        self.down_blocks = ModuleList([
            Down(widths[max(k - 1, 0)], width, "Attn" in kind, k == len(widths) - 1, config)
            for k, (width, kind) in enumerate(zip(widths, config.down_block_types, strict=True))])
        self.mid_block = Middle(widths[-1], config)
        self.up_blocks = ModuleList([
            Up(_widths_up(widths[::-1], k, config.layers_per_block + 1), "Attn" in kind, k == len(widths) - 1, config)
            for k, kind in enumerate(config.up_block_types)])
        self.conv_norm_out = GroupNorm(config.norm_num_groups, widths[0], config.norm_eps)
        self.conv_out = Conv2d(widths[0], config.out_channels, 3, padding=1)

    def forward(self, x: Any, times: Any) -> Any:
        config = self.config
        times = broadcast_to(lift(times), shape=(x.shape[0],))
        time = self.time_embedding(sinusoidal_embedding(times, config.block_out_channels[0], config.flip_sin_to_cos,
                                         config.freq_shift))
        x = self.conv_in(x)
        kept = [x]
        for down in self.down_blocks:
            x, more = down(x, time)
            kept += more
        x = self.mid_block(x, time)
        for up in self.up_blocks:
            x = up(x, kept, time)
        return self.conv_out(silu(self.conv_norm_out(x)))


def _widths_up(widths: Sequence[int], stage: int, layers: int) -> list[tuple[int, int]]:
    """What goes into and comes out of each block of a stage on the way up: the layer before, and what was kept."""
    before, here = widths[max(stage - 1, 0)], widths[stage]
    below = widths[min(stage + 1, len(widths) - 1)]
    return [((here if k else before) + (below if k == layers - 1 else here), here) for k in range(layers)]
