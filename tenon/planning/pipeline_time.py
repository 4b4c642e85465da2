"""A pipeline schedule and what each stage costs -> how long it takes, quickly enough to compare many.

The same simulation as `tenon.pipelining.simulate_schedule`, over numbers alone.  Of many micro-batches a few are
simulated: once the pipeline is full, as many more take as much longer each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tenon.pipelining.schedules import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    PipelineSchedule,
    activations_kept,
    pipeline_schedule,
)
from tenon.records import dataclass

FILLED = 3      # micro-batches for each stage of the pipeline, after which all goes round as before


@dataclass(frozen=True)
class PipelineSizes:
    """A schedule by its name, for so many devices with `chunks` stages each, and micro-batches."""

    schedule: str
    devices: int
    micro_batches: int
    chunks: int = 1


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of each stage: forward, backward to its input and to its weights; and of a message to the next one."""

    forward: tuple[float, ...]
    input_gradient: tuple[float, ...]
    weight_gradient: tuple[float, ...]
    transfer: float = 0.0

    @property
    def whole(self) -> tuple[float, ...]:
        """Of one micro-batch."""
        return tuple(map(sum, zip(self.forward, self.input_gradient, self.weight_gradient, strict=True)))

    @property
    def backward(self) -> float:
        """Of the stage that takes least."""
        return min(map(sum, zip(self.input_gradient, self.weight_gradient, strict=True)))


def pipeline_seconds(sizes: PipelineSizes, seconds: StageSeconds, exact: bool = False) -> float:
    """How long all micro-batches take; `exact` simulates each of them."""
    few = FILLED * sizes.devices
    if exact or sizes.micro_batches <= few + sizes.devices:
        return makespan(_schedule(sizes.schedule, sizes.devices, sizes.micro_batches, sizes.chunks), seconds)
    few += sizes.micro_batches % sizes.devices      # an interleaved schedule has groups as large as the pipeline
    less, more = (makespan(_schedule(sizes.schedule, sizes.devices, n, sizes.chunks), seconds)
                  for n in (few - sizes.devices, few))
    return more + (sizes.micro_batches - few) / sizes.devices * (more - less)


def about_pipeline_seconds(sizes: PipelineSizes, seconds: StageSeconds) -> float:
    """The same by the formulas of the schedules' papers, for the device that has most to do; a hundred times faster."""
    whole, p = seconds.whole, sizes.devices
    loads = [sum(whole[k::p]) for k in range(p)]
    most = max(loads)
    waiting = (sum(loads) - most) / sizes.chunks
    if sizes.schedule == "zero_bubble":         # the gradients of weights fill what they can
        waiting = max(0.0, waiting - 2 * (p - 1) * sum(seconds.weight_gradient) / p)
    return sizes.micro_batches * most + waiting + 2 * (p - 1) * seconds.transfer


def about_micro_batches_kept(sizes: PipelineSizes) -> tuple[int, ...]:
    """The same as `micro_batches_kept`, by the schedules' definitions."""
    p, m, v = sizes.devices, sizes.micro_batches, sizes.chunks
    if sizes.schedule == "gpipe":
        return (m * v,) * p
    first = [(v - 1) * p + 2 * (p - d - 1) if v > 1 else p - d - 1 for d in range(p)]
    return tuple(min(m * v, n + 1) for n in first)


def micro_batches_kept(sizes: PipelineSizes) -> tuple[int, ...]:
    """How many micro-batches of a stage each device keeps at most."""
    few = min(sizes.micro_batches, FILLED * sizes.devices + sizes.micro_batches % sizes.devices)
    kept = activations_kept(_schedule(sizes.schedule, sizes.devices, few, sizes.chunks))
    if sizes.schedule == "gpipe":       # which keeps all there are
        return tuple(n * sizes.micro_batches // few for n in kept)
    return kept


@lru_cache(maxsize=64)
def _schedule(name: str, devices: int, micro_batches: int, chunks: int) -> PipelineSchedule:
    return pipeline_schedule(name, devices, micro_batches, chunks)


KINDS = {FORWARD: 0, INPUT_GRADIENT: 1, WEIGHT_GRADIENT: 2, BACKWARD: 3}


def makespan(schedule: PipelineSchedule, seconds: StageSeconds) -> float:
    """When the last action ends."""
    stages, count, transfer = schedule.stages, schedule.micro_batches, seconds.transfer
    length = (seconds.forward, seconds.input_gradient, seconds.weight_gradient,
              tuple(a + b for a, b in zip(seconds.input_gradient, seconds.weight_gradient, strict=True)))
    ahead = [[-1.0] * count for _ in range(stages)]         # when forward actions end; -1 before they have begun
    back = [[-1.0] * count for _ in range(stages)]
    late = transfer if schedule.devices > 1 else 0.0
    free = [0.0] * schedule.devices
    place = [0] * schedule.devices
    moved = True
    while moved:
        moved = False
        for device, row in enumerate(schedule.actions):
            now, k = free[device], place[device]
            while k < len(row):
                action = row[k]
                kind, stage, micro = KINDS[action.kind], action.stage, action.micro
                needed = _needed(kind, stage, micro, ahead, back, stages, late)
                if needed < 0.0:
                    break
                now = max(now, needed) + length[kind][stage]
                if kind == 0:
                    ahead[stage][micro] = now
                elif kind != 2:
                    back[stage][micro] = now
                k += 1
            if k > place[device]:
                moved = True
                free[device], place[device] = now, k
    return max(free)


def _needed(kind: int, stage: int, micro: int, ahead: Sequence[Sequence[float]], back: Sequence[Sequence[float]],
            stages: int, late: float) -> float:
    """When what an action reads is there; below 0 where that has not begun."""
    if kind == 0:
        if stage == 0:
            return 0.0
        end = ahead[stage - 1][micro]
        return end + late if end >= 0.0 else -1.0
    if kind == 2 or stage == stages - 1:
        return back[stage][micro] if kind == 2 else ahead[stage][micro]
    end = back[stage + 1][micro]
    return end + late if end >= 0.0 else -1.0
