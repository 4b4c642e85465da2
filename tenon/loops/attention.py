"""Attention, or its gradient, on what views make of other values -> a nest of one statement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tenon.dims import product
from tenon.graph.ir import Graph, Input, Node, Value
from tenon.loops.build import GraphExpressions, is_empty, offset
from tenon.loops.expressions import Buffer, Expr, Index, Local, size
from tenon.loops.ir import Attention, AttentionGradient, Nest, Store
from tenon.ops.attention import attention, attention_gradient
from tenon.types import float32, float64

WIDEST = 512            # elements of a query, key or value that a block's memory is made for
FEW_QUERIES = 8         # whose scores are products of vectors with matrices, which are better read where they lie
FEW_PAIRS = 1 << 14     # of which scores are soon stored; half of them are not needed where it is causal
FEW_HEADS = 4           # which one thread each would differentiate
MANY_PAIRS = 1 << 20    # whose scores are too many to be stored


def is_attention(node: Node) -> bool:
    """Whether a statement computes the node: floating numbers, in vectors whose length is known, and enough of them."""
    if node.op is not attention and node.op is not attention_gradient:
        return False
    q, k, v, *_ = tensors = attended(node)
    if not _is_skipped(node):
        return False
    numbers = all(x is None or x.dtype.is_floating or x is tensors[3] for x in tensors)
    known = all(isinstance(n, int) and 1 <= n <= WIDEST for n in (q.shape[-1], v.shape[-1]))
    return numbers and known and not any(is_empty(x.type) for x in (q, k, v)) and _pays(node, q, k)


def _is_skipped(node: Node) -> bool:
    """Whether pairs that a causal mask leaves out need not be looked at: their weights are 0, in every row."""
    masked, mask = node.attrs["masked"], node.inputs[-1]
    if masked is None or not node.attrs["is_causal"]:
        return True
    return bool(masked == -math.inf) and (mask is None or node.op is attention)


def _pays(node: Node, q: Value, k: Value) -> bool:
    """Whether going through blocks of scores takes less time than storing all of them; sizes are as far as known."""
    rows, pairs = q.shape[-2], q.shape[-2] * k.shape[-2]
    if isinstance(rows, int) and rows <= FEW_QUERIES:
        return False
    if not isinstance(pairs, int) or pairs >= MANY_PAIRS:
        return True
    heads = product(node.outputs[0].shape[:-2])
    if node.op is attention_gradient and isinstance(heads, int) and heads < FEW_HEADS:
        return False
    return pairs >= (FEW_PAIRS // 4 if node.attrs["is_causal"] else FEW_PAIRS)


def attended(node: Node) -> Sequence[Value]:
    """Queries, keys, values and the mask, which may be None."""
    return node.inputs[3:] if node.op is attention_gradient else node.inputs  # type: ignore[return-value]


def attention_node(graph: Graph) -> Node | None:
    """The node that such a body is, beside views."""
    return next((node for node in graph.nodes if is_attention(node)), None)


def attention_nest(build: GraphExpressions, node: Node, outputs: Sequence[Buffer]) -> Nest:
    """The nest that stores what the graph wants of the node's outputs."""
    q, k, v, mask = attended(node)
    shape = node.outputs[1].shape[:-1] if node.op is attention else node.outputs[0].shape[:-2]
    batch = tuple(Index(f"g{place}", n) for place, n in enumerate(shape))
    i, j = Index("row", q.shape[-2]), Index("column", k.shape[-2])
    e, w = Index("depth", q.shape[-1]), Index("width", v.shape[-1])
    dtype = float64 if q.dtype is float64 else float32

    def at(x: Input, *last: Index) -> Expr:
        found = build.read(x)
        assert found is not None
        first = batch[len(batch) - (found.ndim - len(last)):]
        return build.scalars.cast(found((*first, *last)), found.dtype if found.dtype.kind == "b" else dtype)

    places = [(*batch, i, w), (*batch, i)] if node.op is attention else \
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
