"""Elementwise bodies and views: compiled == interpreted == NumPy, at every size and type."""

import re

import llvmlite.binding as llvm_binding
import numpy as np
import pytest

from loops import toy
from loops.compiled import check, llvm_text, run
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import trace
from tenon.llvm import machine_code
from tenon.loops.loop_printer import print_kernel
from tenon.loops.lower import lower
from tenon.types import BY_SHORT, TensorType

random = np.random.default_rng(0)


def type_of(text, *shape):
    return TensorType(BY_SHORT[text], shape)


def data(type_, low=-4, high=5):
    values = random.uniform(low, high, type_.shape)
    return (values if type_.dtype.kind == "f" else values.round()).astype(type_.dtype.numpy)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (0, 4), (2, 1, 13)])
def test_a_chain_of_maps_is_one_loop(shape):
    t = type_of("f32", *shape)
    check(trace(lambda x, w, b: toy.exp(toy.add(toy.mul(x, w), b)), t, t, t), data(t), data(t), data(t))


@pytest.mark.parametrize("dtype", [d for d in BY_SHORT if d not in ("c64", "c128", "token", "stack")])
def test_every_element_type(dtype):
    t = type_of(dtype, 37)
    low = 0 if dtype[0] in "ub" else -4
    ops = [toy.add, toy.mul, toy.maximum, toy.minimum, toy.less] + ([] if dtype == "bool" else [toy.sub])
    x, y = data(t, low), data(t, low)
    for op in ops:
        check(trace(op, t, t), x, y)


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "u8", "u64"])
def test_integers_wrap_and_never_trap(dtype):
    t = type_of(dtype, 64)
    info = np.iinfo(t.dtype.numpy)
    special = np.array([info.min, info.max, 0, 1, 2, 3, 255 & info.max, info.min + 1], t.dtype.numpy)
    x, y = np.repeat(special, 8), np.tile(special, 8)
    if dtype[0] == "i":
        y = np.where(y == 3, -1, y).astype(t.dtype.numpy)
    for op in (toy.add, toy.sub, toy.mul, toy.floordiv, toy.mod, toy.left_shift, toy.right_shift):
        with np.errstate(all="ignore"):
            check(trace(op, t, t), x, y)


def test_nan_propagates_through_extremes():
    t = type_of("f32", 9)
    x = np.array([np.nan] * 3 + [1.0] * 3 + [-np.inf] * 3, np.float32)
    y = np.array([np.nan, 1.0, -np.inf] * 3, np.float32)
    check(trace(toy.maximum, t, t), x, y)
    check(trace(toy.minimum, t, t), x, y)
    check(trace(toy.neg, t), x)


@pytest.mark.parametrize("source", ["bool", "i8", "i32", "i64", "u8", "u64", "f16", "bf16", "f32", "f64"])
def test_casts(source):
    t = type_of(source, 17)
    x = data(t, 0, 100)
    for target in ["bool", "i8", "i32", "u16", "i64", "f16", "bf16", "f32", "f64"]:
        check(trace(lambda x, d=BY_SHORT[target]: toy.cast(x, dtype=d), t), x)


def test_symbolic_sizes_are_read_at_run_time():
    b, n = symbol("B"), symbol("N")
    graph = trace(lambda x, y: toy.add(x, toy.spread(y, axis=0, n=b)), type_of("f32", b, n), type_of("f32", n))
    for sizes in [(2, 2), (5, 3), (3, 131)]:
        check(graph, data(type_of("f32", *sizes)), data(type_of("f32", sizes[1])))


def test_a_reshape_is_a_flat_loop():
    t = type_of("f32", 6, 4)
    kernel = check(trace(lambda x: toy.exp(toy.reshape(toy.reshape(x, shape=(2, 3, 4)), shape=(8, 3))), t), data(t))
    assert "for i0 in parallel(24, grain=896):\n        out[i0] = exp(x[i0])" in print_kernel(kernel)


def test_a_reshape_of_symbolic_sizes_is_a_flat_loop():
    b = symbol("B")
    t = type_of("f32", b, 3, 4)
    graph = trace(lambda x: toy.neg(toy.reshape(x, shape=(3 * b, 4))), t)
    assert "out[i0] = neg(x[i0])" in print_kernel(check(graph, data(type_of("f32", 5, 3, 4))))


@pytest.mark.parametrize("shape", [(3, 5), (1, 7), (17, 33), (0, 3)])
def test_transposes_and_broadcasts(shape):
    t = type_of("f32", *shape)
    check(trace(lambda x: toy.transpose(toy.exp(x)), t), data(t))
    check(trace(lambda x, y: toy.add(toy.transpose(x), y), t, type_of("f32", *shape[::-1])),
          data(t), data(type_of("f32", *shape[::-1])))
    check(trace(lambda x: toy.reshape(toy.transpose(x), shape=(shape[0] * shape[1],)), t), data(t))


def test_padding_reads_nothing_outside():
    t = type_of("f32", 5, 3)
    check(trace(lambda x: toy.pad(toy.pad(toy.exp(x), low=2, high=1), low=0, high=3), t), data(t))
    check(trace(lambda x: toy.sum_(toy.pad(x, low=2, high=1), axis=0), t), data(t))


def test_gather_checks_its_indices():
    t, at = type_of("f32", 5, 3), type_of("i64", 4)
    graph = trace(toy.gather, t, at)
    x = data(t)
    check(graph, x, np.array([0, 4, -1, -5]))
    kernel = lower(graph, "k")
    for bad in (5, -6, 2**62):
        with pytest.raises(IndexError, match=f"index {bad} is out of range"):
            run(kernel, [x, np.array([0, bad, 1, 2])])


def test_several_results_share_a_loop():
    t = type_of("f32", 4, 6)

    def body(x, y):
        e = toy.exp(x)
        return e, toy.mul(e, y), toy.sum_(e, axis=1)

    check(trace(body, t, t), data(t), data(t))


def test_a_parameter_may_be_a_result_and_a_result_may_repeat():
    t = type_of("f32", 4)

    def body(x):
        e = toy.exp(x)
        return x, e, e

    check(trace(body, t), data(t))


@pytest.mark.skipif(not llvm_binding.get_host_cpu_features().get("avx2"), reason="looks for AVX2 instructions")
def test_an_elementwise_chain_becomes_vector_instructions():
    t = type_of("f32", 4096)
    graph = trace(lambda x, w, b: toy.exp(toy.add(toy.mul(x, w), b)), t, t, t)
    assert re.search(r"vfmadd\d+ps.*[yz]mm", machine_code.assembly(llvm_text(lower(graph, "k"))))


def test_a_short_outer_loop_does_not_leave_threads_idle():
    graph = trace(toy.transpose, type_of("f32", 320, 300, 2))
    kernel = check(graph, data(graph.params[0].type), interpreted=False)
    assert kernel.nests[0].body[0].index.extent == 600
