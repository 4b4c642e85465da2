"""Attention, or its gradient, on what views make of other values -> a nest of one statement."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.graph.ir import Graph, Input, Node, Value
from tenon.loops.expression_builder import GraphExpressions, offset
from tenon.loops.expressions import Buffer, Expr, Index, Local, size
from tenon.loops.loop_ir import Attention, AttentionGradient, Nest, Store
from tenon.loops.whole_operators import attended, batch_of, is_attention
from tenon.ops.attention import attention
from tenon.types import float32, float64


def attention_node(graph: Graph) -> Node | None:
    """The node that such a body is, beside views."""
    return next((node for node in graph.nodes if is_attention(node)), None)


def attention_nest(build: GraphExpressions, node: Node, outputs: Sequence[Buffer]) -> Nest:
    """The nest that stores what the graph wants of the node's outputs."""
    q, k, v, mask = attended(node)
    batch = tuple(Index(f"g{place}", n) for place, n in enumerate(batch_of(node)))
    i, j = Index("row", q.shape[-2]), Index("column", k.shape[-2])
    e, w = Index("depth", q.shape[-1]), Index("width", v.shape[-1])
    dtype = float64 if q.dtype is float64 else float32

    def at(x: Input, *last: Index) -> Expr:
        found = build.read(x)
        assert found is not None
        index = (*batch, *last)
        element = found(index[len(index) - found.ndim:])
        return element if found.dtype.kind == "b" else build.scalars.cast(element, dtype)

    places = [(*batch, i, w), (*batch, i), (*batch, i)] if node.op is attention else \
        [(*batch, i, e), (*batch, j, e), (*batch, j, w)]
    if node.attrs.get("heads_last"):
        places[0] = (*batch[:-1], i, batch[-1], w)
    results = tuple(Local(f"result{k}", dtype) for k in range(len(places)))
    index = dict(zip(node.outputs, places, strict=True))
    stores = tuple(Store(buffer, _flat(value, index[value]),
                         build.scalars.cast(results[value.index], value.dtype))
                   for value, buffer in zip(build.graph.results, outputs, strict=True))
    shared = (batch, i, j, e, w, at(q, i, e), at(k, j, e), at(v, j, w), None if mask is None else at(mask, i, j),
              bool(node.attrs["is_causal"]), float(node.attrs["scale"]), node.attrs["masked"], dtype, results, stores)
    if node.op is attention:
        return Nest((Attention(*shared),))
    g, along, total = node.inputs[:3]
    return Nest((AttentionGradient(*shared, at(g, i, w), at(along, i), at(total, i)),))


def _flat(value: Value, index: Sequence[Index]) -> Expr:
    """Where an element lies; axes of size 1 have no part in it."""
    return offset(value.shape, tuple(size(0) if isinstance(n, int) and n == 1 else k
                                     for n, k in zip(value.shape, index, strict=True)))
