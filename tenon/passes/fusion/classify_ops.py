"""A node -> what kind of work it is, found out by running its compute rule.

    view         moves or converts elements: reading its input in another place costs as much
    map          element by element, or with a few elements read for each
    reduce       many elements to one
    contraction  a sum of products: a kernel of its own, that takes little else in
    fill         filled in an order: a kernel of its own, that reads through views
    attention    so it is, and may have several outputs
    opaque       no kernel, or none that may be combined with others
"""

from __future__ import annotations

from functools import lru_cache

from tenon.graph.build import types_of
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.graph.op import Op
from tenon.graph.structural_key import Exact
from tenon.loops.expression_builder import GraphExpressions
from tenon.loops.expressions import Binary, Buffer, Call, Cast, CheckedIndex, Const, Expr, Index, Load, Reduce, SizeOf
from tenon.loops.lower import loop_indices
from tenon.loops.traversal import walk
from tenon.loops.whole_operators import is_attention
from tenon.ops.barrier import stored
from tenon.passes.fusion.kernel_bodies import has_loops
from tenon.records import dataclass
from tenon.types import TensorType


@dataclass(frozen=True)
class Kind:
    """What computing a node means; `expensive` to do again for every reader.

    `checks`: it reads at an index among the data, which must be checked even where the element read is the same at
    every index, as in a view that `repeats`.
    """

    name: str
    expensive: bool = False
    checks: bool = False
    repeats: bool = False


OPAQUE = Kind("opaque")


def kind_of(node: Node) -> Kind:
    """What kind of work the node is."""
    if is_attention(node) and has_loops(node):
        return Kind("attention", expensive=True)
    if not has_loops(node) or len(node.outputs) != 1:
        return OPAQUE
    if node.op.fill is not None:
        return Kind("fill", expensive=True)
    return _kind(*signature(node))


Signature = tuple[Op, tuple[Literal | TensorType | None, ...], Exact]


def signature(node: Node) -> Signature:
    """What decides what the node computes of its inputs."""
    inputs = tuple([x.type if isinstance(x, Value) else x for x in node.inputs])
    return node.op, inputs, Exact(node.attrs)


@lru_cache(maxsize=4096)
def _kind(op: Op, inputs: tuple[Literal | TensorType | None, ...], attrs: Exact) -> Kind:
    values = [Value(x) if isinstance(x, TensorType) else x for x in inputs]
    node = Node(op, tuple(values), attrs.values)
    found = op.type(*types_of(values), **node.attrs)
    type, = found if isinstance(found, tuple) else (found,)
    node.outputs = (Value(type, node),)
    buffers = {x: Buffer(f"x{k}", x.type, "input") for k, x in enumerate(values) if isinstance(x, Value)}
    try:
        expression = GraphExpressions(Graph("kind", tuple(buffers), (node,), node.outputs), buffers).at(
            node.output, loop_indices(type)[0])
    except (NotImplementedError, KeyError, AssertionError):
        return OPAQUE
    parts = walk(expression)
    if any(isinstance(x, CheckedIndex) for x in parts):
        return Kind("map", expensive=True, checks=True)
    reductions = [x for x in parts if isinstance(x, Reduce)]
    if reductions:
        return Kind("contraction" if any(map(_is_product, reductions)) else "reduce", expensive=True)
    if _is_view(expression) and op is not stored:
        used = {x for x in parts if isinstance(x, Index)}
        return Kind("view", repeats=any(x not in used for x in loop_indices(type)[0] if isinstance(x, Index)))
    return Kind("map", any(isinstance(x, Call) and x.name != "neg" for x in parts))


def _is_view(x: Expr) -> bool:
    while isinstance(x, Cast):
        x = x.x
    return isinstance(x, (Load, Const, Index, SizeOf))


def _is_product(x: Reduce) -> bool:
    """A sum of products of elements that are read for several results each."""
    body = x.body
    return (x.kind == "add" and isinstance(body, Binary) and body.op == "*" and body.left is not body.right
            and any(isinstance(part, Load) for part in walk(body.left))
            and any(isinstance(part, Load) for part in walk(body.right)))
