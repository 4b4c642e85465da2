"""What devices do and when -> a picture of text, and events for a browser's trace viewer.

    cpu:0  |matmul======|s|exp=====|
    cpu:1  |............|r|tanh====|        . waits, s sends, r receives

Planned (`tenon.placement.device_schedule`) and measured (`tenon.placement.measure_devices`) timelines look the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tenon.records import dataclass

MARKS = {"wait": ".", "send": "s", "recv": "r", "compute": "="}


@dataclass(frozen=True)
class DeviceSpan:
    """Something that a device does from `start` to `end`, in seconds: "compute", "send", "recv", or "wait"."""

    device: int
    name: str
    start: float
    end: float
    kind: str = "compute"
    where: str = ""


@dataclass(frozen=True)
class DevicesTimeline:
    """The spans of a run, and the names of the devices."""

    title: str
    names: tuple[str, ...]
    spans: tuple[DeviceSpan, ...]

    @property
    def seconds(self) -> float:
        """The end of the last span."""
        return max((span.end for span in self.spans), default=0.0)

    def busy(self, device: int) -> float:
        """The part of the time in which a device computes."""
        spent = sum(span.end - span.start for span in self.spans if span.device == device and span.kind == "compute")
        return spent / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return gantt(self)


def gantt(timeline: DevicesTimeline, width: int = 100) -> str:
    """A line a device, each column the same time; names stand where there is room.

    >>> from tenon.placement.device_timeline import DeviceSpan, DevicesTimeline, gantt
    >>> spans = (DeviceSpan(0, "matmul", 0.0, 0.6), DeviceSpan(1, "exp", 0.5, 1.0))
    >>> print(gantt(DevicesTimeline("planned", ("cpu", "cpu:1"), spans), 20))
    planned: 1000000.0 us
    cpu    |matmul======        | computes 60 %
    cpu:1  |          exp=======| computes 50 %
    """
    longest = max(map(len, timeline.names), default=0)
    lines = [f"{timeline.title}: {timeline.seconds * 1e6:.1f} us"]
    for device, name in enumerate(timeline.names):
        row = [" "] * width
        for span in timeline.spans:
            if span.device == device:
                _draw(row, span, width / (timeline.seconds or 1.0))
        lines.append(f"{name:<{longest}}  |{''.join(row)}| computes {timeline.busy(device):.0%}".replace("%", " %"))
    return "\n".join(lines)


def _draw(row: list[str], span: DeviceSpan, scale: float) -> None:
    """What is shorter than a column is drawn where nothing else is yet."""
    first, last = round(span.start * scale), round(span.end * scale)
    if first == last:
        place = min(first, len(row) - 1)
        row[place] = MARKS[span.kind] if row[place] in " .=" else row[place]
        return
    text = span.name if span.kind == "compute" and len(span.name) < last - first else ""
    row[first:last] = (text + MARKS[span.kind] * (last - first))[:last - first]


def chrome_trace(timelines: Sequence[DevicesTimeline]) -> list[Mapping[str, Any]]:
    """Events for chrome://tracing and Perfetto: a process a timeline, a thread a device, an arrow a message; times in
    microseconds."""
    events: list[Mapping[str, Any]] = []
    for process, timeline in enumerate(timelines):
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": timeline.title}})
        for device, name in enumerate(timeline.names):
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": device, "args": {"name": name}})
        events.extend({"ph": "X", "name": span.name, "cat": span.kind, "pid": process, "tid": span.device,
                       "ts": span.start * 1e6, "dur": (span.end - span.start) * 1e6, "args": {"where": span.where}}
                      for span in timeline.spans)
        events.extend(_arrows(timeline.spans, process))
    return events


def _arrows(spans: Sequence[DeviceSpan], process: int) -> Iterator[Mapping[str, Any]]:
    """From the end of each send to the end of what receives it: both are called after the message."""
    sent = {span.name.removeprefix("send "): span for span in spans if span.name.startswith("send ")}
    for number, span in enumerate(spans):
        source = sent.get(span.name.removeprefix("recv ")) if span.name.startswith("recv ") else None
        if source is not None:
            flow = {"name": "message", "cat": "message", "id": f"{process}.{number}", "pid": process}
            yield {**flow, "ph": "s", "tid": source.device, "ts": source.end * 1e6}
            yield {**flow, "ph": "f", "bp": "e", "tid": span.device, "ts": span.end * 1e6}
