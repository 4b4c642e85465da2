"""Small products that are not cut into blocks: every layout, edge, machine and number of threads against NumPy."""
from itertools import product
from typing import Any

import numpy as np
import pytest

import tenon as tn
from benchmarks.example_specs import F32, F64, matmul
from benchmarks.run_spec import Native
from tenon.backends.cpu.contraction import choose_tile, emit_contraction
from tenon.backends.cpu.contraction.gemm_spec import blocks_tile, loops_rows_inside
from tenon.backends.cpu.contraction.ir_helpers import element_bytes
from tenon.backends.cpu.contraction.small_gemm import direct_tile
from tenon.llvm.host_target import host
from tenon.llvm.target_module import TargetModule
from tenon.records import replace
from tenon.target import Target

LAYOUTS = list(product(("mk", "km"), ("kn", "nk")))
WIDE, NARROW = Target(64, 32, 2 << 20, 48 << 10), Target(32, 16, 2 << 20)
SIZES = [(4, 4, 4), (5, 7, 9), (16, 16, 16), (31, 33, 17), (64, 64, 64), (97, 80, 95), (13, 100, 5), (130, 64, 120),
         (6, 120, 128)]
GUARD = 64


def guarded(kind: type, *shape: int) -> np.ndarray:
    """An array with not-a-number on both sides of it."""
    whole = np.full(np.prod(shape) + 2 * GUARD, np.nan, kind)
    return whole[GUARD:-GUARD].reshape(shape)


def check(machine: Target, sizes: tuple[int, int, int], left: str = "mk", right: str = "kn", element: object = F32,
          bias_relu: bool = False, batch: int = 1) -> None:
    m, n, k = sizes
    kind = np.float32 if element is F32 else np.float64
    spec = matmul(element, left, right, bias_relu, known=sizes)
    tile = direct_tile(spec, machine)
    assert tile
    call, random = Native(spec, tile), np.random.default_rng(m)
    a, b, bias = guarded(kind, batch, m, k), guarded(kind, batch, k, n), guarded(kind, n)
    stored = [x if plain else guarded(kind, batch, *x.shape[:0:-1])
              for x, plain in ((a, left == "mk"), (b, right == "kn"))]
    for x, copy in zip((a, b), stored, strict=True):
        x[:] = random.standard_normal(x.shape)
        copy[:] = x if copy is x else x.swapaxes(1, 2)
    bias[:] = random.standard_normal(n)
    results = []
    for threads in (1, 3):
        out = guarded(kind, batch, m, n)
        for thread in range(threads):
            call(out, *stored, batch, m, n, k, *([bias] if bias_relu else []), thread=thread, threads=threads)
        assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()
        results.append(out)
    expected = np.maximum(a @ b + bias, 0) if bias_relu else a @ b
    np.testing.assert_allclose(results[0], expected, rtol=1e-4 if kind is np.float32 else 1e-12, atol=1e-4)
    assert np.array_equal(*results)


@pytest.mark.parametrize("left, right", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES)
def test_small_products_of_every_layout(sizes: tuple[int, int, int], left: str, right: str) -> None:
    check(WIDE, sizes, left, right)


@pytest.mark.parametrize("sizes", SIZES[1::2])
def test_another_machine_another_type_an_epilogue_and_a_batch(sizes: tuple[int, int, int]) -> None:
    check(NARROW, sizes, bias_relu=True, batch=3)
    check(NARROW, sizes, "km", "nk", element=F64)
    check(WIDE, sizes, element=F64, bias_relu=True)


def test_lines_that_crowd_in_the_first_cache_are_packed() -> None:
    assert direct_tile(matmul(F32, known=(512, 64, 256)), WIDE).schedule == "panels"
    assert direct_tile(matmul(F32, known=(64, 256, 256)), WIDE).schedule == "lines"
    assert direct_tile(matmul(F32, known=(250, 250, 250)), WIDE).schedule == "lines"
    assert direct_tile(matmul(F32, right="nk", known=(50, 50, 50)), WIDE).schedule == "panels"


