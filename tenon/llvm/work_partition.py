"""What a call of a kernel is to do: some of the parts that all threads share out.

    void stage(ptr buffers, ptr sizes, i32 first, i32 until, i32 threads, ptr scratch, ptr status)

Every thread has PARTS parts of its own: of two threads one has 0 to 15, the other 16 to 31.  A call does the parts from
`first` up to `until`, so a thread may do its parts in several calls, and somebody else the rest.  All calls together do
every part once.
"""

from __future__ import annotations

from llvmlite import ir

I32, I64 = ir.IntType(32), ir.IntType(64)
PARTS_PER_THREAD = 16
SHARE = [I32, I32, I32]         # the arguments that say it: first, until, threads


class WorkShare:
    """The parts of a call, where code is written."""

    def __init__(self, b: ir.IRBuilder, first: ir.Value, until: ir.Value, threads: ir.Value) -> None:
        self.b = b
        self.first, self.until, self.threads = (b.zext(x, I64) for x in (first, until, threads))

    def of(self, count: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Of so many tasks: the first one of the call, and the one behind its last."""
        parts = self.b.mul(self.threads, ir.Constant(I64, PARTS_PER_THREAD), flags=("nuw",))
        start, stop = (self.b.udiv(self.b.mul(count, x, flags=("nuw",)), parts) for x in (self.first, self.until))
        return start, stop


def whole() -> list[ir.Constant]:
    """The arguments of a call that does everything."""
    return [ir.Constant(I32, x) for x in (0, PARTS_PER_THREAD, 1)]
