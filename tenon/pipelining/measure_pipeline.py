"""A pipeline that runs -> when each of its actions was done, and how long the devices waited.

    found = measure(step.capture(x, y).program, lambda: step(x, y))
    found.as_it_ran.bubble              # in a run of this machine, with whatever else it did
    found.by_processor_time.bubble      # if each device had had a core for itself
    print(gantt(found.as_it_ran))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.errors import ArgumentError
from tenon.pipelining.device_program import DeviceProgram, Moment
from tenon.pipelining.device_steps import Receive, Run
from tenon.pipelining.pipelined import Pipelined
from tenon.pipelining.schedules import Action
from tenon.pipelining.simulate_schedule import ActionCosts, PipelineTimes, simulate
from tenon.records import dataclass


@dataclass(frozen=True)
class MeasuredPipeline:
    """The actions of one step: as they ran, and the schedule with the processor time that each took."""

    as_it_ran: PipelineTimes
    by_processor_time: PipelineTimes


def measure(program: Pipelined, run: Callable[[], Any]) -> MeasuredPipeline:
    """What `run`, which runs the program once, does when.  An action's time has in it what it sends and adds up.

    Raises ArgumentError where no run has made a plan, or another process runs some of the devices.
    """
    plan = program.last_plan
    if len(plan.devices) < plan.schedule.devices:
        raise ArgumentError("measure: this process runs some of the devices only")
    devices = [plan.devices[rank] for rank in sorted(plan.devices)[:plan.schedule.devices]]
    for device in devices:
        device.watch = True
    try:
        run()
    finally:
        for device in devices:
            device.watch = False
    times: dict[Action, tuple[float, float]] = {}
    processor: dict[Action, float] = {}
    for device in devices:
        for action, moments in _actions(device):
            times[action] = moments[0].start, moments[-1].end
            processor[action] = sum(x.processor for x in moments)
    first = min(start for start, _ in times.values())
    shifted = {action: (start - first, end - first) for action, (start, end) in times.items()}
    return MeasuredPipeline(PipelineTimes(plan.schedule, shifted), simulate(plan.schedule, ActionCosts(processor)))


def _actions(device: DeviceProgram) -> list[tuple[Action, list[Moment]]]:
    """Each action of a device with what was done for it: all from its run to what is waited for next."""
    found: list[tuple[Action, list[Moment]]] = []
    within = False
    for moment in device.moments:
        x = moment.instruction
        if isinstance(x, Run):
            within = x.action is not None
            if x.action is not None:
                found.append((x.action, []))
        elif isinstance(x, Receive):
            within = False
        if within:
            found[-1][1].append(moment)
    return found
