"""Attention: softmax(q @ k.T * scale + mask) @ v, one operator whatever the back end makes of it; and its gradient.

The operator gives the logarithm of every row's sum beside the result, so that its gradient can compute the weights
again, a block at a time (Dao et al., 2022), and neither has to keep them.  Where all scores of a row are about -1e9,
as padding makes them, such a logarithm has no room for that of the number of pairs: what it leaves out is given
too, and scales what goes into the gradient.
"""

from __future__ import annotations

import math
from typing import Any

from tenon.errors import ShapeError
from tenon.graph.promotion import Kinds, floating
from tenon.ops.comparison import equal, greater_equal, logical_and, where
from tenon.ops.creation import full, iota
from tenon.ops.define import composite
from tenon.ops.exponential import exp, log
from tenon.ops.joining_and_axes import expand_dims, swapaxes
from tenon.ops.matrix_products import matmul, mT
from tenon.ops.normalization import widened
from tenon.ops.shape import cast, reshape_op
from tenon.records import dataclass
from tenon.types import Shape, bool_, broadcast_shapes


def _mask_apart(kinds: Kinds) -> tuple[Any, ...]:
    """Queries, keys and values agree; a mask of booleans stays one, another joins them."""
    return (*floating(kinds[:-1]), bool_) if kinds[-1] is bool_ else floating(kinds)


def _sums_apart(kinds: Kinds) -> tuple[Any, ...]:
    """The sums over rows, second and third, have a type of their own, which may be wider."""
    first, *others = _mask_apart((kinds[0], *kinds[3:]))
    return (first, *floating(kinds[1:3]), *others)


@dataclass(frozen=True)
class _Masks:
    """Which pairs take part in what is computed of queries and keys, by their scores."""

    mask: Any
    is_causal: bool
    masked: float | None

    def allowed(self, rows: Any, columns: Any) -> Any:
        """The pairs that take part; None: all."""
        allowed = self.mask if self.mask is not None and self.mask.dtype is bool_ else None
        if not self.is_causal:
            return allowed
        before = greater_equal(iota(rows, 0, 2), iota(columns, 1, 2))
        return before if allowed is None else logical_and(allowed, before)

    def chosen(self, scores: Any, otherwise: float) -> Any:
        """The scores of pairs that take part, and this number for others."""
        allowed = self.allowed(*scores.shape[-2:])
        return scores if allowed is None else where(allowed, scores, otherwise)

    def scores(self, q: Any, k: Any, scale: float) -> Any:
        """What the weights are the softmax of."""
        scores = matmul(q, mT(k)) * scale
        if self.mask is not None and self.mask.dtype is not bool_:
            scores = scores + self.mask
        return self.chosen(scores, -math.inf if self.masked is None else self.masked)

    @property
    def may_be_empty(self) -> bool:
        """Whether there may be rows without pairs, which are 0."""
        return self.mask is not None and self.masked is None


def _exponentials(scores: Any, masks: _Masks) -> tuple[Any, Any, Any]:
    """(exp(scores - peak), their sum, the peak)."""
    peak = scores.max(axis=-1, keepdims=True)
    if masks.may_be_empty:
        peak = where(equal(peak, -math.inf), 0, peak)
    e = exp(scores - peak)
    return e, e.sum(axis=-1, keepdims=True), peak


def _divisor(total: Any, masks: _Masks) -> Any:
    return where(equal(total, 0), 1, total) if masks.may_be_empty else total


def attention_weights(q: Any, k: Any, mask: Any, is_causal: bool, scale: float) -> Any:
    """The attention weights; 0 in a row in which everything is masked."""
    masks = _Masks(mask, is_causal, None)
    e, total, _ = _exponentials(masks.scores(q, k, scale), masks)
    return e / _divisor(total, masks)


def _attention_vjp(g: Any, y: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float,
                   masked: float | None, heads_last: bool) -> tuple[Any, ...]:
    (g_out, g_total, _), (out, total, rest) = g, y
    if heads_last:
        g_out, out = swapaxes(g_out, -3, -2), swapaxes(out, -3, -2)
    along = (widened(g_out) * widened(out)).sum(axis=-1) - g_total
    if may_be_far_below(mask, masked):
        g_out, along = scaled_for_rest(g_out, along, rest)

    def to_mask() -> Any:
        wide_q, wide_k, wide_v = map(widened, (q, k, v))
        masks = _Masks(widened(mask), is_causal, masked)
        return _slopes(widened(g_out), along, total, wide_q, wide_k, wide_v, masks, scale)[1]
    return (*attention_gradient(g_out, along, total, q, k, v, mask, is_causal=is_causal, scale=scale, masked=masked),
            None if mask is None or mask.dtype is bool_ else to_mask)


def may_be_far_below(mask: Any, masked: float | None) -> bool:
    """Whether all scores of a row may be numbers beside which the logarithm of their count is lost."""
    return (mask is not None and mask.dtype is not bool_) or (masked is not None and masked != -math.inf)


def scaled_for_rest(g: Any, along: Any, rest: Any) -> tuple[Any, Any]:
    """What `attention_gradient` takes, where the sum of a row's exponentials is exp(total + rest) and not exp(total):
    its results are linear in both."""
    factor = exp(-rest)
    return cast(widened(g) * expand_dims(factor, -1), dtype=g.dtype), along * factor


def _slopes(g: Any, along: Any, total: Any, q: Any, k: Any, v: Any, masks: _Masks,
            scale: float) -> tuple[Any, Any]:
    """(the weights, the gradients of the scores)."""
    shift = where(equal(total, -math.inf), 0, total) if masks.may_be_empty else total
    weights = exp(masks.scores(q, k, scale) - expand_dims(shift, -1))
    slopes = weights * (matmul(g, mT(v)) - expand_dims(along, -1))
    return weights, slopes if masks.masked is None else masks.chosen(slopes, 0.0)


