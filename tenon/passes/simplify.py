"""Graph -> a graph of the same values in fewer or cheaper operators, by a table of algebraic rules.

A rule must hold exactly: for -0.0, infinities and NaN, for wrapping integers, for every shape.  So `x + 0` is `x` for
integers only (-0.0 + 0.0 is 0.0), while `x - 0` and `x * 1` are `x` always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.graph.build import Builder, inline
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import Op, using
from tenon.observe import emit as tell
from tenon.ops.arithmetic import abs_, divide, negative, power_op, square
from tenon.ops.comparison import logical_not, maximum, minimum, where
from tenon.ops.shape import broadcast_to, cast, full_op, permute, reshape_op
from tenon.ops.slice_pad_concat import slice_op
from tenon.passes.rewriting.nested import nested
from tenon.passes.rewriting.rewrite_rules import RewriteRule
from tenon.passes.schedule_nodes import can_fail
from tenon.types import DType

RULES: list[RewriteRule] = []


def rule(before: Callable[..., Any], after: Callable[..., Any], when: Callable[..., bool] | None = None,
         examples: Sequence[Mapping[str, Any]] = ({},)) -> None:
    """Add a rule to the table; `tenon.passes.rewriting.rewrite_rules` says how it is read."""
    RULES.append(RewriteRule(before, after, when, examples))


def whole(x: Any, *_: Any, **__: Any) -> bool:
    """The elements are integers."""
    return x.dtype.kind in "ui"


def cannot_fail(x: Any) -> bool:
    """Nothing that it is computed from may find an error in the data, which would be lost with it."""
    waiting, seen = [x], set[Any]()
    while waiting:
        node = getattr(waiting.pop(), "node", None)
        if node is not None and node not in seen:
            if can_fail(node):
                return False
            seen.add(node)
            waiting.extend(node.inputs)
    return True


def power_of_two(x: Any, c: Any) -> bool:
    """The second is a literal whose reciprocal is exact."""
    if not isinstance(c, Literal) or not isinstance(c.value, float) or c.value == 0 or not math.isfinite(c.value):
        return False
    fraction, exponent = math.frexp(c.value)
    return abs(fraction) == 0.5 and abs(exponent) < (10 if c.dtype.bits == 16 else 100)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every element of type `narrow` is one of type `wide`, exactly."""
    if narrow.kind == "b" or wide is narrow:
        return True
    if wide.kind == narrow.kind:
        return wide.bits > narrow.bits and wide.kind in "uifc"
    digits = {16: 8, 32: 24, 64: 53}
    if wide.kind == "i":
        return narrow.kind == "u" and wide.bits > narrow.bits
    return wide.kind == "f" and narrow.kind in "ui" and digits[wide.bits] >= narrow.bits


# ---------------------------------------------------------------- arithmetic

rule(lambda x: x * 1, lambda x: x)
rule(lambda x: x / 1, lambda x: x)
rule(lambda x: x - 0, lambda x: x)
rule(lambda x: x + -0.0, lambda x: x)
rule(lambda x: x + 0, lambda x: x, when=whole)
rule(lambda x: x * 0, lambda x: full_op(Literal(x.dtype.numpy.type(0).item(), x.type.with_shape(())), shape=x.shape),
     when=lambda x: whole(x) and cannot_fail(x))
rule(lambda x: x - x, lambda x: full_op(Literal(0, x.type.with_shape(())), shape=x.shape),
     when=lambda x: whole(x) and cannot_fail(x))
rule(lambda x: x * -1, lambda x: -x)
rule(lambda x: 0 - x, lambda x: -x, when=whole)
rule(lambda x: negative(negative(x)), lambda x: x)
rule(lambda x, y: x + -y, lambda x, y: x - y)
rule(lambda x, y: x - -y, lambda x, y: x + y)
rule(lambda x, y: -x * -y, lambda x, y: x * y)
rule(lambda x, y: -x / -y, lambda x, y: x / y)
rule(lambda x, c: divide(x, c), lambda x, c: x * Literal(1.0 / c.value, c.type), when=power_of_two,
     examples=[{"c": 4.0}, {"c": -0.5}])
rule(lambda x: power_op(x, 1), lambda x: x)
rule(lambda x: power_op(x, 2), lambda x: square(x))
rule(lambda x: abs_(abs_(x)), lambda x: abs_(x))
rule(lambda x: abs_(negative(x)), lambda x: abs_(x), when=lambda x: x.dtype.kind != "u")
rule(lambda x: square(negative(x)), lambda x: square(x))
rule(lambda x: maximum(x, x), lambda x: x)
rule(lambda x: minimum(x, x), lambda x: x)

# ---------------------------------------------------------------- choices

rule(lambda x: logical_not(logical_not(x)), lambda x: x)
rule(lambda c, x, y: where(logical_not(c), x, y), lambda c, x, y: where(c, y, x), examples=[{"c": "bool[2, 3]"}])
rule(lambda c, x: where(c, x, x), lambda c, x: x, when=lambda c, x: c.shape in ((), x.shape) and cannot_fail(c),
     examples=[{"c": "bool[2, 3]"}])

# ---------------------------------------------------------------- types and shapes

rule(lambda x, *, dtype: cast(x, dtype=dtype), lambda x, *, dtype: x, when=lambda x, *, dtype: x.dtype is dtype,
     examples=[{"dtype": "f32"}])
rule(lambda x, *, first, second: cast(cast(x, dtype=first), dtype=second),
     lambda x, *, first, second: cast(x, dtype=second),
     when=lambda x, *, first, second: holds(first, x.dtype),
     examples=[{"first": "f64", "second": "f32"}, {"first": "f64", "second": "i32"}])
