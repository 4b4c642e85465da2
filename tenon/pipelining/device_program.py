"""The instructions of one device of a pipeline -> what runs them: compiled segments, and a communicator."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.errors import DevicePlanError
from tenon.graph.ir import Graph, Value
from tenon.ops.communicator import Communicator, communicator
from tenon.pipelining.device_steps import Add, Divide, Drop, Finish, Instruction, Receive, Run, Send
from tenon.pipelining.segments import Segment
from tenon.pipelining.step_parts import MICRO_AXIS, Accumulated
from tenon.program.backend_interface import Array, Executable, Then
from tenon.records import dataclass
from tenon.sharding.sharding import Sharding, entry_axes

COMBINE: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Moment:
    """When an instruction was done, in seconds of `time.perf_counter`, and the processor time that it took."""

    instruction: Instruction
    start: float
    end: float
    processor: float


class DeviceProgram:
    """What one device does in a step.  It takes all arguments of the step, whole, and returns the values in `results`.

    `shardings` says how parameters are split: over the mesh axis "micro", whose places are the micro-batches, and over
    others, along which this device has the place `coordinates`.  With `watch`, the next run notes when each instruction
    was done, in `moments`.
    """

    def __init__(self, graph: Graph, instructions: Sequence[Instruction], results: Sequence[Value],
                 shardings: Mapping[int, Sharding], micro_batches: int, compile: Callable[[Graph], Executable],
                 coordinates: Mapping[str, int] | None = None, ranks: Sequence[int] | None = None):
        self.graph, self.instructions, self.results = graph, tuple(instructions), tuple(results)
        self.shardings, self.micro_batches, self.coordinates = shardings, micro_batches, dict(coordinates or {})
        self.ranks = ranks              # of the devices that the instructions number
        self.programs: dict[Segment, Executable] = {}
        for x in instructions:
            if isinstance(x, Run) and x.segment not in self.programs:
                self.programs[x.segment] = compile(x.segment.graph)
        self.watch = False
        self.moments: list[Moment] = []

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results of this device, in memory of their own."""
        state = _State(self, arrays, communicator("pipeline"))
        if self.watch:
            self.moments = []
            for x in self.instructions:
                start, before = time.perf_counter(), time.thread_time()
                state.do(x)
                self.moments.append(Moment(x, start, time.perf_counter(), time.thread_time() - before))
        else:
            for x in self.instructions:
                state.do(x)
        results = state.finished(self.results)
        if then is not None:
            at_once(then(results, None) or ())
        return results


class _State:
    """The values of one run of one device: those there once, and those of each micro-batch."""

    def __init__(self, program: DeviceProgram, arrays: Sequence[Array], speaker: Communicator):
        self.program, self.speaker = program, speaker
        count = program.micro_batches
        self.once: dict[Value, Array] = {}
        self.micro: list[dict[Value, Array]] = [{} for _ in range(count)]
        self.given = dict(zip(program.graph.params, arrays, strict=True))
        for k, (value, array) in enumerate(self.given.items()):
            sharding = program.shardings.get(k)
            if sharding is not None and is_of_batch(sharding):
                for micro, store in enumerate(self.micro):
                    store[value] = self._part(array, sharding, micro)
            else:
                self.once[value] = array if sharding is None else self._part(array, sharding, 0)
        self.sums: dict[Accumulated, Array] = {}
        self.rows: dict[Accumulated, list[Array | None]] = {}

    def _part(self, array: Array, sharding: Sharding, micro: int) -> Array:
        """What this device has of an argument in one of its turns."""
        place = {**self.program.coordinates, **({MICRO_AXIS: micro} if MICRO_AXIS in sharding.mesh.axes else {})}
        return np.ascontiguousarray(array[sharding.slices(array.shape, sharding.mesh.rank_at(place))])

    def do(self, x: Instruction) -> None:
        match x:
            case Run(segment, micro):
                before = [self.sum_so_far(total) for total in segment.sums]
                given = [self.get(value, micro) for value in segment.reads]
                found = self.program.programs[segment].run([*given, *before],
                                                           range(len(given), len(given) + len(before)))
                self.store(micro).update(zip(segment.makes, found, strict=False))
                self.sums.update(zip(segment.sums, found[len(segment.makes):], strict=True))
            case Send(value, to, micro, tag):
                self.speaker.send(self.get(value, micro), self.rank(to), tag)
            case Receive(value, source, micro, tag):
                shape: Any = value.shape
                self.store(micro)[value] = self.speaker.recv(shape, value.dtype.numpy, self.rank(source), tag)
            case Add(total, micro):
                self.add(total, micro, self.get(total.part, micro))
            case Divide(value, whole, axis):
                for store, rows in zip(self.micro, np.split(self.once[whole], len(self.micro), axis), strict=True):
                    store[value] = np.ascontiguousarray(rows)
            case Finish(total):
                self.once[total.value] = self.finish(total)
            case Drop(values, micro):
                for value in values:
                    self.micro[micro].pop(value, None)

    def rank(self, device: int) -> int:
        return device if self.program.ranks is None else self.program.ranks[device]

    def store(self, micro: int | None) -> dict[Value, Array]:
        return self.once if micro is None else self.micro[micro]

    def get(self, value: Value, micro: int | None) -> Array:
        if micro is not None and value in self.micro[micro]:
            return self.micro[micro][value]
        return self.once[value]

    def sum_so_far(self, total: Accumulated) -> Array:
        """What micro-batches have given so far, in memory that may be written to."""
        found = self.sums.get(total)
        if found is None:
            shape: Any = total.part.shape
            found = np.zeros(shape, total.part.dtype.numpy)
        return found

    def add(self, total: Accumulated, micro: int, part: Array) -> None:
        """Take in what one micro-batch gives."""
        if total.how in COMBINE:
            before = self.sums.get(total)
            if before is None:
                self.sums[total] = np.array(part)
            else:
                COMBINE[total.how](before, part, out=before)
        else:
            self.rows.setdefault(total, [None] * self.program.micro_batches)[micro] = part

    def finish(self, total: Accumulated) -> Array:
        """What all micro-batches have given, on all devices that share the rest of the batch."""
        if total.how == "only":
            return self._only(total)
        if total.how == "concat":
            rows: list[Any] = self.rows.pop(total)
            return np.concatenate(rows, total.axis)
        found = self.sums.pop(total)
        return self.speaker.all_reduce(found, total.over, total.how) if total.over else found

    def _only(self, total: Accumulated) -> Array:
        rows: list[Array] = self.rows.pop(total)        # type: ignore[assignment]
        if len(rows) > 1:
            raise DevicePlanError(f"pipeline: micro-batches of a result {total.value.type} cannot be joined")
        return rows[0]

    def finished(self, results: Sequence[Value]) -> list[Array]:
        """The results; what is an argument, or a result twice, is copied."""
        seen = set(self.given)
        found = []
        for x in results:
            array = self.given[x] if x in self.given else self.once[x]
            found.append(np.array(array) if x in seen else np.asarray(array))
            seen.add(x)
        return found


def is_of_batch(sharding: Sharding) -> bool:
    """Whether each micro-batch has its own part."""
    return any(MICRO_AXIS in entry_axes(entry) for entry in sharding.spec)
