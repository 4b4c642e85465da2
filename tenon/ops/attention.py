"""Attention: softmax(q @ k.T * scale + mask) @ v, one operator whatever the back end makes of it."""

from __future__ import annotations

import math
from typing import Any

from tenon.errors import ShapeError
from tenon.graph.promotion import Kinds, floating
from tenon.ops.comparison import equal, greater_equal, logical_and, where
from tenon.ops.creation import iota
from tenon.ops.define import composite
from tenon.ops.exponential import exp
from tenon.ops.linalg import matmul, mT
from tenon.types import bool_, broadcast_shapes


def _masks_apart(kinds: Kinds) -> tuple[Any, ...]:
    """Queries, keys and values agree; a mask of booleans stays one, other masks join them."""
    q, k, v, mask, keep = (*kinds, None, None)[:5]
    if mask is bool_:
        dtype = floating((q, k, v, keep))
        return (*dtype[:3], bool_, dtype[3])
    return floating((q, k, v, mask, keep))


def attention_weights(q: Any, k: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    """The attention weights; 0 in a row in which everything is masked."""
    scores = matmul(q, mT(k)) * scale
    allowed = mask if mask is not None and mask.dtype is bool_ else None
    if mask is not None and allowed is None:
        scores = scores + mask
    if is_causal:
        before = greater_equal(iota(q.shape[-2], 0, 2), iota(k.shape[-2], 1, 2))
        allowed = before if allowed is None else logical_and(allowed, before)
    if allowed is not None:
        scores = where(allowed, scores, -math.inf)
    peak = scores.max(axis=-1, keepdims=True)
    if mask is not None:
        peak = where(equal(peak, -math.inf), 0, peak)
    e = exp(scores - peak)
    total = e.sum(axis=-1, keepdims=True)
    return e / (total if mask is None else where(equal(total, 0), 1, total))


def _attention_vjp(g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any, keep: Any, is_causal: bool,
                   scale: float) -> tuple[Any, ...]:
    p = attention_weights(q, k, mask, is_causal, scale)
    g_kept = matmul(g, mT(v))
    g_p = g_kept if keep is None else g_kept * keep
    g_scores = p * (g_p - (g_p * p).sum(axis=-1, keepdims=True))
    return (lambda: matmul(g_scores, k) * scale, lambda: matmul(mT(g_scores), q) * scale,
            lambda: matmul(mT(p if keep is None else p * keep), g),
            None if mask is None or mask.dtype is bool_ else g_scores, None if keep is None else lambda: g_kept * p)


@composite(public=False, promote=_masks_apart, vjp=_attention_vjp, domain=((-2.0, 2.0),), examples=[
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 6], is_causal=False, scale=0.5) -> f32[2, 3, 6]",
    "attention(f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3, 4], is_causal=True, scale=0.5) -> f32[2, 2, 3, 4]",
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 4], f32[3, 5], is_causal=False, scale=1.0) -> f32[2, 3, 4]",
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 4], bool[2, 3, 5], f32[2, 3, 5], is_causal=False, scale=1.0)"
    " -> f32[2, 3, 4]",
    "attention(f32[2, 3, 4], f32[2, 5, 3], f32[2, 5, 4], is_causal=False, scale=1.0) -> error"])
def attention(q: Any, k: Any, v: Any, mask: Any = None, keep: Any = None, *, is_causal: bool, scale: float) -> Any:
    """softmax(q @ k.T * scale + mask) @ v over stacks of queries, keys and values.

    A mask of booleans says which pairs take part; another mask is added to the scores.  `keep` multiplies the weights:
    dropout's mask.
    """
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"attention: q {q.type}, k {k.type} and v {v.type} do not fit",
                         hint="q is [..., L, E], k is [..., S, E], v is [..., S, V]")
    scores = (*broadcast_shapes(q.shape[:-2], k.shape[:-2]), q.shape[-2], k.shape[-2])
    if mask is not None and broadcast_shapes(mask.shape, scores) != scores:
        raise ShapeError(f"attention: the mask {mask.type} does not broadcast to the scores {list(scores)}")
    p = attention_weights(q, k, mask, is_causal, scale)
    return matmul(p if keep is None else p * keep, v)
