"""A tape -> which leaves its gradients reach only for some data: in eager code those have none for the others.

    y = a(x) if x.sum() > 0 else b(x)       # after y.backward(), either a.weight.grad or b.weight.grad stays None

A gradient that is not there is not one of zeros: an optimizer passes over parameters that have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.union_value import UnionValue
from tenon.eager.grad_mode import no_grad
from tenon.eager.tape import TapeNode
from tenon.graph.build import Builder, copy, inline
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import Graph, Value
from tenon.graph.op import using
from tenon.ops.barrier import stop_gradient
from tenon.ops.branches import cond, recomputed, switch
from tenon.ops.comparison import logical_and, logical_not, logical_or
from tenon.ops.custom import apply_graph
from tenon.ops.loops import scan, while_loop
from tenon.ops.shape import full_op
from tenon.records import replace
from tenon.tensor import Tensor
from tenon.types import TensorType, bool_

STRUCTURED = (cond, while_loop, scan, switch, recomputed)
Use = bool | None       # whether a result depends on an input: always, never, or as the data decide


def reached_by_data(tape: Sequence[TapeNode], end: Any) -> dict[Any, Any]:
    """The leaves whose gradients from `end` are there or not, and the bool of the graph that says so."""
    if not _structured(tape):
        return {}
    return {leaf: there for leaf, there in _reached(tape, end).items() if there is not True}


def requires_by_data(tape: Sequence[TapeNode], end: Any) -> Any:
    """The bool that says whether a gradient of `end` reaches any leaf at all; None where it always does."""
    if not _structured(tape):
        return None
    there = reduce(Logic().either, _reached(tape, end).values(), False)
    return None if isinstance(there, bool) else there


def reached_by_any(ends: Sequence[tuple[Sequence[TapeNode], Any]]) -> dict[Any, Any]:
    """The leaves that no gradient of these ends reaches for all data, and when one does."""
    found: dict[Any, Any] = {}
    logic = Logic()
    for tape, end in ends if any(_structured(tape) for tape, _ in ends) else ():
        for leaf, there in _reached(tape, end).items():
            found[leaf] = logic.either(found.get(leaf, False), there)
    return {leaf: there for leaf, there in found.items() if not isinstance(there, bool)}


def goes_through_released(end: TapeNode, known: dict[TapeNode, bool], before: Set[Any]) -> bool:
    """Whether backward() has been through a part of the tape of this call; `known` is for further questions.

    `before`: the edges of tensors from outside whose tapes it has been through before the call.

    Where the data decide which input a result is, they would decide that too, which no result of a call can say.
    """
    pending = [end]
    while pending:
        node = pending[-1]
        above = [x.node for x in node.inputs if isinstance(x, Tensor) and x.node is not None]
        missing = [n for n in above if n not in known]
        if missing and node not in known:
            pending += missing
            continue
        tensors = [x for x in node.inputs if isinstance(x, Tensor)]
        gone = [x for x in tensors if (known[x.node] if x.node else type(x.payload) is Value and x.payload in before)]
        known[pending.pop()] = found = node.released or bool(gone)
        if found and node.op in STRUCTURED and any(x.requires_grad and not any(x is y for y in gone) for x in tensors):
            raise UnsafeCall("whether backward() has been through a result's tape depends on the data")
    return known[end]


def together(leaves: Sequence[Tensor]) -> list[list[int]]:
    """The numbers of the leaves that may have a gradient: runs of those that have one for the same data."""
    def presence(k: int) -> Any:
        grad: Any = leaves[k].grad
        if type(grad) is not UnionValue:
            return grad is not None
        return tuple([p.payload if isinstance(p, Tensor) else p for p, x in grad.options if x is not None])
    return [list(run) for there, run in groupby(range(len(leaves)), presence) if there is not False]


def is_by_data(leaf: Tensor) -> bool:
    """Whether the data of a capture decide if a leaf has a gradient."""
    grad: Any = leaf.grad
    return type(grad) is UnionValue


def _structured(tape: Sequence[TapeNode]) -> bool:
    return any(node.op in STRUCTURED for node in tape)


def _reached(tape: Sequence[TapeNode], end: Any) -> dict[Any, Any]:
    with no_grad():
        present: dict[Any, Any] = {end: True}
        logic = Logic()
        for node in reversed(tape):
            found = {j: there for j, slot in enumerate(node.slots) if (there := present.get(slot, False)) is not False}
            for k, x in enumerate(node.inputs if found else ()):
                if isinstance(x, Tensor) and x.requires_grad:
                    for there in flags(logic, node.op, node.attrs, node.inputs, k, found):
                        present[x.slot] = logic.either(present.get(x.slot, False), there)
    return {slot: there for slot, there in present.items() if isinstance(slot, Tensor)}


class Logic:
    """Bools, of Python or of the program; what was asked before is not computed again, so equal flags are one edge."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def either(self, a: Any, b: Any) -> Any:
        """`a or b`."""
        if a is True or b is True:
            return True
        return b if a is False else a if b is False or a is b else self._once(logical_or, a, b)

    def both(self, a: Any, b: Any) -> Any:
        """`a and b`."""
        if a is False or b is False:
            return False
        return b if a is True else a if b is True or a is b else self._once(logical_and, a, b)

    def negated(self, a: Any) -> Any:
        """`not a`."""
        return self._once(logical_not, a)

    def _once(self, op: Any, *bools: Any) -> Any:
        key = op, *(x.payload if isinstance(x, Tensor) else x for x in bools)
        if key not in self.known:
            self.known[key] = op(*bools)
        return self.known[key]


