"""A program of several devices, run -> what each device did and when: where it computed, sent, received and waited."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tenon.ops.communicator import Communicator
from tenon.placement.device_timeline import DeviceSpan, DevicesTimeline
from tenon.program.backend_interface import Array
from tenon.runtime.multi_device import MultiDevice, Transport

MOMENT = 2e-6       # a shorter wait is none


def measured_timeline(program: MultiDevice, arrays: Sequence[Array]) -> DevicesTimeline:
    """The timeline of one run; one before it, for which code and memory are made, is not looked at."""
    program.run(arrays)
    transport: Any = _Timed(program.transport)
    MultiDevice(program.graph, program.parts, transport, program.names).run(arrays)
    names = tuple(name for _, name in sorted(program.names.items()))
    start = min(clock.began for clock in transport.clocks)
    spans = [span for clock in transport.clocks for span in clock.spans(start)]
    return DevicesTimeline("measured", names, tuple(spans))


class _Timed:
    """A transport whose communicators look at the clock."""

    def __init__(self, inner: Transport):
        self.inner, self.clocks = inner, list[_Clock]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def begin(self) -> Mapping[int, Communicator]:
        clocks: dict[int, Any] = {rank: _Clock(rank, inner) for rank, inner in self.inner.begin().items()}
        self.clocks += clocks.values()
        return clocks


class _Clock:
    """A communicator that notes when it was called, and for how long."""

    def __init__(self, rank: int, inner: Communicator):
        self._rank, self._inner = rank, inner
        self.began = self.ended = time.perf_counter()
        self.calls: list[tuple[str, str, float, float]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name in ("group", "abort", "close"):
            self.ended = time.perf_counter()
            return found

        def timed(*args: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            if not self.calls:
                self.began = min(self.began, started)
            try:
                return found(*args, **keywords)
            finally:
                self.calls.append((name, _shown(name, args), started, time.perf_counter()))
        return timed

    def spans(self, start: float) -> list[DeviceSpan]:
        """What the device did: what lies between calls is computing; most of a recv is waiting."""
        found: list[DeviceSpan] = []
        now = self.began
        for name, shown, begun, ended in self.calls:
            if begun > now:
                found.append(DeviceSpan(self._rank, "compute", now - start, begun - start))
            kind = "send" if name == "send" else "wait"
            if name in ("send", "recv") or ended - begun > MOMENT:
                found.append(DeviceSpan(self._rank, shown, begun - start, ended - start, kind))
            now = ended
        if self.ended > now:
            found.append(DeviceSpan(self._rank, "compute", now - start, self.ended - start))
        return found


def _shown(name: str, args: Sequence[Any]) -> str:
    place = {"send": 2, "recv": 3}.get(name)        # of the message's number
    return name if place is None else f"{name} {args[place]}"
