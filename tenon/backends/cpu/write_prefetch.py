"""Stores along several streams -> prefetches of the lines that they will write.

A store to a line that is in no cache waits until the line has come.  Processors fetch ahead along few streams, and not
over the end of a page; a kernel with five results takes half of the time where they are fetched in time.
"""

from __future__ import annotations

from collections.abc import Mapping

from llvmlite import ir

from tenon.loops.affine import affine, is_same
from tenon.loops.expressions import Buffer, Const, Expr, Index, Load
from tenon.loops.loop_ir import Let, Loop, Store, roots
from tenon.loops.traversal import walk
from tenon.target import LINE_BYTES, Target

PREFETCH_DISTANCE_LINES = 8     # lines
MIN_STREAMS = 4         # streams, since processors follow fewer by themselves
NARROWEST = 4           # bytes of an element


def elements_of_a_line(loop: Loop) -> int | None:
    """How many elements of each stream are a line, where iterations of the loop can be taken a line at a time."""
    sizes = {x.buffer.type.dtype.itemsize for x in loop.body if isinstance(x, Store)}
    simple = all(isinstance(x, (Let, Store)) for x in loop.body)
    if not simple or len(sizes) != 1 or min(sizes) < NARROWEST or not isinstance(loop.extent, Const):
        return None
    count = LINE_BYTES // min(sizes)
    grain = loop.grain.value if isinstance(loop.grain, Const) else 1
    whole = loop.extent.value % count == 0 and (loop.kind != "parallel" or grain % count == 0)
    return count if whole else None


def streams(loop: Loop, pointers: Mapping[Buffer, ir.Value], target: Target) -> list[tuple[Buffer, Expr]]:
    """Where the loop stores side by side in memory that it does not read, if that is much and in many places."""
    read = {pointers[x.buffer] for s in loop.body for x in walk(*roots(s)) if isinstance(x, Load)}
    found = [(x.buffer, x.offset) for x in loop.body if isinstance(x, Store) and pointers[x.buffer] not in read
             and is_same(affine(x.offset).terms.get(loop.index, 0), 1)
             and all(isinstance(atom, Index) for atom in affine(x.offset).terms)]
    sizes = [buffer.elements * buffer.type.dtype.itemsize for buffer in dict.fromkeys(buffer for buffer, _ in found)]
    total = sum(size for size in sizes if isinstance(size, int))
    return found if len(found) >= MIN_STREAMS and total > target.l1_bytes else []
