"""A logical device: memory of its own among that of this process, and a thread that does what it is given, in order.

    device = HostDevice(1)
    made, there = device.launch(program, [x])
    there.wait()

The thread starts with the first launch.  Programs let go of Python's lock, so devices work at once.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import numpy as np

from tenon.errors import OutOfMemory
from tenon.program.backend_interface import Array, Buffer, DeviceEvent, Executable
from tenon.runtime.arena_planning import aligned_bytes
from tenon.runtime.buffer_pool import take


class HostEvent:
    """A point in the queue of a logical device."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> None:
        """The device has come to it."""
        self.error = error
        self._ended.set()

    def done(self) -> bool:
        """Whether the device has come to it."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Return when it has; raises what failed before it."""
        self._ended.wait()
        if self.error is not None:
            raise self.error


class HostDevice:
    """The logical device of a number, for every backend whose programs read the memory of this process."""

    space = "host"

    def __init__(self, number: int, limit: int | None = None):
        self.number, self.limit, self.in_use = number, limit, 0
        self._counting = threading.RLock()      # a buffer may go while one is counted
        self._jobs: SimpleQueue[Callable[[], None]] | None = None
        self._process = 0

    # ------------------------------------------------------------ memory

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of no certain elements.  Raises OutOfMemory where the device has too little left."""
        return self._counted(take(shape, dtype))

    def arena(self, size: int) -> Array:
        """Bytes for what lives inside of one run."""
        return self._counted(aligned_bytes(size))

    def _counted(self, made: Array) -> Array:
        with self._counting:
            if self.limit is not None and self.in_use + made.nbytes > self.limit:
                raise OutOfMemory(f"the device has {self.limit} bytes of memory, {self.in_use} are in use, and "
                                  f"{made.nbytes} were asked for", hint="let go of tensors there, or move some")
            self.in_use += made.nbytes
        weakref.finalize(made, self._free, made.nbytes).atexit = False
        return made

    def _free(self, size: int) -> None:
        with self._counting:
            self.in_use -= size

    def write(self, source: Array, target: Buffer) -> DeviceEvent:
        """Host to device."""
        return self.copy(source, target)

    def read(self, source: Buffer, target: Array) -> DeviceEvent:
        """Device to host, behind what was given before."""
        return self._given(lambda: np.copyto(target, _array(source)))

    def copy(self, source: Buffer, target: Buffer) -> DeviceEvent:
        """From another logical device, or from this one; the elements are read now."""
        elements = np.array(_array(source))
        return self._given(lambda: np.copyto(_array(target), elements))

    # ------------------------------------------------------------ what it is to do

    def launch(self, program: Executable, arguments: Sequence[Buffer]) -> tuple[list[Buffer], DeviceEvent]:
        """Run a program beside the caller."""
        arrays = list(map(_array, arguments))
        results: list[Buffer] = []
        event = self._given(lambda: results.extend(program.run(arrays)))
        return results, event

    def record(self) -> DeviceEvent:
        """The point behind all that was given so far."""
        return self._given(lambda: None)

    def synchronize(self) -> None:
        """Wait for all that was given; raises what failed since the last time."""
        self.record().wait()

    def _given(self, work: Callable[[], Any]) -> HostEvent:
        """Do this behind all else."""
        event, context = HostEvent(), copy_context()
        self._queue().put(lambda: self._do(context.run, work, event))
        return event

    def _queue(self) -> SimpleQueue[Callable[[], None]]:
        if self._jobs is None or self._process != os.getpid():      # a forked child has no thread
            self._jobs, self._process = SimpleQueue(), os.getpid()
            threading.Thread(target=_serve, args=(self._jobs,), daemon=True, name=f"tenon-cpu:{self.number}").start()
        return self._jobs

    @staticmethod
    def _do(run: Callable[..., Any], work: Callable[[], Any], event: HostEvent) -> None:
        try:
            run(work)
            event.end()
        except BaseException as error:
            event.end(error)


def _serve(jobs: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        jobs.get()()


def _array(buffer: Any) -> Array:
    assert isinstance(buffer, np.ndarray), "a buffer of another address space"
    return buffer
