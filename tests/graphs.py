"""Random graphs over the operators that exist, and arrays for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tenon.dims import symbol
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Value
from tenon.graph.op import using
from tenon.graph.verify import verify
from tenon.ops import arithmetic, comparison, exponential, trigonometric
from tenon.ops import reduction as r
from tenon.ops import shape as s
from tenon.ops.linalg import matmul_op
from tenon.types import TensorType, bool_, float32, int32

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
