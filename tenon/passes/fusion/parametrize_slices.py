"""Body of a kernel that reads pieces of its parameters -> the same, given where they begin: of x[0] and x[1] it is one.

    slice(p: f32[16, 40, 64], start=(0, 7, 0), stop=(16, 8, 64))
    -> slice(p: f32[601, 64], step=(40, 1)), where p begins 7 * 64 elements further on

Loops of Python along a sequence, or over weights in a stack, leave such kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tenon.graph.build import Builder
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import copy_nodes
from tenon.ops.shape import reshape_op
from tenon.ops.slice_pad_concat import slice_op
from tenon.types import TensorType


@once_a_graph
def on_pieces(body: Graph) -> tuple[Graph, Mapping[int, int]]:
    """(the body on pieces, which of its parameters are pieces, and how many bytes further on they begin)."""
    if not any(node.op is slice_op for node in body.nodes):
        return body, {}
    users = body.users()
    cuts = {p: node for p in body.params if (node := _cut(body, p, users[p])) is not None}
    if not cuts:
        return body, {}
    types = [_piece(p.type, cuts[p]) if p in cuts else p.type for p in body.params]
    builder = Builder(body.name, [Value(t, name=p.name) for t, p in zip(types, body.params, strict=True)],
                      rewriting=True)
    known: dict[Value, Any] = dict(zip(body.params, builder.params, strict=True))
    with using(builder):
        for p, node in cuts.items():
            known[node.output] = _read(known[p], p.type, node)
        copy_nodes((node for node in body.nodes if node not in cuts.values()), builder, known)
        made = builder.finish([known[r] for r in body.results])
    return made, {k: _start(p.type, cuts[p]) for k, p in enumerate(body.params) if p in cuts}


def _cut(body: Graph, x: Value, users: Sequence[Node]) -> Node | None:
    """The one node that reads a parameter, where it cuts one axis, and what it leaves lies in equal steps."""
    if len(users) != 1 or users[0].op is not slice_op or x in body.results:
        return None
    out = users[0].output
    numbers = all(isinstance(n, int) and n > 0 for n in (*x.shape, *out.shape)) and \
        all(isinstance(n, int) for n in users[0].attrs["start"])
    if not numbers or any(n != 1 for n in users[0].attrs["step"]) or x.type == out.type:
        return None
    axis, *others = [k for k, (n, m) in enumerate(zip(x.shape, out.shape, strict=True)) if n != m]
    whole = prod(x.shape[:axis]) == 1
    return users[0] if not others and (out not in body.results if whole else out.shape[axis] == 1) else None


def _axis(type: TensorType, node: Node) -> int:
    """The axis that is cut."""
    return next(k for k, (n, m) in enumerate(zip(type.shape, node.output.shape, strict=True)) if n != m)


def _piece(type: TensorType, node: Node) -> TensorType:
    """What is read of a parameter of this type, from the first element to the last."""
    axis = _axis(type, node)
    rows = prod(type.shape[:axis])
    if rows == 1:
        return node.output.type
    return type.with_shape(((rows - 1) * type.shape[axis] + 1, *type.shape[axis + 1:]))


def _read(piece: Value, type: TensorType, node: Node) -> Any:
    """What the node gives."""
    if piece.type == node.output.type:
        return piece
    step = (type.shape[_axis(type, node)], *[1] * (piece.ndim - 1))
    return reshape_op(slice_op(piece, start=(0,) * piece.ndim, stop=piece.shape, step=step), shape=node.output.shape)


def _start(type: TensorType, node: Node) -> int:
    """How many bytes after the parameter the piece begins."""
    axis = _axis(type, node)
    first: int = node.attrs["start"][axis]
    return first * int(prod(type.shape[axis + 1:])) * type.dtype.itemsize
