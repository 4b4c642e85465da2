"""Values as they are, behind a wall that optimisation, or differentiation, does not look through."""

from __future__ import annotations

from typing import Any

from tenon.graph.axis_rule import AxisRule
from tenon.ops.define import define
from tenon.types import TensorType


def _types(*xs: TensorType) -> TensorType | tuple[TensorType, ...]:
    return xs if len(xs) > 1 else xs[0]


def _rule(g: Any, y: Any, *xs: Any) -> tuple[Any, ...]:
    return g if isinstance(g, tuple) else (g,)


def _axis_rule(*xs: Any) -> AxisRule:
    """Each input by itself."""
    labels = tuple(tuple((n, k) for k in range(x.ndim)) for n, x in enumerate(xs))
    return AxisRule(labels, labels)


barrier = define(
    "barrier", public=False, handles=True, type=_types, ref=lambda *xs: xs if len(xs) > 1 else xs[0], vjp=_rule,
    axis_rule=_axis_rule,
    batch="front",
    moves="same",
    doc="The inputs unchanged, all of them computed before any output is used.  What is computed from the outputs is "
        "not merged with what was computed from the inputs: `tn.checkpoint` recomputes behind one.",
    examples=["barrier(f32[2, 3]) -> f32[2, 3]"])

stored = define(
    "stored", public=False, type=lambda x: x, ref=lambda x: x, compute=lambda s, i, x: x(i), elementwise=True,
    vjp=lambda g, y, x: (g,),
    doc="The input unchanged, in memory of its own: what reads it does not compute it again.",
    examples=["stored(f32[2, 3]) -> f32[2, 3]"])

stop_gradient = define(
    "stop_gradient", public=False, handles=True, type=lambda x: x, ref=lambda x: x, expand=lambda x: x, batch="front",
    vjp=lambda g, y, x: (None,),
    moves="same",
    doc="The input unchanged; no gradient flows through.  What `x.detach()` and `tn.no_grad()` leave in a graph.",
    examples=["stop_gradient(f32[2, 3]) -> f32[2, 3]"])

as_leaf = define(
    "as_leaf", public=False, type=lambda x, leaf: x, ref=lambda x, leaf: x, expand=lambda x, leaf: x,
    vjp=lambda g, y, x, leaf: (None, g),
    moves="same",
    doc="The first input unchanged; its gradient is that of the second, a parameter that was assigned these elements.",
    examples=["as_leaf(f32[2, 3], f32[2, 3]) -> f32[2, 3]"])
