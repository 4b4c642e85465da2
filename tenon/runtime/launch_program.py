"""A program for a device with memory of its own -> one that takes arrays of this process, or buffers of the device.

    program = Launched(compiled, runtime)
    program.run([x, weights])       # x is an array, and is copied; weights is a buffer, and is not

Results are buffers: whoever wants the elements reads them (`tenon.runtime.open_devices.fetched`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tenon.atomic import at_once
from tenon.graph.ir import Graph
from tenon.program.backend_interface import DeviceRuntime, Executable, Then
from tenon.runtime.open_devices import brought


class LaunchedProgram:
    """A program that a device runs in its own memory."""

    def __init__(self, program: Executable, runtime: DeviceRuntime):
        self.program, self.runtime = program, runtime

    @property
    def graph(self) -> Graph:
        """What is run, after all passes."""
        return self.program.graph

    def run(self, arrays: Sequence[Any], donated: Collection[int] = (), then: Then | None = None) -> list[Any]:
        """The results, as buffers, when they are there."""
        copies = self.runtime.space != "host"
        arguments = [brought(x, self.runtime) if copies and isinstance(x, np.ndarray) else x for x in arrays]
        results, there = self.runtime.launch(self.program, arguments)
        there.wait()
        if then is not None:
            at_once(then(results, None) or ())      # type: ignore[arg-type]
        return list(results)