def check_shapes(q: Any, k: Any, v: Any, mask: Any) -> Shape:
    """The shape of the scores; raises ShapeError where the inputs do not fit."""
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"attention: q {q.type}, k {k.type} and v {v.type} do not fit",
                         hint="q is [..., L, E], k is [..., S, E], v is [..., S, V]")
    batch = broadcast_shapes(broadcast_shapes(q.shape[:-2], k.shape[:-2]), v.shape[:-2])
    scores = (*batch, q.shape[-2], k.shape[-2])
    if mask is not None and broadcast_shapes(mask.shape, scores) != scores:
        raise ShapeError(f"attention: the mask {mask.type} does not broadcast to the scores {list(scores)}")
    return scores


@composite(public=False, promote=_sums_apart, domain=((-2.0, 2.0),),
           numpy_work=lambda inputs, outputs: 5 * int(inputs[3].size) * inputs[4].shape[-2], examples=[
    "attention_gradient(f32[2, 3, 6], f32[2, 3], f32[2, 3], f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 6], None, "
    "is_causal=False, scale=0.5) -> (f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 6])",
    "attention_gradient(f32[2, 3, 4], f32[2, 3], f32[2, 3], f32[2, 3, 4], f32[2, 3, 4], f32[2, 3, 4], f32[3, 3], "
    "is_causal=True, scale=0.5) -> (f32[2, 3, 4], f32[2, 3, 4], f32[2, 3, 4])"])
def attention_gradient(g: Any, along: Any, total: Any, q: Any, k: Any, v: Any, mask: Any = None, *, is_causal: bool,
                       scale: float, masked: float | None = None) -> Any:
    """The gradients of queries, keys and values.

    `g` is that of attention's result, `along` the sum of its products with the result in every row, less the gradient
    of `total`, which is attention's second output; where the third one matters, both were scaled for it.
    """
    check_shapes(q, k, v, mask)
    dtype = q.dtype
    g, q, k, v = map(widened, (g, q, k, v))
    masks = _Masks(None if mask is None else widened(mask), is_causal, masked)
    weights, slopes = _slopes(g, along, total, q, k, v, masks, scale)
    found = matmul(slopes, k) * scale, matmul(mT(slopes), q) * scale, matmul(mT(weights), g)
    return tuple(cast(x, dtype=dtype) for x in found)


@composite(public=False, autocast="narrow", promote=_mask_apart, vjp=_attention_vjp, domain=((-2.0, 2.0),),
           numpy_work=lambda inputs, outputs: 2 * int(inputs[0].size) * inputs[1].shape[-2], examples=[
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 6], is_causal=False, scale=0.5)"
    " -> (f32[2, 3, 6], f32[2, 3], f32[2, 3])",
    "attention(f32[2, 2, 3, 4], f32[2, 2, 3, 4], f32[2, 2, 3, 4], is_causal=True, scale=0.5)"
    " -> (f32[2, 2, 3, 4], f32[2, 2, 3], f32[2, 2, 3])",
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 4], f32[3, 5], is_causal=False, scale=1.0)"
    " -> (f32[2, 3, 4], f32[2, 3], f32[2, 3])",
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 4], bool[2, 3, 5], is_causal=False, scale=1.0)"
    " -> (f32[2, 3, 4], f32[2, 3], f32[2, 3])",
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 4], bool[2, 3, 5], is_causal=False, scale=1.0, masked=-2.0)"
    " -> (f32[2, 3, 4], f32[2, 3], f32[2, 3])",
    "attention(f32[2, 3, 4], f32[2, 5, 4], f32[2, 5, 6], is_causal=False, scale=0.5, heads_last=True)"
    " -> (f32[3, 2, 6], f32[2, 3], f32[2, 3])",
    "attention(f32[2, 3, 4], f32[2, 5, 3], f32[2, 5, 4], is_causal=False, scale=1.0) -> error"])
def attention(q: Any, k: Any, v: Any, mask: Any = None, *, is_causal: bool, scale: float,
              masked: float | None = None, heads_last: bool = False) -> Any:
    """softmax(q @ k.T * scale + mask) @ v over stacks of queries, keys and values, the logarithm of every row's sum of
    exponentials, which is minus infinity where everything is masked, there the result is 0, and what rounding took
    from that logarithm.

    A mask of booleans says which pairs take part; another mask is added to the scores.  A number `masked` is the score
    of pairs that take no part, as in a softmax of where(mask, scores, masked): minus infinity makes a row in which
    everything is masked nan.  With `heads_last` the result is [..., L, heads, V] for queries [..., heads, L, E].
    """
    shape, dtype = check_shapes(q, k, v, mask), q.dtype
    q, k, v = map(widened, (q, k, v))
    if isinstance(shape[-1], int) and shape[-1] == 0:
        out, totals = full((*shape[:-1], v.shape[-1]), 0, dtype=dtype), full(shape[:-1], -math.inf, dtype=q.dtype)
        rests = full(shape[:-1], 0, dtype=q.dtype)
    else:
        masks = _Masks(None if mask is None else widened(mask), is_causal, masked)
        e, divisor, peak = _exponentials(masks.scores(q, k, scale), masks)
        out = cast(matmul(e / _divisor(divisor, masks), v), dtype=dtype)
        total = peak + log(divisor)
        rest = (peak - total) + log(divisor)
        rest = where(equal(total, -math.inf), 0, rest) if masks.may_be_empty else rest
        totals, rests = (reshape_op(x, shape=shape[:-1]) for x in (total, rest))
    return swapaxes(out, -3, -2) if heads_last else out, totals, rests
