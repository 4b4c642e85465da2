"""What happens, or the steps of a profile -> a trace in Chrome's format, which Perfetto (ui.perfetto.dev) opens.

    with tn.debug.trace("run.json"):
        train()

Tracks are threads; captures, passes, compilation and the first run of a program are spans, nested as they happen, and
the memory of the process is a counter.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenon.debug.resident_memory import resident_bytes
from tenon.debug.step_times import Timed
from tenon.observe import Event, subscribe

Entry = dict[str, Any]
UNTOLD = frozenset({"node", "rewrite"})     # of which there are thousands, each of no length
EVERY = 0.01                            # seconds between two samples of memory, at least


class Trace:
    """What was heard so far, as entries of Chrome's format; times in microseconds since it began."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._began, self._sampled = time.perf_counter(), 0.0
        self._names: dict[int, str] = {}

    def hear(self, event: Event) -> None:
        """Take note of an event of `tenon.observe`."""
        if event.name not in UNTOLD:
            self.add(event.name, event.start, event.seconds, event.thread, **_plain(event.fields))

    def add(self, name: str, start: float, seconds: float, thread: int | None = None, /, **fields: Any) -> None:
        """A span on the track of a thread; one of no length is a mark."""
        thread = threading.get_ident() if thread is None else thread
        self._names.setdefault(thread, threading.current_thread().name)
        title = f"{name} {fields['name']}" if name == "pass" and "name" in fields else name
        shape = {"ph": "X", "dur": seconds * 1e6} if seconds else {"ph": "i", "s": "t"}
        self.entries.append({"name": title, "pid": os.getpid(), "tid": thread, "ts": (start - self._began) * 1e6,
                             "args": fields, **shape})
        self.sample()

    def sample(self) -> None:
        """The memory of the process now, unless that was looked at just before."""
        now = time.perf_counter()
        if now - self._sampled < EVERY:
            return
        self._sampled = now
        if (resident := resident_bytes()) is not None:
            self.entries.append({"name": "memory", "ph": "C", "pid": os.getpid(), "ts": (now - self._began) * 1e6,
                                 "args": {"MB": round(resident / 1e6, 3)}})

    def all_entries(self) -> list[Entry]:
        """With the names of tracks."""
        return [*_titles({thread: f"{name} ({thread})" for thread, name in self._names.items()}), *self.entries]


@contextmanager
def trace(path: str | Path) -> Iterator[Trace]:
    """Write what happens in the block to a file, as a trace that Perfetto and Chrome open.

    >>> with tn.debug.trace("/dev/null") as heard:
    ...     _ = tn.jit(lambda x: x + 1)(tn.ones(3))
    >>> {"capture", "compile"} <= {entry["name"] for entry in heard.entries}
    True
    """
    heard = Trace()
    stop = subscribe(heard.hear)
    try:
        yield heard
    finally:
        stop()
        write_trace(path, heard.all_entries())


def steps_trace(steps: Sequence[Timed]) -> list[Entry]:
    """The steps of a profile, one after the other: a track for each thread's part."""
    entries, at, threads = [], 0.0, 1
    for step in steps:
        threads = max(threads, len(step.parts))
        for k, seconds in enumerate(step.parts):
            entries.append({"name": step.name, "ph": "X", "pid": 0, "tid": k, "ts": at * 1e6, "dur": seconds * 1e6,
                            "args": {"where": str(step.where or ""), "GB/s": _rate(step.bytes, step.seconds),
                                     "GFLOP/s": _rate(step.operations, step.seconds)}})
        at += step.longest
    return [*_titles({k: f"thread {k}" for k in range(threads)}, pid=0), *entries]


def write_trace(path: str | Path, entries: Sequence[Entry]) -> None:
    """Write entries as a file."""
    Path(path).write_text(json.dumps({"traceEvents": list(entries), "displayTimeUnit": "ms"}), encoding="utf-8")


def _titles(tracks: dict[int, str], pid: int | None = None) -> list[Entry]:
    process = os.getpid() if pid is None else pid
    return [{"name": "thread_name", "ph": "M", "pid": process, "tid": k, "args": {"name": name}}
            for k, name in tracks.items()]


def _rate(amount: float, seconds: float) -> float:
    return round(amount / seconds / 1e9, 2) if seconds else 0.0


def _plain(fields: Any) -> dict[str, Any]:
    """What JSON can hold of the fields of an event."""
    return {name: value for name, value in fields.items() if isinstance(value, (str, int, float, bool))}
