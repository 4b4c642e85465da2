"""The region in which one run keeps the cells of its stacks: chunks, each twice as large as the one before.

Cells do not move, so a handle is an address.  After the run the largest chunk stays, if it is not too large, for the
next one.
"""

from __future__ import annotations

import os

from tenon.backends.base import Array
from tenon.errors import OutOfMemory
from tenon.runtime.memory import aligned_bytes

FIRST_CHUNK = 1 << 16       # bytes
MOST_KEPT = 64 << 20        # that an idle program holds on to


class Cells:
    """Chunks of one run at a time."""

    def __init__(self) -> None:
        self.chunks: list[Array] = []

    def grow(self, bytes: int) -> Array:
        """A chunk with room for so many bytes; raises OutOfMemory where there is none."""
        total, most = sum(chunk.nbytes for chunk in self.chunks), physical_memory()
        size = max(FIRST_CHUNK, 2 * self.chunks[-1].nbytes if self.chunks else 0, bytes)
        size = size if total + size <= most else bytes
        try:
            if total + size > most:
                raise MemoryError
            self.chunks.append(aligned_bytes(size))
        except MemoryError:
            raise OutOfMemory(f"what a loop keeps of its turns, for its gradient, takes more than {total / 2**30:.3g} "
                              "GiB, and there is no more memory",
                              hint="let tn.checkpoint compute a part again, or end the loop sooner") from None
        return self.chunks[-1]

    def begin(self) -> Array | None:
        """The chunk that is there already, at the beginning of a run."""
        return self.chunks[0] if self.chunks else None

    def end(self) -> None:
        """Free what the run used, but for one chunk."""
        self.chunks = [chunk for chunk in self.chunks[-1:] if chunk.nbytes <= MOST_KEPT]


def physical_memory() -> int:
    """Bytes of this machine, more than which no run may keep."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40
