"""A node of the whole graph -> the attributes that it has on a rank: the sizes among them are the rank's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.graph.ir import Node
from tenon.sharding.axis_layout import ValueSharding, local_shape, numbers_of
from tenon.sharding.mesh import Mesh


def local_attrs(node: Node, outputs: Sequence[ValueSharding], mesh: Mesh, rank: int) -> Mapping[str, Any]:
    """The attributes of a node on a rank that has these parts of its outputs."""
    if all(not any(out.layouts) for out in outputs):
        return node.attrs
    if node.op.name == "pop":           # the parts that were pushed
        return {**node.attrs, "shapes": tuple(local_shape(out, numbers_of(y), mesh, rank)
                                              for out, y in zip(outputs[1:], node.outputs[1:], strict=True))}
    shape = numbers_of(node.output)
    mine = local_shape(outputs[0], shape, mesh, rank)
    if node.op.name == "slice":         # of axes that are split it takes everything
        stops = zip(mine, outputs[0].layouts, node.attrs["stop"], strict=True)
        return {**node.attrs, "stop": tuple(n if layout else stop for n, layout, stop in stops)}
    return {name: mine if value == shape and shape and isinstance(value, tuple) else value
            for name, value in node.attrs.items()}


def fits(node: Node, inputs: Sequence[ValueSharding | None], outputs: Sequence[ValueSharding], mesh: Mesh) -> bool:
    """Whether the operator makes of the parts of its inputs what the parts of its outputs are said to be, by type."""
    for rank in {0, mesh.size - 1}:
        types = [None if x is None else x.type if s is None else x.type.with_shape(
            local_shape(s, numbers_of(x.type), mesh, rank)) for x, s in zip(node.inputs, inputs, strict=True)]
        try:
            found = node.op.type(*types, **local_attrs(node, outputs, mesh, rank))
        except Exception:       # whatever the rule says of types that it does not take
            return False
        listed = found if isinstance(found, tuple) else (found,)
        if any(t.shape != local_shape(s, numbers_of(y), mesh, rank) for t, s, y in zip(
                listed, outputs, node.outputs, strict=True)):
            return False
    return True


