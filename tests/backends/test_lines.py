"""Few rows (or columns) of a product read the lines of the other side where they lie."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import ir

import tenon as tn
from benchmarks.example_specs import F32, F64, matmul
from benchmarks.run_spec import Native
from tenon.backends.cpu.contraction import emit_contraction
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec
from tenon.backends.cpu.contraction.gemv_axpy import BLOCK_ROWS
from tenon.backends.cpu.contraction.unpacked_gemm import MAX_UNPACKED_ROWS, stays_unpacked
from tenon.graph.interpret import interpret
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.llvm.shared_functions import text_of
from tenon.llvm.target_module import TargetModule
from tenon.pipeline import compile
from tenon.records import replace
from tenon.runtime.thread_pool import get_num_threads, set_num_threads

SIZES = [(8, 140, 515), (10, 33, 200), (13, 130, 129), (16, 16, 1030), (5, 17, 129), (7, 0, 131), (1, 33, 4100), (9, 1, 4)]
KINDS = {F32: np.float32, F64: np.float64}


def unpacked(spec: GemmSpec, once: bool = False) -> bool:
    m, n, k = (ir.Constant(ir.IntType(64), size) for size in spec.known)
    return bool(stays_unpacked(ir.IRBuilder(), spec, m, n, k, once))


def check(spec: GemmSpec, a: np.ndarray, b: np.ndarray, left: str, right: str) -> None:
    """The product of a batch, the same for any number of threads."""
    product, found = Native(spec), []
    (batch, m, k), n = a.shape, b.shape[2]
    stored = [np.ascontiguousarray(x if plain else x.swapaxes(1, 2)) for x, plain in ((a, left == "mk"), (b, right == "kn"))]
    for threads in (1, 3):
        found.append(np.full((batch, m, n), np.nan, a.dtype))
        for thread in range(threads):
            product(found[-1], *stored, batch, m, n, k, thread=thread, threads=threads)
    np.testing.assert_allclose(found[0], a @ b, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("element", [F32, F64], ids=["f32", "f64"])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("factors_turned", [False, True])
def test_few_rows_and_few_columns(element: ir.Type, turned: bool, factors_turned: bool) -> None:
    random = np.random.default_rng(0)
    for few, depth, many in SIZES:
        few = min(few, MAX_UNPACKED_ROWS) if turned else few
        m, n = (many, few) if turned else (few, many)
        left, right = ("km", "nk" if factors_turned else "kn") if turned else ("km" if factors_turned else "mk", "kn")
        a, b = (random.normal(size=(2, *shape)).astype(KINDS[element]) for shape in ((m, depth), (depth, n)))
        check(matmul(element, left, right, known=(m, n, depth)), a, b, left, right)


def test_which_products_read_lines() -> None:
    assert unpacked(matmul(F32, known=(BLOCK_ROWS, 1024, 1024)))
    assert unpacked(matmul(F32, "km", known=(1024, MAX_UNPACKED_ROWS, 1024)))
    assert not unpacked(matmul(F32, "km", known=(1024, MAX_UNPACKED_ROWS + 1, 1024)))  # and not stored by vectors
    assert not unpacked(matmul(F32, known=(BLOCK_ROWS + 1, 1024, 1024)))
    assert not unpacked(matmul(F32, known=(BLOCK_ROWS, 64, 1024)))                      # lines are short
    assert not unpacked(matmul(F32, known=(BLOCK_ROWS, 1024, 1024)), once=True)         # panels are read faster still


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_how_many_lines_are_read_at_a_time_changes_no_bit(rows: int) -> None:
    random, found = np.random.default_rng(0), []
    depth, columns = 203, 4133
    a, b = (random.normal(size=size).astype(np.float32) for size in ((1, rows, depth), (1, depth, columns)))
    for l1_bytes in (16 << 10, 32 << 10, 48 << 10):
        for foresees in (False, True):
            machine = replace(host(), l1_bytes=l1_bytes, l2_bytes=1 << 16, has_stream_prefetcher=foresees)
            found.append(np.full((1, rows, columns), np.nan, np.float32))
            Native(matmul(F32, known=(rows, columns, depth), machine=machine))(found[-1], a, b, 1, rows, columns, depth)
    np.testing.assert_allclose(found[0], a @ b, rtol=1e-4, atol=1e-3)
    assert all(np.array_equal(other, found[0]) for other in found)


def test_long_lines_that_are_far_are_fetched_where_the_processor_does_not_foresee_them() -> None:
    def fetches(foresees: bool, depth: int) -> bool:
        machine = replace(host(), l2_bytes=1 << 20, has_stream_prefetcher=foresees)
        module = TargetModule(machine)
        emit_contraction(module, "product", matmul(F32, known=(1, 4096, depth), machine=machine))
        return "llvm.prefetch" in text_of(module)
    assert fetches(False, 1024)
    assert not fetches(True, 1024)
    assert not fetches(False, 64)


@pytest.mark.parametrize("rows, depth, columns", [(8, 700, 515), (11, 300, 600)])
def test_an_epilogue_takes_the_sums_of_a_strip(rows: int, depth: int, columns: int) -> None:
    random = np.random.default_rng(0)
    x, w, bias = (random.normal(size=size).astype(np.float32) for size in ((rows, depth), (depth, columns), columns))
    found = tn.jit(lambda x, w, bias: tn.relu(x @ w + bias))(tn.tensor(x), tn.tensor(w), tn.tensor(bias))
    np.testing.assert_allclose(found.numpy(), np.maximum(x @ w + bias, 0), rtol=1e-4, atol=1e-3)


def test_an_epilogue_knows_the_sums_of_strips_from_those_of_tiles() -> None:
    """A product of any number of rows goes by lines or by tiles, which keep their sums differently far apart."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((256, 256)).astype(np.float32) / 16
    squashed = tn.jit(lambda x, w: tn.tanh(x @ w))
    for rows in (96, 160, 5, 3, 1, 33):
        x = rng.standard_normal((rows, 256)).astype(np.float32)
        found = squashed(tn.tensor(x), tn.tensor(weights))
        np.testing.assert_allclose(found.numpy(), np.tanh(x @ weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize(("batch", "rows", "depth", "columns"), [
    ("", 1, 40, 300), ("", 2, 33, 515), ("", 3, 130, 129), ("", 4, 16, 1030), ("", 2, 17, 4100), ("3, ", 2, 140, 131)])
def test_numbers_of_16_bits_are_widened_as_lines_are_read(kind: str, batch: str, rows: int, depth: int,
                                                          columns: int) -> None:
    graph = parse_graph(f"""
def product(a: {kind}[{batch}{rows}, {depth}], b: {kind}[{batch}{depth}, {columns}]):
    y: {kind}[{batch}{rows}, {columns}] = matmul(a, b)
    return y""")
    random, found, before = np.random.default_rng(0), [], get_num_threads()
    arrays = [random.normal(size=tuple(p.shape)).astype(p.dtype.numpy) for p in graph.params]
    made, (wanted,) = compile(graph), interpret(graph, arrays)
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append(made.run(arrays)[0])
    finally:
        set_num_threads(before)
    np.testing.assert_allclose(found[0].astype(np.float32), wanted.astype(np.float32), rtol=1e-2, atol=5e-2)
    assert len({x.tobytes() for x in found}) == 1
    if host().pairs != "registers":
        assert any(".unpacked" in unit.ir for unit in made.kernels)


def test_deep_sums_of_16_bits_are_cut_into_chunks() -> None:
    for columns, unpacked_lines in ((16, False), (256, True)):
        graph = parse_graph(f"""
def product(a: bf16[2, 4096], b: bf16[4096, {columns}]):
    y: bf16[2, {columns}] = matmul(a, b)
    return y""")
        assert any(".unpacked" in unit.ir for unit in compile(graph).kernels) == unpacked_lines
