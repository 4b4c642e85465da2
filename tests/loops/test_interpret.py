"""The interpreter of kernels refuses what a machine would do silently: memory that nobody wrote, places outside."""

import numpy as np
import pytest

from tenon.loops.expressions import Binary, Buffer, Const, Index, Load, Select, size
from tenon.loops.loop_interpreter import interpret
from tenon.loops.loop_ir import Kernel, Loop, Nest, Store, TransposeTile
from tenon.types import TensorType, bool_, float32

i = Index("i", 4)
x, out, part, row = (Buffer(name, TensorType(float32, (4,)), role) for name, role in (
    ("x", "input"), ("out", "output"), ("part", "temporary"), ("row", "local")))
COPY = Loop(i, size(4), (Store(out, i, Load(x, i, None)),))
HALF = Loop(i, size(2), (Store(part, i, Load(x, i, None)),))


def run(*nests):
    return interpret(Kernel("k", (x,), (out,), (part,), (), nests), [np.arange(4, dtype=np.float32)])[0]


def test_every_element_of_a_result_is_written():
    assert run(Nest((COPY,))).tolist() == [0, 1, 2, 3]
    with pytest.raises(AssertionError, match=r"out\[2\] is never written"):
        run(Nest((Loop(i, size(2), COPY.body),)))


@pytest.mark.parametrize("buffer", [part, row])
def test_what_is_read_was_written(buffer):
    reads = Loop(i, size(4), (Store(out, i, Load(buffer, i, None) * 2.0),))
    fills = Loop(i, size(2), (Store(buffer, i, Load(x, i, None)),))
    with pytest.raises(AssertionError, match=f"{buffer.name}.*2 was never written"):
        run(Nest((fills, reads), locals=(row,)))


def test_memory_of_a_thread_is_unwritten_in_the_next_nest():
    fills = Loop(i, size(4), (Store(row, i, Load(x, i, None)),))
    reads = Loop(i, size(4), (Store(out, i, -Load(row, i, None)),))
    assert run(Nest((fills, reads), locals=(row,))).tolist() == [0, -1, -2, -3]
    with pytest.raises(AssertionError, match=r"row.*0 was never written"):
        run(Nest((fills,), locals=(row,)), Nest((reads,), locals=(row,)))


def test_a_side_of_a_choice_that_is_not_taken_may_be_unwritten_but_lies_inside():
    first = Binary("<", i, size(2))
    taken = Loop(i, size(4), (Store(out, i, Select(first, Load(part, i, None), Load(x, i, None))),))
    assert run(Nest((HALF, taken))).tolist() == [0, 1, 2, 3]
    beyond = Loop(i, size(4), (Store(out, i, Select(first, Load(x, i, None), Load(part, i + size(3), None))),))
    with pytest.raises(AssertionError, match="4 is outside"):
        run(Nest((HALF, beyond)))


def test_what_is_written_turns_with_a_square():
    square = Buffer("square", TensorType(float32, (2, 2)), "local")
    fills = Loop(i, size(2), (Store(square, i, Load(x, i, None)),))        # its first line, which becomes a column
    column = Select(Const(True, bool_), Load(square, i * size(2), None), Load(x, i, None))
    half = Loop(i, size(2), (Store(out, i, column), Store(out, i + size(2), column)))
    assert run(Nest((fills, TransposeTile(square, 2, 2), half), locals=(square,))).tolist() == [0, 1, 0, 1]
    with pytest.raises(AssertionError, match=r"square.*was never written"):
        run(Nest((fills, TransposeTile(square, 2, 2), Store(out, size(0), -Load(square, size(1), None))), locals=(square,)))


def test_a_copy_of_what_is_unwritten_is_unwritten():
    copied = Loop(i, size(4), (Store(out, i, Load(part, i, None)),))
    with pytest.raises(AssertionError, match=r"out\[2\] is never written"):
        run(Nest((HALF, copied)))
    assert run(Nest((HALF, copied, Loop(i, size(2), (Store(out, i + size(2), Load(x, i, None)),))))).tolist() == [0, 1, 0, 1]


def test_no_place_is_counted_from_the_end():
    with pytest.raises(AssertionError, match="-1 is outside"):
        run(Nest((Loop(i, size(4), (Store(out, i - size(1), Load(x, i, None)),)),)))
