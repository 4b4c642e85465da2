"""Attention over a sequence that is split: keys and values go round the ring of devices, a block at a time.

Each device keeps its queries.  What it found of the blocks so far is joined with the next block's by the logarithms of
the rows' sums, so no device ever has all keys (Liu et al. 2023, Ring Attention with Blockwise Transformers).  In the
backward pass the gradients of keys and values travel along with them, and are home after a whole round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.graph.axis_rule import AxisRule, Label, Labels
from tenon.graph.ir import Node, Value
from tenon.ops.attention import attention, attention_gradient
from tenon.ops.collectives import collective_permute
from tenon.ops.creation import zeros_like
from tenon.ops.exponential import exp
from tenon.ops.joining_and_axes import expand_dims
from tenon.ops.shape import cast
from tenon.sharding.axis_layout import Layout, numbers_of
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Axes

RING: Label = "ring"
AXES = {        # operator -> of its inputs and of its outputs, the axis of times, counted from the end
    "attention": ((-2, -2, -2, None), (-2, -1, -1)),
    "attention_gradient": ((-2, -1, -1, -2, -2, -2, None), (-2, -2, -2)),
}


def ring_rule(node: Node, rule: AxisRule) -> AxisRule | None:
    """The rule of a node whose times may be split too, along a ring; None where it is no such attention."""
    places = AXES.get(node.op.name)
    if places is None or node.inputs[-1] is not None:       # a mask
        return None
    if node.attrs["masked"] is not None or node.attrs.get("heads_last"):
        return None
    times = {numbers_of(x.type)[k] for x, k in zip(node.inputs, places[0], strict=True)
             if isinstance(x, Value) and k is not None}
    if len(times) != 1:
        return None

    def marked(labels: Labels, axis: int | None) -> Labels:
        at = None if axis is None else len(labels) + axis
        return tuple(RING if k == at else label for k, label in enumerate(labels))
    return AxisRule(tuple(map(marked, rule.inputs, places[0])), tuple(map(marked, rule.outputs, places[1])))


def ring_axes(split: Mapping[Label, Layout], mesh: Mesh) -> Axes | None:
    """The mesh axes of the ring; None where there is none, or blocks differ in size."""
    layout = split.get(RING)
    if not layout or len(layout) > 1 or layout[0][0] % mesh.parts(layout[0][1]):
        return None
    return layout[0][1]


def elements_round(node: Node, inputs: Sequence[int]) -> int:
    """How many elements a device passes on, which has so many of each input."""
    keys_and_values = inputs[1] + inputs[2] if node.op is attention else 2 * (inputs[4] + inputs[5])
    return keys_and_values


def on_ring(node: Node, inputs: Sequence[Any], over: Axes, mesh: Mesh, rank: int) -> tuple[Any, ...]:
    """What a rank computes of its blocks; operator calls append to the builder around."""
    run = _forward if node.op is attention else _backward
    return run(inputs, over, mesh.parts(over), mesh.place(rank, over), dict(node.attrs))


def _forward(inputs: Sequence[Any], over: Axes, count: int, place: int, attrs: dict[str, Any]) -> tuple[Any, ...]:
    q, k, v = inputs[:3]
    out = total = None
    for step in range(count):
        block = (place - step) % count          # whose keys these are
        if not attrs["is_causal"] or block <= place:
            here = {**attrs, "is_causal": attrs["is_causal"] and block == place}
            found, totals, _ = attention(q, k, v, None, **here)
            out, total = (found, totals) if out is None else _joined(out, total, found, totals)
        if step < count - 1:
            k, v = (collective_permute(x, over=over, shift=1) for x in (k, v))
    return out, total, zeros_like(total)


def _joined(out: Any, total: Any, found: Any, totals: Any) -> tuple[Any, Any]:
    """The result and the logarithms of the sums over both blocks."""
    both = total.logaddexp(totals)
    old, new = (expand_dims(exp(x - both), -1) for x in (total, totals))
    return cast(old * cast(out, dtype=old.dtype) + new * cast(found, dtype=new.dtype), dtype=out.dtype), both


def _backward(inputs: Sequence[Any], over: Axes, count: int, place: int, attrs: dict[str, Any]) -> tuple[Any, ...]:
    g, along, total, q, k, v = inputs[:6]
    dq, dk, dv = None, zeros_like(k), zeros_like(v)
    for step in range(count):
        block = (place - step) % count
        if not attrs["is_causal"] or block <= place:
            here = {**attrs, "is_causal": attrs["is_causal"] and block == place}
            more_q, more_k, more_v = attention_gradient(g, along, total, q, k, v, None, **here)
            dq, dk, dv = more_q if dq is None else dq + more_q, dk + more_k, dv + more_v
        if step < count - 1:
            k, v = (collective_permute(x, over=over, shift=1) for x in (k, v))
        dk, dv = (collective_permute(x, over=over, shift=1) for x in (dk, dv))
    return dq, dk, dv
