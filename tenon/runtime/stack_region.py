"""The region in which one run keeps the cells of its stacks: chunks, each twice as large as the one before.

Cells do not move, so a handle is an address.  Where a program gives cells back, the chunks behind them are used again.
After the run the largest chunk stays, if it is not too large, for the next one.
"""

from __future__ import annotations

import os

from tenon.errors import OutOfMemory, OverBudget
from tenon.program.backend_interface import Array
from tenon.runtime.arena_planning import aligned_bytes

FIRST_CHUNK = 1 << 16       # bytes
MAX_KEPT = 64 << 20         # that an idle program holds on to


class Cells:
    """Chunks of one run at a time; `most` bytes in all, where the user said so."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.chunks: list[Array] = []
        self.peak = 0               # bytes that any run has taken

    def grow(self, bytes: int, end: int = 0) -> Array:
        """A chunk with room for so many bytes, behind the one that ends at this address: those behind are free.

        Raises OutOfMemory where there is none.
        """
        used = next((k for k, chunk in enumerate(self.chunks, 1) if end_of(chunk) == end), 0)
        while used < len(self.chunks) and self.chunks[used].nbytes < bytes:
            del self.chunks[used]
        if used < len(self.chunks):
            return self.chunks[used]
        total, most = self.bytes, self._most()
        size = max(FIRST_CHUNK, 2 * self.chunks[-1].nbytes if self.chunks else 0, bytes)
        size = max(bytes, min(size, most - total))
        try:
            if total + size > most:
                raise MemoryError
            self.chunks.append(aligned_bytes(size))
        except MemoryError:
            raise self._full(total) from None
        self.peak = max(self.peak, self.bytes)
        return self.chunks[-1]

    @property
    def bytes(self) -> int:
        """Of all chunks."""
        return sum(chunk.nbytes for chunk in self.chunks)

    def _most(self) -> int:
        return physical_memory() if self.most is None else min(self.most, physical_memory())

    def _full(self, total: int) -> OutOfMemory:
        kind: type[OutOfMemory]
        kind, why = OutOfMemory, "there is no more memory"
        if self.most == self._most():
            kind, why = OverBudget, f"memory_budget leaves {self._most() / 2**20:.4g} MiB for that"
        return kind("what a loop keeps of its turns, for its gradient, takes more than "
                    f"{total / 2**20:.4g} MiB, and {why}",
                    hint="let tn.checkpoint compute a part again, or end the loop sooner")

    def begin(self) -> Array | None:
        """The chunk that is there already, at the beginning of a run."""
        return self.chunks[0] if self.chunks else None

    def end(self) -> None:
        """Free what the run used, but for one chunk."""
        self.chunks = [chunk for chunk in self.chunks[-1:] if chunk.nbytes <= MAX_KEPT]


def end_of(chunk: Array) -> int:
    """The address behind its last byte."""
    return int(chunk.ctypes.data) + chunk.nbytes


def physical_memory() -> int:
    """Bytes of this machine, more than which no run may keep."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40
