"""The innermost loop in the machine's own words adds what LLVM's loop adds, in the same order."""
import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from llvmlite import ir

from benchmarks.run_spec import load
from tenon.backends.cpu.contraction import microkernel
from tenon.backends.cpu.contraction.ir_helpers import I1, I64, POINTER, const
from tenon.backends.cpu.contraction.microkernel import add_products
from tenon.backends.cpu.contraction.microkernel_prefetch import PrefetchPlan
from tenon.backends.cpu.contraction.microkernel_types import (
    MAX_NEAR,
    Ahead,
    EpilogueAddress,
    LeftOperand,
    Lines,
    Shape,
    no_fetches,
    no_near,
    pace,
    put_lines,
)
from tenon.backends.cpu.contraction.x86_inner_loop import InnerIteration, has_x86_inner_loop
from tenon.llvm import shared_functions
from tenon.llvm.host_target import host
from tenon.llvm.machine_code import assembly
from tenon.llvm.target_module import TargetModule
from tenon.target import target

SHAPES = [(1, 1, 1), (8, 3, 1), (6, 4, 1), (14, 2, 1), (9, 3, 9), (15, 1, 1), (16, 1, 1), (28, 1, 28), (5, 4, 5)]
KINDS = {"f32": (ir.FloatType(), np.float32), "f64": (ir.DoubleType(), np.float64)}


def piece(shape: Shape, row: int, ahead: Callable[[ir.Value], Ahead] = no_fetches) -> object:
    """void product(i64 depth, ptr left, ptr right, ptr result)."""
    shared_functions._written.cache_clear()
    module = TargetModule(host(), "product")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, POINTER, POINTER, POINTER]), "product")
    depth, left, right, result = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    chunk = shape.lanes * shape.step
    add_products(b, shape, depth, LeftOperand(left, const(row), const(chunk), const(row)), right,
                 Lines(result, const(shape.width * shape.size)), I1(0), no_near(result), ahead(right))
    b.ret_void()
    return load(module, "product", None, [ctypes.c_int64, *[ctypes.c_void_p] * 3])


@pytest.mark.skipif(not host().has("avx512f"), reason="the words are those of AVX-512")
@pytest.mark.parametrize("element", KINDS)
@pytest.mark.parametrize(("rows", "vectors", "step"), SHAPES)
@pytest.mark.parametrize("plain", [True, False])
def test_sums_have_the_same_bits_in_both_ways(monkeypatch, plain, rows, vectors, step, element):
    kind, dtype = KINDS[element]
    lanes, random, most = 64 // dtype().itemsize, np.random.default_rng(0), 45
    shape = Shape(kind, rows, vectors, lanes, step, vectors * lanes, plain=plain)
    turn = InnerIteration(kind, rows, vectors, shape.size, 4, step * shape.size, shape.line * shape.size)
    assert has_x86_inner_loop(turn, lanes, host()) and not has_x86_inner_loop(turn, lanes // 2, host())
    left = random.standard_normal((most, rows) if step > 1 else (rows, most)).astype(dtype)
    made = {}
    for spoken in True, False:
        with monkeypatch.context() as patch:
            patch.setattr(microkernel, "has_x86_inner_loop", lambda turn, lanes, spoken=spoken: spoken)
            made[spoken] = piece(shape, most)
    for depth in 1, 2, 3, 4, 5, 15, 16, 17, 19, 20, 32, most:
        right = random.standard_normal((depth, shape.width)).astype(dtype)      # nothing behind the last line is read
        results = [np.full((rows, shape.width), np.nan, dtype) for _ in made]
        for call, result in zip(made.values(), results, strict=True):
            call(depth, left.ctypes.data, right.ctypes.data, result.ctypes.data)
        np.testing.assert_array_equal(*results)
        factor = left[:depth].T if step > 1 else left[:, :depth]
        np.testing.assert_allclose(results[0], factor @ right, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not host().has("avx512f"), reason="the words are those of AVX-512")
@pytest.mark.parametrize("count, step, apart, wide", [(1, 256, 256, 1), (3, 768, 256, 1), (3, 64, 4096, 0), (9, 64, 64, 0)])
@pytest.mark.parametrize("near", [0, 2, MAX_NEAR, MAX_NEAR + 1])
def test_what_is_fetched_meanwhile_changes_no_sum(count, step, apart, wide, near):
    """Lines, a run of memory at each stretch of depth, more than there are turns; and what an epilogue reads."""
    shape = Shape(ir.FloatType(), 8, 3, 16, 1, 48)
    module = TargetModule(host(), "product")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, POINTER, POINTER, POINTER]), "product")
    depth, left, right, result = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    sums, table = Lines(result, const(shape.width * 4)), b.alloca(POINTER, 2 * (MAX_NEAR + 1))
    for number in range(MAX_NEAR + 1):
        put_lines(b, table, number, sums)
    ahead = Ahead(right, const(step), const(apart), const(count), I1(wide), const(pace(shape, count, bool(wide))))
    add_products(b, shape, depth, LeftOperand(left, const(400), const(16), const(400)), right, sums, I1(0),
                 EpilogueAddress(table, const(near)), ahead)
    b.ret_void()
    call = load(module, "product", None, [ctypes.c_int64, *[ctypes.c_void_p] * 3])
    random = np.random.default_rng(0)
    factor = random.standard_normal((8, 400)).astype(np.float32)
    for depth in 0, 1, 3, 4, 16, 37, 64, 100, 399, 400:
        other, found = random.standard_normal((depth, 48)).astype(np.float32), np.full((8, 48), np.nan, np.float32)
        call(depth, factor.ctypes.data, other.ctypes.data, found.ctypes.data)
        np.testing.assert_allclose(found, factor[:, :depth] @ other, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not host().has("avx512f"), reason="the words are those of AVX-512")
