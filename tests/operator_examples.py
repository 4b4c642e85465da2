"""Examples of operators -> graphs, arrays and tolerances: what every test that is generated from examples shares."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tenon.autodiff import gradient_graph
from tenon.graph.build import literal, trace
from tenon.graph.ir import Graph
from tenon.graph.op import OPS
from tenon.graph.text import Example, parse_example
from tenon.ops import FAMILIES, PUBLIC, gradient_stacks
from tenon.ops.barrier import as_leaf, stop_gradient
from tenon.types import DType, TensorType, float64

FOUND = [value for family in FAMILIES for value in vars(family).values()] + list(PUBLIC.values())
OF_RUNS = list(vars(gradient_stacks).values())      # what lives in the run of a graph, and is tested there (tests/test_control.py)
OPERATORS = [op for op in OPS.values() if op in FOUND and op not in OF_RUNS and not (op.effect or op.data_dependent)]
SWEEP = ["bool", "i8", "i64", "u8", "f16", "bf16", "f32", "f64", "c64"]
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-11, "c64": 2e-5, "c128": 1e-11}
NOT_THEIRS = (stop_gradient, as_leaf)      # whose rules say another derivative than that of their values


def listed() -> Iterator[Any]:
    for op in OPERATORS:
        for text in op.examples:
            yield pytest.param(text, id=text)


def succeeding() -> list[Any]:
    return [p for p in listed() if not p.id.endswith("-> error")]


def first_examples() -> list[Any]:
    """One that succeeds of every operator."""
    return list({parse_example(p.id).op: p for p in reversed(succeeding())}.values())[::-1]


def differentiable() -> list[Any]:
    """Examples with a gradient: a rule or a definition, and something floating on both sides."""
    found = []
    for p in succeeding():
        example = parse_example(p.id)
        floats = [t for t in example.inputs if isinstance(t, TensorType) and t.dtype.is_floating and t.dtype.bits > 16]
        smooth = (example.op.vjp or example.op.expand) and example.op not in NOT_THEIRS
        if floats and smooth and any(t.dtype.is_floating for t in example.outputs or ()):
            found.append(p)
    return found


ASCENDING = {"searchsorted"}        # operators that promise nothing where the rows of their first input do not ascend


def intervals(example: Example) -> list[tuple[float, float]]:
    """Where the data of each input lies."""
    domain = example.op.domain or (-2.0, 2.0)
    pairs = list(domain) if isinstance(domain[0], tuple) else [domain]
    return [pairs[min(k, len(pairs) - 1)] for k in range(len(example.inputs))]


def data(type: TensorType, interval: tuple[float, float], seed: int) -> np.ndarray:
    low, high = interval
    rng = np.random.default_rng(seed)
    match type.dtype.kind:
        case "b":
            return rng.integers(0, 2, type.shape).astype(bool)
        case "i" | "u":
            start = max(int(np.ceil(low)), 0) if type.dtype.kind == "u" else int(np.ceil(low))
            return rng.integers(start, max(int(high) + 1, start + 1), type.shape).astype(type.dtype.numpy)
        case "c":
            return (rng.uniform(low, high, type.shape) + 1j * rng.uniform(-1, 1, type.shape)).astype(type.dtype.numpy)
    return np.asarray(rng.uniform(low, high, type.shape)).astype(type.dtype.numpy)


def arguments(example: Example, inputs: tuple[Any, ...] | None = None) -> list[np.ndarray]:
    """An array for each tensor of the example."""
    inputs = inputs or example.inputs
    found = [data(t, interval, k) for k, (t, interval) in enumerate(zip(inputs, intervals(example), strict=True))
             if isinstance(t, TensorType)]
    if example.op.name in ASCENDING:
        found[0].sort(axis=-1)
    return found


def call(example: Example, inputs: tuple[Any, ...], tensors: tuple[Any, ...]) -> Any:
    """The example's operator on these tensors, with its literals and missing inputs in their places."""
    given = iter(tensors)
    return example.op(*(next(given) if isinstance(t, TensorType) else t for t in inputs), **example.attrs)


def graph_of(example: Example, inputs: tuple[Any, ...] | None = None) -> Graph:
    inputs = example.inputs if inputs is None else inputs
    types = [t for t in inputs if isinstance(t, TensorType)]
    return trace(lambda *tensors: call(example, inputs, tensors), *types, name="example")


def many(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def close(got: np.ndarray, expected: np.ndarray, dtype: DType, tolerance: float = 0.0) -> None:
    """Equal types and shapes, and elements equal up to the tolerance, at least that of the type."""
    assert got.dtype == expected.dtype == dtype.numpy
    assert got.shape == expected.shape
    if dtype.kind in "bui":
        np.testing.assert_array_equal(got, expected)
    else:
        tolerance = max(tolerance, TOLERANCE[dtype.short])
        wide = np.complex128 if dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


def with_floats(example: Example, dtype: DType) -> tuple[Any, ...]:
    """The inputs with another type in place of each floating one; literals are whole where that is needed."""
    def one(t: Any) -> Any:
        if t is None or not t.dtype.is_floating:
            return t
        if isinstance(t, TensorType):
            return t.with_dtype(dtype)
        return literal(t.value if dtype.kind in "fc" else round(abs(t.value)), dtype)
    return tuple(map(one, example.inputs))


# ---------------------------------------------------------------- gradients

def weighted(example: Example, inputs: tuple[Any, ...], tensors: tuple[Any, ...]) -> Any:
    """A scalar that depends on every floating output, with other weights everywhere."""
    total: Any = 0.0
    for k, y in enumerate(many(call(example, inputs, tensors))):
        if y.dtype.is_floating:
            weights = np.random.default_rng(99 + k).uniform(0.5, 1.5, [int(n) for n in y.shape]).astype(y.dtype.numpy)
            total = total + (y * weights).sum().astype(float64)
    return total


def gradient_of(example: Example, inputs: tuple[Any, ...], chosen: list[int]) -> Graph:
    """The weighted sum of the outputs, and its gradient with respect to the chosen arguments."""
    types = [t for t in inputs if isinstance(t, TensorType)]
    return gradient_graph(trace(lambda *ts: weighted(example, inputs, ts), *types, name="loss"), wrt=chosen)
