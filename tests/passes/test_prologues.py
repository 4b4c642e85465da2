"""Products with one row take in what their factors are made of, where storing it would take longer."""

import numpy as np
import pytest

import tenon as tn
from tenon.graph.ir import Graph
from tenon.graph.text import parse_graph
from tenon.graph.verify import verify
from tenon.passes.fuse import fuse
from tenon.runtime.thread_pool import get_num_threads, set_num_threads


def parsed(*rows: str) -> Graph:
    return parse_graph("\n    ".join(rows))


def operators(graph: Graph) -> list[str]:
    """Of every node its operators: `matmul`, or `multiply+matmul` when they are fused."""
    return ["+".join(n.op.name for n in node.graphs[0].nodes) if node.graphs else node.op.name for node in graph.nodes]


def fused(*rows: str) -> list[str]:
    return operators(verify(fuse(parsed(*rows))))


def scaled(rows: int, depth: int, columns: int, op: str = "multiply(w, s)", more: str = "") -> list[str]:
    size = f"[{depth}, {columns}]"
    return [f"def f(x: f32[{rows}, {depth}], w: f32{size}, s: f32{size}):", f"v0: f32{size} = {op}",
            f"v1: f32[{rows}, {columns}] = matmul(x, v0)", f"return v1{more}"]


def test_a_factor_that_meets_one_row_is_computed_as_it_is_read() -> None:
    assert fused(*scaled(1, 256, 256)) == ["multiply+matmul"]
    assert fused(*scaled(1, 1024, 1024)) == ["multiply+matmul"]


@pytest.mark.parametrize("why, rows", [
    ("it meets two rows", scaled(2, 2048, 2048)),
    ("others read it", scaled(1, 256, 256, more=", v0")),
    ("it is expensive", scaled(1, 256, 256, op="power(w, s)")),
    ("it is short", scaled(1, 32, 32)),
])
def test_other_factors_are_stored(why: str, rows: list[str]) -> None:
    assert len(fused(*rows)) == 2, why


def test_a_left_factor_that_meets_one_column_is_too() -> None:
    found = fused("def f(x: f32[4096, 64], w: f32[64, 1]):", "v0: f32[4096, 64] = maximum(x, 0.0)",
                  "v1: f32[4096, 1] = matmul(v0, w)", "v2: f32[4096, 1] = add(v1, 1.0)", "return v2")
    assert found == ["maximum+matmul+add"]


def test_what_an_epilogue_reads_too_is_stored() -> None:
    size = "[256, 256]"
    found = fused(f"def f(x: f32{size}, w: f32[256, 1], u: f32[1, 256]):", f"v0: f32{size} = multiply(x, 0.5)",
                  "v1: f32[256, 1] = matmul(v0, w)", f"v2: f32{size} = matmul(v1, u)", f"v3: f32{size} = add(v2, v0)",
                  "return v3")
    assert "multiply+matmul" not in found


def test_a_product_that_takes_something_in_is_not_told_of_before() -> None:
    rows = scaled(1, 256, 256, more=", v2")
    rows.insert(-1, "v2: f32[1] = sum(v1, axis=(1,), keepdims=False)")
    told: list[Graph] = []
    made = fuse(parsed(*rows), begin=told.append)
    assert not told[0].nodes and "multiply+matmul" in operators(told[1]) and "multiply+matmul" in operators(made)


def dequantised(x: tn.Tensor, q: tn.Tensor, s: tn.Tensor) -> tn.Tensor:
    return x @ (q.astype(tn.float32).reshape(-1, 64, q.shape[1]) * s).reshape(*q.shape)


def dequantised_rows(x: tn.Tensor, q: tn.Tensor, s: tn.Tensor) -> tn.Tensor:
    return x @ ((q.astype(tn.float32) - 3.0) * s).T


def masked(x: tn.Tensor, m: tn.Tensor, w: tn.Tensor) -> tn.Tensor:
    return tn.relu(tn.where(m, x, 0.0) * 2.0 - 0.5) @ w


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("f", [dequantised, dequantised_rows, masked])
def test_products_with_prologues_are_right_on_any_number_of_threads(f, rows: int) -> None:
    random = np.random.default_rng(0)
    x, q = random.normal(size=(rows, 1024)).astype("f4"), random.integers(-99, 99, (1024, 1111)).astype("i1")
    arrays = {dequantised: (x, q, random.normal(size=(16, 1, 1111)).astype("f4")),
              dequantised_rows: (x, q.T.copy(), random.normal(size=(1111, 1)).astype("f4")),
              masked: (q[:, :1024].astype("f4"), q[:, :1024] > 0, x.T.copy())}[f]
    given, found = [tn.asarray(a) for a in arrays], []
    before = get_num_threads()
    try:
        for threads in (1, 2):
            set_num_threads(threads)
            found.append(tn.jit(f)(*given).numpy())
    finally:
        set_num_threads(before)
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], f(*given).numpy(), rtol=1e-4, atol=1e-2)
