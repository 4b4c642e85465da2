"""Graphs, one a device -> one executable: all run at once, and speak through a transport.

    program = MultiDevice(graph, {0: DevicePart(first, (0, 2), (0,)), 1: DevicePart(second, (1,), (1,))}, transport)
    loss, weights = program.run([x, w, y])

A transport runs the devices of one process, a thread each, or this process's alone.  An error on one device ends all of
them: the transport wakes whoever waits, and the caller gets the error that came first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.errors import ArgumentError
from tenon.graph.ir import Graph
from tenon.observe import span
from tenon.ops.communicator import Communicator, speaking
from tenon.program.backend_interface import Array, Executable, Then
from tenon.records import dataclass
from tenon.runtime.device_threads import run_side_by_side
from tenon.runtime.forks import RunPhase
from tenon.runtime.transports import Transport


@dataclass(frozen=True)
class DevicePart:
    """What one device runs: its program, the places of its arguments among all, and those of its results."""

    program: Executable
    arguments: tuple[int, ...]
    results: tuple[int, ...]


class MultiDevice:
    """What runs the graphs of several devices; `graph` is what they compute together."""

    def __init__(self, graph: Graph, parts: Mapping[int, DevicePart], transport: Transport,
                 names: Mapping[int, str] | None = None):
        self.graph, self.transport, self._agreed = graph, transport, False
        self.parts = {rank: parts[rank] for rank in transport.ranks if rank in parts}
        self.names = {rank: (names or {}).get(rank, f"device {rank}") for rank in parts}
        made = {place for part in self.parts.values() for place in part.results}
        if missing := sorted(set(range(len(graph.results))) - made):
            raise ArgumentError(f"{graph.name}: result {missing[0]} is made by no device of this process")

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results, in memory of their own; what `then` says is stored when all devices have come to their end.

        No device writes in donated memory: another one may fail later, and state is then as it was before.
        """
        if len(arrays) != len(self.graph.params):
            raise ArgumentError(f"{self.graph.name} takes {len(self.graph.params)} arrays, not {len(arrays)}")
        if not self._agreed:
            self.transport.agree(self.graph)
            self._agreed = True
        speakers = {rank: speaker for rank, speaker in self.transport.begin().items() if rank in self.parts}

        def abort(error: BaseException) -> None:
            for speaker in speakers.values():
                speaker.abort(error)
        jobs = [partial(self._run_part, rank, speaker, arrays) for rank, speaker in speakers.items()]
        results = self._gathered(run_side_by_side(jobs, abort))
        if then is not None:
            phase = RunPhase(np.zeros(2, np.int64))
            try:
                at_once(then(results, phase) or ())
            finally:
                phase.end()
        return results

    def _run_part(self, rank: int, speaker: Communicator, arrays: Sequence[Array]) -> list[Array]:
        part = self.parts[rank]
        try:
            with span("device", graph=self.graph.name, device=self.names[rank]), speaking(speaker):
                found = part.program.run([arrays[k] for k in part.arguments])
        except BaseException as error:
            error.add_note(f"on {self.names[rank]}, in graph {self.graph.name}")
            speaker.abort(error)        # before `close`, of which others would hear that a rank has ended
            raise
        finally:
            speaker.close()
        return found

    def _gathered(self, found: Sequence[list[Array]]) -> list[Array]:
        """The results in order, each from the first device that made it."""
        results: list[Any] = [None] * len(self.graph.results)
        for part, arrays in zip(self.parts.values(), found, strict=True):
            for place, array in zip(part.results, arrays, strict=True):
                if results[place] is None:
                    results[place] = array if hasattr(array, "nbytes") else np.asarray(array)
        return results
