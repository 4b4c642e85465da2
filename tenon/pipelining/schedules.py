"""(devices, micro-batches, chunks) -> what each device of a pipeline does, in order; and the check that it can run.

    schedule = pipeline_schedule("1f1b", 2, 4)
    print(schedule)         # one row a device:  F0.0 F0.1 B0.0 F0.2 ...   kind, stage, micro-batch

A stage is a part of the model: with `chunks` > 1 each device has several, dealt out in turn (stage s is on device
s % devices).  A backward action may be split into the gradient for the stage before (I) and that of the weights (W),
for which nobody waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tenon.errors import ArgumentError
from tenon.locks import cached_property
from tenon.records import dataclass

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "F", "B", "I", "W"


@dataclass(frozen=True)
class Action:
    """What a device does at once: `kind` (F, B, I or W) of one micro-batch in one stage."""

    kind: str
    stage: int
    micro: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.micro}"

    def __hash__(self) -> int:
        return hash((self.kind, self.stage, self.micro))


@dataclass(frozen=True)
class PipelineSchedule:
    """The actions of each device, in order."""

    name: str
    devices: int
    micro_batches: int
    chunks: int
    actions: tuple[tuple[Action, ...], ...]

    @property
    def stages(self) -> int:
        return self.devices * self.chunks

    @cached_property
    def splits_backward(self) -> bool:
        return any(x.kind == WEIGHT_GRADIENT for x in self.actions[0])

    def device_of(self, stage: int) -> int:
        return stage % self.devices

    @cached_property
    def steps(self) -> tuple[tuple[int, Action, tuple[tuple[int, int, bool], ...]], ...]:
        """(device, action, what it needs) in an order in which each has that: its number in this row, its stage, and
        whether it is done on another device.  Raises ArgumentError where there is no such order."""
        number: dict[Action, int] = {}
        found = []
        for device, action, needed in in_order(self):
            found.append((device, action, tuple([(number[x], x.stage, self.device_of(x.stage) != device)
                                                 for x in needed])))
            number[action] = len(number)
        return tuple(found)

    def __str__(self) -> str:
        return "\n".join(f"device {d}: {' '.join(map(str, row))}" for d, row in enumerate(self.actions))


# ---------------------------------------------------------------- the published schedules

def gpipe(devices: int, micro_batches: int, chunks: int) -> Iterator[list[Action]]:
    """All forward, then all backward from the last (Huang et al., "GPipe", 2019)."""
    for d in range(devices):
        forward = [Action(FORWARD, chunk * devices + d, k) for chunk in range(chunks) for k in range(micro_batches)]
        yield [*forward, *(Action(BACKWARD, x.stage, x.micro) for x in reversed(forward))]


def one_forward_one_backward(devices: int, micro_batches: int, chunks: int) -> Iterator[list[Action]]:
    """A backward after each forward, as soon as there can be one (Narayanan et al., "Memory-Efficient Pipeline-Parallel
    DNN Training", PipeDream-Flush, 2021): a device keeps no more activations than there are devices behind it."""
    if chunks != 1:
        raise ArgumentError(f"1f1b: one stage a device is needed, not {chunks}", hint="'interleaved' takes more")
    for d in range(devices):
        forward = [Action(FORWARD, d, k) for k in range(micro_batches)]
        backward = [Action(BACKWARD, d, k) for k in range(micro_batches)]
        yield _alternating(forward, backward, devices - d - 1)


def interleaved(devices: int, micro_batches: int, chunks: int) -> Iterator[list[Action]]:
    """1F1B where each device has several stages (Narayanan et al., "Efficient Large-Scale Language Model Training on
    GPU Clusters Using Megatron-LM", 2021): micro-batches in groups as large as the pipeline, a group through chunk
    after chunk; the bubble is `chunks` times smaller."""
    if chunks == 1:
        yield from one_forward_one_backward(devices, micro_batches, chunks)
        return
    groups = [range(k, k + devices) for k in range(0, micro_batches, devices)]      # the last one filled up
    for d in range(devices):
        forward = [Action(FORWARD, chunk * devices + d, k) for group in groups for chunk in range(chunks)
                   for k in group]
        backward = [Action(BACKWARD, chunk * devices + d, k) for group in groups for chunk in reversed(range(chunks))
                    for k in group]
        row = _alternating(forward, backward, (chunks - 1) * devices + 2 * (devices - d - 1))
        yield [x for x in row if x.micro < micro_batches]


def zero_bubble(devices: int, micro_batches: int, chunks: int) -> Iterator[list[Action]]:
    """ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023): 1F1B, with the gradients of weights put off into
    what was the bubble, as far as no device keeps more than the first did."""
    if chunks != 1:
        raise ArgumentError(f"zero_bubble: one stage a device is needed, not {chunks}",
                            hint="'interleaved' takes more")
    for d, plain in enumerate(one_forward_one_backward(devices, micro_batches, chunks)):
        row: list[Action] = []
        late = 0            # gradients of weights that are due
        for x in plain:
            if x.kind == FORWARD:
                row.append(x)
                continue
            row.append(Action(INPUT_GRADIENT, d, x.micro))
            if x.micro - late >= d:
                row.append(Action(WEIGHT_GRADIENT, d, late))
                late += 1
        yield [*row, *(Action(WEIGHT_GRADIENT, d, k) for k in range(late, micro_batches))]


def _alternating(forward: Sequence[Action], backward: Sequence[Action], first: int) -> list[Action]:
    """`first` of the forward actions, then one forward and one backward in turn, then what is left of the latter."""
    first = min(first, len(forward))
    row = list(forward[:first])
    for ahead, back in zip(forward[first:], backward, strict=False):
        row += [ahead, back]
    return [*row, *backward[len(forward) - first:]]


SCHEDULES: dict[str, Callable[[int, int, int], Iterator[list[Action]]]] = {
    "gpipe": gpipe, "1f1b": one_forward_one_backward, "interleaved": interleaved, "zero_bubble": zero_bubble}


def pipeline_schedule(name: str, devices: int, micro_batches: int, chunks: int = 1) -> PipelineSchedule:
    """The schedule of this name: "gpipe", "1f1b", "interleaved" (with `chunks` stages a device) or "zero_bubble".

    Raises ArgumentError for other names, and for counts below 1.

    >>> from tenon.pipelining.schedules import pipeline_schedule
    >>> print(pipeline_schedule("1f1b", 2, 3))
    device 0: F0.0 F0.1 B0.0 F0.2 B0.1 B0.2
    device 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2
    """
    if name not in SCHEDULES:
        raise ArgumentError(f"no pipeline schedule is named {name!r}", hint=f"one of {', '.join(SCHEDULES)}")
    for what, count in (("devices", devices), ("micro_batches", micro_batches), ("chunks", chunks)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ArgumentError(f"pipeline schedule: {what} is a number from 1 on, not {count!r}")
    rows = tuple(map(tuple, SCHEDULES[name](devices, micro_batches, chunks)))
    return check_schedule(PipelineSchedule(name, devices, micro_batches, chunks, rows))


# ---------------------------------------------------------------- whether it can run

def needs(action: Action, stages: int, split: bool) -> list[Action]:
    """What must be done before an action, in a schedule of so many stages that splits backward actions or not."""
    kind, stage, micro = action.kind, action.stage, action.micro
    if kind == FORWARD:
        return [Action(FORWARD, stage - 1, micro)] if stage else []
    if kind == WEIGHT_GRADIENT:
        return [Action(INPUT_GRADIENT, stage, micro)]
    behind = [Action(INPUT_GRADIENT if split else BACKWARD, stage + 1, micro)] if stage < stages - 1 else []
    return [Action(FORWARD, stage, micro), *behind]


def check_schedule(schedule: PipelineSchedule) -> PipelineSchedule:
    """The schedule, if every action is there once, on the device of its stage, and none waits for ever.

    Raises ArgumentError that names the action where this is not so.
    """
    kinds = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT) if schedule.splits_backward else (FORWARD, BACKWARD)
    count = Counter(x for row in schedule.actions for x in row)
    wanted = [Action(kind, stage, k) for kind in kinds for stage in range(schedule.stages)
              for k in range(schedule.micro_batches)]
    for x in wanted:
        if count.pop(x, 0) != 1:
            raise ArgumentError(f"pipeline schedule {schedule.name}: {x} is not there exactly once")
    if count:
        raise ArgumentError(f"pipeline schedule {schedule.name}: {next(iter(count))} is not one of its actions")
    for d, row in enumerate(schedule.actions):
        for x in row:
            if schedule.device_of(x.stage) != d:
                raise ArgumentError(f"pipeline schedule {schedule.name}: {x} is on device {d}")
    _ = schedule.steps
    return schedule


def in_order(schedule: PipelineSchedule) -> Iterator[tuple[int, Action, list[Action]]]:
    """(device, action, what it needs) in an order in which each has that; raises ArgumentError if there is none."""
    rows, split, stages = schedule.actions, schedule.splits_backward, schedule.stages
    place = [0] * len(rows)
    done: set[Action] = set()
    waiting: dict[Action, list[int]] = {}
    ready = list(reversed(range(len(rows))))
    while ready:
        d = ready.pop()
        while place[d] < len(rows[d]):
            action = rows[d][place[d]]
            needed = needs(action, stages, split)
            missing = next((x for x in needed if x not in done), None)
            if missing is not None:
                waiting.setdefault(missing, []).append(d)
                break
            yield d, action, needed
            done.add(action)
            place[d] += 1
            ready += waiting.pop(action, [])
    if waiting:
        missing, devices = next(iter(waiting.items()))
        stuck = rows[devices[0]][place[devices[0]]]
        raise ArgumentError(f"pipeline schedule {schedule.name}: {stuck} waits for ever for {missing}")


def activations_kept(schedule: PipelineSchedule) -> tuple[int, ...]:
    """How many micro-batches of a stage each device keeps at most, from their forward to their last backward action."""
    found = []
    last = WEIGHT_GRADIENT if schedule.splits_backward else BACKWARD
    for row in schedule.actions:
        now = most = 0
        for x in row:
            now += (x.kind == FORWARD) - (x.kind == last)
            most = max(most, now)
        found.append(most)
    return tuple(found)