def test_a_tile_has_no_more_rows_than_the_first_cache_has_places_for() -> None:
    assert direct_tile(matmul(F32, known=(1024, 16, 1000)), WIDE).rows > 12
    for element, depth in (F32, 1024), (F64, 512):
        tile = direct_tile(matmul(element, known=(1024, 16, depth)), WIDE)
        assert tile.rows + tile.vectors <= 12
    assert direct_tile(matmul(F32, "km", known=(1024, 16, 1024)), WIDE).rows > 12


@pytest.mark.parametrize("left, right", LAYOUTS)
def test_a_product_of_a_batch_fetches_the_factors_of_the_next_one(left: str, right: str) -> None:
    """Past the last one nothing is read: what is behind it are numbers that are none."""
    for element, sizes in (F32, (20, 100, 64)), (F64, (9, 20, 33)):
        spec = matmul(element, left, right, known=sizes)
        for batch in (spec.batch, ()):
            module = TargetModule(host())
            emit_contraction(module, "product", replace(spec, batch=batch), direct_tile(spec, WIDE))
            assert ("llvm.prefetch" in str(module)) == bool(batch)
        check(WIDE, sizes, left, right, element, batch=3)


def test_large_products_and_unknown_sizes_are_cut_into_blocks() -> None:
    assert not direct_tile(matmul(F32, known=(64, 1024, 1024)), WIDE)
    assert not direct_tile(matmul(F32, known=(256, 256, 256)), WIDE)
    assert not direct_tile(matmul(F32), WIDE)
    assert choose_tile(F32, WIDE).schedule == "blocks"


def test_what_an_epilogue_reads_beside_the_sums_has_to_stay_in_the_second_cache() -> None:
    """Every tile of columns goes through all rows of it."""
    def tile(rows: int) -> object:
        spec = matmul(F32, known=(rows, 528, 10))
        return direct_tile(replace(spec, near=(spec.stored_at,) * 3), WIDE)
    most = WIDE.l2_bytes // (4 * 528 * 4)
    assert tile(most).schedule == "lines"
    assert not tile(most + 1)


FEW_SUMS = [(3, 3, 5000), (4, 4, 33), (2, 16, 1000), (1, 2, 32), (8, 3, 257)]


@pytest.mark.parametrize("sizes", FEW_SUMS)
def test_few_sums_of_a_long_depth_read_both_factors_once_however_large_they_are(sizes: tuple[int, int, int]) -> None:
    for machine, element in (WIDE, F32), (NARROW, F32), (WIDE, F64):
        if direct_tile(matmul(element, "km", known=sizes), machine):
            check(machine, sizes, "km", element=element)
    check(WIDE, sizes, "km", bias_relu=True, batch=3)
    check(WIDE, (12, 12, 7000), "km", element=F64)


