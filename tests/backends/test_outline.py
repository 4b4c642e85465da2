"""Loops are taken out of a function, which does what it did."""

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import I64, POINTER, ZERO, address, const, loop
from tenon.llvm import machine_code
from tenon.llvm.outline_loops import innermost, natural_loops, outline

DOUBLE = ir.DoubleType()


def two_loops(carries: bool) -> ir.Function:
    """void f(x, n): for i < n: (for j < n: x[j] += i); the inner loop may count what it does, which is stored at x[n]."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), [POINTER, I64]), "f")
    x, n = function.args
    x.add_attribute("noalias")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    with loop(b, ZERO, n) as (i, _):
        with loop(b, ZERO, n, carried=[ZERO] if carries else []) as (j, state):
            where = address(b, x, j, DOUBLE)
            b.store(b.fadd(b.load(where, typ=DOUBLE), b.sitofp(i, DOUBLE)), where)
            state[:] = [b.add(one, const(1)) for one in state]
        for one in state:
            b.store(b.sitofp(one, DOUBLE), address(b, x, n, DOUBLE))
    b.ret_void()
    return function


def run(module: ir.Module, count: int) -> np.ndarray:
    x = np.zeros(count + 1)
    library = machine_code.compile(str(module))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("f"))(x.ctypes.data, count)
    return x


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("which", [0, 1])
def test_a_loop_that_is_taken_out_does_the_same(which, count):
    function = two_loops(carries=False)
    wanted = sorted(natural_loops(function), key=lambda x: len(x.blocks))[which].header
    (made,) = outline(function, lambda x: x.header is wanted)
    assert not any(block in function.blocks for block in made.blocks)
    assert "noalias" in next(x for x in made.args if x.type == POINTER).attributes
    np.testing.assert_array_equal(run(function.module, count), run(two_loops(carries=False).module, count))


def test_a_loop_whose_values_are_read_afterwards_stays():
    function = two_loops(carries=True)
    (inner,) = innermost(natural_loops(function))
    assert outline(function, lambda x: x.header is inner.header) == []
    assert run(function.module, 3)[3] == 3


def test_what_is_inside_of_a_loop_that_was_taken_out_goes_with_it():
    function = two_loops(carries=False)
    (made,) = outline(function, lambda x: True)
    assert len(natural_loops(made)) == 2 and not natural_loops(function)
