"""A pipeline schedule and what each stage costs -> how long it takes, quickly enough to compare many.

Of many micro-batches a few are simulated (`tenon.pipelining.simulate_schedule`): once the pipeline is full, as many
more take as much longer each time.
"""

from __future__ import annotations

from functools import lru_cache

from tenon.pipelining.schedules import PipelineSchedule, activations_kept, pipeline_schedule
from tenon.pipelining.simulate_schedule import StageCosts, each, makespan
from tenon.records import dataclass

FILLED = 3      # micro-batches for each stage of the pipeline, after which all goes round as before


@dataclass(frozen=True)
class PipelineSizes:
    """A schedule by its name, for so many devices with `chunks` stages each, and micro-batches."""

    schedule: str
    devices: int
    micro_batches: int
    chunks: int = 1


def pipeline_seconds(sizes: PipelineSizes, seconds: StageCosts, exact: bool = False) -> float:
    """How long all micro-batches take; `exact` simulates each of them."""
    few = FILLED * sizes.devices
    if exact or sizes.micro_batches <= few + sizes.devices:
        return makespan(_schedule(sizes.schedule, sizes.devices, sizes.micro_batches, sizes.chunks), seconds)
    few += sizes.micro_batches % sizes.devices      # an interleaved schedule has groups as large as the pipeline
    less, more = (makespan(_schedule(sizes.schedule, sizes.devices, n, sizes.chunks), seconds)
                  for n in (few - sizes.devices, few))
    return more + (sizes.micro_batches - few) / sizes.devices * (more - less)


def about_pipeline_seconds(sizes: PipelineSizes, seconds: StageCosts) -> float:
    """The same by the formulas of the schedules' papers, for the device that has most to do; a hundred times faster."""
    p = sizes.devices
    whole = seconds.whole(p * sizes.chunks)
    loads = [sum(whole[k::p]) for k in range(p)]
    most = max(loads)
    waiting = (sum(loads) - most) / sizes.chunks
    if sizes.schedule == "zero_bubble":         # the gradients of weights fill what they can
        waiting = max(0.0, waiting - 2 * (p - 1) * sum(each(seconds.weight_gradient, p)) / p)
    return sizes.micro_batches * most + waiting + 2 * (p - 1) * max(each(seconds.transfer, p))


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
