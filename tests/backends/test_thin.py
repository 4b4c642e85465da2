"""Rows that lie along depth times few columns: every layout, edge, machine and number of threads against NumPy."""
import numpy as np
import pytest

import tenon as tn
from benchmarks.example_specs import F32, F64, matmul
from benchmarks.run_spec import Native
from tenon.backends.cpu.contraction.ir_helpers import I64
from tenon.backends.cpu.contraction.select_schedule import packed_size, tile_of
from tenon.backends.cpu.contraction.skinny_gemm import thin_tile
from tenon.records import replace
from tenon.target import Target

WIDE, NARROW = Target(64, 32, 1 << 20), Target(32, 16, 1 << 20)
SIZES = [(4, 2, 33), (5, 3, 48), (29, 5, 250), (31, 8, 129), (64, 17, 301), (100, 7, 64), (523, 2, 600), (40, 20, 1000)]
GUARD = 64


def guarded(kind: type, *shape: int) -> np.ndarray:
    """An array with not-a-number on both sides of it."""
    whole = np.full(np.prod(shape) + 2 * GUARD, np.nan, kind)
    return whole[GUARD:-GUARD].reshape(shape)


def check(machine: Target, sizes: tuple[int, int, int], right: str, element: object = F32, bias_relu: bool = False,
          batch: int = 1) -> None:
    m, n, k = sizes
    kind = np.float32 if element is F32 else np.float64
    spec = matmul(element, "mk", right, bias_relu, known=sizes)
    tile = thin_tile(spec, machine)
    assert tile and tile.schedule == "runs"
    call, random = Native(spec, tile), np.random.default_rng(m)
    b_shape = (k, n) if right == "kn" else (n, k)
    a, b, bias = guarded(kind, batch, m, k), guarded(kind, batch, *b_shape), guarded(kind, n)
    for x in (a, b, bias):
        x[:] = random.standard_normal(x.shape)
    results = []
    for threads in (1, 3):
        out = guarded(kind, batch, m, n)
        for thread in range(threads):
            call(out, a, b, batch, m, n, k, *([bias] if bias_relu else []), thread=thread, threads=threads)
        assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()
        results.append(out)
    expected = a @ (b if right == "kn" else b.swapaxes(1, 2))
    expected = np.maximum(expected + bias, 0) if bias_relu else expected
    np.testing.assert_allclose(results[0], expected, rtol=1e-4 if kind is np.float32 else 1e-12, atol=1e-4)
    assert np.array_equal(*results)


@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("sizes", SIZES)
def test_few_columns_of_both_layouts(sizes: tuple[int, int, int], right: str) -> None:
    check(WIDE, sizes, right)


@pytest.mark.parametrize("sizes", [(29, 5, 250), (523, 2, 600)])
def test_another_machine_another_type_an_epilogue_and_a_batch(sizes: tuple[int, int, int]) -> None:
    check(NARROW, sizes, "nk", bias_relu=True, batch=3)
    check(NARROW, sizes, "nk", F64)
    check(WIDE, sizes, "nk", F64, bias_relu=True)


def test_an_element_has_the_same_bits_in_whichever_tile_its_row_is() -> None:
    m, n, k = 61, 5, 333
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    products = []
    for first in range(8):
        rows = np.ascontiguousarray(a[first:])
        out = np.empty((len(rows), n), np.float32)
        spec = matmul(F32, known=(len(rows), n, k))
        Native(spec, thin_tile(spec, WIDE))(out, rows, b, 1, len(rows), n, k)
        products.append(out[8 - first:])
    assert all(np.array_equal(x, products[0]) for x in products)


def test_what_is_not_a_number_stays_in_its_row_and_column() -> None:
    m, n, k = 40, 3, 70
    a, b, out = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.empty((m, n), np.float32)
    a[7, 69], b[69, 1], a[9, 0] = np.nan, np.inf, np.inf
    Native(spec := matmul(F32, known=(m, n, k)), thin_tile(spec, WIDE))(out, a, b, 1, m, n, k)
    np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("sizes, right, is_thin", [
    ((1000, 2, 1000), "kn", True), ((1000, 16, 1000), "kn", True), ((1000, 33, 1000), "kn", True),
    ((1000, 48, 1000), "kn", False), ((1000, 8, 8), "kn", False), ((3, 8, 1000), "kn", False),
    ((16, 16, 1000), "kn", False), ((16, 16, 1000), "nk", True), ((1000, 1, 1000), "kn", False)])
def test_it_is_for_columns_that_leave_most_lanes_empty(sizes: tuple[int, int, int], right: str, is_thin: bool) -> None:
    spec = matmul(F32, "mk", right, known=sizes)
    assert bool(thin_tile(spec, WIDE)) is is_thin
    assert not thin_tile(matmul(F32, "km", right, known=sizes), WIDE)
    assert not thin_tile(matmul(I64, "mk", right, known=sizes), WIDE)
    assert not thin_tile(replace(spec, packed=7), WIDE)
    assert not thin_tile(replace(spec, known=(None, *sizes[1:])), WIDE)
    if is_thin:
        assert (tile_of(spec).schedule == "runs") == bool(thin_tile(spec))
        assert not thin_tile(spec) or packed_size(replace(spec, batch=())) is None


def test_compiled_products_with_epilogues_agree_with_numpy() -> None:
    random = np.random.default_rng(0)
    x, w, c = (random.standard_normal(shape).astype(np.float32) for shape in ((150, 400), (400, 6), (6,)))
    plain = tn.jit(lambda x, w: x @ w)(tn.asarray(x), tn.asarray(w))
    np.testing.assert_allclose(plain.numpy(), x @ w, rtol=1e-4, atol=1e-4)
    more = tn.jit(lambda x, w, c: tn.relu((x * 2) @ w + c).T * 3)(tn.asarray(x), tn.asarray(w), tn.asarray(c))
    np.testing.assert_allclose(more.numpy(), np.maximum(2 * x @ w + c, 0).T * 3, rtol=1e-4, atol=1e-3)
    batched = tn.jit(lambda x, y: x @ y)(tn.asarray(x.reshape(6, 25, 400)), tn.asarray(w.T.copy()).mT)
    np.testing.assert_allclose(batched.numpy(), x.reshape(6, 25, 400) @ w, rtol=1e-4, atol=1e-4)
