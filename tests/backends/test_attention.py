"""The native schedules of attention and its gradient against their definition, run by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenon as tn
from tenon.backends.cpu.compile_graph import assemble_graph
from tenon.graph.build import trace
from tenon.graph.ir import Graph
from tenon.llvm.host_target import host
from tenon.ops.attention import attention, attention_gradient
from tenon.pipeline import compile, optimize
from tenon.program.steps import KernelStep
from tenon.runtime.thread_pool import get_num_threads, set_num_threads
from tenon.types import DType, TensorType, as_dtype, bfloat16, float16, float32, float64

MASKED = {"infinite": -np.inf, "large": -1e9}
TOLERANCE = {"f16": 1e-2, "bf16": 6e-2, "f32": 2e-5, "f64": 1e-12}


def masks(kind: str, rows: int, columns: int, dtype: DType, rng: np.random.Generator) -> list[np.ndarray]:
    some = rng.random((rows, columns)) < 0.5
    if kind in ("none", "some pairs"):
        return [some] if kind == "some pairs" else []
    if kind == "some rows":
        return [np.repeat(some[:, :1], columns, 1)]
    added = rng.normal(size=(2, 1, rows, columns)) if kind == "added" else np.where(some, 0, MASKED[kind])
    return [added.astype(dtype.numpy)]


def graph_of(op: Any, arrays: list[np.ndarray], causal: bool, masked: float | None = None) -> Graph:
    types = [TensorType(as_dtype(x.dtype), x.shape) for x in arrays]
    return trace(lambda *xs: op(*xs, is_causal=causal, scale=0.3, masked=masked), *types)


def check(sizes: tuple[int, int, int, int], causal: bool, mask: str, dtype: DType = float32,
          masked: float | None = None) -> None:
    """Attention and its gradient for (rows, columns, depth, width) are what their definitions say."""
    rng = np.random.default_rng(0)
    rows, columns, depth, width = sizes
    shapes = (2, 2, rows, depth), (2, 2, columns, depth), (2, 2, columns, width), (2, 2, rows, width)
    q, k, v, g = (rng.normal(size=shape).astype(dtype.numpy) for shape in shapes)
    arrays = [q, k, v, *masks(mask, rows, columns, dtype, rng)]
    out, total, _ = same(graph_of(attention, arrays, causal, masked), arrays, TOLERANCE[dtype.short])
    along = (g.astype(total.dtype) * out.astype(total.dtype)).sum(-1)
    arrays = [g, along, total, *arrays]
    same(graph_of(attention_gradient, arrays, causal, masked), arrays, 10 * TOLERANCE[dtype.short])


def same(graph: Graph, arrays: list[np.ndarray], tolerance: float) -> list[np.ndarray]:
    expected = compile(graph, "reference").run(arrays)
    for x, y in zip(compile(graph, "cpu").run(arrays), expected, strict=True):
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=tolerance, atol=tolerance)
    return expected


@pytest.mark.parametrize("mask", ["none", "some pairs", "added", "some rows", "infinite", "large"])
@pytest.mark.parametrize("causal", [False, True])
def test_masks(causal: bool, mask: str) -> None:
    check((70, 300, 17, 40), causal, mask)


@pytest.mark.parametrize("masked", [-np.inf, -1e9, -3.0])
@pytest.mark.parametrize("mask", ["none", "some pairs", "added", "some rows", "infinite"])
@pytest.mark.parametrize("causal", [False, True])
def test_masked_pairs_may_have_a_score(causal: bool, mask: str, masked: float) -> None:
    check((70, 300, 17, 40), causal, mask, masked=masked)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 5, 4, 6), (300, 17, 13, 70), (9, 600, 64, 64), (257, 131, 8, 96)])
def test_sizes(sizes: tuple[int, int, int, int]) -> None:
    check(sizes, True, "none")


@pytest.mark.parametrize("masked", [None, -np.inf, -1e9, -3.0, -50.0])
@pytest.mark.parametrize("kind", ["none", "length", "window", "some rows", "added", "far below"])
def test_few_queries(kind: str, masked: float | None) -> None:
    """What a mask leaves out before and behind is not gone through, unless its score might matter."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, 3, n, 20)).astype(np.float32) for n in (3, 131, 131))
    place = np.arange(131)
    mask = {"none": [], "length": [place < rng.integers(0, 132, (2, 1, 1, 1))], "far below": [place < 40],
            "window": [(place >= 40 - np.arange(3)[:, None]) & (place < 70)]}.get(kind)
    if kind == "far below":
        q, k = -30 * abs(q), 1 + abs(k)         # scores for which -1e9 is no less than -50 is
    arrays = [q, k, v, *(masks(kind, 3, 131, float32, rng) if mask is None else mask)]
    graph = graph_of(attention, arrays, False, masked)
    assert any(node.op is attention for node in optimize(graph, backend="cpu").nodes)
    same(graph, arrays, 2e-5)


