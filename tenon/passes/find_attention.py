"""Graph -> the same graph where attention, written in plain operators, is the operator, and so is its gradient.

    softmax(where(mask, q @ k.T * scale, -inf)) @ v    ->    attention(q, k, v, mask, is_causal=False, scale=scale, ...)

The result is the same up to rounding where all numbers are finite: what a causal mask leaves out is not multiplied by
0.  A row in which everything is masked stays nan, or the mean of all values, as the plain form has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.graph.build import Builder, copy, inline
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import using
from tenon.locks import cached_property
from tenon.loops.whole_operators import is_attention
from tenon.ops.attention import attention, attention_gradient, may_be_far_below, scaled_for_rest
from tenon.ops.comparison import logical_and, logical_not
from tenon.ops.matrix_products import mT
from tenon.ops.normalization import widened
from tenon.ops.shape import broadcast_to, permute, reshape_op
from tenon.passes.attention.match_attention import AttentionMask, Factor, PlainAttention, plain_attentions
from tenon.passes.attention.match_attention_gradient import AttentionProduct, PlainGradient, plain_gradient
from tenon.passes.drop_dead import drop_dead
from tenon.passes.rewriting.nested import nested
from tenon.passes.simplify import Simplifier
from tenon.records import dataclass
from tenon.types import Shape, TensorType


def find_attention(graph: Graph, claimed: Callable[[Node], bool] = is_attention) -> Graph:
    """Replace it where the backend claims the operators, and nobody else needs the weights."""
    return nested(partial(_find, claimed=claimed))(graph)


def _find(graph: Graph, claimed: Callable[[Node], bool]) -> Graph:
    users, results = graph.users(), set(graph.results)
    found = []
    for x in plain_attentions(graph):
        gradient = plain_gradient(x, users, results)
        masking = None if gradient is None else _masking(x, gradient, claimed)
        if gradient is not None and masking is not None:
            found.append((x, gradient, masking))
    return _rewritten(graph, found) if found else graph


@dataclass(frozen=True)
class Masking:
    """How the operator is told what takes part."""

    masks: tuple[AttentionMask, ...]
    is_causal: bool
    masked: float | None


def _rewritten(graph: Graph, found: Sequence[tuple[PlainAttention, PlainGradient, Masking]]) -> Graph:
    builder = Simplifier(graph.name, [Value(p.type, name=p.name) for p in graph.params], rewriting=True)
    values: dict[Value, Any] = dict(zip(graph.params, builder.params, strict=True))
    made: dict[Any, Callable[[], Any]] = {}
    for x, gradient, masking in found:
        calls = _Calls(x, gradient, masking, values)
        made[x.product] = calls.result
        made.update((product.node, calls.gradient_of(product)) for product in gradient.products)
    with using(builder):
        inline(graph, builder, values, lambda node, inputs: made[node]() if node in made else copy(node, inputs))
    new = builder.finish([values[r] for r in graph.results])
    new.notes = graph.notes
    return drop_dead(new)


@dataclass(frozen=True)
class _Calls:
    """The operators in the place of the plain form, emitted when the first of their results is asked for."""

    x: PlainAttention
    gradient: PlainGradient
    masking: Masking
    values: dict[Value, Any]

    def result(self) -> Value:
        return _of_shape(self.attended[0], self.x.product.output.shape)

    def gradient_of(self, product: AttentionProduct) -> Callable[[], Value]:
        def emit() -> Value:
            found = self.slopes[product.of]
            return _of_shape(mT(found) if product.transposed else found, product.node.output.shape)
        return emit

    @cached_property
    def factors(self) -> list[Value]:
        return [self.read(factor) for factor in (self.x.q, self.x.k, self.x.v)]

    @cached_property
    def mask(self) -> Value | None:
        shape = (*self.x.q.shape[:-1], self.x.k.shape[-2])
        found: Any = None
        for mask in self.masking.masks:
            y = _aligned(self.values[mask.x], mask.shape, shape)
            y = logical_not(y) if mask.forbids else y
            found = y if found is None else logical_and(found, y)
        known: Value | None = found
        return known

    @property
    def attrs(self) -> dict[str, Any]:
        return {"is_causal": self.masking.is_causal, "scale": self.x.scale, "masked": self.masking.masked}

    @cached_property
    def attended(self) -> tuple[Value, Value, Value]:
        out, total, rest = attention(*self.factors, self.mask, **self.attrs)
        return out, total, rest

    @cached_property
    def slopes(self) -> tuple[Value, ...]:
        assert self.gradient.g is not None
        out, total, rest = self.attended
        g: Any = _of_shape(self.read(self.gradient.g), out.shape)
        along = (widened(g) * widened(out)).sum(axis=-1)
        if may_be_far_below(self.mask, self.masking.masked):
            g, along = scaled_for_rest(g, along, rest)
        found: tuple[Value, ...] = attention_gradient(g, along, total, *self.factors, self.mask, **self.attrs)
        return found

    def read(self, factor: Factor) -> Value:
        found: Value = permute(self.values[factor.base], axes=factor.axes)
        return found


def _of_shape(x: Value, shape: Shape) -> Value:
    found: Value = x if x.shape == shape else reshape_op(x, shape=shape)
    return found


def _aligned(x: Value, shape: Shape, scores: Shape) -> Value:
    """A mask that broadcasts to `shape`, another name for that of the scores, as one that broadcasts to this."""
    most = x.ndim
    while most and x.shape[x.ndim - most] == 1:
        most -= 1
    if most == 0 or shape[len(shape) - most:] == scores[len(scores) - most:]:
        return x
    found: Value = reshape_op(broadcast_to(x, shape=shape), shape=scores)
    return found


# ---------------------------------------------------------------- masks

def _masking(x: PlainAttention, gradient: PlainGradient, claimed: Callable[[Node], bool]) -> Masking | None:
    """How the operators can be told what takes part, so that they are claimed."""
    masks = [mask for mask in x.masks if mask.allowed is None or not mask.allowed.all()]
    others = [mask for mask in masks if not _is_causal(mask, x)]
    is_causal = x.masked == -math.inf and len(others) < len(masks)
    never_empty = _never_empty(masks)
    for causal in (True, False) if is_causal else (False,):
        left = others if causal else masks
        masked = None if not left or (never_empty and x.masked == -math.inf) else x.masked
        found = Masking(tuple(left), causal, masked)
        if _fits(found, x) and all(map(claimed, _trial(x, found, gradient))):
            return found
    return None


def _is_causal(mask: AttentionMask, x: PlainAttention) -> bool:
    """Whether it lets row i see the columns up to i."""
    allowed = mask.allowed
    if allowed is None or allowed.shape != (x.q.shape[-2], x.k.shape[-2]):
        return False
    return bool((allowed == np.tril(np.ones_like(allowed))).all())


def _never_empty(masks: Sequence[AttentionMask]) -> bool:
    """Whether every row is known to have a pair that takes part."""
    allowed: Any = True
    for mask in masks:
        if mask.known is None:
            return False
        allowed = allowed & (mask.known > -math.inf if mask.is_added else mask.known != mask.forbids)
    return bool(np.atleast_1d(allowed).any(axis=-1).all())


def _fits(masking: Masking, x: PlainAttention) -> bool:
    """Whether one mask is left, of booleans or in the type of the scores."""
    added = [mask for mask in masking.masks if mask.is_added]
    return not added or (len(masking.masks) == 1 and added[0].x.dtype is x.q.base.dtype)


def _trial(x: PlainAttention, masking: Masking, gradient: PlainGradient) -> list[Node]:
    """The operators on values of these types."""
    trial = Builder("trial", rewriting=True)
    q, k, v = (trial.parameter(TensorType(factor.base.dtype, factor.shape)) for factor in (x.q, x.k, x.v))
    mask = trial.parameter(TensorType(masking.masks[0].x.dtype, (1, 1))) if masking.masks else None
    attrs = {"is_causal": masking.is_causal, "scale": x.scale, "masked": masking.masked}
    out, total, _ = trial.emit(attention, (q, k, v, mask), {**attrs, "heads_last": False})
    if gradient.products:
        trial.emit(attention_gradient, (out, total, total, q, k, v, mask), attrs)
    return trial.nodes
