"""Products with deep sums and few results are cut along the sum: right, and with the same bits on any number of threads."""

import numpy as np
import pytest

import tenon as tn
from tenon.program.steps import KernelStep, leaves

CASES = [(16, 8192, 16), (64, 4096, 9), (3, 49999, 7), (10, 1 << 15, 33), (5, 128 * 640 + 3, 12)]     # rows, depth, columns
LAYOUTS = {"plain": lambda x, w: x @ w, "rows along": lambda x, w: x.T @ w, "columns along": lambda x, w: x @ w.T}


def factors(case, layout, dtype):
    rows, depth, columns = case
    random = np.random.default_rng(0)
    shapes = {"plain": [(rows, depth), (depth, columns)], "rows along": [(depth, rows), (depth, columns)],
              "columns along": [(rows, depth), (columns, depth)]}[layout]
    if np.dtype(dtype).kind == "i":
        return [random.integers(-9, 9, shape).astype(dtype) for shape in shapes]
    return [random.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


def kernels(function, *arrays):
    program = function.capture(*map(tn.asarray, arrays)).program
    return [step.unit.loops for step in leaves(program.parts.steps) if isinstance(step, KernelStep)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_add_up(case, layout):
    x, w = factors(case, layout, np.float32)
    function = tn.jit(lambda x, w: tn.relu(LAYOUTS[layout](x, w) - 1.5))
    assert any("part" in text for text in kernels(function, x, w))
    want = np.maximum(LAYOUTS[layout](x.astype(np.float64), w.astype(np.float64)) - 1.5, 0)
    np.testing.assert_allclose(np.asarray(function(tn.asarray(x), tn.asarray(w))), want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_other_types(dtype):
    x, w = factors(CASES[2], "plain", dtype)
    found = np.asarray(tn.jit(lambda x, w: x @ w)(tn.asarray(x), tn.asarray(w)))
    if np.dtype(dtype).kind == "i":
        np.testing.assert_array_equal(found, x @ w)
    else:
        np.testing.assert_allclose(found, x @ w, rtol=1e-12, atol=1e-9)


def test_several_indices_of_the_depth_and_two_products_in_one_function():
    random = np.random.default_rng(0)
    x, w = (random.uniform(-1, 1, (5, 4000, 8, n)).astype(np.float32) for n in (6, 9))
    function = tn.jit(lambda x, w: (tn.einsum("abci,abcj->ij", x, w), tn.einsum("abci,abcj->ji", w, w)))
    first, second = map(np.asarray, function(tn.asarray(x), tn.asarray(w)))
    np.testing.assert_allclose(first, np.einsum("abci,abcj->ij", x.astype(float), w.astype(float)), atol=2e-3)
    np.testing.assert_allclose(second, np.einsum("abci,abcj->ji", w.astype(float), w.astype(float)), rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("case", [(16, 8192, 16), (3, 49999, 7)], ids=str)
def test_the_same_bits_with_any_number_of_threads(case):
    x, w = map(tn.asarray, factors(case, "rows along", np.float32))
    before, found = tn.get_num_threads(), []
    for threads in (1, 2, 3, 7):
        tn.set_num_threads(threads)
        try:
            found.append(np.asarray(tn.jit(lambda x, w: x.T @ w)(x, w)))
        finally:
            tn.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("case", [(64, 2048, 64), (8, 4096, 8), (300, 4096, 20)], ids=str)
def test_what_would_gain_nothing_is_one_product(case):
    assert not any("part" in text for text in kernels(tn.jit(lambda x, w: x @ w), *factors(case, "plain", np.float32)))


def test_a_weight_gradient_of_many_rows():
    random = np.random.default_rng(0)
    x, w = random.uniform(-1, 1, (20000, 12)).astype(np.float32), random.uniform(-1, 1, (12, 5)).astype(np.float32)

    def loss(w, x):
        return tn.sum(tn.tanh(x @ w))

    wide = x.astype(np.float64)
    want = wide.T @ (1 - np.tanh(wide @ w) ** 2)
    np.testing.assert_allclose(np.asarray(tn.jit(tn.grad(loss))(tn.asarray(w), tn.asarray(x))), want, rtol=1e-4,
                               atol=1e-2)


CONVOLUTIONS = [(64, 1, 14, 16, 3), (96, 3, 12, 32, 3), (48, 16, 14, 32, 3), (40, 2, 12, 24, 5)]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_the_gradient_of_a_small_kernel_is_added_up_image_by_image(case):
    images, channels, side, filters, taps = case
    random = np.random.default_rng(0)
    x, g, w = (random.uniform(-1, 1, shape).astype(np.float32) for shape in (
        (images, channels, side, side), (images, filters, side, side), (filters, channels, taps, taps)))
    around = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (taps // 2,) * 2, (taps // 2,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(around, (taps, taps), (2, 3))
    want = np.einsum("ncyxab,nfyx->fcab", windows, g.astype(np.float64))
    function = tn.jit(tn.grad(lambda w, x, g: tn.sum(tn.conv(x, w, padding=taps // 2) * g)))
    arrays = [tn.asarray(a) for a in (w, x, g)]
    assert any("part" in text for text in kernels(function, w, x, g))
    before = tn.get_num_threads()
    for threads in (1, 2, 5):
        tn.set_num_threads(threads)
        try:
            found = np.asarray(function(*arrays))
        finally:
            tn.set_num_threads(before)
        if threads == 1:
            first = found
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=2e-2)
        np.testing.assert_array_equal(found, first)