@pytest.mark.parametrize("dtype", [float64, bfloat16, float16])
def test_few_queries_of_other_types(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(5, n, 33)).astype(dtype.numpy) for n in (1, 200, 200)]
    same(graph_of(attention, arrays, False), arrays, TOLERANCE[dtype.short])


def test_a_cache_is_read_as_far_as_it_is_filled() -> None:
    """Behind, there may be anything: 0 times nan would be nan."""
    keys, filled = np.full((4, 1000, 16), np.nan, np.float32), 300
    keys[:, :filled] = np.random.default_rng(0).normal(size=(4, filled, 16))

    def attend(q: Any, k: Any, length: Any) -> Any:
        seen = tn.arange(1000) < length + tn.arange(q.shape[-2])[:, None]
        return tn.scaled_dot_product_attention(q, k, k, seen)
    for rows in (1, 40):
        q = np.random.default_rng(1).normal(size=(4, rows, 16)).astype(np.float32)
        out = tn.jit(attend)(tn.tensor(q), tn.tensor(keys), tn.tensor(filled + 1 - rows))
        expected = attend(tn.tensor(q), tn.tensor(np.nan_to_num(keys)), tn.tensor(filled + 1 - rows))
        np.testing.assert_allclose(out.numpy(), expected.numpy(), 2e-5, 2e-5)


def test_scores_of_few_pairs_are_stored() -> None:
    """Products of small matrices are soon done; of one long head, all threads do a part."""
    for heads, rows, columns, whole in ((4, 16, 16, False), (1, 1, 4096, False), (4, 1, 4096, True),
                                        (4, 128, 128, True)):
        types = [TensorType(float32, (heads, n, 16)) for n in (rows, columns, columns)]
        graph = optimize(trace(lambda *xs: attention(*xs, is_causal=False, scale=1.0)[0], *types), backend="cpu")
        assert any(node.op is attention for node in graph.nodes) is whole


@pytest.mark.parametrize("dtype", [float64, bfloat16, float16])
def test_element_types(dtype: DType) -> None:
    check((70, 70, 16, 20), True, "added", dtype)


def test_no_queries_and_no_keys() -> None:
    x, none = tn.ones(2, 3, 4), tn.ones(2, 0, 4)
    attend = tn.jit(lambda q, k: tn.scaled_dot_product_attention(q, k, k))
    assert attend(none, x).shape == (2, 0, 4)
    np.testing.assert_array_equal(attend(x, none).numpy(), np.zeros((2, 3, 4), np.float32))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    q, k, v = (tn.tensor(np.random.default_rng(n).normal(size=(5, 300, 20)).astype(np.float32)) for n in range(3))

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (tn.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()
    found, before = [], get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            step = tn.jit(lambda q, k, v: tn.grad(loss, argnums=(0, 1, 2))(q, k, v))
            found.append([x.numpy() for x in step(q, k, v)])
    finally:
        set_num_threads(before)
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


def test_heads_are_read_where_they_are() -> None:
    """No kernel copies queries, keys or values out of the product that they are parts of."""
    def attend(qkv: Any) -> Any:
        parts = qkv.reshape(2, 80, 3, 4, 16)
        q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        return tn.scaled_dot_product_attention(q, k, v, is_causal=True)
    graph = optimize(trace(attend, TensorType(float32, (2, 80, 192))), backend="cpu")
    steps = assemble_graph(graph, host()).steps
    assert len(steps) == 1 and isinstance(steps[0], KernelStep)


def test_heads_are_written_side_by_side_where_they_are_read_so() -> None:
    def attend(q: Any, w: Any) -> Any:
        out = tn.scaled_dot_product_attention(q, q, q)
        return out.swapaxes(1, 2).reshape(2, 150, 64) @ w, out * 2
    q, w = (np.random.default_rng(n).normal(size=s).astype(np.float32) for n, s in enumerate([(2, 4, 150, 16), (64, 8)]))
    graph = trace(attend, TensorType(float32, q.shape), TensorType(float32, w.shape))
    chosen = optimize(graph, backend="cpu")
    assert [node.attrs["heads_last"] for node in chosen.nodes if node.op is attention] == [True]
    same(graph, [q, w], 1e-4)


def test_any_length() -> None:
    """One program for all lengths."""
    attend = tn.jit(lambda q, k: tn.scaled_dot_product_attention(q, k, k, is_causal=True))
    for length in (40, 41, 300):
        q, k = (np.random.default_rng(n).normal(size=(2, length, 20)).astype(np.float32) for n in range(2))
        expected = tn.scaled_dot_product_attention(tn.tensor(q), tn.tensor(k), tn.tensor(k), is_causal=True)
        np.testing.assert_allclose(attend(tn.tensor(q), tn.tensor(k)).numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
