"""Graph -> kernel.  The graph is the body of one fused kernel: parameters are read, results are written.

    kernel = lower(graph, "softmax")

Every result is an expression over the parameters, so by default nothing between them is stored.  A value that would be
computed again and again (a row's maximum inside the loop over its elements, where it cannot be hoisted out of) gets a
buffer of its own and is computed in an earlier nest: build, look for such a value, store it, build again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tenon.dims.symbolic_dim import Dim, product
from tenon.graph.ir import Graph, Value
from tenon.loops.binders import loops_are_distinct
from tenon.loops.column_reductions import in_columns
from tenon.loops.expression_builder import GraphExpressions, is_empty, offset
from tenon.loops.expressions import Buffer, Call, Expr, Index, Reduce, size
from tenon.loops.fuse_row_reductions import opened
from tenon.loops.loop_context import LoopContext
from tenon.loops.loop_ir import Kernel, Nest, checks_of
from tenon.loops.loop_pipeline import ELEMENT_PASSES, FIRST_PASSES, NEST_PASSES, LoopPassStep, begun, run_loop_passes
from tenon.loops.lower_attention import attention_nest, attention_node
from tenon.loops.lower_fill import Filling, fill_node, is_filled_by
from tenon.loops.match_contraction import misplaced
from tenon.loops.store_target import CALL_ELEMENTS, StoreTarget
from tenon.loops.traversal import parts
from tenon.loops.validate_loops import compare_with_graph, reproducible
from tenon.target import GENERIC, Target
from tenon.types import TensorType

MAX_NODES_DEEP = 32         # longer chains are cut, so that expressions stay shallow
Indices = tuple[Index, ...]
CHEAP_REPEAT = 256          # computing something again at most this often costs less than storing it,
MAX_PLAIN_ELEMENTS = 16384  # where so few elements are read in all;
MAX_PLAIN_REPEATS = 32  # else at most this often


def lower(graph: Graph, name: str, trace: list[LoopPassStep] | None = None, target: Target = GENERIC) -> Kernel:
    """The kernel that computes the results of `graph` on a machine; `trace` gets what each pass did."""
    with reproducible(graph):
        return _lowered(graph, name, trace, target)


def _lowered(graph: Graph, name: str, trace: list[LoopPassStep] | None, target: Target) -> Kernel:
    inputs = {p: Buffer(p.name or f"p{k}", p.type, "input") for k, p in enumerate(graph.params)}
    outputs = [Buffer(f"out{k}" if len(graph.results) > 1 else "out", r.type, "output")
               for k, r in enumerate(graph.results)]
    context = LoopContext(name, tuple(inputs.values()), tuple(outputs), target=target)
    if (node := attention_node(graph)) is not None:
        nests = [attention_nest(GraphExpressions(graph, inputs), node, outputs)]
        return _kernel(graph, begun("lower_attention", nests, context, trace), context)
    if (node := fill_node(graph)) is not None:
        if not is_filled_by(graph, node):
            raise NotImplementedError(f"what is computed of {node.op.name} stands in its kernel")
        filling = Filling(GraphExpressions(graph, inputs), node, outputs)
        compare_with_graph("the fill rule", graph, inputs, outputs, filling.nests)
        return _kernel(graph, begun("lower_fill", filling.nests, context, trace), context)
    elements, stored = _stored(graph, inputs, context, trace)
    compare_with_graph("the compute rules", graph, inputs, outputs, elements)
    elements = run_loop_passes(elements, ELEMENT_PASSES, context, trace)
    written = {t.buffer for t in elements}
    context.added[:0] = [b for b in stored if b in written and b not in context.added]
    return _kernel(graph, run_loop_passes(elements, NEST_PASSES, context, trace), context)


def _stored(graph: Graph, inputs: Mapping[Value, Buffer], context: LoopContext,
            trace: list[LoopPassStep] | None) -> tuple[Sequence[StoreTarget], list[Buffer]]:
    """What is stored where: the results, and values that would be computed again and again; and the buffers of these.
    """
    stored, outputs = _long_chains(graph), context.outputs
    while True:
        buffers = _buffers_of(graph, outputs, stored)
        build = GraphExpressions(graph, {**inputs, **buffers})
        context.owner, steps = build.owner, None if trace is None else list[LoopPassStep]()
        elements = begun("compute_rules", _targets(graph, build, buffers, outputs), context, steps)
        elements = run_loop_passes(elements, FIRST_PASSES, context, steps)
        offender = _misplaced_product(elements, build.owner, stored) or _recomputed(opened(elements), build.owner,
                                                                                    stored)
        if offender is None:
            if trace is not None:
                trace += steps or []
            return elements, [b for b in buffers.values() if b.role == "temporary"]
        stored.add(offender)


def _kernel(graph: Graph, nests: Sequence[Nest], context: LoopContext) -> Kernel:
    distinct = all(loops_are_distinct(nest.body) for nest in nests)
    assert distinct, f"{context.name}: a loop has the index of one around it"
    return Kernel(context.name, context.inputs, context.outputs, tuple(context.added), graph.symbols(), tuple(nests),
                  checks_of(nests))


def _long_chains(graph: Graph) -> set[Value]:
    """Values to store so that no chain of rules is too long."""
    depth: dict[Value, int] = {}
    cut: set[Value] = set()
    for node in graph.nodes:
        deepest = 1 + max((depth.get(x, 0) for x in node.inputs if isinstance(x, Value)), default=0)
        if deepest >= MAX_NODES_DEEP:
            cut.update(node.outputs)
            deepest = 0
        depth.update(dict.fromkeys(node.outputs, deepest))
    return cut


def _buffers_of(graph: Graph, outputs: Sequence[Buffer], stored: set[Value]) -> dict[Value, Buffer]:
    """Where each stored value lies: in the result's buffer if it is one, else in a temporary."""
    result = dict(reversed(list(zip(graph.results, outputs, strict=True))))
    listed = [v for node in graph.nodes for v in node.outputs if v in stored]
    return {v: result.get(v) or Buffer(f"t{k}", v.type, "temporary") for k, v in enumerate(listed)}


