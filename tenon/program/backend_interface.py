"""What a backend is: it claims operators that it does better whole, and turns an optimised graph into a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tenon.graph.ir import Graph, Node
from tenon.records import dataclass
from tenon.target import GENERIC, Target

Array = np.ndarray[Any, np.dtype[Any]]
Then = Callable[[list[Array], Any], Iterator[Any] | None]    # what is stored, for `tenon.atomic.at_once`
IDLE, READING, WRITING, LOST = range(4)     # what a run that is to write in tensors' memory does; who wrote is gone


class Executable(Protocol):
    """A compiled graph.  It may be run from several threads at once."""

    @property
    def graph(self) -> Graph:
        """What is run, after all passes."""

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results, in memory of their own; `donated` are the arguments whose memory they may take.

        `then` says, given the results to be, what is stored when they are there, before Python does anything else.  It
        is also given the phase of the run (`tenon.runtime.forks`): whether it has begun to write in donated memory.
        """


class Buffer(Protocol):
    """Memory of a device that holds one array.  Where the address space is "host" it is a NumPy array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def nbytes(self) -> int: ...


class DeviceEvent(Protocol):
    """A point in what a device was given to do."""

    def done(self) -> bool:
        """Whether the device has come to it."""

    def wait(self) -> None:
        """Return when it has; raises what failed before it."""


class DeviceRuntime(Protocol):
    """One device as the rest of Tenon sees it: memory, and a queue of what it is to do, in order, beside the caller."""

    @property
    def space(self) -> str:
        """The address space: memory of one means nothing to another.  That of "host" is this process's own."""

    @property
    def limit(self) -> int | None:
        """The most bytes that may be allocated at once; None where only the system knows."""

    @property
    def in_use(self) -> int:
        """The bytes of the buffers that somebody holds."""

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
        """Memory of no certain elements, free when nobody holds it any more.  Raises OutOfMemory."""

    def arena(self, size: int) -> Array | None:
        """Bytes for what lives within a run of a program; None where programs see to that themselves."""

    def write(self, source: Array, target: Buffer) -> DeviceEvent:
        """Host to device: the elements are read before this returns."""

    def read(self, source: Buffer, target: Array) -> DeviceEvent:
        """Device to host: they are there when the event is done."""

    def copy(self, source: Buffer, target: Buffer) -> DeviceEvent:
        """From a buffer of any device of this kind to one of this device."""

    def launch(self, program: Executable, arguments: Sequence[Buffer]) -> tuple[list[Buffer], DeviceEvent]:
        """Run a program that this device's backend compiled; its results are listed, and there, when the event is done.
        """

    def record(self) -> DeviceEvent:
        """The point behind all that was given so far."""

    def synchronize(self) -> None:
        """Wait for all that was given; raises what failed."""


@dataclass(frozen=True)
class Backend:
    """A way to run graphs.  A composite that is claimed reaches `compile` whole, others in primitive operators."""

    name: str
    compile: Callable[[Graph], Executable]
    claims: Callable[[Node], bool] = lambda node: False
    fuses: bool = False                     # whether one node for several operators is worth anything to it
    prepare: Callable[[], None] = lambda: None      # begins, on other threads, what every `compile` waits for,
    begin: Callable[[Graph], None] = lambda graph: None     # and what it will for a graph that is nearly optimised
    target: Callable[[], Target] = lambda: GENERIC      # the machine that its code is for
    devices: int = 0                        # of its own, named as it is: `mine`, `mine:1` ...; 0: the logical ones
    open: Callable[[int], DeviceRuntime] | None = None      # of these, the one of a number
