"""A captured graph that reads weights -> a program that has made of them, once, what does not depend on the call.

    program = WithConstants(graph, {3: net.weight}, notify)
    program.run(arrays)             # looks whether the weights are the arrays that they were; if not, makes it again

Weights are read like any tensor, so nothing is ever stale: a tensor that is assigned gets another array, or (in a
compiled step) writes to its own only where nobody else holds it, as this program does.  Memory that somebody else may
write to is read in every call (`tenon.buffer_ownership`), and so is a tensor that turns out to change all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from mmap import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.buffer_ownership import EXPORTS, is_private, watch
from tenon.gc_control import trim
from tenon.graph.ir import Graph
from tenon.locks import Lock, unforked
from tenon.observe import emit, span
from tenon.program.backend_interface import Executable, Then
from tenon.records import dataclass
from tenon.runtime.buffer_pool import let_go
from tenon.tensor import Tensor

if TYPE_CHECKING:
    from tenon.pipeline import PartialEvaluation

TRIMMED_BYTES = 1 << 24  # bytes that are made, after which memory goes back to the system
MANY_CHANGES = 16       # of one tensor, in more than every fourth run: then it is no constant


@dataclass(frozen=True, eq=False)
class ReadyConstants:
    """What was made of the constants: `made` are the arguments of the program behind those at `reads`."""

    parts: PartialEvaluation
    watched: tuple[tuple[int, np.ndarray], ...]     # which arguments it was made from
    exports: int                                    # the state of `EXPORTS` then
    made: list[np.ndarray]

    def holds(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether it is right for these arguments."""
        return self.exports == EXPORTS[0] and all(arrays[k] is array for k, array in self.watched)


class WithConstants:
    """The program of a graph, with what depends on constant arguments alone made before; an `Executable`."""

    def __init__(self, graph: Graph, holders: Mapping[int, Any], notify: Callable[[], None],
                 trace: list[Any] | None = None):
        self.trace = trace          # gets what each pass did, where somebody wants to see it
        self.captured, self.holders, self.notify = graph, dict(holders), notify
        self.runs, self.changes = 0, dict.fromkeys(holders, 0)
        self._lock = Lock()
        self.absorb = True
        self.parts = self._compiled()
        self.ready: ReadyConstants | None = None

    @property
    def late(self) -> Any:
        """The program that every call runs."""
        return self.parts.late

    @property
    def graph(self) -> Graph:
        """What every call runs, after all passes."""
        return self.parts.late.graph

    def run(self, arrays: Sequence[np.ndarray], donated: Collection[int] = (),
            then: Then | None = None) -> list[np.ndarray]:
        """The results, in memory of their own or in that of `donated` arguments; `then` says what is stored with them.
        """
        self.runs += 1
        ready = self.ready_for(arrays)
        places = [ready.parts.reads.index(k) for k in donated]
        return ready.parts.late.run(given(ready, arrays), places, then)

    def ready_for(self, arrays: Sequence[np.ndarray]) -> ReadyConstants:
        """What was made of the constants among these arguments, now if need be."""
        ready = self.ready
        if ready is None or not ready.holds(arrays):
            with self._lock:
                ready = self._made(arrays)
        return ready

    def _made(self, arrays: Sequence[np.ndarray]) -> ReadyConstants:
        if self.ready is not None:
            self._count_changes(self.ready, arrays)
            self.notify()
        with span("constants", graph=self.captured.name):
            early = _early(self.parts, arrays)
            if self.absorb and not all(map(_is_finite, early)):
                self.absorb = False
                self.parts = self._compiled()
                early = _early(self.parts, arrays)
            parts = self.parts
            packs: tuple[int, ...] = getattr(parts.late, "packs", ())
            before = [*(arrays[k] for k in parts.reads), *early]
            panels = parts.late.panels(before) if packs else []     # type: ignore[attr-defined]
            made = [*_only_read(early, len(parts.reads), parts.late), *panels]
            size = sum(array.nbytes for array in (*early, *panels))
            del early, before
        watched = {*parts.made_from, *(parts.reads[k] for k in packs if k < len(parts.reads))}
        for k in watched:
            watch(arrays[k])
        self.ready = ReadyConstants(parts, tuple((k, arrays[k]) for k in sorted(watched)), int(EXPORTS[0]), made)
        if size >= TRIMMED_BYTES:
            let_go()        # of what only panels were made of, and of those before
            trim()
        return self.ready

    def _count_changes(self, ready: ReadyConstants, arrays: Sequence[np.ndarray]) -> None:
        """Leave out what changes all the time, and what somebody else may write to by now."""
        changed = [k for k, array in ready.watched if arrays[k] is not array]
        for k in changed:
            self.changes[k] += 1
        often = [k for k in changed if self.changes[k] > max(MANY_CHANGES, self.runs // 4)]
        shared = [k for k, _ in ready.watched if not is_private(arrays[k])]
        if often or shared:
            for k in {*often, *shared}:
                del self.holders[k]
            emit("constants.dropped", graph=self.captured.name, changing=len(often), shared=len(shared))
            self.parts = self._compiled()

    def _compiled(self) -> PartialEvaluation:
        with unforked:
            from tenon.pipeline import (
                compile_with_constants,  # local: the compiler is loaded when something is compiled
            )

        private = [k for k, holder in self.holders.items() if is_private(array_of(holder))]
        self.holders = {k: self.holders[k] for k in private}
        if self.trace is not None:
            self.trace.clear()
        return compile_with_constants(self.captured, private, absorb=self.absorb, trace=self.trace)


def _early(parts: PartialEvaluation, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What is made of the constants among these arguments."""
    return [] if parts.early is None else parts.early.run([arrays[k] for k in parts.made_from])


def _is_finite(array: np.ndarray) -> bool:
    """Whether an array of numbers has neither infinities nor NaN."""
    return not array.size or array.dtype.kind in "biu" or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def _only_read(early: Sequence[np.ndarray], first: int, late: Executable) -> list[np.ndarray]:
    """These arguments of a program, from that number on; of what it reads as panels alone only the memory's size."""
    unread: Collection[int] = getattr(late, "unread", ())
    size = max((array.nbytes for k, array in enumerate(early, first) if k in unread), default=0)
    nothing = mmap(-1, max(1, size))        # no page of it is ever touched, so there are none
    return [np.ndarray(array.shape, array.dtype, nothing) if k in unread else array
            for k, array in enumerate(early, first)]


def late_program(program: Executable) -> Any:
    """The program that is run in every call."""
    return program.late if isinstance(program, WithConstants) else program


def given(ready: ReadyConstants, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arguments of the program that is run."""
    return [*[arrays[k] for k in ready.parts.reads], *ready.made]


def array_of(holder: Any) -> Any:
    """The elements of a tensor, or the array itself."""
    return holder.own.payload if isinstance(holder, Tensor) else holder
