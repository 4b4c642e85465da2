"""Every operator against its own definition, from the examples beside it: types, text, values, gradients.

`TENON_BACKEND=name` runs the same on a compiled backend; `run` is the only place that knows.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.autodiff import gradient_graph
from tenon.errors import DTypeError, TenonError
from tenon.graph.build import literal, trace
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph
from tenon.graph.op import OPS
from tenon.graph.text import Example, parse_example, parse_graph, print_graph
from tenon.graph.verify import verify
from tenon.ops import FAMILIES, PUBLIC
from tenon.types import DType, TensorType, as_dtype, float64

FOUND = [value for family in FAMILIES for value in vars(family).values()] + list(PUBLIC.values())
OPERATORS = [op for op in OPS.values() if op in FOUND and not (op.effect or op.data_dependent)]
SWEEP = ["bool", "i8", "i64", "u8", "f16", "bf16", "f32", "f64", "c64"]
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-11, "c64": 2e-5, "c128": 1e-11}


def run(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a graph, by the backend under test."""
    if not os.environ.get("TENON_BACKEND"):
        return interpret(graph, arrays)
    from tenon.pipeline import compile  # only where a backend is asked for: its import costs time
    return list(compile(graph).run(arrays))


# ---------------------------------------------------------------- what is tested

def listed() -> Iterator[Any]:
    for op in OPERATORS:
        for text in op.examples:
            yield pytest.param(text, id=text)


def succeeding() -> list[Any]:
    return [p for p in listed() if not p.id.endswith("-> error")]


def differentiable() -> list[Any]:
    """Examples with a gradient: a rule or a definition, and something floating on both sides."""
    found = []
    for p in succeeding():
        example = parse_example(p.id)
        floats = [t for t in example.inputs if isinstance(t, TensorType) and t.dtype.is_floating and t.dtype.bits > 16]
        if floats and (example.op.vjp or example.op.expand) and any(t.dtype.is_floating for t in example.outputs or ()):
            found.append(p)
    return found


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
    return [data(t, interval, k) for k, (t, interval) in enumerate(zip(inputs, intervals(example), strict=True))
            if isinstance(t, TensorType)]


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


def close(got: np.ndarray, expected: np.ndarray, dtype: DType) -> None:
    assert got.dtype == expected.dtype == dtype.numpy
    assert got.shape == expected.shape
    if dtype.kind in "bui":
        np.testing.assert_array_equal(got, expected)
    else:
        tolerance = TOLERANCE[dtype.short]
        wide = np.complex128 if dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- tests made from examples

@pytest.mark.parametrize("text", list(listed()))
def test_the_type_rule_gives_what_the_example_says(text: str) -> None:
    example = parse_example(text)
    if example.outputs is None:
        with pytest.raises(TenonError):
            graph_of(example)
    else:
        graph = verify(graph_of(example))
        assert tuple(r.type for r in graph.results) == example.outputs


@pytest.mark.parametrize("text", succeeding())
def test_the_text_parses_back(text: str) -> None:
    shown = print_graph(graph_of(parse_example(text)), locations=False)
    assert print_graph(verify(parse_graph(shown)), locations=False) == shown


@pytest.mark.parametrize("text", succeeding())
def test_eager_reference_and_backend_agree(text: str) -> None:
    example = parse_example(text)
    arrays = arguments(example)
    eager = [t.numpy() for t in many(call(example, example.inputs, tuple(map(tn.asarray, arrays))))]
    graph = graph_of(example)
    results = zip(eager, interpret(graph, arrays), run(graph, arrays), example.outputs or (), strict=True)
    for got, reference, backend, type in results:
        close(got, reference, type.dtype)
        close(backend, reference, type.dtype)
        assert not np.isnan(reference.astype(np.complex128)).any() or not got.size


