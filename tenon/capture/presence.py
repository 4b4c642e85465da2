"""A tape -> which leaves its gradients reach only for some data: in eager code those have none for the others.

    y = a(x) if x.sum() > 0 else b(x)       # after y.backward(), either a.weight.grad or b.weight.grad stays None

A gradient that is not there is not one of zeros: an optimizer passes over parameters that have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from tenon.capture.watch import UnsafeCall
from tenon.dims import Dim
from tenon.errors import user_location
from tenon.graph.ir import Graph, Literal, Value
from tenon.ops.barrier import stop_gradient
from tenon.ops.comparison import logical_and, logical_not, logical_or
from tenon.ops.control import cond, recomputed, switch
from tenon.ops.custom import apply_graph
from tenon.ops.loops import scan, while_loop
from tenon.recording import no_grad
from tenon.tape import TapeNode
from tenon.tensor import Tensor

STRUCTURED = (cond, while_loop, scan, switch, recomputed)
Use = bool | None       # whether a result depends on an input: always, never, or as the data decide


def reached_by_data(tape: Sequence[TapeNode], end: Any) -> dict[Any, Any]:
    """The leaves whose gradients from `end` are there or not, and the bool of the graph that says so.

    Raises UnsafeCall where no such bool says it.
    """
    if not _structured(tape):
        return {}
    return {leaf: there for leaf, there in _reached(tape, end, True).items() if there is not True}


def reached_by_any(ends: Sequence[tuple[Sequence[TapeNode], Any]]) -> dict[Any, Any]:
    """The leaves that no gradient of these ends reaches for all data, and when one does; what no bool says counts as
    there."""
    found: dict[Any, Any] = {}
    for tape, end in ends if any(_structured(tape) for tape, _ in ends) else ():
        for leaf, there in _reached(tape, end, False).items():
            found[leaf] = _either(found.get(leaf, False), there)
    return {leaf: there for leaf, there in found.items() if not isinstance(there, bool)}


def _structured(tape: Sequence[TapeNode]) -> bool:
    return any(node.op in STRUCTURED for node in tape)


def _reached(tape: Sequence[TapeNode], end: Any, strict: bool) -> dict[Any, Any]:
    with no_grad():
        present: dict[Any, Any] = {end: True}
        for node in reversed(tape):
            found = {j: there for j, slot in enumerate(node.slots) if (there := present.get(slot, False)) is not False}
            for k, x in enumerate(node.inputs if found else ()):
                if isinstance(x, Tensor) and x.requires_grad:
                    for there in _given(node, k, found, strict):
                        present[x.slot] = _either(present.get(x.slot, False), there)
    return {slot: there for slot, there in present.items() if isinstance(slot, Tensor)}


def _either(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return b if a is False else a if b is False or a is b else logical_or(a, b)


def _both(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return b if a is True else a if b is True or a is b else logical_and(a, b)


def _given(node: TapeNode, k: int, found: Mapping[int, Any], strict: bool) -> Iterator[Any]:
    """Whether an input of a call gets a gradient from each of its outputs that has one."""
    if node.op is cond:
        yield from (_both(there, _uses(node, k, strict, j)) for j, there in found.items())
    else:
        yield _both(reduce(_either, found.values()), _uses(node, k, strict))


def _uses(node: TapeNode, k: int, strict: bool, output: int | None = None) -> Any:
    """Whether the call, or one of its outputs, depends on an input: True, False, or a bool of the graph."""
    attrs: Any = node.attrs
    if node.op is cond and k > 0:
        arms = use(attrs["true"], k - 1, output), use(attrs["false"], k - 1, output)
        if arms in ((True, False), (False, True)):
            return node.inputs[0] if arms[0] else logical_not(node.inputs[0])
        return _decided(arms[0] if arms[0] is arms[1] else None, strict)
    if node.op is while_loop and k < attrs["constants"]:
        inside = _decided(use(attrs["body"], k), strict)
        return inside and apply_graph(attrs["condition"], node.inputs)[0]
    return _decided(use_of(node.op, attrs, k), strict)


def _decided(use: Use, strict: bool) -> bool:
    if use is None and strict:
        raise UnsafeCall("whether a tensor gets a gradient depends on the data, within a branch or a loop",
                         where=user_location(), hint="zeros added to what is there are as good: p.grad = zeros before")
    return use is not False


# ---------------------------------------------------------------- graphs

def use(graph: Graph, k: int, result: int | None = None) -> Use:
    """Whether a result, or any of them, depends on a parameter, as far as gradients go."""
    results = graph.results if result is None else (graph.results[result],)
    always, ever = {graph.params[k]}, {graph.params[k]}
    for node in graph.nodes:
        if node.op is stop_gradient:
            continue
        uses = [use_of(node.op, node.attrs, j) for j, x in enumerate(node.inputs) if isinstance(x, Value) and x in ever]
        known = [use_of(node.op, node.attrs, j) for j, x in enumerate(node.inputs)
                 if isinstance(x, Value) and x in always]
        outputs = [x for x in node.outputs if x.dtype.is_differentiable]
        ever.update(outputs if any(u is not False for u in uses) else ())
        always.update(outputs if any(u is True for u in known) else ())
    if not always.isdisjoint(results):
        return True
    return False if ever.isdisjoint(results) else None


def use_of(op: Any, attrs: Any, k: int) -> Use:
    """Whether a call depends on its input."""
    if op is cond or op is switch:
        arms = (attrs["true"], attrs["false"]) if op is cond else attrs["branches"]
        uses = [use(arm, k - 1) for arm in arms] if k > 0 else [False]
        return uses[0] if all(u is uses[0] for u in uses) else None
    if op is recomputed:
        return use(attrs["body"], k)
    if op is scan and k < attrs["constants"]:
        return use(attrs["body"], k) if _runs(attrs["length"]) else None
    if op is while_loop and k < attrs["constants"]:
        return None if use(attrs["body"], k) is not False else False
    return True


def _runs(length: Dim | Literal) -> bool:
    """Whether a loop of this length has a turn: sizes that are symbols are two or more."""
    return not isinstance(length, int) or length > 0
