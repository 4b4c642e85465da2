"""What a backend is: it claims operators that it does better whole, and turns an optimised graph into a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tenon.graph.ir import Graph, Node
from tenon.records import dataclass

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


@dataclass(frozen=True)
class Backend:
    """A way to run graphs.  A composite that is claimed reaches `compile` whole, others in primitive operators."""

    name: str
    compile: Callable[[Graph], Executable]
    claims: Callable[[Node], bool] = lambda node: False
    fuses: bool = False                     # whether one node for several operators is worth anything to it
    prepare: Callable[[], None] = lambda: None      # begins, on other threads, what every `compile` waits for,
    begin: Callable[[Graph], None] = lambda graph: None     # and what it will for a graph that is nearly optimised
    multiplies_pairs: Callable[[], str | None] = lambda: None       # of bfloat16: in "registers" or as "vectors"
