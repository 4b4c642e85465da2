"""The keys and values of tokens that a decoder has seen, so that each token is computed once.

They lie in tensors that are as long as the text will be, so a loop of the graph can carry them.
"""

from __future__ import annotations

from typing import Any

from tenon.nn.attention import scaled_dot_product_attention
from tenon.ops.creation import arange, zeros

Caches = list[tuple[Any, Any]]      # of each layer: keys and values [N, heads, length, size]


def empty_caches(layers: int, count: int, heads: int, length: int, size: int, dtype: Any) -> Caches:
    """Room for the keys and values of `length` tokens."""
    return [(zeros((count, heads, length, size), dtype=dtype), zeros((count, heads, length, size), dtype=dtype))
            for _ in range(layers)]


def positions(count: int, at: Any) -> Any:
    """The places of tokens: from 0 on, or the one at `at`."""
    return arange(count) if at is None else arange(1) + at


def attended(q: Any, k: Any, v: Any, caches: Caches | None, layer: int, at: Any, grouped: bool = False) -> Any:
    """Causal attention; without caches, of first tokens that are put there, or of the token at `at` to all before."""
    if caches is None:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    keys, values = caches[layer]
    if at is None:
        keys[:, :, :k.shape[2]], values[:, :, :v.shape[2]] = k, v
        caches[layer] = keys, values
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
    keys[:, :, at], values[:, :, at] = k[:, :, 0], v[:, :, 0]
    caches[layer] = keys, values
    seen = arange(keys.shape[2]) <= at
    return scaled_dot_product_attention(q, keys, values, seen[None, None, None], enable_gqa=grouped)
