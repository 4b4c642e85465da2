"""Steps that several threads share, in order -> before which of them a barrier makes room.

Between two barriers nobody's memory is free for others, since the threads are not in step.  Where much has been done
with since the last one, and the next step begins to use as much, a barrier costs less than memory of its own: this is
how a value that is computed again late (tenon.passes.recompute) does not take room where memory is fullest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tenon.program.kernel import count
from tenon.program.steps import Leaf, Step, Storage, homes, leaves, touched

MIN_FREED_BYTES = 1 << 20   # bytes: to fill as much takes some ten times as long as to meet


class Room:
    """What is done with since the last barrier, in bytes of the arena."""

    def __init__(self, steps: Iterable[Step], sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.last = {x: step for step in leaves(steps) for y in touched(step) for x in homes(y)}
        self.begun: set[Storage] = set()
        self.left = 0

    def is_worth_meeting(self, memory: Collection[Storage]) -> bool:
        """Whether a step with this memory begins to use as much as others have left, and that is much."""
        return self.left >= MIN_FREED_BYTES and self._bytes(x for x in memory if x not in self.begun) >= MIN_FREED_BYTES

    def leave(self, step: Leaf, memory: Collection[Storage]) -> None:
        """The step, with this memory, is done."""
        self.begun.update(memory)
        self.left += self._bytes(x for x in memory if self.last.get(x) is step)

    def meet(self) -> None:
        """All threads have met: what was left is free."""
        self.left = 0

    def _bytes(self, memory: Iterable[Storage]) -> int:
        return sum(count(x.bytes, self.sizes) for x in memory if x.kind in ("arena", "temporary"))