@pytest.mark.parametrize("short", SWEEP)
@pytest.mark.parametrize("text", succeeding())
def test_element_types(text: str, short: str) -> None:
    example = parse_example(text)
    dtype = as_dtype(short)
    floats = [t for t in example.inputs if isinstance(t, TensorType) and t.dtype.is_floating]
    if not floats or "dtype" in example.attrs:
        return
    inputs = with_floats(example, dtype)
    try:
        graph = graph_of(example, inputs)
    except DTypeError:
        return      # the operator does not take this type, and says so
    arrays = arguments(example, inputs)
    eager = [t.numpy() for t in many(call(example, inputs, tuple(map(tn.asarray, arrays))))]
    types = [r.type for r in graph.results]
    for got, reference, backend, type in zip(eager, interpret(graph, arrays), run(graph, arrays), types, strict=True):
        close(got, reference, type.dtype)
        close(backend, reference, type.dtype)


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


def central_differences(fn: Any, arrays: list[np.ndarray], which: int, step: float = 1e-6) -> np.ndarray:
    out = np.zeros(arrays[which].shape)
    for index in np.ndindex(*out.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[which][index] += sign * step
            ends.append(fn(moved))
        out[index] = (ends[0] - ends[1]) / (2 * step)
    return out


@pytest.mark.parametrize("text", differentiable())
def test_gradient_is_the_central_difference(text: str) -> None:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = arguments(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]

    def value(moved: list[np.ndarray]) -> float:
        return float(weighted(example, inputs, tuple(map(tn.asarray, moved))).item())

    tensors = [tn.tensor(a, requires_grad=k in chosen) for k, a in enumerate(arrays)]
    loss = weighted(example, inputs, tuple(tensors))
    if loss.requires_grad:
        loss.backward()
    types = [t for t in inputs if isinstance(t, TensorType)]
    graph = gradient_graph(trace(lambda *ts: weighted(example, inputs, ts), *types, name="loss"), wrt=chosen)
    by_graph = run(verify(graph), arrays)[1:]
    for k, from_graph in zip(chosen, by_graph, strict=True):
        expected = central_differences(value, arrays, k)
        grad = tensors[k].grad
        on_tape = np.zeros(arrays[k].shape) if grad is None else grad.numpy()
        np.testing.assert_allclose(on_tape, expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(from_graph, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("text", differentiable())
def test_second_derivative_is_the_central_difference_of_the_first(text: str) -> None:
    example = parse_example(text)
    inputs = with_floats(example, float64)
    arrays = arguments(example, inputs)
    chosen = [k for k, a in enumerate(arrays) if a.dtype == np.float64]
    directions = [np.random.default_rng(7 + k).uniform(0.5, 1.5, arrays[k].shape) for k in chosen]

    def slope(moved: list[np.ndarray]) -> tuple[Any, list[Any]]:
        """The derivative along the directions, and the tensors it was taken at."""
        tensors = [tn.tensor(a, requires_grad=k in chosen) for k, a in enumerate(moved)]
        loss = weighted(example, inputs, tuple(tensors))
        if not loss.requires_grad:
            return tn.zeros((), dtype=float64), tensors
        loss.backward(create_graph=True)
        total: Any = tn.zeros((), dtype=float64)
        for k, u in zip(chosen, directions, strict=True):
            grad, tensors[k].grad = tensors[k].grad, None
            total = total if grad is None else total + (grad * u).sum()
        return total, tensors

    total, tensors = slope(arrays)
    if total.requires_grad:
        total.backward()
    along = sum(float((t.grad.numpy() * u).sum()) for t, u in
                ((tensors[k], u) for k, u in zip(chosen, directions, strict=True)) if t.grad is not None)
    ends = [float(slope([a + sign * 1e-6 * directions[chosen.index(k)] if k in chosen else a
                         for k, a in enumerate(arrays)])[0].item()) for sign in (1, -1)]
    np.testing.assert_allclose(along, (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-6)


def test_every_operator_has_an_example_and_a_text() -> None:
    holds_graphs = {"fused", "call", "custom_call"}
    assert not [op.name for op in OPERATORS if not op.doc or (not op.examples and op.name not in holds_graphs)]