@pytest.mark.parametrize("count, wide", [(1, True), (4, True), (5, False), (12, False)])
def test_lines_are_fetched_ahead_without_a_list_and_change_no_sum(count, wide):
    """All at once: at every so many turns one of the lines ahead; towards the end, where the sums go."""
    shape = Shape(ir.FloatType(), 8, 3, 16, 1, 48, plain=True)
    apart = 192 if wide else 64
    ahead = [const(count * apart), const(apart), const(count), I1(wide), const(pace(shape, count, wide))]
    call = piece(shape, 400, lambda right: Ahead(right, *ahead))
    random = np.random.default_rng(0)
    factor = random.standard_normal((8, 400)).astype(np.float32)
    for depth in 1, 3, 4, 16, 37, 64, 400:
        other, found = random.standard_normal((depth, 48)).astype(np.float32), np.full((8, 48), np.nan, np.float32)
        call(depth, factor.ctypes.data, other.ctypes.data, found.ctypes.data)
        np.testing.assert_allclose(found, factor[:, :depth] @ other, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not host().has("avx512f"), reason="the words are those of AVX-512")
def test_little_stands_before_the_products_of_a_plain_tile():
    """Up to 120 instructions are done while the products of the tile before are waiting; each further one takes time."""
    shape = Shape(ir.FloatType(), 8, 3, 16, 1, 48, plain=True)
    module = TargetModule(host(), "product")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, I64, POINTER]), "product")
    depth, apart, where = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    ahead = Ahead(where, apart, apart, const(4), I1(1), const(1))
    add_products(b, shape, depth, LeftOperand(where, apart, const(16), apart), where, Lines(where, apart), I1(0),
                 no_near(where), ahead)
    b.ret_void()
    text = assembly(shared_functions.parted(shared_functions.text_of(module))[1].popitem()[1])
    before, _, _ = text[text.index("@function"):].partition("#APP")
    assert 50 < sum(line.startswith("\t") and not line.startswith("\t.") for line in before.splitlines()) < 120


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_is_near_in_the_end_is_listed_line_by_line(count):
    """The rows of the first matrix that the epilogue reads, then those of the next; or where the sums go."""
    shape = Shape(ir.FloatType(), 5, 3, 16, 1, 48)
    module = TargetModule(host(), "product")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, POINTER]), "product")
    where, found = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    table = b.alloca(POINTER, 2 * MAX_NEAR)
    for number in range(count):
        put_lines(b, table, number, Lines(b.gep(where, [const(1000 * number)], source_etype=ir.IntType(8)), const(100)))
    sums, left = Lines(where, const(7)), LeftOperand(where, *[const(16)] * 3)
    listed = PrefetchPlan(b, shape, const(400), left, sums, EpilogueAddress(table, const(count)), no_fetches(where)).listed()
    for place in range(max(count, 1) * 5):
        at = [const(place)]
        b.store(b.load(b.gep(listed, at, source_etype=POINTER), typ=POINTER), b.gep(found, at, source_etype=POINTER))
    b.ret_void()
    addresses = np.zeros(max(count, 1) * 5, np.int64)
    load(module, "product", None, [ctypes.c_void_p] * 2)(1 << 20, addresses.ctypes.data)
    lines = [1000 * k + 100 * i for k in range(count) for i in range(5)] or [7 * i for i in range(5)]
    np.testing.assert_array_equal(addresses - (1 << 20), lines)


def test_other_machines_and_numbers_have_loops_of_llvm():
    turn = InnerIteration(ir.FloatType(), 8, 3, 4, 4, 4, 192)
    wide, narrow = target("x86-64-v4"), target("x86-64-v3")
    assert has_x86_inner_loop(turn, 16, wide)
    assert not has_x86_inner_loop(turn._replace(element=ir.IntType(32)), 16, wide)
    assert not has_x86_inner_loop(turn._replace(rows=9, vectors=4), 16, wide)
    assert not has_x86_inner_loop(turn, 16, narrow)
