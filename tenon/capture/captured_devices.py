"""While a function is captured: the device of each value so far, and what the graph notes of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakMethod

from tenon.devices import HOST, Device
from tenon.graph.build import Builder
from tenon.graph.ir import DEVICES, Graph, Value
from tenon.graph.value_devices import ANYWHERE, Devices, node_devices
from tenon.tensor_state import Elsewhere


class CapturedDevices:
    """Where the values of a capture are; nothing is looked at until one of them is not on the first device.

    `builders` gives those that record now: that of a branch or loop, and those around it, the innermost first.
    """

    def __init__(self, builders: WeakMethod[Callable[[], Sequence[Builder]]]):
        self.builders = builders
        self.several = False            # whether a value is elsewhere
        self.params: dict[Value, Device] = {}
        self.arrays: set[Value] = set()
        self._known: Devices = {}
        self._followed: dict[Builder, int] = {}         # how many nodes of each were looked at

    def enter(self, param: Any, payload: Any, around: Any = None) -> None:
        """A parameter stands for something outside, which has this payload there, maybe in the capture `around`."""
        device: Any = payload.device if isinstance(payload, Elsewhere) else \
            around.device_of(payload) if isinstance(payload, Value) and around is not None else HOST
        if device is not HOST:
            self.params[param] = device
            self.several = True

    def enter_array(self, param: Value) -> None:
        """A parameter is an array of NumPy, which lies nowhere."""
        self.arrays.add(param)

    def enter_round(self, param: Value, payload: Any) -> None:
        """A parameter stands for what the rounds of a loop hand on, which begins as this payload."""
        if self.several:
            self.follow()
            self._known[param] = self._known.get(payload)

    def follow(self) -> None:
        """Look at the nodes since; raises DeviceError where one reads values of several devices."""
        self.several = True
        now = self.builders()
        assert now is not None, "whose capture is over"
        for builder in reversed(now()):
            self._known.update((p, None if p in self.arrays else self.params.get(p, HOST))
                               for p in builder.params if p not in self._known)
            for node in builder.nodes[self._followed.get(builder, 0):]:
                self._followed[builder] = self._followed.get(builder, 0) + 1
                self._known.update(zip(node.outputs, node_devices(node, self._known), strict=True))

    def of(self, payload: Any) -> Device:
        """The device of a value; the first of what is made where it is read."""
        if not self.several:
            return HOST
        self.follow()
        return self._known.get(payload) or self.params.get(payload, HOST)

    def note(self, graph: Graph) -> None:
        """Let the graph say where its parameters are, if one is elsewhere."""
        if self.several:
            names = tuple(ANYWHERE if p in self.arrays else str(self.params[p]) if p in self.params else None
                          for p in graph.params)
            graph.notes = {**graph.notes, DEVICES: names}