rule(lambda x, *, shape: reshape_op(x, shape=shape), lambda x, *, shape: x,
     when=lambda x, *, shape: x.shape == shape, examples=[{"shape": (2, 3)}])
rule(lambda x, *, first, second: reshape_op(reshape_op(x, shape=first), shape=second),
     lambda x, *, first, second: reshape_op(x, shape=second), examples=[{"first": (3, 2), "second": (6,)}])
rule(lambda x, *, axes: permute(x, axes=axes), lambda x, *, axes: x,
     when=lambda x, *, axes: axes == tuple(range(len(axes))), examples=[{"axes": (0, 1)}])
rule(lambda x, *, first, second: permute(permute(x, axes=first), axes=second),
     lambda x, *, first, second: permute(x, axes=tuple(first[a] for a in second)),
     examples=[{"x": "f32[2, 3, 4]", "first": (1, 2, 0), "second": (0, 2, 1)}])
rule(lambda x, *, axes: permute(x, axes=axes),
     lambda x, *, axes: reshape_op(x, shape=tuple(x.shape[a] for a in axes)),
     when=lambda x, *, axes: [a for a in axes if x.shape[a] != 1] == [a for a in range(x.ndim) if x.shape[a] != 1],
     examples=[{"x": "f32[2, 1, 4]", "axes": (1, 0, 2)}])
rule(lambda x, *, start, stop, step: slice_op(x, start=start, stop=stop, step=step), lambda x, *, start, stop, step: x,
     when=lambda x, *, start, stop, step: stop == x.shape and {*start} <= {0} and {*step} <= {1},
     examples=[{"start": (0, 0), "stop": (2, 3), "step": (1, 1)}])
rule(lambda x, *, shape: broadcast_to(x, shape=shape), lambda x, *, shape: x,
     when=lambda x, *, shape: x.shape == shape, examples=[{"shape": (2, 3)}])
rule(lambda x, *, first, second: broadcast_to(broadcast_to(x, shape=first), shape=second),
     lambda x, *, first, second: broadcast_to(x, shape=second),
     examples=[{"x": "f32[3]", "first": (2, 3), "second": (4, 2, 3)}])
rule(lambda x, *, shape: broadcast_to(x, shape=shape), lambda x, *, shape: full_op(x, shape=shape),
     when=lambda x, *, shape: isinstance(x, Literal), examples=[{"x": 1.5, "shape": (2, 3)}])
rule(lambda x, *, first, second: reshape_op(full_op(x, shape=first), shape=second),
     lambda x, *, first, second: full_op(x, shape=second), examples=[{"x": 1.5, "first": (2, 3), "second": (6,)}])
rule(lambda x, *, first, second: broadcast_to(full_op(x, shape=first), shape=second),
     lambda x, *, first, second: full_op(x, shape=second), examples=[{"x": 1.5, "first": (3,), "second": (2, 3)}])
rule(lambda x, *, shape, axes: permute(full_op(x, shape=shape), axes=axes),
     lambda x, *, shape, axes: full_op(x, shape=tuple(shape[a] for a in axes)),
     examples=[{"x": 1.5, "shape": (2, 3), "axes": (1, 0)}])

BY_OP: dict[Op, list[RewriteRule]] = {}
for _rule in RULES:
    BY_OP.setdefault(_rule.op, []).append(_rule)


# ---------------------------------------------------------------- the pass

@nested
def simplify(graph: Graph) -> Graph:
    """Rewrite by the table until no rule applies."""
    params = [Value(p.type, name=p.name) for p in graph.params]
    builder = Simplifier(graph.name, params, rewriting=True)
    values: dict[Value, Value] = dict(zip(graph.params, params, strict=True))
    with using(builder):
        inline(graph, builder, values, lambda node, inputs: builder.emit(node.op, inputs, node.attrs))
    new = builder.finish([values[r] for r in graph.results])
    new.notes = graph.notes
    return new


class Simplifier(Builder):
    """Records what a node simplifies to; what a rule emits is simplified in turn."""

    def emit(self, op: Op, inputs: tuple[Input, ...], attrs: Mapping[str, Any], *rest: Any) -> Any:
        inputs = literals_last(op, scalars_as_literals(op, inputs))
        outputs = super().emit(op, inputs, attrs, *rest)
        candidates = BY_OP.get(op)
        if candidates is None:
            return outputs
        node = self.nodes[-1]
        inner = {x.node.op for x in inputs if isinstance(x, Value) and x.node is not None}
        literal = any(isinstance(x, Literal) for x in inputs)
        for candidate in candidates:
            simpler = candidate.rewrite(node) if candidate.may_match(inner, literal) else None
            if isinstance(simpler, Value) and simpler.type == node.output.type:
                tell("rewrite", node=node, rule=candidate)
                return simpler
        return outputs


def scalars_as_literals(op: Op, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """For elementwise operators, a tensor of one literal is written as that literal, if another input has the shape."""
    if not op.elementwise or all(_literal_of(x) is None for x in inputs):
        return inputs
    short = tuple(_literal_of(x) or x for x in inputs)
    shapes = {x.shape for x in inputs if isinstance(x, Value)}
    return short if shapes <= {x.shape for x in short if isinstance(x, Value)} else inputs


def _literal_of(x: Input) -> Literal | None:
    made_by: Node | None = x.node if isinstance(x, Value) else None
    if made_by is not None and made_by.op is full_op and isinstance(made_by.inputs[0], Literal):
        return made_by.inputs[0]
    return None


def literals_last(op: Op, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """`1 + x` is written `x + 1`."""
    if op.commutative and isinstance(inputs[0], Literal):
        return inputs[::-1]
    return inputs
