"""Kernels with many results fetch the lines that they will write, and compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenon as tn
from backends.kernel_text import ir_of
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.backends.cpu.write_prefetch import MIN_STREAMS
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host

NAMES = "exp", "sin", "square", "tanh", "negative", "cos"
WRITES = ", i32 1, i32 3, i32 1)"       # of llvm.prefetch: to write, to the first cache, data


def body(count: int, rows: int, width: int, dtype: str = "f32") -> Graph:
    """So many functions of the left half of a matrix."""
    lines = [f"    v{k + 1}: {dtype}[{rows}, {width}] = {name}(v0)" for k, name in enumerate(NAMES[:count])]
    return parse_graph("\n".join((
        f"def f(x: {dtype}[{rows}, {2 * width}]):",
        f"    v0: {dtype}[{rows}, {width}] = slice(x, start=(0, 0), stop=({rows}, {width}), step=(1, 1))", *lines,
        "    return " + ", ".join(f"v{k + 1}" for k in range(count)), "")))


def fetches(graph: Graph) -> int:
    return ir_of(kernel_of(graph, "f"), host()).count(WRITES)


def test_what_many_streams_write_is_fetched() -> None:
    assert fetches(body(6, 40, 256)) == 6
    assert fetches(body(MIN_STREAMS, 40, 256, "f64")) == MIN_STREAMS
    assert fetches(body(MIN_STREAMS - 1, 40, 256)) == 0          # processors do that
    assert fetches(body(6, 4, 16)) == 0                     # all of it is in the first cache
    assert fetches(body(6, 40, 250)) == 0                   # rows are not whole lines


def halves(x: Any, y: Any) -> Any:
    """In rows."""
    a, b = x[:, :y.shape[1]], x[:, y.shape[1]:]
    return tn.exp(a), a * b, a + y, b - y, tn.concat([a, b + y, y * y], axis=1)


def whole(x: Any, y: Any) -> Any:
    """In one run of memory."""
    z = x.sum()
    return tn.exp(x), x * x, x + 1, x - 2, tn.sin(x) * 2, z + y


@pytest.mark.parametrize("function", [halves, whole])
@pytest.mark.parametrize("shape", [(64, 16), (64, 48), (33, 256), (1, 8192), (300, 1), (40, 250), (0, 16)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_with_many_results(function: Callable[..., Any], shape: tuple[int, int], dtype: Any,
                                   threads: None) -> None:
    random = np.random.default_rng(0)
    x, y = (tn.asarray(random.normal(size=s).astype(dtype)) for s in ((shape[0], 2 * shape[1]), shape))
    for got, wanted in zip(tn.jit(function)(x, y), function(x, y), strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
