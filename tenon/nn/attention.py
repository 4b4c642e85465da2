"""Attention as PyTorch says it: scaled_dot_product_attention with dropout, and MultiheadAttention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.nn import init
from tenon.nn.linear import Linear
from tenon.nn.module import Module, Parameter
from tenon.ops.attention import attention, attention_weights, check_shapes
from tenon.ops.comparison import logical_and, logical_not, where
from tenon.ops.creation import empty
from tenon.ops.define import lift
from tenon.ops.joining_and_axes import concat, expand_dims, reshape, swapaxes
from tenon.ops.linear_layers import linear
from tenon.ops.matrix_products import matmul
from tenon.ops.repeating import pad, repeat
from tenon.ops.shape import broadcast_to, permute
from tenon.random import dropout
from tenon.types import bool_

__all__ = ["MultiheadAttention"]


def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Any:
    """softmax(query @ key.T * scale + attn_mask) @ value; query is [..., L, E], key [..., S, E], value [..., S, V].

    A mask of booleans says which pairs take part, another is added to the scores; `is_causal` lets position i see
    positions up to i.  `scale` is 1 / sqrt(E) unless given.  `dropout_p` applies to the weights, always.

    >>> x = tn.randn(2, 4, 5, 8)
    >>> tn.scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (2, 4, 5, 8)
    """
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = repeat(key, groups, axis=-3), repeat(value, groups, axis=-3)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    if dropout_p > 0:
        check_shapes(query, key, value, attn_mask)
        return matmul(dropout(attention_weights(query, key, attn_mask, is_causal, scale), dropout_p), value)
    if scale.__class__ is not float:        # so is one that changes
        scale = scale / 1 if scale.__class__ is int else float(scale)
    return attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale)[0]


class MultiheadAttention(Module):
    """Attention of several heads between projections of query, key and value, as PyTorch's.

    Sequences are [L, N, E], or [N, L, E] with `batch_first`, or [L, E].  In the masks, unlike those of
    `scaled_dot_product_attention`, True means: takes no part.  Returns the result and, if wanted, the weights.

    >>> layer = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = tn.randn(3, 5, 8)
    >>> y, weights = layer(x, x, x)
    >>> y.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = "float32"):
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: embed_dim {embed_dim} does not divide into {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.head_dim, self.kdim, self.vdim = embed_dim // num_heads, kdim or embed_dim, vdim or embed_dim
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = Parameter(empty(3 * embed_dim, embed_dim, dtype=dtype))
        else:
            for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
                setattr(self, f"{name}_proj_weight", Parameter(empty(embed_dim, size, dtype=dtype)))
        self.in_proj_bias = Parameter(empty(3 * embed_dim, dtype=dtype)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self.add_zero_attn = add_zero_attn
        self.bias_k, self.bias_v = (Parameter(empty(1, 1, embed_dim, dtype=dtype)) if add_bias_kv else None
                                    for _ in range(2))
        self._reset_parameters()
        self._place(device)

    def _reset_parameters(self) -> None:
        """Draw all but the weight of the last projection anew, as PyTorch's method of this name."""
        for name, p in self.named_parameters(recurse=False):
            init.xavier_uniform_(p) if name.endswith("weight") else init.xavier_normal_(p) \
                if name in ("bias_k", "bias_v") else init.zeros_(p)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def forward(self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True,
                attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Any, Any]:
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ShapeError(f"MultiheadAttention: query {query.type}, key {key.type} and value {value.type} must all "
                             "have two or all three axes")
        alone, same = query.ndim == 2, query is key and key is value
        sequences = [query] if same else [query, key, value]
        if alone:
            sequences = [expand_dims(x, 0) for x in sequences]
        elif not self.batch_first:
            sequences = [swapaxes(x, 0, 1) for x in sequences]
        q, k, v = (self._heads(x) for x in self._with_more_keys(*self._project(*sequences)))
        more = k.shape[2] - sequences[-2 if len(sequences) == 3 else 0].shape[1]
        attn_mask, key_padding_mask = (mask if mask is None or not more else pad(
            mask, [(0, 0)] * (mask.ndim - 1) + [(0, more)]) for mask in (attn_mask, key_padding_mask))
        mask = self._mask(q, k, attn_mask, key_padding_mask)
        causal = is_causal and attn_mask is None
        scale, rate = 1 / math.sqrt(self.embed_dim // self.num_heads), self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            weights = dropout(attention_weights(q, k, mask, causal, scale), rate)
            out = matmul(weights, v)
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            out = scaled_dot_product_attention(q, k, v, mask, rate, causal, scale)
        out = permute(out, (0, 2, 1, 3))
        out = self.out_proj(reshape(out, (*out.shape[:2], self.embed_dim)))
        if alone:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else swapaxes(out, 0, 1), weights

    def _project(self, query: Any, key: Any = None, value: Any = None) -> list[Any]:
        size, bias = self.embed_dim, self.in_proj_bias
        if key is None and "in_proj_weight" in self.__dict__:       # self-attention: one product
            qkv = linear(query, self.in_proj_weight, bias)
            return [qkv[..., k * size:(k + 1) * size] for k in range(3)]
        rows = [slice(k * size, (k + 1) * size) for k in range(3)]
        if "in_proj_weight" in self.__dict__:
            weights = [self.in_proj_weight[row] for row in rows]
        else:
            weights = [getattr(self, f"{name}_proj_weight") for name in "qkv"]
        inputs = (query, query, query) if key is None else (query, key, value)
        return [linear(x, w, None if bias is None else bias[row]) for x, w, row in zip(inputs, weights, rows)]

    def _with_more_keys(self, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        """Behind keys and values those that are learned, and zeros, which every query sees."""
        rows = k.shape[0], 1, self.embed_dim
        for key, value in ((self.bias_k, self.bias_v), (0, 0) if self.add_zero_attn else (None, None)):
            if key is not None:
                k, v = (concat([x, broadcast_to(lift(y).astype(x.dtype), shape=rows)], axis=1)
                        for x, y in ((k, key), (v, value)))
        return q, k, v

    def _heads(self, x: Any) -> Any:
        size = self.embed_dim // self.num_heads
        return permute(reshape(x, (*x.shape[:2], self.num_heads, size)), (0, 2, 1, 3))

    def _mask(self, q: Any, k: Any, attn_mask: Any, key_padding_mask: Any) -> Any:
        """Both masks as one for `attention`: booleans that allow, or numbers to add."""
        masks = []
        if attn_mask is not None:
            shape = (q.shape[0], self.num_heads, *attn_mask.shape[1:]) if attn_mask.ndim == 3 else attn_mask.shape
            masks.append(reshape(attn_mask, shape))
        if key_padding_mask is not None:
            padding = key_padding_mask if key_padding_mask.ndim == 2 else expand_dims(key_padding_mask, 0)
            masks.append(reshape(padding, (padding.shape[0], 1, 1, padding.shape[1])))
        if all(mask.dtype is bool_ for mask in masks):
            allowed = [logical_not(mask) for mask in masks]
            return None if not allowed else allowed[0] if len(allowed) == 1 else logical_and(*allowed)
        numbers = [where(mask, -math.inf, 0.0) if mask.dtype is bool_ else mask for mask in masks]
        return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}"


def multi_head_attention_forward(
        query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any,
        in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any,
        out_proj_bias: Any, training: bool = True, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
        k_proj_weight: Any = None, v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None,
        average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Any, Any]:
    """`MultiheadAttention` of these parameters, sequences along the first axis.

    Raises ArgumentError for `static_k` and `static_v`, keys and values that are projected already.
    """
    if static_k is not None or static_v is not None:
        raise ArgumentError("multi_head_attention_forward: static_k and static_v are not supported",
                            hint="scaled_dot_product_attention takes keys and values")
    if query.shape[-1] != embed_dim_to_check:
        raise ShapeError(f"multi_head_attention_forward: query {query.type} does not end in {embed_dim_to_check}")
    layer = MultiheadAttention.__new__(MultiheadAttention)
    weights = {"q_proj_weight": q_proj_weight, "k_proj_weight": k_proj_weight, "v_proj_weight": v_proj_weight} \
        if use_separate_proj_weight else {"in_proj_weight": in_proj_weight}
    layer.__dict__.update(
        embed_dim=embed_dim_to_check, num_heads=num_heads, dropout=dropout_p, batch_first=False, training=training,
        in_proj_bias=in_proj_bias, bias_k=bias_k, bias_v=bias_v, add_zero_attn=add_zero_attn,
        out_proj=lambda x: linear(x, out_proj_weight, out_proj_bias), **weights)
    found: tuple[Any, Any] = layer.forward(query, key, value, key_padding_mask, need_weights, attn_mask,
                                           average_attn_weights, is_causal)
    return found


# ---------------------------------------------------------------- which kernel computes it

class SDPBackend(Enum):
    """PyTorch's kernels of attention; here there is one."""

    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = range(-1, 5)


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """Nothing: there is one kernel of attention.  Raises ArgumentError for what is no `SDPBackend`."""
    for backend in backends if isinstance(backends, (list, tuple)) else [backends]:
        if not isinstance(backend, SDPBackend):
            raise ArgumentError(f"sdpa_kernel: an SDPBackend was expected, not {backend!r}")
    yield