def test_a_factor_beyond_the_second_cache_is_read_where_it_lies_if_one_tile_has_all_sums() -> None:
    assert direct_tile(matmul(F64, "km", known=(12, 12, 1 << 17)), WIDE).schedule == "lines"
    assert not direct_tile(matmul(F64, "km", known=(12, 12, (1 << 17) + 1)), WIDE)     # too many for one sum
    assert not direct_tile(matmul(F64, "km", known=(16, 16, 1 << 17)), WIDE)        # 16 rows of two vectors
    assert not direct_tile(matmul(F64, "km", known=(3, 3, 20)), WIDE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, columns", [(2, 2), (3, 3), (4, 4), (1, 3), (3, 7), (16, 5), (4, 17)])
def test_points_times_points(rows: int, columns: int, dtype: str) -> None:
    """Lines of a few columns stand side by side along the depth, and are lines all the same."""
    random = np.random.default_rng(0)
    x, y = (random.standard_normal((2, 1037, n)).astype(dtype) for n in (rows, columns))
    product = tn.jit(lambda x, y: tn.swapaxes(x, -1, -2) @ y)
    for a, b in ((x, y), (x[0], y[0])):
        found = product(tn.asarray(a), tn.asarray(b)).numpy()
        np.testing.assert_allclose(found, np.swapaxes(a, -1, -2) @ b, rtol=1e-3 if dtype == "float32" else 1e-10,
                                   atol=1e-4 if dtype == "float32" else 1e-10)


def starting_at(x: np.ndarray, start: int) -> np.ndarray:
    """A copy that begins so many elements after a line of the cache, between numbers that are none."""
    whole = np.full(x.size + 3 * GUARD, np.nan, x.dtype)
    first = -whole.ctypes.data % 64 // x.itemsize + GUARD + start
    found = whole[first:first + x.size].reshape(x.shape)
    found[:] = x
    return found


@pytest.mark.parametrize("machine, element", [(WIDE, F32), (NARROW, F32), (WIDE, F64)])
@pytest.mark.parametrize("sizes", [(1, 128, 128), (1, 32, 33), (2, 16, 7), (3, 96, 20), (1, 250, 60), (1, 7, 5)])
def test_few_rows_read_lines_wherever_memory_begins(machine: Target, element: object, sizes: tuple) -> None:
    m, n, k = sizes
    spec = matmul(element, known=sizes)
    tile, random = direct_tile(spec, machine), np.random.default_rng(0)
    assert tile.schedule == "lines"
    call, kind = Native(spec, tile), np.float32 if element is F32 else np.float64
    a, b = random.standard_normal((2, m, k)).astype(kind), random.standard_normal((2, k, n)).astype(kind)
    found = []
    for start in range(16):
        out = guarded(kind, 2, m, n)
        call(out, starting_at(a, start), starting_at(b, start), 2, m, n, k)
        assert np.isnan(out.base[:GUARD]).all() and np.isnan(out.base[-GUARD:]).all()
        found.append(out.copy())
    np.testing.assert_allclose(found[0], a @ b, rtol=1e-4, atol=1e-4)
    assert all(np.array_equal(out, found[0]) for out in found)


@pytest.mark.parametrize("rows, columns", [(1, 64), (2, 48), (3, 144)])
def test_few_rows_with_an_epilogue_read_lines_wherever_memory_begins(rows: int, columns: int) -> None:
    random = np.random.default_rng(0)
    x, w, z = (random.standard_normal(size).astype(np.float32) for size in ((rows, 80), (80, columns), (rows, columns)))
    step = tn.jit(lambda x, w, z: tn.relu(x @ w) - z)
    found = [step(tn.asarray(x), tn.asarray(starting_at(w, start)), tn.asarray(z)).numpy() for start in (0, 1, 4, 15)]
    np.testing.assert_allclose(found[0], np.maximum(x @ w, 0) - z, rtol=1e-4, atol=1e-4)
    assert all(np.array_equal(out, found[0]) for out in found)


@pytest.mark.parametrize("left", ["mk", "km"])
def test_a_result_beyond_the_second_cache_is_written_along_its_lines(left: str) -> None:
    large = (2000, 301, 7)
    spec = matmul(F32, left, known=large)
    assert loops_rows_inside(spec, direct_tile(spec, WIDE)) == (4 * large[0] * large[1] > host().l2_bytes)
    for sizes in (large, (1023, 612, 5)):
        check(WIDE, sizes, left)
        check(WIDE, sizes, left, element=F64, bias_relu=True)
    assert not direct_tile(matmul(F32, right="nk", known=(40_000, 500, 7)), WIDE)


@pytest.mark.parametrize("element", [F32, F64])
def test_a_tile_of_rows_meets_all_panels_only_where_these_are_small_for_the_first_cache(element: Any) -> None:
    tile = choose_tile(element, host(), known=(8000, 1500, None))
    deepest = host().l1_bytes // (2 * tile.width * element_bytes(element))
    for depth, along in ((deepest, True), (deepest + 1, False), (4 * deepest, False)):
        spec = matmul(element, known=(8000, 1500, depth))
        assert loops_rows_inside(spec, blocks_tile(spec)) is along
