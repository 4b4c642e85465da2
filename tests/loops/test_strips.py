"""A loop in strips has each of its turns once; a reduction is made in parts where its loops run as far for all results."""

import random

import numpy as np
import pytest

from tenon.dims.symbolic_dim import evaluate, symbol
from tenon.loops import split_reductions, widen_narrow_reductions
from tenon.loops.evaluate_targets import evaluate_targets
from tenon.loops.expressions import Binary, Buffer, Index, Load, Reduce, size
from tenon.loops.loop_context import LoopContext
from tenon.loops.rfactor import may_be_factored
from tenon.loops.split_reductions import in_parts
from tenon.loops.store_target import StoreTarget
from tenon.loops.strip_mining import Strips, is_partition
from tenon.types import TensorType, int64

N = symbol("N")


def turns(extent, pieces):
    """All turns of the pieces that the loop has."""
    return [i for p in pieces for strip in range(p.strips) for i in
            range(p.start + strip * p.length, p.start + (strip + 1) * p.length) if i < extent]


def test_pieces_that_are_taken_for_a_partition_have_each_turn_once():
    choose, seen = random.Random(0), {True: 0, False: 0}
    for _ in range(4000):
        extent, first, length = choose.randrange(20), choose.randrange(4), choose.randrange(1, 6)
        start = choose.choice([first * length, choose.randrange(20)])
        second = choose.choice([1, 1, choose.randrange(1, 6)])
        rest = choose.choice([max(-(-(extent - start) // second), 0), choose.randrange(6)])
        pieces = [Strips(0, first, length), Strips(start, rest, second)][:choose.choice([1, 2])]
        claimed = is_partition(extent, pieces)
        seen[claimed] += 1
        assert not claimed or sorted(turns(extent, pieces)) == list(range(extent)), (extent, pieces)
    assert min(seen.values()) > 200


@pytest.mark.parametrize("length", [1, 3, 16])
def test_strips_of_a_symbolic_loop_are_a_partition(length):
    strips = (N + (length - 1)) // length
    assert is_partition(N, [Strips(0, strips, length)])
    assert not is_partition(N, [Strips(0, N // length, length)]) or length == 1
    for n in range(2, 40):
        assert turns(n, [Strips(0, evaluate(strips, {"N": n}), length)]) == list(range(n))


def any_sum(choose):
    """A reduction of one or two loops, which may end early, depend on the result, or hold another one."""
    i, k, m = Index("i", 3), Index("k", 40), Index("m", 5)
    x = Buffer("x", TensorType(int64, (1000,)), "input")
    place = i * size(choose.randrange(200)) + k * size(choose.choice([1, 3]))
    read = Load(x, choose.choice([place, place, place + m * size(40)]), None)
    inside = choose.choice([read, read, Reduce("add", (m,), read, (size(5),))])
    last = choose.choice([size(40)] * 3 + [size(17), i * size(9) + 1, Binary("min", size(40), i + 30)])
    first = Reduce(choose.choice(["add", "mul", "max", "min"]), (k,), inside, (last,))
    return x, i, Reduce("max", (m,), first, (size(5),)) if m in first.free else first


def test_what_is_factored_is_what_it_was(monkeypatch):
    """On random sums, cut at every chance: each that the predicate allows, and no other, is made in parts."""
    monkeypatch.setattr(split_reductions, "CHUNK_ELEMENTS", 7)
    monkeypatch.setattr(split_reductions, "MIN_CHUNKS", 2)
    monkeypatch.setattr(widen_narrow_reductions, "MIN_FOLDED_LINES", 0)
    choose, cut = random.Random(1), 0
    for _ in range(300):
        x, i, total = any_sum(choose)
        out = Buffer("out", TensorType(int64, (3,)), "output")
        target = StoreTarget(out, (i,), i, total)
        data = np.arange(1000) % 7 - 3
        made = in_parts(target, LoopContext())
        cut += len(made) > 1
        assert len(made) == 1 or any(may_be_factored(y, (i,)) for y in (total, total.body) if isinstance(y, Reduce))
        found = []
        for targets in ([target], made):
            memory = {x: data.copy(), **{t.buffer: np.zeros(t.buffer.elements, np.int64) for t in targets}}
            evaluate_targets(targets, memory, {})
            found.append(memory[out])
        np.testing.assert_array_equal(*found)
    assert cut > 30
