"""A third backend for tests: devices with memory of their own, which look at every access, and take their time.

Memory is one block of bytes behind addresses that mean nothing to this process.  A buffer is an address in it.  Reads and
writes are checked: within a buffer that is alive, of the right device, after something was written there.  Programs run
operator by operator on what is loaded from there, on the queue of the device.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import numpy as np

from tenon.errors import OutOfMemory
from tenon.graph.interpret import bind_sizes, concrete, concrete_type, evaluate_op
from tenon.graph.ir import Graph, Literal, Value
from tenon.program.backend_interface import Backend, DeviceEvent
from tenon.records import dataclass

FIRST = 1 << 40         # the lowest address: no pointer of this process, and no index into the block
ALIGNMENT = 64


class Fault(Exception):
    """An access that a device with memory of its own does not survive."""


class SlowBuffer:
    """Some bytes of one device."""

    def __init__(self, device: SlowDevice, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.device, self.address, self.shape, self.dtype = device, address, shape, dtype
        self.written = False

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class SlowEvent:
    """A point in the queue."""

    def __init__(self) -> None:
        self.ended, self.error = threading.Event(), None

    def done(self) -> bool:
        return self.ended.is_set()

    def wait(self) -> None:
        self.ended.wait()
        if self.error is not None:
            raise self.error


class SlowDevice:
    """One device, which counts what it does."""

    def __init__(self, number: int, space: str, size: int, delay: float):
        self.number, self.space, self.limit, self.delay = number, space, size, delay
        self.memory = np.zeros(size, np.uint8)
        self.alive: dict[int, int] = {}         # address -> bytes
        self.counts: Counter[str] = Counter()
        self.locked = threading.RLock()
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            self.jobs.get()()

    def given(self, work: Callable[[], Any]) -> SlowEvent:
        event, context = SlowEvent(), copy_context()

        def do() -> None:
            try:
                time.sleep(self.delay)
                context.run(work)
            except BaseException as error:
                event.error = error
            event.ended.set()
        self.jobs.put(do)
        return event

    # ------------------------------------------------------------ memory

    @property
    def in_use(self) -> int:
        return sum(self.alive.values())

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> SlowBuffer:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with self.locked:
            buffer = SlowBuffer(self, self.place(size), shape, dtype)
            self.alive[buffer.address] = size
            weakref.finalize(buffer, self.free, buffer.address).atexit = False
            self.counts["allocate"] += 1
        return buffer

    def place(self, size: int) -> int:
        """The first gap that is large enough."""
        at = FIRST
        for address, taken in sorted(self.alive.items()):
            if address - at >= max(size, 1):
                break
            at = max(at, -(-(address + max(taken, 1)) // ALIGNMENT) * ALIGNMENT)
        if at + size > FIRST + self.limit:
            raise OutOfMemory(f"{self.space}:{self.number} has no {size} bytes left")
        return at

    def free(self, address: int) -> None:
        with self.locked:
            size = self.alive.pop(address)
            self.memory[address - FIRST:address - FIRST + size] = 0xDB      # who reads it later gets no number

    def arena(self, size: int) -> None:
        return None

    def view(self, buffer: Any, writes: bool = False) -> np.ndarray:
        """The bytes of a buffer, which is looked at first."""
        if not isinstance(buffer, SlowBuffer):
            raise Fault(f"a host pointer reached {self.space}: {type(buffer).__name__}")
        if buffer.device is not self:
            raise Fault(f"a buffer of {self.space}:{buffer.device.number} reached {self.space}:{self.number}")
        if self.alive.get(buffer.address) != buffer.nbytes:
            raise Fault("a buffer that is not alive")
        if not writes and not buffer.written:
            raise Fault("read before anything was written")
        buffer.written = True
        start = buffer.address - FIRST
        return self.memory[start:start + buffer.nbytes].view(buffer.dtype).reshape(buffer.shape)

    def write(self, source: np.ndarray, target: Any) -> DeviceEvent:
        if not isinstance(source, np.ndarray):
            raise Fault("write takes memory of the host")
        elements = np.array(source)
        self.counts["write"] += 1
        return self.given(lambda: np.copyto(self.view(target, writes=True), elements))

    def read(self, source: Any, target: np.ndarray) -> DeviceEvent:
        self.counts["read"] += 1
        return self.given(lambda: np.copyto(target, self.view(source)))

    def copy(self, source: Any, target: Any) -> DeviceEvent:
        self.counts["copy"] += 1
        source.device.synchronize()
        elements = source.device.view(source).copy()
        return self.given(lambda: np.copyto(self.view(target, writes=True), elements))

    # ------------------------------------------------------------ programs

    def launch(self, program: Any, arguments: Sequence[Any]) -> tuple[list[Any], DeviceEvent]:
        self.counts["launch"] += 1
        results: list[Any] = []
        return results, self.given(lambda: results.extend(program.on(self, arguments)))

    def record(self) -> DeviceEvent:
        return self.given(lambda: None)

    def synchronize(self) -> None:
        self.record().wait()


@dataclass(frozen=True)
class SlowProgram:
    """A graph, run operator by operator."""

    graph: Graph

    def run(self, arrays: Sequence[Any], donated: Collection[int] = (), then: Any = None) -> list[Any]:
        raise Fault("this program is launched by its device, not run in the memory of the host")

    def on(self, device: SlowDevice, arguments: Sequence[Any]) -> list[Any]:
        """The results in buffers of the device."""
        held: dict[Value, Any] = dict(zip(self.graph.params, arguments, strict=True))
        sizes = bind_sizes(self.graph, [device.view(x).shape for x in arguments]) if arguments else {}
        for node in self.graph.nodes:
            loaded = [np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal) else None if x is None else
                      device.view(held[x]).copy() for x in node.inputs]
            types = [concrete_type(x.type, sizes) for x in node.outputs]
            for x, array in zip(node.outputs, evaluate_op(node.op, loaded, concrete(node.attrs, sizes), types),
                                strict=True):
                held[x] = device.allocate(array.shape, array.dtype)
                np.copyto(device.view(held[x], writes=True), array)
            device.counts["operators"] += 1
        return [held[x] for x in self.graph.results]


def slow_backend(name: str, devices: list[SlowDevice], count: int = 2, size: int = 1 << 22,
                 delay: float = 0.0) -> Backend:
    """The backend; the devices that it opens are put into the list."""
    def open_one(number: int) -> SlowDevice:
        devices.append(SlowDevice(number, name, size, delay))
        return devices[-1]
    return Backend(name, SlowProgram, claims=lambda node: node.op.ref is not None, devices=count, open=open_one)
