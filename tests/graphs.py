"""Random graphs over the operators that exist, and arrays for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import tenon as tn
from tenon.dims.symbolic_dim import symbol
from tenon.errors import TenonError
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Value
from tenon.graph.op import using
from tenon.graph.verify import verify
from tenon.ops import arithmetic, comparison, exponential, trigonometric
from tenon.ops import reduction as r
from tenon.ops import shape as s
from tenon.ops.matrix_products import matmul_op
from tenon.types import TensorType, bool_, float32, float64, int32, int64

UNARY = (arithmetic.negative, trigonometric.tanh, trigonometric.sin, trigonometric.cos, lambda x: x * 2.0, lambda x: 1.0 - x, lambda x: x * 1.0,
         lambda x: exponential.exp(trigonometric.tanh(x)), lambda x: comparison.where(x > 0.25, x, 0.0), lambda x: s.cast(s.cast(x, dtype=int32),
                                                                                       dtype=float32))
BINARY = (arithmetic.add, arithmetic.subtract, arithmetic.multiply, comparison.maximum, lambda x, y: comparison.where(x < y, y, x * 0.5),
          lambda x, y: x / (exponential.exp(trigonometric.tanh(y)) + 1.0))
SIZES: tuple[Any, ...] = (1, 2, 3, 5)


@st.composite
def graphs(draw: Any, symbolic: bool = False, most_nodes: int = 12) -> Graph:
    """A graph of float32 tensors: elementwise, reductions, views, products."""
    sizes = (*SIZES, symbol("B")) if symbolic else SIZES
    shapes = [tuple(draw(st.lists(st.sampled_from(sizes), min_size=0, max_size=3))) for _ in range(draw(st.integers(1, 3)))]
    if symbolic:
        shapes.append((symbol("B"), 3))
    builder = Builder("random")
    values = [builder.parameter(TensorType(float32, shape), f"x{k}") for k, shape in enumerate(shapes)]
    with using(builder):
        for _ in range(draw(st.integers(1, most_nodes))):
            values.append(_step(draw, values, sizes))
    results = draw(st.lists(st.sampled_from(values[-6:]), min_size=1, max_size=3))
    return verify(builder.finish([*results, values[-1]]))


def _step(draw: Any, values: list[Value], sizes: tuple[Any, ...]) -> Any:
    x: Any = draw(st.sampled_from(values[-5:] + values[:2]))
    match draw(st.sampled_from(("unary", "binary", "binary", "reduce", "view", "broadcast", "matmul"))):
        case "binary":
            others = [y for y in values if y.shape == x.shape]
            return draw(st.sampled_from(BINARY))(x, draw(st.sampled_from(others)))
        case "reduce" if x.ndim:
            axis = draw(st.integers(0, x.ndim - 1))
            reduce = draw(st.sampled_from((r.sum_, r.max_)))
            return reduce(x, axis=axis, keepdims=draw(st.booleans())) * 0.5
        case "view" if x.ndim:
            if draw(st.booleans()):
                return s.permute(x, axes=tuple(draw(st.permutations(range(x.ndim)))))
            return s.reshape_op(x, shape=(x.size,) if draw(st.booleans()) else (*x.shape, 1))
        case "broadcast" if x.ndim < 3:
            return s.broadcast_to(x, shape=(draw(st.sampled_from(sizes)), *x.shape))
        case "matmul" if x.ndim == 2:
            others = [y for y in values if y.ndim == 2 and y.shape[0] == x.shape[1]]
            if others:
                return matmul_op(x, draw(st.sampled_from(others)))
    return draw(st.sampled_from(UNARY))(x)


# ---------------------------------------------------------------- of every kind of operator and type

TYPES = (float32, float32, float64, int32, int64, bool_)
UNEVEN = (0, 1, 2, 3, 5, 7, 13)
FLOAT_UNARY = (tn.tanh, tn.sin, tn.abs, tn.sigmoid, tn.isfinite, lambda x: -x, lambda x: tn.floor(x + 0.3),
               lambda x: tn.sqrt(tn.abs(x)), lambda x: x * 0.5 + 1.0, lambda x: tn.where(x > 0.25, x, 0.0),
               lambda x: tn.exp(tn.tanh(x)), lambda x: x % 0.75)
INTEGER_UNARY = (tn.abs, tn.sign, lambda x: -x, lambda x: ~x, lambda x: x * 3 + 1, lambda x: x // 2, lambda x: x % 3,
                 lambda x: x >> 1, lambda x: tn.equal(x, 2))
BOOL_UNARY = (tn.logical_not, lambda x: tn.where(x, 1.5, -0.5), lambda x: x.astype(int32))
ANY_BINARY = (tn.add, tn.multiply, tn.maximum, tn.minimum, tn.less, tn.not_equal, lambda x, y: tn.where(x > y, y, x),
              lambda x, y: tn.where(tn.less_equal(x, 1), x, y))
NUMBER_BINARY = (tn.subtract, tn.floor_divide, tn.remainder, lambda x, y: x / (tn.abs(y) + 1))
REDUCTIONS = (tn.sum, tn.max, tn.min, tn.mean, tn.any, tn.all, tn.prod, tn.argmax)


@st.composite
def mixed_graphs(draw: Any, most_nodes: int = 10) -> Graph:
    """A graph of tensors of several types and of odd sizes: views, slices, joining, gathering, sorting too."""
    builder = Builder("mixed")
    values: list[Any] = []
    for k in range(draw(st.integers(1, 3))):
        shape = draw(st.lists(st.sampled_from(UNEVEN), min_size=0, max_size=3))
        values.append(builder.parameter(TensorType(draw(st.sampled_from(TYPES)), tuple(shape)), f"x{k}"))
    with using(builder):
        for _ in range(draw(st.integers(1, most_nodes))):
            x = draw(st.sampled_from(values[-4:] + values[:2]))
            try:
                made = draw(st.sampled_from(MIXED_STEPS + ALONG_AXES * bool(x.ndim)))(draw, x, values)
            except TenonError:
                continue            # not for these types or shapes, as the operator says
            if made.size <= 20_000:
                values.append(made)
    results = draw(st.lists(st.sampled_from(values[-6:]), min_size=1, max_size=3))
    return verify(builder.finish([*results, values[-1]]))


def _unary(draw: Any, x: Any, values: list[Any]) -> Any:
    return draw(st.sampled_from({"f": FLOAT_UNARY, "b": BOOL_UNARY}.get(x.dtype.kind, INTEGER_UNARY)))(x)


def _binary(draw: Any, x: Any, values: list[Any]) -> Any:
    """With another value, whose shape may be smaller."""
    y = draw(st.sampled_from([y for y in values if y.shape == x.shape[x.ndim - y.ndim:] or y.shape == x.shape]))
    numbers = x.dtype.kind != "b" and y.dtype.kind != "b"
    return draw(st.sampled_from(ANY_BINARY + NUMBER_BINARY * numbers))(x, y)


def _reduction(draw: Any, x: Any, values: list[Any]) -> Any:
    axis = draw(st.sampled_from([None, *range(x.ndim)]))
    y = draw(st.sampled_from(REDUCTIONS))(x, axis=axis, keepdims=draw(st.booleans()))
    return y * 0.5 if y.dtype.kind == "f" else y


def _view(draw: Any, x: Any, values: list[Any]) -> Any:
    if draw(st.booleans()):
        return s.permute(x, axes=tuple(draw(st.permutations(range(x.ndim)))))
    return s.reshape_op(x, shape=draw(st.sampled_from([(x.size,), (*x.shape, 1), (1, *x.shape), x.shape[::-1]])))


def _broadcast(draw: Any, x: Any, values: list[Any]) -> Any:
    return s.broadcast_to(x, shape=(draw(st.sampled_from(UNEVEN)), *x.shape)) if x.ndim < 4 else x


def _slice(draw: Any, x: Any, values: list[Any]) -> Any:
    """Any mixture of places, ranges with steps, and new axes."""
    ends, steps = st.one_of(st.none(), st.integers(-14, 14)), st.sampled_from([None, None, 1, 2, 3, -1, -2])
    part = st.one_of(st.builds(slice, ends, ends, steps), st.builds(slice, ends, ends, steps), st.integers(-2, 1))
    key = draw(st.lists(part, min_size=0, max_size=x.ndim))
    return x[tuple([None, *key] if draw(st.booleans()) and x.ndim < 4 else key)]


def _joined(draw: Any, x: Any, values: list[Any]) -> Any:
    others = [y for y in values if y.shape == x.shape]
    axis = draw(st.integers(0, x.ndim - 1))
    return draw(st.sampled_from((tn.concat, tn.stack)))([x, draw(st.sampled_from(others)), x], axis=axis)


def _gathered(draw: Any, x: Any, values: list[Any]) -> Any:
    """Rows in the order of other data, brought into range mostly; with -1 for the last."""
    axis = draw(st.integers(0, x.ndim - 1))
    others = [y for y in values if y.dtype in (int32, int64) and y.ndim <= 2] or [tn.argmax(x, axis=axis)]
    index = draw(st.sampled_from(others))
    return tn.take(x, index if draw(st.integers(0, 9)) == 9 else index % (x.shape[axis] or 1) - 1, axis=axis)


def _product(draw: Any, x: Any, values: list[Any]) -> Any:
    others = [y for y in values if y.ndim == 2 and y.shape[0] == x.shape[-1]]
    y = draw(st.sampled_from(others)) if others else tn.matrix_transpose(x)
    z = tn.matmul(x, y)
    return tn.tanh(z) if z.dtype.kind == "f" else z


def _cast(draw: Any, x: Any, values: list[Any]) -> Any:
    return s.cast(x, dtype=draw(st.sampled_from(TYPES)))


def _other(draw: Any, x: Any, values: list[Any]) -> Any:
    """Padding, sorting, running sums, normalising."""
    last = x.ndim - 1
    return draw(st.sampled_from((
        lambda: tn.pad(x, [(1, 2)] * x.ndim), lambda: tn.sort(x, axis=last), lambda: tn.cumsum(x, axis=last),
        lambda: tn.softmax(x, axis=last), lambda: tn.flip(x, axis=last), lambda: tn.tril(x))))()


MIXED_STEPS = (_unary, _binary, _binary, _reduction, _reduction, _view, _broadcast, _cast)
ALONG_AXES = (_slice, _slice, _joined, _gathered, _product, _other)


# ---------------------------------------------------------------- arguments and results

def arrays_for(graph: Graph, seed: int = 0, **sizes: int) -> list[np.ndarray]:
    """Random arguments."""
    from tenon.graph.interpret import concrete_type
    rng = np.random.default_rng(seed)
    types = [concrete_type(p.type, sizes) for p in graph.params]
    return [random_array(rng, type) for type in types]


def random_array(rng: np.random.Generator, type: TensorType) -> np.ndarray:
    shape: Any = type.shape
    if type.dtype is bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if type.dtype.kind in "iu":
        return rng.integers(0, 5, shape).astype(type.dtype.numpy)
    return rng.normal(size=shape).astype(type.dtype.numpy)


def assert_close(found: list[np.ndarray], expected: list[np.ndarray], tolerance: float = 2e-4) -> None:
    """Equal types, shapes, and elements up to rounding."""
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got, want)
