"""Epilogues that read much beside the sums take a whole block of them, along its rows."""

from __future__ import annotations

import numpy as np
import pytest

import tenon as tn
from benchmarks.example_specs import F32
from tenon.backends.cpu.contraction import scratch_size
from tenon.backends.cpu.contraction.block_epilogue import L2_PER_WAITING_SUMS, apart, uses_block_epilogue, with_waiting
from tenon.backends.cpu.contraction.gemm_spec import choose_tile
from tenon.backends.cpu.contraction.microkernel_types import K_UNROLL
from tenon.backends.cpu.contraction_codegen import template_of
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.backends.cpu.product_schedules import contraction_scratch
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.target import target

SIZES = [(23, 37, 19), (64, 200, 0), (1, 515, 40), (515, 1, 40), (701, 613, 17), (31, 10007, 16), (67, 130, 1531),
         (65, 97, 128), (100, 784, 413)]


def step(d, x, w, m, v):
    """An optimizer's, whose gradient is a product."""
    g = d.T @ x
    m = m * 0.9 + g * 0.1
    v = v * 0.99 + g * g * 0.01
    return w - m / (tn.sqrt(v) + 1e-3), m, v


def arguments(rows, columns, depth, dtype, seed=0):
    random = np.random.default_rng(seed)
    d, x, w, m, v = (random.standard_normal(shape).astype(dtype)
                     for shape in ((depth, rows), (depth, columns), *[(rows, columns)] * 3))
    return d, x, w, m, np.abs(v)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_optimizers_step_of_any_size_and_for_any_number_of_threads(sizes, dtype):
    d, x, w, m, v = arguments(*sizes, dtype)
    compiled, found = tn.jit(step), []
    before = tn.get_num_threads()
    try:
        for threads in (1, 3):
            tn.set_num_threads(threads)
            found.append([y.numpy() for y in compiled(*map(tn.asarray, (d, x, w, m, v)))])
    finally:
        tn.set_num_threads(before)
    g = d.T @ x
    m = m * 0.9 + g * 0.1
    v = v * 0.99 + g * g * 0.01
    for one, other, expected in zip(*found, (w - m / (np.sqrt(v) + 1e-3), m, v), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("sizes", [(300, 1100, 16), (1100, 1000, 16), (1000, 1101, 33), (120, 50, 200), (513, 785, 128)],
                         ids=str)
def test_two_streams_beside_the_sums_of_shallow_and_other_products(sizes):
    """Sums of a product that goes along rows do not wait, or nothing would take them."""
    d, x, w, m, _ = arguments(*sizes, np.float32)
    found, compiled = [], tn.jit(lambda d, x, w, m: (d.T @ x + w * m, m))
    before = tn.get_num_threads()
    try:
        for threads in (1, 2):
            tn.set_num_threads(threads)
            found.append(compiled(*map(tn.asarray, (d, x, w, m)))[0].numpy())
    finally:
        tn.set_num_threads(before)
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], d.T @ x + w * m, rtol=1e-3, atol=1e-3)


def test_in_place_and_for_a_batch():
    """What is written where it is read, and products of a batch, whose blocks follow one another."""
    random = np.random.default_rng(1)
    x, y, *others = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 40, 50), (3, 50, 90), *[(3, 40, 90)] * 3))
    kept = [tn.asarray(z.copy()) for z in others]

    @tn.jit
    def run(x, y):
        total = x @ y
        for number, z in enumerate(kept):
            kept[number] = z * 0.5 + total * kept[(number + 1) % 3]

    expected = [z.copy() for z in others]
    for _ in range(3):
        run(tn.asarray(x), tn.asarray(y))
        for number in range(3):
            expected[number] = expected[number] * 0.5 + x @ y * expected[(number + 1) % 3]
    for one, other in zip(kept, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-3, atol=1e-3 * np.abs(other).max())


@pytest.mark.parametrize("depth", [64, 128, 256, 512])
def test_memory_is_enough_for_sums_that_wait_where_results_have_memory_of_their_own(depth):
    """They wait for what is written, too, where that is not where the epilogue reads: it was not counted."""
    (statement,), kernel = body_of(784, depth, "return v3, v2, v1")
    for shared in (False, True):
        places = {buffer: place for place, buffer in enumerate(kernel.buffers)}
        if shared:
            places |= dict(zip(kernel.outputs, (places[x] for x in kernel.inputs[2:]), strict=True))
        template = template_of(statement, places, len(places), host())
        assert len(template.written) == (0 if shared else 3)
        assert contraction_scratch(statement, host()) >= scratch_size(template)


def spec_of(columns, depth, machine=None):
    """Of a product whose epilogue reads three matrices."""
    (statement,), kernel = body_of(columns, depth, "return v3")
    return template_of(statement, {buffer: place for place, buffer in enumerate(kernel.buffers)}, len(kernel.buffers),
                       machine or host())


def body_of(columns, depth, results):
    """The statements of its loops, and the kernel."""
    shape = f"f32[600, {columns}]"
    graph = parse_graph(f"def f(x: f32[600, {depth}], w: f32[{depth}, {columns}], a: {shape}, b: {shape}, c: {shape}):\n"
                        f"    v0: {shape} = matmul(x, w)\n    v1: {shape} = add(v0, a)\n    v2: {shape} = multiply(v1, b)\n"
                        f"    v3: {shape} = add(v2, c)\n    {results}\n")
    kernel = kernel_of(graph, "f")
    return kernel.nests[0].body, kernel


@pytest.mark.parametrize("columns", [48, 784, 100_000])
def test_sums_that_wait_take_a_part_of_the_second_cache(columns):
    spec = spec_of(columns, 64)
    assert uses_block_epilogue(spec)
    tile = with_waiting(spec, choose_tile(F32, host(), known=spec.known))
    assert tile.columns % tile.width == 0 and tile.block_rows % tile.rows == 0
    assert tile.columns * tile.block_rows * 4 <= host().l2_bytes // L2_PER_WAITING_SUMS
    assert apart(tile) > tile.columns


def test_no_sums_wait_where_a_tile_is_long_enough_to_fetch_what_the_epilogue_reads():
    """A line at a turn of the innermost loop, which is written for AVX-512 alone.

    How many turns are enough depends on the machine: a tile of more rows has more lines.
    """
    for name in ("x86-64-v4", "x86-64-v3"):
        spec = spec_of(784, 64, target(name))
        lines = (len(spec.near) + len(spec.written)) * choose_tile(F32, target(name), spec.known).rows
        assert uses_block_epilogue(spec_of(784, (lines - 1) * K_UNROLL, target(name)))
        assert uses_block_epilogue(spec_of(784, lines * K_UNROLL, target(name))) == (name == "x86-64-v3")
