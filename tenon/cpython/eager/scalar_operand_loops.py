"""An elementwise operation on an array and a number, as a loop that NumPy could call: `void f(char **arrays, intptr
*count, intptr *strides, void *data)`.

NumPy's own loop compares an array with a number one element after the other, and takes long to begin a short row.
These give the bits that it gives; it does what they are not for: two arrays, elements that are apart, a number that is
NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, WORD, Pointer, Word

LANES = 32, 8, 1        # elements at once, while there are as many
KINDS: dict[np.dtype[Any], ir.Type] = {np.dtype(np.float32): ir.FloatType(), np.dtype(np.float64): ir.DoubleType()}

INFINITE = {4: 0x7F800000, 8: 0x7FF << 52}      # the bits that are set where a number is not finite

# Words of a loop's data: NumPy's loop and its data, and whether of two equals the array's is chosen, where the array
# stands first, and where the number does.
LOOP, LOOP_DATA, TIES = range(3)
TIED = tuple(itertools.product((0, 1), repeat=2))

Operation = Callable[[ir.IRBuilder, ir.Value, ir.Value, ir.Value], ir.Value]


def _chosen(order: str) -> Operation:
    """The array's element where it comes first, or is NaN, or where it is equal and those are the array's."""
    def write(b: ir.IRBuilder, x: ir.Value, number: ir.Value, tie: ir.Value) -> ir.Value:
        equal = b.and_(b.fcmp_ordered("==", x, number), tie)
        return b.select(b.or_(b.fcmp_unordered(order, x, number), equal), x, number)
    return write


# name of a ufunc -> the element that is made of the array's and the number, which stands behind it; and before it
OPERATIONS: dict[str, tuple[Operation, Operation]] = {
    "add": (lambda b, x, n, _: b.fadd(x, n), lambda b, x, n, _: b.fadd(n, x)),
    "subtract": (lambda b, x, n, _: b.fsub(x, n), lambda b, x, n, _: b.fsub(n, x)),
    "multiply": (lambda b, x, n, _: b.fmul(x, n), lambda b, x, n, _: b.fmul(n, x)),
    "divide": (lambda b, x, n, _: b.fdiv(x, n), lambda b, x, n, _: b.fdiv(n, x)),
    "maximum": (_chosen(">"), _chosen(">")),
    "minimum": (_chosen("<"), _chosen("<")),
}


def loop_name(ufunc: np.ufunc, dtype: np.dtype[Any]) -> str:
    """The name of the loop in the library; "" where there is none."""
    return f"{ufunc.__name__}_{dtype.char}" if ufunc.__name__ in OPERATIONS and dtype in KINDS else ""


def define_beside(module: NativeModule) -> None:
    """The loops, and `finite_f(array, count)`, `finite_d`, in a module of any kind."""
    for dtype in KINDS:
        module.define(f"finite_{dtype.char}", _finite(dtype.itemsize), HALF, POINTER, WORD)
    for name, operations in OPERATIONS.items():
        for dtype, kind in KINDS.items():
            own = f"{name}_{dtype.char}"
            for side, operation in enumerate(operations):
                module.define(f"{own}_{side}", _row(kind, dtype.itemsize, operation), HALF, POINTER, POINTER, POINTER,
                              WORD, WORD)
            module.define(own, _loop(own, dtype.itemsize), NOTHING, *[POINTER] * 4, public=True)


def _loop(name: str, item: int) -> Callable[..., None]:
    """The loop: of its own where one of both is a number, and NumPy's."""
    def write(f: NativeFunction, arrays: Pointer, counts: Pointer, steps: Pointer, data: Pointer) -> None:
        with f.where(steps.word(2) == item):
            for side in range(2):
                with f.where((steps.word(side) == item) & (steps.word(1 - side) == 0)):
                    done = f.call(f"{name}_{side}", arrays.pointer(2), arrays.pointer(side), arrays.pointer(1 - side),
                                  counts.word(), data.word(TIES + side))
                    with f.where(done != 0):
                        f.give()
        f.through(data.at(LOOP), NOTHING, arrays, counts, steps, data.pointer(LOOP_DATA))
        f.give()
    return write


def _row(kind: ir.Type, item: int, operation: Operation) -> Callable[..., None]:
    """Write what is made of each element of x and of the number; 0: the number is NaN, and nothing is done."""
    def write(f: NativeFunction, out: Pointer, x: Pointer, number: Pointer, count: Word, tie: Word) -> None:
        b, done = f.b, f.variable(0)
        n = b.load(number.value, typ=kind)
        f.require(Word(b, b.fcmp_ordered("==", n, n)))
        equals = b.trunc(tie.value, ir.IntType(1))
        for lanes in LANES:
            copies, ties = (_copies(b, value, lanes) for value in (n, equals))
            with f.loop(lambda lanes=lanes: done() + lanes < count + 1):        # type: ignore[misc]
                place = done() * item
                elements = b.load(x.behind(place).value, align=1, typ=copies.type)
                b.store(operation(b, elements, copies, ties), out.behind(place).value, align=1)
                done.set(done() + lanes)
        f.give(1)
    return write


def _copies(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """A vector of one value."""
    nothing = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = b.insert_element(nothing, value, ir.Constant(HALF, 0))
    return b.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(HALF, lanes), None))


def _finite(item: int) -> Callable[..., None]:
    """Whether no element is infinite or NaN."""
    def write(f: NativeFunction, x: Pointer, count: Word) -> None:
        b, done, kind = f.b, f.variable(0), ir.IntType(8 * item)
        for lanes in LANES:
            infinite = ir.Constant(ir.VectorType(kind, lanes), [INFINITE[item]] * lanes)
            with f.loop(lambda lanes=lanes: done() + lanes < count + 1):        # type: ignore[misc]
                bits = b.load(x.behind(done() * item).value, align=1, typ=infinite.type)
                beyond = b.icmp_unsigned("==", b.and_(bits, infinite), infinite)
                f.require(Word(b, b.bitcast(beyond, ir.IntType(lanes))) == 0)
                done.set(done() + lanes)
        f.give(1)
    return write


def numbers_beside(dtype: np.dtype[Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """An array and numbers on which a loop is compared with its ufunc: zeros, infinities and NaN at every place."""
    special = np.array([0.0, -0.0, np.nan, -np.nan, 1.0, -1.5, 0.3, np.inf, -np.inf, 1e-40, 3e38], dtype)
    x = np.resize(special, 16 * len(special) + 7)       # 11 and the lanes have no common factor
    for number in special:
        yield x, np.asarray(number)