# ---------------------------------------------------------------- graphs

def use(graph: Graph, k: int, result: int | None = None) -> Use:
    """Whether a result, or any of them, depends on a parameter, as far as gradients go."""
    ever, always = uses(graph)
    chosen = range(len(graph.results)) if result is None else (result,)
    if any(always[r] >> k & 1 for r in chosen):
        return True
    return None if any(ever[r] >> k & 1 for r in chosen) else False


@once_a_graph
def uses(graph: Graph) -> tuple[list[int], list[int]]:
    """For each result the parameters that it depends on for some data, and for all, as the bits of a number."""
    ever = {p: 1 << k for k, p in enumerate(graph.params)}
    always = dict(ever)
    for node in graph.nodes:
        inputs = [(j, x) for j, x in enumerate(node.inputs) if isinstance(x, Value) and x in ever]
        for output, y in enumerate(node.outputs if inputs and node.op is not stop_gradient else ()):
            read = inputs if y.dtype.is_differentiable else ()
            known = [(use_of(node.op, node.attrs, j, output), x) for j, x in read]
            ever[y] = reduce(or_, (ever[x] for u, x in known if u is not False), 0)
            always[y] = reduce(or_, (always[x] for u, x in known if u is True), 0)
    return [ever.get(r, 0) for r in graph.results], [always.get(r, 0) for r in graph.results]


def use_of(op: Any, attrs: Any, k: int, output: int | None = None) -> Use:
    """Whether an output of a call, or any of them, depends on its input."""
    if op not in STRUCTURED:
        return True
    if op is cond or op is switch:
        arms = (attrs["true"], attrs["false"]) if op is cond else attrs["branches"]
        found = [use(arm, k - 1, output) for arm in arms] if k > 0 else [False]
        return found[0] if all(u is found[0] for u in found) else None
    if op is recomputed:
        return use(attrs["body"], k, output)
    if op is scan and k < attrs["constants"]:
        length = attrs["length"]        # a symbol is two or more
        return use(attrs["body"], k) if not isinstance(length, int) or length > 0 else None
    if op is while_loop and k < attrs["constants"]:
        return None if use(attrs["body"], k) is not False else False
    return True


# ---------------------------------------------------------------- as bools of the program

