"""PyTorch's fused kernels for inference -> the operators that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten


def attention_with_itself(x: Any, heads: int, weight: Any, bias: Any, out_weight: Any, out_bias: Any) -> Any:
    """What `nn.MultiheadAttention` does with one sequence."""
    batch, length, width = x.shape
    projected = F.linear(x, weight, bias).reshape(batch, length, 3, heads, width // heads)
    q, k, v = projected.permute(2, 0, 3, 1, 4).unbind(0)
    found = F.scaled_dot_product_attention(q, k, v)
    return F.linear(found.transpose(1, 2).reshape(batch, length, width), out_weight, out_bias)


def encoder_layer(x: Any, width: int, heads: int, qkv_weight: Any, qkv_bias: Any, out_weight: Any, out_bias: Any,
                  use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any, norm_bias_1: Any,
                  norm_weight_2: Any, norm_bias_2: Any, weight_1: Any, bias_1: Any, weight_2: Any, bias_2: Any,
                  mask: Any = None, mask_type: int | None = None) -> Any:
    """What `nn.TransformerEncoderLayer` does; masked calls stay with PyTorch."""
    if mask is not None or x.dim() != 3:
        return NotImplemented

    def first(x: Any) -> Any:
        return F.layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return F.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Any) -> Any:
        return attention_with_itself(x, heads, qkv_weight, qkv_bias, out_weight, out_bias)

    def forward(x: Any) -> Any:
        wide = F.linear(x, weight_1, bias_1)
        return F.linear(F.gelu(wide) if use_gelu else F.relu(wide), weight_2, bias_2)
    if norm_first:
        x = x + attended(first(x))
        return x + forward(second(x))
    x = first(x + attended(x))
    return second(x + forward(x))


FAST_PATHS: dict[Any, Callable[..., Any]] = {aten._transformer_encoder_layer_fwd.default: encoder_layer}
