"""A jitted function of several devices -> what each device does and when: as planned, and as one call was measured.

    timelines = tn.debug.device_timelines(step, x, y)
    print(timelines)                        # a line a device
    timelines.save_png("step.png")          # by matplotlib
    timelines.save_trace("step.json")       # for chrome://tracing and Perfetto
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenon.capture.jitted import Jitted
from tenon.debug.image_files import spans_by_row
from tenon.eager.on_device import at_hand
from tenon.eager.on_mesh import parts_of
from tenon.errors import ArgumentError
from tenon.placement.device_timeline import DevicesTimeline, chrome_trace, gantt
from tenon.placement.measure_devices import measured_timeline
from tenon.placement.placed_program import PlacedProgram
from tenon.records import dataclass
from tenon.runtime.multi_device import MultiDevice
from tenon.runtime.spmd_program import SpmdProgram


@dataclass(frozen=True)
class DeviceTimelines:
    """What devices do: measured, and as it was planned where devices were chosen by cost."""

    measured: DevicesTimeline
    planned: DevicesTimeline | None = None

    @property
    def all(self) -> Sequence[DevicesTimeline]:
        """The plan first."""
        return [self.measured] if self.planned is None else [self.planned, self.measured]

    def __str__(self) -> str:
        return "\n".join(map(gantt, self.all))

    def save_trace(self, path: str | Path) -> None:
        """Write the events that chrome://tracing and Perfetto show."""
        Path(path).write_text(json.dumps({"traceEvents": chrome_trace(self.all)}), encoding="utf-8")

    def save_png(self, path: str | Path) -> Path | None:
        """Draw them; returns the path, None without matplotlib."""
        return spans_by_row(Path(path), {line.title: [(line.names[s.device], s.name, s.kind, s.start, s.end)
                                                      for s in line.spans] for line in self.all})


def device_timelines(function: Any, *args: Any, **keywords: Any) -> DeviceTimelines:
    """The timelines of a call with these arguments.  Nothing of the call is done but the arithmetic.

    Raises ArgumentError for a function without `@tn.jit`, and for one that runs on one device.
    """
    jitted = getattr(function, "__func__", function)
    if not isinstance(jitted, Jitted):
        raise ArgumentError(f"device_timelines takes a function with @tn.jit, not {function!r}")
    bound = (function.__self__, *args) if function is not jitted else args
    captured = jitted.capture(*bound, **keywords)
    program = captured.program
    if not isinstance(program, (MultiDevice, SpmdProgram)):
        raise ArgumentError(f"device_timelines: {jitted.__name__} runs on one device",
                            hint="tn.debug.profile gives the time of every step")
    leaves = captured.arguments(captured.leaves_of(bound, keywords))
    assert leaves is not None
    arrays: Any = [holder.own.payload for holder in captured.inputs.holders(leaves)]
    if isinstance(program, SpmdProgram):
        return DeviceTimelines(measured_timeline(*program.parts_for([parts_of(x) for x in arrays])))
    arrays = [np.asarray(at_hand(x)) for x in arrays]
    planned = program.plan.timeline if isinstance(program, PlacedProgram) else None
    return DeviceTimelines(measured_timeline(program, arrays), planned)