def flags(logic: Logic, op: Any, attrs: Any, inputs: Sequence[Any], k: int, found: Mapping[int, Any]) -> Iterator[Any]:
    """Whether an input of a call gets a gradient from each output that has one (`found`: and when it has)."""
    if op is cond and k > 0:
        arms = attrs["true"], attrs["false"]
        for output, there in found.items():
            then, other = (use(arm, k - 1, output) for arm in arms)
            if then is None or other is None:
                asked = [flag_graph(arm, k - 1, output) for arm in arms]
                yield logic.both(there, cond(*inputs, true=asked[0], false=asked[1]))
            else:
                yield logic.both(there, then if then is other else inputs[0] if then else logic.negated(inputs[0]))
        return
    if op is switch and k > 0:
        for output, there in found.items():
            decided = use_of(op, attrs, k, output)
            if decided is not None:
                yield logic.both(there, decided)
            else:
                branches = tuple([flag_graph(arm, k - 1, output) for arm in attrs["branches"]])
                yield logic.both(there, switch(*inputs, branches=branches))
        return
    there = reduce(logic.either, found.values())
    if op is recomputed:
        inside = use(attrs["body"], k)
        yield logic.both(there, inside if inside is not None else reduce(logic.either, [
            apply_graph(flag_graph(attrs["body"], k, output), inputs)[0] for output in found]))
        return
    if op is while_loop and k < attrs["constants"] and use(attrs["body"], k) is True:
        yield logic.both(there, apply_graph(attrs["condition"], inputs)[0])
        return
    decided = use_of(op, attrs, k)
    yield logic.both(there, in_any_iteration(op, attrs, inputs, k) if decided is None else decided)


def flag_graph(graph: Graph, k: int, result: int) -> Graph:
    """The graph that says whether a result depends on a parameter, on the same inputs."""
    builder = Builder(f"{graph.name}_reached", [Value(p.type, name=p.name) for p in graph.params])
    values: dict[Value, Any] = dict(zip(graph.params, builder.params, strict=True))
    with using(builder):
        return builder.finish([_bool(_flag(graph, builder, values, k, graph.results[result:result + 1]))])


def in_any_iteration(op: Any, attrs: Any, inputs: Sequence[Any], k: int) -> Any:
    """Whether the body of a loop uses a constant in one of its iterations: the loop, carrying a bool that says so."""
    body: Graph = attrs["body"]
    fixed = attrs["constants"] + (attrs["carried"] if op is scan else len(body.results))
    carried = fixed - attrs["constants"]
    types = [p.type for p in body.params]
    types.insert(fixed, TensorType(bool_, ()))
    builder = Builder(f"{body.name}_reached", list(map(Value, types)))
    given = [*builder.params[:fixed], *builder.params[fixed + 1:]]
    values: dict[Value, Any] = dict(zip(body.params, given, strict=True))
    with using(builder):
        there = Logic().either(builder.params[fixed], _flag(body, builder, values, k, body.results))
        turned = builder.finish([*(values[r] for r in body.results[:carried]), _bool(there)])
    start = [*inputs[:fixed], full_op(False, shape=())]
    if op is scan:
        return scan(*start, *inputs[fixed:], **{**attrs, "carried": carried + 1, "body": turned})[carried]
    condition: Graph = attrs["condition"]
    params = (*condition.params, Value(TensorType(bool_, ())))
    return while_loop(*start, **{**attrs, "condition": replace(condition, params=params), "body": turned})[carried]


def _bool(there: Any) -> Any:
    return full_op(there, shape=()) if isinstance(there, bool) else there


def _flag(graph: Graph, builder: Builder, values: dict[Value, Any], k: int, results: Sequence[Value]) -> Any:
    """Within a builder that the graph is written to: whether these results depend on a parameter."""
    inline(graph, builder, values, copy)
    present: dict[Any, Any] = dict.fromkeys(results, True)
    logic = Logic()
    for node in reversed(graph.nodes):
        found = {j: present[x] for j, x in enumerate(node.outputs) if present.get(x, False) is not False}
        if not found or node.op is stop_gradient:
            continue
        inputs = [values[x] if isinstance(x, Value) else x for x in node.inputs]
        for j, x in enumerate(node.inputs):
            if isinstance(x, Value) and x.dtype.is_differentiable:
                for there in flags(logic, node.op, node.attrs, inputs, j, found):
                    present[x] = logic.either(present.get(x, False), there)
    return present.get(graph.params[k], False)
