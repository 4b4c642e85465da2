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
from tenon.pipelining.step_parts import Accumulated, Rows
from tenon.pipelining.uneven_batches import SmallerBatches
from tenon.program.backend_interface import Array, Executable, Then
from tenon.records import dataclass
from tenon.sharding.axis_layout import numbers_of

COMBINE: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Moment:
    """When an instruction was done, in seconds of `time.perf_counter`, and the processor time that it took."""

    instruction: Instruction
    start: float
    end: float
    processor: float


class DeviceProgram:
    """What one device does in a step.

    `graph` is the step on a micro-batch.  The program takes those of its parameters that are at `arguments`, each as
    this device has it for the whole batch: those in `batch` are divided along an axis.  It returns `results`.
    `smaller` says what is otherwise in micro-batches with one example fewer.  With `watch`, the next run notes when
    each instruction was done, in `moments`.
    """

    def __init__(self, graph: Graph, instructions: Sequence[Instruction], results: Sequence[Value],
                 batch: Mapping[int, int], micro_batches: int, compile: Callable[[Graph], Executable],
                 ranks: Sequence[int] | None = None, smaller: SmallerBatches | None = None):
        self.graph, self.instructions, self.results = graph, tuple(instructions), tuple(results)
        self.batch, self.micro_batches = dict(batch), micro_batches
        self.ranks = ranks              # of the devices that the instructions number
        self.arguments = _read(graph, self.instructions, self.results)
        self.smaller = smaller
        self.programs: dict[Graph, Executable] = {}
        for x in instructions:
            for graph in self.graphs_of(x) if isinstance(x, Run) else ():
                self.programs[graph] = self.programs.get(graph) or compile(graph)
        self.watch = False
        self.moments: list[Moment] = []

    def graphs_of(self, run: Run) -> list[Graph]:
        """What is run: before all micro-batches, what is smaller in some of them is made in both sizes."""
        graph = run.segment.graph
        if self.smaller is None or run.segment not in self.smaller.graphs:
            return [graph]
        other = self.smaller.graphs[run.segment]
        if run.micro is None:
            return [graph] if [x.type for x in graph.results] == [x.type for x in other.results] else [graph, other]
        return [other if self.smaller.has(run.micro) else graph]

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
        self.smaller: dict[Value, Array] = {}       # what is there once for all micro-batches that are smaller
        self.given: dict[Value, Array] = {}
        for k, array in zip(program.arguments, arrays, strict=True):
            value = program.graph.params[k]
            self.given[value] = array
            if k in program.batch:
                for store, part in zip(self.micro, np.array_split(array, count, program.batch[k]), strict=True):
                    store[value] = np.ascontiguousarray(part)
            else:
                self.once[value] = array
        self.sums: dict[Accumulated, Array] = {}
        self.rows: dict[Accumulated, list[Array | None]] = {}

    def do(self, x: Instruction) -> None:
        match x:
            case Run():
                self.run(x)
            case Send(value, to, micro, tag):
                self.speaker.send(self.get(value, micro), self.rank(to), tag)
            case Receive(value, source, micro, tag):
                shape, dtype = self.shape(value, micro), value.dtype.numpy
                self.store(micro)[value] = self.speaker.recv(shape, dtype, self.rank(source), tag)
            case Add(total, micro):
                self.add(total, micro, self.get(total.part, micro))
            case Divide(value, rows):
                for micro, store in enumerate(self.micro):
                    store[value] = self.rows_of(value, rows, micro)
            case Finish(total):
                self.once[total.value] = self.finish(total)
            case Drop(values, micro):
                for value in values:
                    self.micro[micro].pop(value, None)

    def run(self, x: Run) -> None:
        """Compute; before all micro-batches, perhaps in both sizes."""
        segment, stores = x.segment, (self.store(x.micro), self.smaller)
        for graph, store in zip(self.program.graphs_of(x), stores, strict=False):
            before = [self.sum_so_far(total) for total in segment.sums]
            given = [self.get(value, x.micro) for value in segment.reads]
            found = self.program.programs[graph].run([*given, *before], range(len(given), len(given) + len(before)))
            store.update(zip(segment.makes, found, strict=False))
            self.sums.update(zip(segment.sums, found[len(segment.makes):], strict=True))

    def rows_of(self, value: Value, rows: Rows, micro: int) -> Array:
        """A micro-batch's rows of what is there once."""
        smaller, shape = self.program.smaller, self.shape(value, micro)
        begin = [a + micro * shape[k] * (k == rows.axis) for k, a in enumerate(rows.start)] if smaller is None else \
            smaller.begin_of(value, rows, micro)
        return np.ascontiguousarray(self.once[rows.whole][tuple(
            slice(a, a + n) for a, n in zip(begin, shape, strict=True))])

    def shape(self, value: Value, micro: int | None) -> tuple[int, ...]:
        smaller = self.program.smaller
        return numbers_of(value) if smaller is None else smaller.shape_of(value, micro)

    def rank(self, device: int) -> int:
        return device if self.program.ranks is None else self.program.ranks[device]

    def store(self, micro: int | None) -> dict[Value, Array]:
        return self.once if micro is None else self.micro[micro]

    def get(self, value: Value, micro: int | None) -> Array:
        if micro is not None and value in self.micro[micro]:
            return self.micro[micro][value]
        if value in self.smaller and self.program.smaller is not None and self.program.smaller.has(micro):
            return self.smaller[value]
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


def _read(graph: Graph, instructions: Sequence[Instruction], results: Sequence[Value]) -> tuple[int, ...]:
    """The places of the parameters that some instructions need, but for those that they receive."""
    found = set(results)
    received = set()
    for x in instructions:
        match x:
            case Run(segment, _):
                found.update(segment.reads)
            case Send(value, _, _, _):
                found.add(value)
            case Divide(_, rows):
                found.add(rows.whole)
            case Receive(value, _, _, _):
                received.add(value)
            case Add(total, _) | Finish(total):
                found.add(total.part)
    return tuple(k for k, p in enumerate(graph.params) if p in found and p not in received)
