"""A pipeline schedule and what its actions cost -> when each begins and ends, the bubble, and a picture of it as text.

    times = simulate(pipeline_schedule("1f1b", 2, 8), StageCosts(1, 1, 1))
    times.seconds, times.bubble             # 27.0, 1/9
    print(gantt(times))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tenon.errors import ArgumentError
from tenon.pipelining.schedules import (
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Action,
    PipelineSchedule,
)
from tenon.records import dataclass

Seconds = float | Sequence[float]


@dataclass(frozen=True)
class StageCosts:
    """Seconds of the forward part of a stage, of its gradient for the stage before, of its gradients of weights, and of
    a transfer to another device, all for one micro-batch; a number for all stages, or one for each."""

    forward: Seconds
    input_gradient: Seconds
    weight_gradient: Seconds
    transfer: Seconds = 0.0

    def of(self, action: Action) -> float:
        """Seconds of an action."""
        kind, stage = action.kind, action.stage
        if kind == FORWARD:
            return _at(self.forward, stage)
        back = 0.0 if kind == WEIGHT_GRADIENT else _at(self.input_gradient, stage)
        return back if kind == INPUT_GRADIENT else back + _at(self.weight_gradient, stage)

    def backward(self, stages: int) -> list[float]:
        """Seconds of each stage's whole backward part."""
        return list(map(sum, zip(each(self.input_gradient, stages), each(self.weight_gradient, stages), strict=True)))

    def whole(self, stages: int) -> list[float]:
        """Seconds of each stage for a micro-batch, forward and backward."""
        return list(map(sum, zip(each(self.forward, stages), self.backward(stages), strict=True)))


def each(seconds: Seconds, stages: int) -> list[float]:
    """Seconds of each stage."""
    return [_at(seconds, k) for k in range(stages)]


def _at(seconds: Seconds, stage: int) -> float:
    if isinstance(seconds, (int, float)):
        return float(seconds)
    if stage >= len(seconds):
        raise ArgumentError(f"StageCosts: {len(seconds)} numbers for more than {stage} stages")
    return float(seconds[stage])


@dataclass(frozen=True)
class ActionCosts:
    """Seconds of each action, as they were measured."""

    seconds: Mapping[Action, float]
    transfer: Seconds = 0.0

    def of(self, action: Action) -> float:
        """Seconds of an action."""
        return self.seconds[action]


@dataclass(frozen=True)
class PipelineTimes:
    """When each action begins and ends."""

    schedule: PipelineSchedule
    times: Mapping[Action, tuple[float, float]]

    @property
    def seconds(self) -> float:
        return max((end for _, end in self.times.values()), default=0.0)

    def busy(self, device: int) -> float:
        """Seconds in which a device works."""
        return sum(self.times[x][1] - self.times[x][0] for x in self.schedule.actions[device])

    @property
    def bubble(self) -> float:
        """The share of the devices' time in which they wait."""
        whole = self.seconds * self.schedule.devices
        return 1 - sum(map(self.busy, range(self.schedule.devices))) / whole if whole else 0.0


class Timing(Protocol):
    """What is asked of costs."""

    @property
    def transfer(self) -> Seconds: ...
    def of(self, action: Action) -> float: ...


def simulate(schedule: PipelineSchedule, costs: Timing) -> PipelineTimes:
    """When each action begins and ends, if devices do theirs in order and transfers beside them."""
    starts, ends = _run(schedule, costs)
    return PipelineTimes(schedule, {action: (start, end) for (_, action, _), start, end in
                                    zip(schedule.steps, starts, ends, strict=True)})


def makespan(schedule: PipelineSchedule, costs: Timing) -> float:
    """When the last action ends."""
    return max(_run(schedule, costs)[1], default=0.0)


def _run(schedule: PipelineSchedule, costs: Timing) -> tuple[list[float], list[float]]:
    """When the steps of a schedule begin, and when they end."""
    free, transfer, seconds = [0.0] * schedule.devices, costs.transfer, costs.of
    starts, ends = [], list[float]()
    for device, action, needed in schedule.steps:
        start = free[device]
        for k, stage, elsewhere in needed:
            there = ends[k] + _at(transfer, stage) if elsewhere else ends[k]
            start = max(start, there)
        starts.append(start)
        free[device] = start + seconds(action)
        ends.append(free[device])
    return starts, ends


def theoretical_bubble(name: str, devices: int, micro_batches: int, chunks: int = 1, forward: float = 1.0,
                       input_gradient: float = 1.0, weight_gradient: float = 1.0) -> float:
    """The share of time in which devices wait, by the formula of the schedule's paper, for stages of equal cost.

    GPipe and 1F1B: (p - 1) / (m + p - 1); interleaved: with p - 1 divided by the chunks; ZB-H1: p - 1 times the forward
    part and the gradient of the input less that of the weights, since this fills what it can.

    >>> from tenon.pipelining.simulate_schedule import theoretical_bubble
    >>> round(theoretical_bubble("1f1b", 2, 8), 4)
    0.1111
    """
    whole = forward + input_gradient + weight_gradient
    idle = (devices - 1) * {"gpipe": whole, "1f1b": whole, "interleaved": whole / chunks,
                            "zero_bubble": forward + input_gradient - weight_gradient}[name]
    return idle / (micro_batches * whole + idle)


def gantt(times: PipelineTimes, width: int = 100) -> str:
    """One row a device, time to the right; an action stands where it begins, `.` is where the device waits.

    Letters are kinds, then stands the micro-batch, and the stage before it where a device has several.
    """
    scale = width / times.seconds if times.seconds else 0.0
    rows = []
    for device, actions in enumerate(times.schedule.actions):
        row = ["."] * width
        for x in actions:
            start, end = (round(t * scale) for t in times.times[x])
            label = str(x) if times.schedule.chunks > 1 else f"{x.kind}{x.micro}"
            row[start:end] = label[:end - start].ljust(end - start, "-")
        rows.append(f"device {device} |{''.join(row)}|")
    return "\n".join([*rows, f"{times.seconds:.3g} s, bubble {times.bubble:.1%}"])
