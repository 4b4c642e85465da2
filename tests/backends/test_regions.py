"""The rectangles of a product that threads compute."""

from __future__ import annotations

from ctypes import c_int32, c_void_p
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from benchmarks.example_specs import F32, matmul
from benchmarks.run_spec import load
from tenon.backends.cpu.contraction.gemm_spec import GemmSpec, Tile
from tenon.backends.cpu.contraction.ir_helpers import I32, I64, ONE, POINTER, add, address, const, loop
from tenon.backends.cpu.contraction.thread_partition import Sizes, each_region
from tenon.llvm.work_partition import PARTS_PER_THREAD, WorkShare

SHAPES = ((1, 128, 512), (1, 128, 500), (3, 40, 130), (1, 9, 1000), (2, 8, 48), (7, 33, 97), (1, 300, 1), (1, 1, 300),
          (5, 1, 1), (0, 8, 48))
TILE = Tile(rows=8, vectors=3, lanes=16, depth=304, block_rows=128, columns=4080)


def counter(spec: GemmSpec, shape: tuple[int, int, int]) -> Any:
    """void counter(ptr counts, i32 first, i32 until, i32 threads): add 1 to all that a call computes."""
    module = ir.Module("counter")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32]), "counter")
    counts, *given = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    sizes = Sizes(*map(const, shape))
    with each_region(b, spec, TILE, WorkShare(b, *given), sizes) as (g, row_from, row_to, column_from, column_to), \
            loop(b, row_from, row_to) as (m, _), loop(b, column_from, column_to) as (n, _):
        row = b.add(b.mul(g, sizes.rows), m)
        where = address(b, counts, b.add(b.mul(row, sizes.columns), n), I64)
        b.store(add(b, b.load(where, typ=I64), ONE), where)
    b.ret_void()
    return load(module, "counter", None, [c_void_p, c_int32, c_int32, c_int32])


def counted(shape: tuple[int, int, int], threads: int, cuts: list[int], left: str = "mk") -> list[np.ndarray]:
    """What each of the calls between these parts computes."""
    _, rows, columns = shape
    spec = matmul(F32, left=left, known=(rows, columns, 300))
    call, found = counter(spec, shape), []
    for first, until in pairwise(cuts):
        counts = np.zeros(shape, np.int64)
        call(counts.ctypes.data, first, until, threads)
        found.append(counts)
    return found


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_parts_are_done_together_everything_is_computed_once(shape: tuple[int, int, int],
                                                                     threads: int) -> None:
    random, end = np.random.default_rng(0), threads * PARTS_PER_THREAD
    for cuts in (range(end + 1), range(0, end + 1, PARTS_PER_THREAD), sorted({0, end, *random.integers(0, end, 3)})):
        for left in ("mk", "km"):
            assert (sum(counted(shape, threads, list(cuts), left)) == 1).all()


def test_threads_compute_equally_much_of_few_panels() -> None:
    """128 x 512 are five panels of columns for one thread, and five and two thirds for the other."""
    first, second = (int(x.sum()) for x in counted((1, 128, 512), 2, [0, PARTS_PER_THREAD, 2 * PARTS_PER_THREAD]))
    assert abs(first - second) <= TILE.rows * TILE.width


def test_parts_that_a_thread_does_apart_are_whole_panels() -> None:
    """But for the panel in which its share begins: each call packs the panels that it computes a part of."""
    columns: list[int] = []
    for counts in counted((1, 128, 512), 2, list(range(PARTS_PER_THREAD + 1))):
        columns += list(np.flatnonzero(counts[0].any(axis=0))[::TILE.width])
    assert len(set(columns)) == len(columns)
