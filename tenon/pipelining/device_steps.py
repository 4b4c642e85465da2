"""Segments and a schedule -> what each device does in a step, instruction after instruction.

    Receive(x, source, micro)   wait for a value of another device
    Run(segment, micro)         compute
    Send(x, to, micro)          hand a value on, without waiting
    Add(sum, micro)             take a micro-batch's part into a sum over all; Finish(sum): it is complete
    Divide(x, rows)             give each micro-batch its rows
    Drop(values, micro)         nobody here reads them any more

Every device does its instructions in order; a value is sent once to each device that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.graph.ir import UPDATES, Value
from tenon.pipelining.add_in_place import adding_in_place
from tenon.pipelining.schedules import Action, PipelineSchedule
from tenon.pipelining.segments import Segment, Segments
from tenon.pipelining.step_parts import Accumulated, Rows
from tenon.records import dataclass, replace

BEFORE = BEHIND = None      # in the place of a micro-batch: once


def owners(segments: Segments, schedule: PipelineSchedule) -> dict[Value, int]:
    """For each parameter that one device updates, which that is."""
    graph = segments.parts.graph
    found = {}
    for p, result in graph.notes.get(UPDATES) or ():
        stage = segments.results[result][1]
        if stage is not None:
            found[graph.params[p]] = schedule.device_of(stage)
    return found


@dataclass(frozen=True, eq=False)
class Run:
    segment: Segment
    micro: int | None
    action: Action | None = None

    def __str__(self) -> str:
        return f"run {self.segment.graph.name}" + ("" if self.micro is None else f" on micro-batch {self.micro}")


@dataclass(frozen=True, eq=False)
class Send:
    value: Value
    to: int
    micro: int | None
    tag: int

    def __str__(self) -> str:
        return f"send {self.value.type} to device {self.to}, tag {self.tag}"


@dataclass(frozen=True, eq=False)
class Receive:
    value: Value
    source: int
    micro: int | None
    tag: int

    def __str__(self) -> str:
        return f"receive {self.value.type} of device {self.source}, tag {self.tag}"


@dataclass(frozen=True, eq=False)
class Add:
    sum: Accumulated
    micro: int

    def __str__(self) -> str:
        return f"add {self.sum.part.type} of micro-batch {self.micro}"


@dataclass(frozen=True, eq=False)
class Divide:
    """Each micro-batch gets its rows of a value that is there once."""

    value: Value
    rows: Rows

    def __str__(self) -> str:
        return f"divide {self.rows.whole.type} along axis {self.rows.axis}"


@dataclass(frozen=True, eq=False)
class Finish:
    """A sum is complete."""

    sum: Accumulated

    def __str__(self) -> str:
        return f"finish {self.sum.value.type}"


@dataclass(frozen=True, eq=False)
class Drop:
    values: tuple[Value, ...]
    micro: int

    def __str__(self) -> str:
        return f"drop {len(self.values)} of micro-batch {self.micro}"


Instruction = Run | Send | Receive | Add | Divide | Finish | Drop


def device_steps(segments: Segments, schedule: PipelineSchedule,
                 apart: bool = False) -> tuple[tuple[Instruction, ...], ...]:
    """For each device of the schedule, what it does in a step.

    Where devices are `apart`, as processes are, each has of what the step updates only what its stages do: others that
    read it get it first; and all get the results that update nothing.
    """
    writer = _Writer(segments, schedule, apart)
    return tuple(tuple(writer.of_device(d)) for d in range(schedule.devices))


class _Writer:
    def __init__(self, segments: Segments, schedule: PipelineSchedule, apart: bool):
        read = {x for segment in segments.actions.values() for x in segment.reads}
        sums = {x.part: x for x in segments.sums}
        segments = replace(segments, actions={key: adding_in_place(segment, sums, read)
                                              for key, segment in segments.actions.items()})
        self.segments, self.schedule = segments, schedule
        self.numbers = {x: k for k, x in enumerate(segments.home)}
        self.sums = sums
        micro, late = dict[Value, set[int]](), dict[Value, set[int]]()      # the devices that read a value
        for (_, stage), segment in segments.actions.items():
            for x in segment.reads:
                micro.setdefault(x, set()).add(schedule.device_of(stage))
        for (stage, _), segment in segments.late.items():
            for x in segment.reads:
                late.setdefault(x, set()).add(schedule.device_of(stage))
        self.micro_readers, self.late_readers = micro, late
        self.apart, self.owner = apart, owners(segments, schedule)
        self.numbers.update((p, len(self.numbers) + k) for k, p in enumerate(self.owner))

    def of_device(self, device: int) -> Iterator[Instruction]:
        mine = [s for s in range(self.schedule.stages) if self.schedule.device_of(s) == device]
        if self.apart:
            yield from self._shared(device)
        yield from self._before(mine)
        yield from self._micro_batches(device)
        yield from self._behind(device, mine)
        if self.apart:
            yield from self._told(device)

    # ------------------------------------------------------------ between processes

    def _shared(self, device: int) -> Iterator[Instruction]:
        """What is updated by one device and read by others goes there."""
        segments = self.segments
        readers: dict[Value, set[int]] = {}
        for key, segment in [*((s, x) for s, x in segments.first.items()), *((s, x) for s, x in segments.setup.items()),
                             *((s, x) for (_, s), x in segments.actions.items()),
                             *((s, x) for (s, _), x in segments.late.items())]:
            for x in segment.reads:
                readers.setdefault(x, set()).add(self.schedule.device_of(key))
        for p, owner in self.owner.items():
            for other in sorted(readers.get(p, set()) - {owner}):
                if device == owner:
                    yield Send(p, other, BEFORE, self._tag(p, BEFORE))
                if device == other:
                    yield Receive(p, owner, BEFORE, self._tag(p, BEFORE))

    def _told(self, device: int) -> Iterator[Instruction]:
        """What a step returns goes to all."""
        updates = {result for _, result in self.segments.parts.graph.notes.get(UPDATES) or ()}
        told = {x: self.schedule.device_of(stage) for k, (x, stage) in enumerate(self.segments.results)
                if k not in updates and stage is not None}
        for x, owner in told.items():
            number = len(self.numbers) + list(told).index(x)
            for other in range(self.schedule.devices):
                tag = number * (self.schedule.micro_batches + 1)
                if device == owner and other != owner:
                    yield Send(x, other, BEHIND, tag)
                if device == other and other != owner:
                    yield Receive(x, owner, BEHIND, tag)

    # ------------------------------------------------------------ before

    def _before(self, mine: Sequence[int]) -> Iterator[Instruction]:
        segments, count = self.segments, self.schedule.micro_batches
        done: set[Accumulated] = set()
        for stage in mine:
            if (first := segments.first.get(stage)) is not None:
                sums = [x for x in segments.parts.sums if x in segments.parts.first and x.part in first.makes
                        and x not in done]
                for micro in range(count):
                    yield Run(first, micro)
                    yield from (Add(x, micro) for x in sums)
                    yield Drop(first.makes, micro)
                yield from map(Finish, sums)
                done.update(sums)
        for stage in mine:
            if stage in segments.setup:
                yield Run(segments.setup[stage], BEFORE)
        read = {x for (_, stage), segment in segments.actions.items() if stage in mine for x in segment.reads}
        yield from (Divide(x, rows) for x, rows in segments.parts.rows.items() if x in read)

    # ------------------------------------------------------------ each micro-batch

    def _micro_batches(self, device: int) -> Iterator[Instruction]:
        actions = self.schedule.actions[device]
        last = self._last_reads(actions)
        there: set[tuple[Value, int]] = set()
        for k, action in enumerate(actions):
            segment = self.segments.actions[action.kind, action.stage]
            for x in segment.reads:
                source = self._source(x)
                if source not in (None, device) and (x, action.micro) not in there:
                    assert source is not None
                    there.add((x, action.micro))
                    yield Receive(x, source, action.micro, self._tag(x, action.micro))
            yield Run(segment, action.micro, action)
            for x in segment.makes:
                for other in sorted(self.micro_readers.get(x, set()) - {device}):
                    yield Send(x, other, action.micro, self._tag(x, action.micro))
                if x in self.sums and self.sums[x] not in segment.sums:
                    yield Add(self.sums[x], action.micro)
            gone = [x for x in dict.fromkeys((*segment.reads, *segment.makes))
                    if last.get((x, action.micro), k) == k and x in self.numbers and x in self.segments.parts.micro]
            if gone:
                yield Drop(tuple(gone), action.micro)

    def _last_reads(self, actions: Sequence[Action]) -> dict[tuple[Value, int], int]:
        """Behind which action of a device each value of a micro-batch is not read any more."""
        found: dict[tuple[Value, int], int] = {}
        for k, action in enumerate(actions):
            for x in self.segments.actions[action.kind, action.stage].reads:
                found[x, action.micro] = k
        return found

    # ------------------------------------------------------------ behind

    def _behind(self, device: int, mine: Sequence[int]) -> Iterator[Instruction]:
        segments = self.segments
        for total, stage in segments.sums.items():
            if stage in mine:
                yield Finish(total)
                yield from self._send_late(total.value, device)
        there: set[Value] = set()
        for level in range(segments.levels):
            now = [segments.late[stage, level] for stage in mine if (stage, level) in segments.late]
            for segment in now:
                for x in segment.reads:
                    source = self._source(x)
                    if source not in (None, device) and x not in there:
                        assert source is not None
                        there.add(x)
                        yield Receive(x, source, BEHIND, self._tag(x, BEHIND))
            for segment in now:
                yield Run(segment, BEHIND)
                for x in segment.makes:
                    yield from self._send_late(x, device)

    def _send_late(self, x: Value, device: int) -> Iterator[Instruction]:
        if self._source(x) == device:
            for other in sorted(self.late_readers.get(x, set()) - {device}):
                yield Send(x, other, BEHIND, self._tag(x, BEHIND))

    # ------------------------------------------------------------ names

    def _source(self, x: Value) -> int | None:
        """The device that makes a value; None where every device has it."""
        stage = self.segments.home.get(x)
        return None if stage is None else self.schedule.device_of(stage)

    def _tag(self, x: Value, micro: int | None) -> int:
        place = self.schedule.micro_batches if micro is None else micro
        return self.numbers[x] * (self.schedule.micro_batches + 1) + place
