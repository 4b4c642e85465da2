"""A matrix times a vector, whose rows are read where they lie, several at a time."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import ir

import tenon as tn
from benchmarks.example_specs import F32, F64, matmul
from benchmarks.run_spec import Native
from tenon.backends.cpu.contraction.unpacked_gemm import MAX_UNPACKED_ROWS, stays_unpacked
from tenon.pipeline import compile
from tenon.runtime.thread_pool import get_num_threads, set_num_threads


def agrees(product: Native, dtype: type, m: int, n: int, k: int) -> None:
    """Compare with NumPy, and by bits one thread with three."""
    rng, found = np.random.default_rng(0), []
    a, b = rng.normal(size=(2, m, k)).astype(dtype), rng.normal(size=(2, n, k)).astype(dtype)
    for threads in (1, 3):
        out = np.full((2, m, n), np.nan, dtype)
        for thread in range(threads):
            product(out, a, b, 2, m, n, k, thread=thread, threads=threads)
        found.append(out)
    np.testing.assert_allclose(found[0], a @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("m, n, k", [(1, 37, 100), (2, 16, 33), (1, 9, 5), (3, 8, 64), (37, 1, 100), (1, 5, 0)])
@pytest.mark.parametrize("element, dtype", [(F32, np.float32), (F64, np.float64)])
def test_dots(element: object, dtype: type, m: int, n: int, k: int) -> None:
    agrees(Native(matmul(element, right="nk")), dtype, m, n, k)


@pytest.mark.parametrize("m, n, k", [(2, 19, 33), (3, 21, 70), (4, 37, 130), (5, 16, 300), (7, 1, 128), (16, 9, 257), (6, 5, 0)])
@pytest.mark.parametrize("element, dtype", [(F32, np.float32), (F64, np.float64)])
def test_a_few_rows_meet_columns_together(element: object, dtype: type, m: int, n: int, k: int) -> None:
    agrees(Native(matmul(element, right="nk", known=(m, n, k))), dtype, m, n, k)


def test_which_products_are_dots() -> None:
    def unpacked(rows: int, depth: int, once: bool = False) -> bool:
        sizes = (ir.Constant(ir.IntType(64), size) for size in (rows, 1024, depth))
        spec = matmul(F32, right="nk", known=(rows, 1024, depth))
        return bool(stays_unpacked(ir.IRBuilder(), spec, *sizes, once))
    assert unpacked(16, 1024) and unpacked(MAX_UNPACKED_ROWS, 64)
    assert not unpacked(16, 64)                 # so that putting lanes together would take longer than the products
    assert not unpacked(17, 1024)
    assert not unpacked(8, 1024, once=True)


@pytest.mark.parametrize("rows, depth", [(61, 100), (400, 33)])
def test_a_matrix_times_a_vector(rows: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    w, x, bias = (rng.normal(size=size).astype(np.float32) for size in ((rows, depth), depth, rows))
    found = tn.jit(lambda w, x, bias: tn.relu(w @ x + bias))(tn.tensor(w), tn.tensor(x), tn.tensor(bias))
    np.testing.assert_allclose(found.numpy(), np.maximum(w @ x + bias, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("element, dtype", [(F32, np.float32), (F64, np.float64)])
@pytest.mark.parametrize("n, k", [(37, 64), (9, 128), (3, 16), (24, 48)])
def test_sums_have_the_same_bits_wherever_memory_begins(element: object, dtype: type, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(1, 1, k)).astype(dtype), rng.normal(size=(1, n, k)).astype(dtype)
    product, found = Native(matmul(element, right="nk", known=(1, n, k))), []
    for start in range(16):
        memory = np.full(b.size + 64, np.nan, dtype)
        first = -memory.ctypes.data % 64 // memory.itemsize + 16 + start
        memory[first:first + b.size] = b.ravel()
        out = np.full((1, 1, n), np.nan, dtype)
        product(out, a, memory[first:], 1, 1, n, k)
        found.append(out)
    np.testing.assert_allclose(found[0], a @ b.swapaxes(1, 2), rtol=1e-4, atol=1e-4)
    assert all(np.array_equal(out, found[0]) for out in found)


@pytest.mark.parametrize("rows, columns, depth", [(2, 37, 100), (4, 64, 256), (5, 9, 333), (16, 41, 400), (3, 130, 48)])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "float16", "bfloat16"])
@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_narrow_rows_are_widened_where_they_lie(rows: int, columns: int, depth: int, kind: str, wide: str) -> None:
    rng = np.random.default_rng(0)
    x = tn.tensor(rng.normal(size=(rows, depth)).astype(wide))
    w = tn.tensor(rng.integers(-100 if kind[0] != "u" else 0, 100, (columns, depth)).astype(np.float32)).astype(kind)
    product = tn.jit(lambda x, w: x @ w.astype(wide).T)
    wanted = x.numpy().astype(np.float64) @ w.astype("float64").numpy().T
    before, found = get_num_threads(), []
    for threads in (1, 2, 3):
        set_num_threads(threads)
        found.append(product(x, w).numpy())
    set_num_threads(before)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    assert all(np.array_equal(out, found[0]) for out in found)


def test_a_few_rows_times_narrow_ones_need_no_memory_to_pack_to() -> None:
    graph = tn.jit(lambda x, w: x @ w.astype("float32").T).graph(tn.zeros(4, 1024), tn.zeros(1024, 1024, dtype=tn.int8))
    made = compile(graph, backend="cpu")
    assert any(".unpacked" in unit.ir for unit in made.kernels)
    assert not any(".pack_right" in unit.ir for unit in made.kernels)


@pytest.mark.parametrize("rows, columns, depth", [(1, 400, 33), (2, 61, 100), (1, 37, 4096), (3, 70, 65)])
@pytest.mark.parametrize("left", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("right", ["float32", "bfloat16", "int8", "uint8"])
def test_a_few_rows_of_16_bits_are_widened_or_rounded_where_they_lie(rows: int, columns: int, depth: int, left: str,
                                                                    right: str) -> None:
    rng, kind = np.random.default_rng(0), "float16" if left == "float16" else "bfloat16"
    x = tn.tensor(rng.normal(size=(rows, depth)).astype(np.float32)).astype(left)
    w = tn.tensor(rng.integers(0 if right[0] == "u" else -100, 100, (columns, depth)).astype(np.float32)).astype(right)
    product = tn.jit(lambda x, w: x.astype(kind) @ w.astype("float32").astype(kind).T)
    wanted = x.astype(kind).astype("float64").numpy() @ w.astype("float64").numpy().T
    before, found = get_num_threads(), []
    for threads in (1, 2, 3):
        set_num_threads(threads)
        found.append(product(x, w).astype("float32").numpy())
    set_num_threads(before)
    np.testing.assert_allclose(found[0], wanted, rtol=2**-8, atol=1e-5 * np.abs(wanted).max())
    assert all(np.array_equal(out, found[0]) for out in found)
    made = compile(product.graph(x, w), backend="cpu")
    if kind == "bfloat16" and rows < 3:
        assert any(".unpacked" in unit.ir for unit in made.kernels)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, -3.4e38, 3e-40, 65535.0])
def test_what_is_rounded_where_it_lies_is_rounded_to_nearest_even(value: float) -> None:
    x, w = np.zeros((1, 33), np.float32), tn.ones(300, 33, dtype=tn.bfloat16)
    x[0, 17] = value
    product = tn.jit(lambda x, w: x.astype("bfloat16") @ w.T)
    found = product(tn.tensor(x), w).astype("float32").numpy()
    np.testing.assert_array_equal(found, np.full((1, 300), tn.tensor(x).astype("bfloat16").astype("float32").numpy()[0, 17]))
