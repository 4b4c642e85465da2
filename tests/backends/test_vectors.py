"""Loops go along in several vectors, and end behind a mask; what they compute and touch is the same."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

import tenon as tn
from backends.kernel_text import ir_of
from tenon.backends.cpu.expression_codegen import Values
from tenon.backends.cpu.lower_kernel import kernel_of
from tenon.backends.cpu.scalar_codegen import I64
from tenon.backends.cpu.vectorization import in_flight, masked_lanes
from tenon.graph.text import parse_graph
from tenon.llvm.host_target import host
from tenon.llvm.machine_code import compile_object
from tenon.llvm.optimization_level import NO_VECTORS
from tenon.llvm.target_module import TargetModule
from tenon.loops.expressions import Const, Index
from tenon.loops.loop_ir import Kernel, Loop, statements
from tenon.loops.loop_printer import print_kernel

MASKED = '"llvm.loop.vectorize.predicate.enable"'
with_masks = pytest.mark.skipif(not host().has("avx512bw"), reason="vectors of this processor have no masks")


def kernel(result: str, *lines: str, x: str) -> Kernel:
    return kernel_of(parse_graph("\n".join((f"def f(x: {x}):", *(f"    {line}" for line in lines),
                                            f"    return {result}", ""))), "f")


def row(width: int, name: str = "exp", dtype: str = "f32") -> Kernel:
    """A function of all but the last element of each row."""
    return kernel("v1", f"v0: {dtype}[40, {width}] = slice(x, start=(0, 0), stop=(40, {width}), step=(1, 1))",
                  f"v1: {dtype}[40, {width}] = {name}(v0)", x=f"{dtype}[40, {width + 1}]")


def innermost(found: Kernel) -> Loop:
    *_, last = (x for nest in found.nests for x in statements(nest.body) if isinstance(x, Loop))
    return last


def flight(found: Kernel) -> int:
    loop = innermost(found)
    assert isinstance(loop.extent, Const)
    turns = int(loop.extent.value)
    return in_flight(loop, masked_lanes(loop, turns, host()), turns)


@with_masks
@pytest.mark.parametrize(("columns", "left"), [(384, False), (380, True)])
def test_nothing_is_left_behind_a_mask_where_all_tiles_are_whole_vectors(columns: int, left: bool) -> None:
    found = kernel("v0", f"v0: f32[{columns}] = sum(x, axis=(0,), keepdims=False)", x=f"f32[2048, {columns}]")
    assert "min(" in print_kernel(found)        # tiles of which the last is narrower
    assert (MASKED in ir_of(found, host())) == left


def test_a_place_is_computed_once_in_a_block_for_the_same_indices() -> None:
    b = ir.IRBuilder(ir.Function(TargetModule(host()), ir.FunctionType(ir.VoidType(), [I64, I64]), "f").append_basic_block())
    i, (one, other) = Index("i", 9), b.function.args
    values = Values(b, {}, {}, known={i: one})
    first = values.value(i * 8 + 3)
    assert values.value(i * 8 + 3) is first and values.value(i * 8) is first.operands[0]
    values.known[i] = other
    assert values.value(i * 8 + 3) is not first
    values.known[i] = one
    assert values.value(i * 8 + 3) is first
    b.position_at_end(b.append_basic_block())
    assert values.value(i * 8 + 3) is not first


@with_masks
def test_a_chain_goes_along_in_several_vectors() -> None:
    assert [flight(row(width)) for width in (2048, 1000, 96, 48, 31, 15)] == [4, 4, 2, 1, 1, 1]
    assert flight(row(1024, "negative")) == 1           # which waits for memory alone
    assert flight(row(64, dtype="f64")) == 4            # of 8 elements


@with_masks
def test_what_lies_side_by_side_is_masked() -> None:
    assert masked_lanes(innermost(row(31)), 31, host()) == masked_lanes(innermost(row(31)), None, host()) == 16
    assert masked_lanes(innermost(row(31, dtype="f64")), 31, host()) == 8
    for step, lanes in ((2, 16), (4, 16), (5, None)):
        apart = kernel("v0", f"v0: f32[9, 31] = slice(x, start=(0, 0), stop=(9, {31 * step}), step=(1, {step}))",
                       x=f"f32[9, {31 * step + 1}]")
        assert masked_lanes(innermost(apart), 31, host()) == lanes
        assert masked_lanes(innermost(apart), None, host()) is None


def phases(places: int = 8, function: str = "negative") -> Kernel:
    """What four phases of an image are together, as an input gradient of a strided convolution puts them."""
    one, line, both = (f"f32[{', '.join(map(str, (96, *shape)))}]" for shape in
                       ((1, places, 1), (1, places, 2), (2, places, 2)))
    return kernel_of(parse_graph("\n".join((
        f"def f(a: {one}, b: {one}, c: {one}, d: {one}):",
        f"    ab: {line} = concat(a, b, axis=3)",
        f"    cd: {line} = concat(c, d, axis=3)",
        f"    v1: {both} = concat(ab, cd, axis=1)",
        f"    v2: {both} = {function}(v1)",
        "    return v2", ""))), "f")


def test_turns_that_write_a_line_each_are_not_made_vectors() -> None:
    assert scattered(phases())
    assert not scattered(phases(function="exp"))    # a function of many elements is worth taking vectors apart
    assert not scattered(phases(2))             # two turns write one line


def scattered(found: Kernel) -> bool:
    return NO_VECTORS in ir_of(found, host())


def test_turns_that_fill_one_row_of_local_memory_are_not_made_vectors() -> None:
    """LLVM looked for vectors of this for 90 seconds: a softmax down 16 rows of 8."""
    lines = ("m: f64[8] = max(x, axis=(0,), keepdims=False)", "b: f64[16, 8] = broadcast_to(m, shape=(16, 8))",
             "y: f64[16, 8] = subtract(x, b)")
    text = "\n    ".join(("def f(x: f64[16, 8]):", *lines, "return y"))
    code = ir_of(kernel_of(parse_graph(text + "\n"), "f"), host())
    before = time.process_time()
    compile_object(code)
    assert NO_VECTORS in code and time.process_time() - before < 20


@with_masks
def test_only_what_is_left_over_is_masked() -> None:
    assert [ir_of(row(width), host()).count(MASKED) for width in (64, 31, 12)] == [0, 1, 1]
    flat = kernel("v0", "v0: f32[4096] = exp(x)", x="f32[4096]")
    assert MASKED not in ir_of(flat, host())                # each thread's part is whole vectors
    odd = kernel("v0", "v0: f32[4097] = exp(x)", x="f32[4097]")
    assert MASKED in ir_of(odd, host())


def together(x: Any) -> Any:
    """Rows, columns and runs of them: chains, sums, extremes and what is neither."""
    inside = x[:, 1:]
    return (tn.tanh(inside), inside.sum(axis=1), tn.exp(inside).max(axis=0), tn.softmax(x, axis=1),
            tn.gelu(x).sum(axis=0), tn.where(inside > 0, inside, -inside), (x > 0.5).any(axis=1), (x * 4).astype("int8"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("width", [1, 9, 31, 65])
def test_rows_of_all_widths(width: int, dtype: str, threads: None) -> None:
    x = tn.asarray(np.random.default_rng(width).normal(size=(5, width)).astype("float32")).astype(dtype)
    tolerance = {"float32": 2e-6, "float64": 1e-13, "bfloat16": 1e-2}[dtype]
    for got, wanted in zip(tn.jit(together)(x), together(x), strict=True):
        np.testing.assert_allclose(got.astype("float64").numpy(), wanted.astype("float64").numpy(), tolerance, tolerance)


def test_rows_of_a_width_that_a_call_decides(threads: None) -> None:
    compiled = tn.jit(together)
    for width in (64, 5, 31, 100, 1, 47, 256):
        x = tn.asarray(np.random.default_rng(width).normal(size=(7, width)).astype("float32"))
        for got, wanted in zip(compiled(x), together(x), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), 2e-6, 2e-6)


def test_nothing_beyond_the_end_is_touched(threads: None) -> None:
    """Not even by a nan, where what lies beyond is read or written."""
    @tn.jit
    def act(x: Any) -> Any:
        x[:, :19] = tn.exp(x[:, :19])
        return x
    given = np.full((6, 32), np.nan, "float32")
    given[:, :19] = 0
    got = act(tn.asarray(given)).numpy()
    assert (got[:, :19] == 1).all()
    assert np.isnan(got[:, 19:]).all()


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_angle_has_the_same_bits_whatever_is_beside_it(name: str, dtype: str, threads: None) -> None:
    """Where all of many angles are small they are reduced by a shorter way."""
    function = getattr(tn, name)
    compiled = tn.jit(lambda x: function(x))
    small = np.random.default_rng(3).normal(size=5000).astype(dtype) * 30
    large = np.array([1e6, 2.0**20, np.nextafter(np.dtype(dtype).type(2.0**20), np.inf), -3e8, 1e30, np.inf, np.nan])
    mixed = small.copy()
    mixed[[0, 1023, 1024, 2100, 2101, 3000, 4999]] = large
    same = mixed == small
    with np.errstate(invalid="ignore"):
        exact = getattr(np, name)(mixed.astype("longdouble")).astype(dtype)
    got = compiled(tn.asarray(mixed)).numpy()
    np.testing.assert_array_equal(got[same], compiled(tn.asarray(small)).numpy()[same])
    np.testing.assert_allclose(got, exact, 1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("name", ["fmod", "remainder", "floor_divide"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_remainder_has_the_same_bits_whatever_is_beside_it(name: str, dtype: str, threads: None) -> None:
    """Where the quotients of many numbers fit the mantissa one step of the division is enough."""
    random = np.random.default_rng(5)
    x, y = (random.normal(size=5000).astype(dtype) * 30 for _ in range(2))
    compiled, most = tn.jit(lambda x, y: getattr(tn, name)(x, y)), np.finfo(dtype).max
    mixed, by, far = x.copy(), y.copy(), [0, 1023, 1024, 2100, 2101, 3000, 4999]
    mixed[far] = [most, -most, np.inf, np.nan, 1, most, 0]
    by[far] = [0.1, 7, 3, 2, 0, np.inf, -0.0]
    with np.errstate(all="ignore"):
        for a, b in ((x, y), (mixed, by)):
            np.testing.assert_array_equal(compiled(tn.asarray(a), tn.asarray(b)).numpy(), getattr(np, name)(a, b))


def test_angles_that_a_loop_names_are_seen(threads: None) -> None:
    """In rows, beside sums, and written over the memory that they come from."""
    @tn.jit
    def act(x: Any) -> Any:
        angle = x * 3 + 1
        x[:, 1:] = tn.sin(angle[:, 1:]) + tn.cos(angle[:, 1:])
        return x, (tn.sin(angle) * angle).sum(axis=1), tn.sin(tn.exp(x)).sum(axis=0)
    given = np.random.default_rng(4).normal(size=(6, 2051))
    given[2, 100] = 1e9
    angle = given * 3 + 1
    x, rows, columns = (part.numpy() for part in act(tn.asarray(given.copy())))
    np.testing.assert_allclose(x[:, 1:], (np.sin(angle) + np.cos(angle))[:, 1:], 1e-12, 1e-12)
    np.testing.assert_allclose(rows, (np.sin(angle) * angle).sum(1), 1e-9)
    np.testing.assert_allclose(columns, np.sin(np.exp(x)).sum(0), 1e-9, 1e-9)
