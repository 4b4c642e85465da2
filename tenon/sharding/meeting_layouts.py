"""Values -> the layouts of the state that they will meet: where a sum of parts may be scattered, not added up whole.

A gradient is computed before the moments that it updates are read; element by element it will be split as they are
(ZeRO, Rajbhandari et al. 2020).  Layouts go from parameters through what keeps axes apart, forward, then back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.graph.ir import Graph, Node, Value
from tenon.sharding.axis_layout import Layout, numbers_of, reshaped
from tenon.sharding.mesh import Mesh

Layouts = tuple[Layout, ...]


def met_layouts(graph: Graph, params: Mapping[Value, Layouts], mesh: Mesh) -> dict[Value, Layouts]:
    """For values that are split if they are as the state that they meet: these layouts."""
    found = {p: layouts for p, layouts in params.items() if any(layouts)}
    for node in graph.nodes:
        for x in node.inputs:
            if isinstance(x, Value) and x in found and node.outputs and node.output not in found:
                _note(found, node.output, _through(node, found[x], x, node.output, mesh))
    for node in reversed(graph.nodes):
        if node.outputs and node.output in found:
            for x in node.inputs:
                if isinstance(x, Value) and x not in found:
                    _note(found, x, _through(node, found[node.output], node.output, x, mesh))
    return found


def _note(found: dict[Value, Layouts], value: Value, layouts: Layouts | None) -> None:
    if layouts is not None and any(layouts):
        found[value] = layouts


def _through(node: Node, layouts: Sequence[Layout], value: Value, other: Value, mesh: Mesh) -> Layouts | None:
    """The layouts of one end of a node, where those of the other are known; None where axes are mixed."""
    if node.op.elementwise and value.shape == other.shape:
        return tuple(layouts)
    if node.op.name == "permute":
        axes = node.attrs["axes"]
        forward = other is node.output
        return tuple(layouts[a] for a in axes) if forward else tuple(layouts[axes.index(k)] for k in range(len(axes)))
    if node.op.name == "reshape":
        kept, found = reshaped(layouts, numbers_of(value), numbers_of(other), mesh)
        return found if kept == tuple(layouts) else None
    return None
