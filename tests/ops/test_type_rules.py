"""What a type rule takes, the reference computes, and gives arrays of the types that the rule says.

Graphs that come from outside are verified by these rules alone: a second operand of another shape that a rule lets
through would be read past its end.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from operator_examples import OPERATORS, parse_example
from tenon.errors import TenonError
from tenon.graph.build import Builder, canonical_attrs
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Op
from tenon.graph.verify import verify
from tenon.types import TensorType, as_dtype

KINDS = list(map(as_dtype, ("f32", "f64", "i64", "bool", "bf16", "c64", "u8")))
REFUSED = TypeError, IndexError, ValueError, ZeroDivisionError     # by a rule: a user hears "it cannot be called with ..."


def others(t: TensorType) -> Iterator[TensorType]:
    """Types unlike this one in one way."""
    shape = t.shape
    sizes = [(*shape[:k], n, *shape[k + 1:]) for k in range(t.ndim) for n in (shape[k] + 1, max(shape[k] - 1, 0), 1, 0)]
    for other in dict.fromkeys([(*shape, 2), (*shape, 1), (2, *shape), (), shape[1:], shape[:-1], *sizes]):
        yield t.with_shape(other)
    yield from (t.with_dtype(kind) for kind in KINDS if kind is not t.dtype)


def values_beside(value: Any) -> Iterator[Any]:
    """Attributes unlike this one in one way."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value - 1, value + 1, 0, -1, 7, -7)
    elif isinstance(value, float):
        yield from (0.0, -1.0, np.nan, np.inf)
    elif isinstance(value, tuple):
        yield from (value[:-1], (*value, *value[-1:]))
        yield from ((*value[:k], other, *value[k + 1:]) for k, x in enumerate(value) for other in values_beside(x))


def of_one_node(op: Op, types: Any, attrs: Any) -> Graph:
    """A graph of nothing but this call, as a text could say it."""
    params = [None if t is None else Value(t, name=f"p{k}") for k, t in enumerate(types)]
    builder = Builder("f", [p for p in params if p is not None])
    out = builder.emit(op, tuple(params), attrs)
    graph = builder.finish(list(out) if isinstance(out, tuple) else [out])
    verify(graph)
    return graph


def is_plain(t: Any) -> bool:
    return t is None or (isinstance(t, TensorType) and t.dtype.kind in "biufc" and all(isinstance(n, int) for n in t.shape))


def calls_beside(example: Any) -> Iterator[tuple[Any, Any]]:
    """An example's inputs and attributes, of which one is another."""
    inputs = example.inputs
    given = {**example.op.signature.attrs, **example.attrs}
    attrs = {**given, **canonical_attrs(example.op, inputs, given)}
    for k, t in enumerate(inputs):
        yield from (((*inputs[:k], other, *inputs[k + 1:]), attrs) for other in (() if t is None else others(t)))
    yield from ((inputs, {**attrs, name: other}) for name, value in attrs.items() for other in values_beside(value))


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.examples], ids=lambda op: op.name)
def test_what_a_rule_takes_the_reference_computes(op: Op) -> None:
    for example in map(parse_example, op.examples):
        if example.outputs is None or not all(map(is_plain, example.inputs)):
            continue
        for types, attrs in calls_beside(example):
            try:
                graph = of_one_node(op, types, attrs)
            except (TenonError, *REFUSED):
                continue
            found = run(graph, [np.ones(p.type.shape, p.type.dtype.numpy) for p in graph.params])
            assert found is None or [(x.shape, x.dtype) for x in found] == \
                [(r.type.shape, r.type.dtype.numpy) for r in graph.results], str(graph)


def run(graph: Graph, arrays: Any) -> Any:
    """The results; None where the elements are wrong, not the types: a place out of range, say."""
    try:
        return interpret(graph, arrays)
    except TenonError:
        return None
    except Exception as error:
        raise AssertionError(f"{graph}: the reference raises {error!r}") from error