def _targets(graph: Graph, build: GraphExpressions, buffers: Mapping[Value, Buffer],
             outputs: Sequence[Buffer]) -> list[StoreTarget]:
    """Everything to be stored, in an order that respects what reads what."""
    done: set[Buffer] = set()
    found = []
    for value, buffer in buffers.items():
        index, indices = loop_indices(value.type)
        if not is_empty(value.type):
            found.append(StoreTarget(buffer, indices, offset(value.shape, index), build.defined(value, index)))
        done.add(buffer)
    for value, buffer in zip(graph.results, outputs, strict=True):
        if buffer not in done and not is_empty(value.type):
            index, indices = loop_indices(value.type)
            found.append(StoreTarget(buffer, indices, offset(value.shape, index), build.to_store(value, index)))
    return found


def loop_indices(type: TensorType) -> tuple[tuple[Expr, ...], tuple[Index, ...]]:
    """(the index of an element, the loop variables in it); axes of size 1 have none."""
    index: list[Expr] = []
    loops: list[Index] = []
    for n in type.shape:
        if isinstance(n, int) and n == 1:
            index.append(size(0))
        else:
            loops.append(Index(f"i{len(loops)}", n))
            index.append(loops[-1])
    return tuple(index), tuple(loops)


def _misplaced_product(targets: Sequence[StoreTarget], owner: Mapping[Expr, Value], stored: set[Value]) -> Value | None:
    """A value, not yet stored, that keeps a product of matrices from being one."""
    found = [x for t in targets for x in misplaced(t.value, t.indices)]
    products = {(x.sum, t.indices) for t in targets if (x := t.product) is not None}
    seen = Counter(x for x, _ in products)
    found += [x for x, times in seen.items() if times > 1]      # in loops of several kinds
    for total in (x for t in targets for x in parts(t.value, Reduce)) if found else ():
        if total.kind == "add" and total in owner and not set(found).isdisjoint(parts(total.body, Reduce)):
            value = _summed(owner[total])
            if value is not None and value not in stored:
                return value
    return next((owner[x] for x in found if x in owner and owner[x] not in stored), None)


def _summed(total: Value) -> Value | None:
    """What a sum is of, if that is computed here: it goes along with the product that it is made of
    (`epilogue_reductions`)."""
    found = None if total.node is None else total.node.inputs[0]
    return found if isinstance(found, Value) and found.node is not None else None


def _recomputed(targets: Sequence[StoreTarget], owner: Mapping[Expr, Value], stored: set[Value]) -> Value | None:
    """A value, not yet stored, that would be computed again in a loop that it does not depend on."""
    for target in targets:
        columns = in_columns(target) is not None
        for x, around in _placed(target.value, target.indices):
            if columns and isinstance(x, Reduce):
                continue                        # the loops that it does not depend on are inside
            value = owner.get(x)
            if value is None or value in stored or not isinstance(x, (Reduce, Call)):
                continue
            again = [index.extent for index in _needed(around, x) if index not in x.free]
            if isinstance(x, Reduce) and not x.free:
                again = [index.extent for index in around]      # every thread would compute it
            times = _times_each(value, _needed(around, x))
            if not again and isinstance(x, Reduce) and times > 1:
                again = [times]
            if again and not _is_cheap(x, again, _needed(around, x)):
                return value
    return None


def _times_each(value: Value, loops: Indices) -> int:
    """How often every element of a value is computed in these loops: windows that overlap share elements."""
    iterations, elements = product(index.extent for index in loops), value.size
    if not isinstance(iterations, int) or not isinstance(elements, int):
        return 1
    return iterations // elements if 0 < elements < iterations else 1


def _needed(around: Indices, x: Expr) -> Indices:
    """The loops that x must be inside of: up to the deepest one that it depends on."""
    deepest = max((place for place, index in enumerate(around) if index in x.free), default=-1)
    return around[:deepest + 1]


def _placed(root: Expr, around: Indices) -> Iterator[tuple[Expr, Indices]]:
    """Every sub-expression with the loops around it, outermost first."""
    seen: set[tuple[Expr, Indices]] = set()
    stack = [(root, around)]
    while stack:
        x, around = stack.pop()
        if (x, around) not in seen:
            seen.add((x, around))
            yield x, around
            inner = _needed(around, x) + x.indices if isinstance(x, Reduce) else around
            stack.extend((child, inner) for child in x.children())


def _is_cheap(x: Expr, again: Sequence[Dim], around: Indices) -> bool:
    """Whether it is computed so seldom, or so quickly, that storing it would not be worth while."""
    inner = [index.extent for index in x.indices] if isinstance(x, Reduce) else []
    times, iterations = product([*again, *inner]), product([*(index.extent for index in around), *inner])
    if not isinstance(times, int) or times > CHEAP_REPEAT:
        return False
    if isinstance(x, Call):
        return times <= CALL_ELEMENTS
    few = isinstance(iterations, int) and iterations <= MAX_PLAIN_ELEMENTS
    return few or times * (CALL_ELEMENTS if parts(x, Call) else 1) <= MAX_PLAIN_REPEATS
