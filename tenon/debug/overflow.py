"""Compiled steps, watched for numbers that do not fit their type: integers that wrap round, casts out of range.

Before a kernel runs, what in it could overflow is computed by the interpreter, with nothing else than leads to it: once
as the program does, and once in float64.  A wrapped integer is off by a multiple of 2 to the number of its bits, far
more than float64 rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.debug.bad_numbers import BadNumber, bad_number
from tenon.errors import TenonError
from tenon.graph.interpret import concrete, evaluate_op, interpret, running, witnessed
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.ops.graph_calls import fused
from tenon.program.steps import HostStep, KernelStep, LookStep
from tenon.records import dataclass, field, replace
from tenon.runtime.instrumented_program import Halted, body_of, inputs_of
from tenon.runtime.run_frame import Frame
from tenon.types import DType, float64

Array = np.ndarray[Any, Any]
WIDER = {"i": "compute in a wider type, as in x.astype(tn.int64), or in floats",
         "u": "unsigned numbers begin again at 0: compute in a wider or a signed type, as in x.astype(tn.int64)",
         "int64": "no integer type is wider: compute in floats, or divide before you multiply"}
SCALED = "scale the numbers first, or cast to bfloat16 or float32, which reach further"


@dataclass(eq=False)
class OverflowChecker:
    """Looks at what kernels with such operations are given."""

    keeps: bool = True
    parts: dict[KernelStep, Graph | None] = field(default_factory=dict)

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        if isinstance(step, HostStep):
            return may_overflow(step.node), False
        self.parts[step] = part_at_risk(body_of(step))
        return self.parts[step] is not None, False

    def see(self, frame: Frame, look: LookStep) -> None:
        step = look.step
        error: BadNumber | None = None
        if isinstance(step, KernelStep):
            error = self._within(step, frame)
        elif isinstance(step, HostStep):
            node, sizes = step.node, frame.layout.sizes
            given = [None if x is None else np.asarray(frame.argument(x, place))
                     for x, place in zip(node.inputs, step.arguments, strict=True)]
            attrs = concrete(node.attrs, sizes) if sizes else node.attrs
            with running(sizes):
                error = overflow_of(node, given, evaluate_op(node.op, given, attrs), sizes, {}, {})
        if error is not None:
            raise Halted(error)

    def _within(self, step: KernelStep, frame: Frame) -> BadNumber | None:
        part, body, sizes = self.parts[step], body_of(step), frame.layout.sizes
        assert part is not None
        inputs = inputs_of(frame, step)
        values: dict[Value, Array] = dict(zip(body.params, inputs, strict=False))
        outside = dict(zip(body.params, step.node.inputs, strict=False)) if step.node.op is fused else {}
        found: list[BadNumber] = []

        def see(node: Node, given: Sequence[Any], made: Sequence[Array]) -> None:
            values.update(zip(node.outputs, made, strict=True))
            if not found and may_overflow(node):
                found.extend(filter(None, (overflow_of(node, given, made, sizes, values, outside),)))
        with running(sizes), np.errstate(all="ignore"), witnessed(see):
            interpret(part, inputs, sizes)
        return found[0] if found else None


def part_at_risk(body: Graph) -> Graph | None:
    """What of a kernel leads to operations that may overflow; None where there are none."""
    needed: set[Node] = set()
    pending = [node for node in body.nodes if any(map(may_overflow, _with_inner(node)))]
    results = tuple(x for node in pending for x in node.outputs)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += [x.node for x in node.inputs if isinstance(x, Value) and x.node is not None]
    return replace(body, nodes=tuple(n for n in body.nodes if n in needed), results=results) if needed else None


def _with_inner(node: Node) -> Iterator[Node]:
    yield node
    for attr in node.attrs.values():
        for graph in attr if isinstance(attr, tuple) else (attr,):
            if isinstance(graph, Graph):
                for inner in graph.nodes:
                    yield from _with_inner(inner)


def may_overflow(node: Node) -> bool:
    """Whether the results of an operation may not fit its type."""
    if not node.outputs:
        return False
    to = node.outputs[0].dtype
    if node.op.name == "cast":
        start = node.inputs[0].dtype if isinstance(node.inputs[0], (Value, Literal)) else to
        return to.kind != "b" and start.kind != "b" and not _holds(to, start)
    return node.op.counts and to.kind in "iu"


def _holds(to: DType, start: DType) -> bool:
    """Whether a type has room for all numbers of another."""
    if to.kind in "iu":
        if start.kind not in "iu":
            return False
        (low, high), (least, most) = _limits(to), _limits(start)
        return low <= least and most <= high
    return not (to.kind in "fc" and start.kind in "fciu") or _reach(to) >= _reach(start)


def _limits(dtype: DType) -> tuple[int, int]:
    bits = dtype.itemsize * 8
    return (0, 2 ** bits - 1) if dtype.kind == "u" else (-2 ** (bits - 1), 2 ** (bits - 1) - 1)


def _reach(dtype: DType) -> int:
    """The exponent of 2 that numbers of a type stay below."""
    return _limits(dtype)[1].bit_length() if dtype.kind in "iu" else REACH[dtype.name]


REACH = {"float16": 16, "bfloat16": 128, "float32": 128, "float64": 1024, "complex64": 128, "complex128": 1024}


def overflow_of(node: Node, given: Sequence[Any], made: Sequence[Array], sizes: Mapping[str, int],
                values: Mapping[Value, Array], outside: Mapping[Value, Any]) -> BadNumber | None:
    """The error of an operation whose results do not fit."""
    to = node.outputs[0].dtype
    if node.op.name == "cast":
        found: Array | None = _cast_out_of_range(np.asarray(given[0]), np.asarray(made[0]), to)
    else:
        found = _wrapped(node, given, np.asarray(made[0]), to, sizes)
    if found is None or not found.any():
        return None
    what = f"overflows {to.name}" if to.kind not in "iu" or node.op.name != "cast" else f"leaves the range of {to.name}"
    return bad_number(node, (what, found), given, values, outside, WIDER.get(to.name) or WIDER.get(to.kind, SCALED))


def _cast_out_of_range(start: Array, end: Array, to: DType) -> Array:
    if to.kind in "iu":
        if start.dtype.kind in "iu":
            return np.asarray((start != end) | ((start < 0) != (end < 0)))
        low, high = _limits(to)
        whole = np.trunc(start.astype(np.float64))
        return np.asarray(~((whole >= low) & (whole < float(high + 1))))
    wide = start.astype(np.complex128 if start.dtype.kind == "c" else np.float64)
    return np.asarray(np.isinf(end) & ~np.isinf(wide))


def _wrapped(node: Node, given: Sequence[Any], made: Array, to: DType, sizes: Mapping[str, int]) -> Array | None:
    """Where integers are not what float64 says, by half of what their type can count or more."""
    wide: list[Any] = [None if x is None else np.asarray(x).astype(np.float64) for x in given]
    try:
        if node.op.name == "bitwise_left_shift":
            about = np.ldexp(wide[0], given[1])
        else:
            attrs = dict(concrete(node.attrs, sizes) if sizes else node.attrs)
            attrs |= {"dtype": float64} if attrs.get("dtype") is not None else {}
            about = np.asarray(evaluate_op(node.op, wide, attrs)[0])
    except (TenonError, TypeError, ValueError):     # an operator that does not count in floats
        return None
    return np.asarray(~(np.abs(about - made.astype(np.float64)) < 2.0 ** (to.itemsize * 8 - 1)))
