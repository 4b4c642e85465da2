"""Sums over the rows of what a product stores, added up as it is stored."""

import numpy as np
import pytest

from loops.compiled import check, run
from tenon.backends.cpu.lower_kernel import learn, scheduled
from tenon.backends.cpu.product_schedules import schedules_of
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower

RNG = np.random.default_rng(3)


def graph_of(shape, results, dtype="f32", value="multiply(v0, h)"):
    m, k, n = shape
    total = f"sum(v1, axis=(0,), keepdims=False, dtype={dtype})"
    return parse_graph(f"def f(x: {dtype}[{m}, {k}], w: {dtype}[{k}, {n}], h: {dtype}[{m}, {n}]):\n"
                       f"    v0: {dtype}[{m}, {n}] = matmul(x, w)\n    v1: {dtype}[{m}, {n}] = {value}\n"
                       f"    v2: {dtype}[{n}] = {total}\n    v3: {dtype}[{n}] = multiply(v2, v2)\n"
                       f"    return {results}\n")


def arrays_of(shape, dtype=np.float32):
    m, k, n = shape
    return [RNG.standard_normal(s).astype(dtype) for s in ((m, k), (k, n), (m, n))]


@pytest.mark.parametrize("shape", [(64, 17, 19), (65, 7, 16), (131, 5, 70), (1000, 16, 40), (2049, 64, 100),
                                   (300, 300, 300), (513, 31, 700)], ids=str)
@pytest.mark.parametrize("results", ["v1, v2", "v2, v1", "v2", "v1, v3, v2"])
def test_rows_are_added_up_where_they_are_stored(shape, results):
    small = shape[0] * shape[1] * shape[2] < 40_000
    kernel = check(graph_of(shape, results), *arrays_of(shape), tolerance=5e-4, interpreted=small)
    assert kernel.nests[0].body[0].chunk and len(kernel.nests) == 2
    assert len(kernel.temporaries) == 1             # parts of the sum; what nobody else reads is not stored


def test_a_product_too_small_to_be_one_goes_along_with_its_sum():
    kernel = check(graph_of((65, 3, 16), "v1, v2"), *arrays_of((65, 3, 16)))
    assert not kernel.temporaries or "contraction" not in print_kernel(kernel)


@pytest.mark.parametrize(("results", "value", "pairs"), [
    ("v1, v2", "multiply(v0, h)", {(0, 2)}), ("v2, v1", "multiply(v0, h)", {(1, 2)}), ("v2", "multiply(v0, h)", set()),
    ("v0, v1, v2", "multiply(v0, h)", {(0, 2), (1, 2)})])
def test_a_result_may_lie_where_the_epilogue_reads(results, value, pairs):
    graph = graph_of((128, 20, 48), results, value=value)
    assert learn(graph, lower(graph, "k"), host()).in_place == pairs


def test_numbers_of_64_bits():
    check(graph_of((130, 9, 33), "v1, v2", "f64"), *arrays_of((130, 9, 33), np.float64))


@pytest.mark.parametrize("shape", [(257, 40, 130), (96, 8, 65)], ids=str)
def test_every_schedule_has_the_rows_of_a_chunk_in_order(shape):
    kernel = check(graph_of(shape, "v1, v2"), *arrays_of(shape), tolerance=5e-4, interpreted=False)
    names = schedules_of(kernel.nests[0].body[0], host())
    assert names and not any(name.startswith("runs") for name in names)
    x, w, h = arrays_of(shape)
    for name in names:
        found = [run(scheduled(kernel, name), [x, w, h], threads=threads) for threads in (1, 2, 5)]
        np.testing.assert_allclose(found[0][1], (x @ w * h).sum(0), rtol=5e-4, atol=5e-4)
        assert all(a.tobytes() == b.tobytes() for other in found[1:] for a, b in zip(found[0], other, strict=True))
