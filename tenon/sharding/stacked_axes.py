"""An axis of equal pieces, one behind the other -> an axis of pieces, and one within them.

One weight for queries, keys and values has all queries first: half of its rows are no heads.  Taken apart by `reshape`,
a product may be computed with each piece split, for which the weight's rows are exchanged, not the activations.

    slice(x: [n, 3 d], d to 2 d)    =   reshape(slice(reshape(x: [n, 3, d]), 1 to 2): [n, d])
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tenon.graph.build import copy, rebuild
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.ops.shape import reshape_op
from tenon.ops.slice_pad_concat import pad_op, slice_op
from tenon.sharding.axis_layout import WHOLE, Layout, axes_of, numbers_of
from tenon.sharding.mesh import Mesh

Shape = tuple[int, ...]
Stacked = frozenset[tuple[Shape, int, int]]         # (shape, axis, how many pieces) of what is cut so
Cuts = Mapping[Value, Mapping[int, int]]            # axis -> how many pieces


def pieces_apart(graph: Graph) -> Graph:
    """The graph with slices that cut an axis in equal pieces, and their gradients, along an axis of pieces."""
    found: dict[tuple[Value, int, int], set[int]] = defaultdict(set)
    for node in graph.nodes:
        if node.op is slice_op and isinstance(x := node.inputs[0], Value) and (piece := _piece(node)) is not None:
            found[x, piece[0], piece[1]].add(piece[2])
    stacked = frozenset((numbers_of(x), axis, count) for (x, axis, count), places in found.items()
                        if len(places) == count)
    return rebuild(graph, lambda node, inputs: _apart(node, inputs, stacked)) if stacked else graph


def _piece(node: Node) -> tuple[int, int, int] | None:
    """(axis, how many pieces, which of them) a slice takes, or a pad makes; None for anything else."""
    whole = node.inputs[0] if node.op is slice_op else node.output
    assert isinstance(whole, Value)
    part = numbers_of(node.output if node.op is slice_op else node.inputs[0])        # type: ignore[arg-type]
    axes = [k for k, (a, b) in enumerate(zip(numbers_of(whole), part, strict=True)) if a != b]
    begins = node.attrs["start" if node.op is slice_op else "low"]
    plain = set(node.attrs["step"]) == {1} if node.op is slice_op else not any(node.attrs["interior"])
    if len(axes) != 1 or not plain or 0 in part:
        return None
    axis, n, size = axes[0], part[axes[0]], numbers_of(whole)[axes[0]]
    if size <= n or size % n or begins[axis] % n or begins[axis] < 0:
        return None
    return axis, size // n, begins[axis] // n


def _apart(node: Node, inputs: tuple[Input, ...], stacked: Stacked) -> Any:
    if node.op is not slice_op and (node.op is not pad_op or not isinstance(node.inputs[0], Value)):
        return copy(node, inputs)
    piece = _piece(node) if isinstance(node.inputs[0], Value) else None
    whole = node.inputs[0] if node.op is slice_op else node.output
    if piece is None or (numbers_of(whole), *piece[:2]) not in stacked:     # type: ignore[arg-type]
        return copy(node, inputs)
    axis, count, k = piece
    shape = numbers_of(whole)                                               # type: ignore[arg-type]
    inner = (*shape[:axis], count, shape[axis] // count, *shape[axis + 1:])
    one = (*inner[:axis], 1, *inner[axis + 1:])
    here = [int(j == axis) for j in range(len(inner))]
    if node.op is slice_op:
        taken = slice_op(reshape_op(inputs[0], shape=inner), start=tuple(k * h for h in here), step=(1,) * len(inner),
                         stop=tuple((k + 1) if h else n for h, n in zip(here, inner, strict=True)))
        return reshape_op(taken, shape=node.output.shape)
    placed = pad_op(reshape_op(inputs[0], shape=one), inputs[1], low=tuple(k * h for h in here),
                    high=tuple((count - 1 - k) * h for h in here), interior=(0,) * len(inner))
    return reshape_op(placed, shape=shape)


# ---------------------------------------------------------------- where an axis will be cut

def cuts_of(graph: Graph) -> dict[Value, dict[int, int]]:
    """For values whose axes a reshape takes apart, in how many pieces: also of what they are computed from."""
    found: dict[Value, dict[int, int]] = {}
    for node in reversed(graph.nodes):
        x = node.inputs[0] if node.op is reshape_op else None
        if isinstance(x, Value):
            for axis, other in _same_axes(numbers_of(x), numbers_of(node.output)):
                if other is not None and other in found.get(node.output, {}):
                    found.setdefault(x, {})[axis] = found[node.output][other]
            for axis, count in _taken_apart(numbers_of(x), numbers_of(node.output)):
                found.setdefault(x, {})[axis] = count
        elif node.op.elementwise and node.outputs and node.output in found:
            for y in node.inputs:
                if isinstance(y, Value) and y.shape == node.output.shape:
                    found[y] = {**found[node.output], **found.get(y, {})}
    return found


def _same_axes(shape: Shape, new: Shape) -> Iterator[tuple[int, int | None]]:
    """The axes that a reshape leaves as they are: the last ones, as far as they are alike."""
    for k, (a, b) in enumerate(zip(reversed(shape), reversed(new), strict=False)):
        if a != b:
            return
        yield len(shape) - 1 - k, len(new) - 1 - k


def _taken_apart(shape: Shape, new: Shape) -> Iterator[tuple[int, int]]:
    """(axis, into how many pieces first) of the axis that a reshape makes several of, if it is one."""
    if len(new) > len(shape):
        first = next((k for k, (a, b) in enumerate(zip(shape, new, strict=False)) if a != b), None)
        if first is not None and new[first] > 1 and shape[first] % new[first] == 0 and \
                shape[first + 1:] == new[len(new) - len(shape) + first + 1:]:
            yield first, new[first]


def within_pieces(layout: Layout, size: int, count: int, mesh: Mesh) -> Layout | None:
    """The layout of an axis of pieces where each of them is split, not the axis; None where that changes nothing."""
    axes = axes_of(layout)
    if layout == WHOLE or layout != ((size, axes),) or size % count or count % mesh.parts(axes) == 0:
        return None
    inner = size // count
    return None if inner % mesh.parts(axes) else ((count, ()), (inner, axes))
