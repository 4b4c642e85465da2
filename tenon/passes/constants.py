"""A graph some of whose parameters rarely change -> what depends on these alone, and the rest.

    cut = cut_constants(graph)          # graph.notes[CONSTANTS]: the places of these parameters
    cut.early                           # from them to what is kept between calls
    cut.late                            # from the others, some of them as they are, and what is kept, to the results

A weight of a network in use is such a parameter.  Before the cut, `absorb_scales` brings what a product of matrices is
scaled by, column by column, to its weight, which is algebra that pays only because the weight is scaled once.

What is as cheap to compute as to keep (a transposed weight) is computed in every call, and so is what is much larger
than what it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.dataclasses import dataclass, replace
from tenon.dims import SymbolicDim
from tenon.graph.build import copy, current_builder, rebuild
from tenon.graph.cut import has_effect, is_cheap, needed, part
from tenon.graph.ir import CONSTANTS, DONATED, UPDATES, Graph, Input, Literal, Node, Value
from tenon.ops.arithmetic import add, multiply
from tenon.ops.convolution import conv
from tenon.ops.linalg import matmul_op
from tenon.ops.shape import broadcast_to, permute, reshape_op
from tenon.types import STACK, TOKEN

MOST_GROWTH = 2             # times the bytes of the parameters that it is made of may be kept,
SMALL = 1 << 16             # and as many bytes in any case


@dataclass(frozen=True, eq=False)
class Cut:
    """A graph in two.  `reads` are the places of its parameters that come first in those of `late`; what `early`
    returns comes behind them.  `early` takes the parameters at `made_from`."""

    early: Graph
    late: Graph
    made_from: tuple[int, ...]
    reads: tuple[int, ...]


def cut_constants(graph: Graph) -> Cut:
    """The graph in two; `early` returns nothing where nothing is worth keeping."""
    constants: Sequence[int] = graph.notes[CONSTANTS]
    known = constant_values(graph, constants)
    late = needed_late(graph, known)
    made = {x for node in late for x in node.outputs}.union(graph.params)
    wanted = dict.fromkeys(x for node in graph.nodes if node in late for x in node.uses())
    wanted.update(dict.fromkeys(graph.results))
    kept = [x for x in wanted if x not in made]
    used = {x for node in needed(graph, kept) for x in node.uses()}
    made_from = tuple(k for k in constants if graph.params[k] in used)
    others = set(range(len(graph.params))).difference(constants)
    reads = tuple(k for k, p in enumerate(graph.params) if k in others or p in wanted)
    early = part(graph, f"{graph.name}_constants", [graph.params[k] for k in made_from], kept)
    rest = Graph(graph.name, (*(graph.params[k] for k in reads), *kept), tuple(n for n in graph.nodes if n in late),
                 graph.results)
    places = tuple(n for n, k in enumerate(reads) if k not in others)
    notes = {**graph.notes, CONSTANTS: (*places, *range(len(reads), len(reads) + len(kept))),
             DONATED: tuple(n for n, k in enumerate(reads) if k in graph.notes.get(DONATED, ())),
             UPDATES: tuple((reads.index(k), result) for k, result in graph.notes.get(UPDATES, ()) if k in reads)}
    return Cut(early, replace(rebuild(rest, copy), notes=notes), made_from, reads)


def needed_late(graph: Graph, known: Mapping[Value, int]) -> set[Node]:
    """The nodes of the rest: what depends on other parameters too, and what is cheap to compute from what is kept."""
    wanted, late = set(graph.results), set[Node]()
    for node in reversed(graph.nodes):
        read = not wanted.isdisjoint(node.outputs)
        constant = read and all(x in known for x in node.outputs)
        if has_effect(node) or (read and (not constant or is_cheap(node))):
            late.add(node)
            wanted.update(node.uses())
    return late


def constant_values(graph: Graph, constants: Sequence[int]) -> dict[Value, int]:
    """The values that depend on these parameters alone, and how many bytes of them each is made of."""
    known = {graph.params[k]: _bytes(graph.params[k]) for k in constants
             if all(isinstance(n, int) for n in graph.params[k].shape)}
    for node in graph.nodes:
        if _is_constant(node, known):
            source = sum(known[x] for x in dict.fromkeys(node.uses()))
            if is_cheap(node) or _may_be_kept(sum(map(_bytes, node.outputs)), source):
                known.update(dict.fromkeys(node.outputs, source))
    return known


def _is_constant(node: Node, known: Mapping[Value, int]) -> bool:
    fixed = all(x.type not in (STACK, TOKEN) and isinstance(x.size, int) for x in node.outputs)
    return (fixed and not has_effect(node) and not node.op.data_dependent and all(x in known for x in node.uses())
            and not any(_mentions_symbol(value) for value in node.attrs.values()))


def _may_be_kept(size: int, source: int) -> bool:
    """Whether so many bytes are not too many, made of `source` bytes of parameters."""
    return size <= max(MOST_GROWTH * source, SMALL)


def _bytes(value: Value) -> int:
    assert isinstance(value.size, int)
    return value.size * value.dtype.itemsize


def _mentions_symbol(value: Any) -> bool:
    if isinstance(value, Graph):
        return bool(value.symbols())
    return isinstance(value, SymbolicDim) or (isinstance(value, tuple) and any(map(_mentions_symbol, value)))


# ---------------------------------------------------------------- scales

@dataclass(frozen=True)
class Scaled:
    """A value of the new graph that is product + shift, with a weight and a shift that are constants.

    The shift has the axes of the product, of size 1 where it is the same everywhere.
    """

    product: Node
    inputs: tuple[Input, ...]
    shift: Any = None


def absorb_scales(graph: Graph) -> Graph:
    """Bring factors and summands of the columns of a product to its weight and to one summand, where all of them
    depend on the parameters in graph.notes[CONSTANTS] alone: BatchNorm in use becomes part of the convolution.

    Legal where scaled weights are finite: an infinite scale times a weight of 0 is NaN, times the product it is not.
    Whoever runs the constant part looks at what it returns (`capture/constants.py`)."""
    if CONSTANTS not in graph.notes:
        return graph
    known = constant_values(graph, graph.notes[CONSTANTS])
    users = graph.users()
    ends = set(graph.results)
    scaled: dict[Value, Scaled] = {}        # by the old graph's value

    def visit(node: Node, inputs: tuple[Input, ...]) -> Any:
        found = _absorbed(node, inputs, known, scaled)
        if found is None:
            return copy(node, inputs)
        out = _written(found)
        if len(users[node.output]) == 1 and node.output not in ends:
            scaled[node.output] = found
        return out

    return rebuild(graph, visit)


def _absorbed(node: Node, inputs: tuple[Input, ...], known: Mapping[Value, int],
              scaled: Mapping[Value, Scaled]) -> Scaled | None:
    """What the node is as a scaled product; None where it is none."""
    if node.op in WEIGHTS and node.output.dtype.kind == "f" and _is_worth_keeping(node.inputs[1], known):
        return Scaled(node, inputs)
    if node.op not in (multiply, add):
        return None
    for k, x in enumerate(node.inputs):
        before = scaled.get(x) if isinstance(x, Value) else None
        if before is None:
            continue
        other = _along_columns(node.inputs[1 - k], inputs[1 - k], before.product, known)
        if other is None or (node.op is multiply and isinstance(node.inputs[1 - k], Literal)):
            return None         # one number is multiplied by while the product is stored, which is free
        if node.op is add:
            return replace(before, shift=other if before.shift is None else before.shift + other)
        left, weight = before.inputs
        inner = WEIGHTS[before.product.op](weight, other)
        return Scaled(before.product, (left, inner), None if before.shift is None else before.shift * other)
    return None


def _is_worth_keeping(weight: Input, known: Mapping[Value, int]) -> bool:
    """Whether a scaled weight would be kept: one of 8 bits is not, since its size is worth more than the scaling."""
    return isinstance(weight, Value) and weight in known and _may_be_kept(_bytes(weight), known[weight])


def _along_columns(old: Input, now: Input, product: Node, known: Mapping[Value, int]) -> Any:
    """A constant operand that differs from column to column of the product at most, with size 1 along other axes."""
    shape = product.output.shape
    column = 1 if product.op is conv else len(shape) - 1
    if isinstance(old, Literal):
        return broadcast_to(now, shape=(1,) * len(shape))
    if old is None or old not in known or old.node is None or old.node.op is not broadcast_to:
        return None
    assert isinstance(now, Value) and now.node is not None
    small: Any = now.node.inputs[0]
    sizes = (*(1,) * (len(shape) - small.ndim), *small.shape)
    if any(n != 1 for axis, n in enumerate(sizes) if axis != column):
        return None
    return reshape_op(small, shape=sizes)


def _written(found: Scaled) -> Any:
    out = current_builder().emit(found.product.op, found.inputs, found.product.attrs)
    return out if found.shift is None else add(out, broadcast_to(found.shift, shape=out.shape))


def _scale_kernel(weight: Any, scale: Any) -> Any:
    """[O, C, *kernel] by [1, O, 1 ...]"""
    return weight * permute(scale, axes=(1, 0, *range(2, weight.ndim)))


def _scale_matrix(weight: Any, scale: Any) -> Any:
    """[..., K, N] by [..., 1, N or 1]"""
    return weight * reshape_op(scale, shape=(1,) * (weight.ndim - 1) + (scale.shape[-1],))


WEIGHTS = {conv: _scale_kernel, matmul_op: _scale_matrix}      # products, and how their right factor is scaled
