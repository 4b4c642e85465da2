"""A node of a captured graph -> about how long a device computes it; a value -> how long it travels.

The rates are measured once in a process, by small programs: an elementwise kernel, a product of matrices, a host step,
and messages between two devices.  What is captured is not fused yet: an elementwise node that reads another one has no
memory of its own to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import evaluate
from tenon.graph.build import trace
from tenon.graph.ir import Graph, Node, Value
from tenon.locks import Lock
from tenon.ops.arithmetic import multiply
from tenon.ops.loops import scan, while_loop
from tenon.ops.matrix_products import matmul_op
from tenon.program.kernel import multiply_adds, node_work
from tenon.records import dataclass
from tenon.runtime.device_threads import run_side_by_side
from tenon.runtime.local_transport import LocalTransport
from tenon.runtime.thread_pool import get_num_threads
from tenon.sharding.mesh import Mesh
from tenon.types import TensorType, float32

ANY_SIZE = 64           # what a symbol counts for
MAX_ITERATIONS = 16          # of a loop, where the data decide
FEW = 30_000            # elements that one thread computes alone (tenon.runtime.parallel_profitability)


@dataclass(frozen=True)
class Rates:
    """Seconds: of one thread for an element and for a multiply-add, of any kernel and host step, of a message and of a
    byte in it, and until several devices have started and met again; the threads of a device that has all."""

    element: float = 4e-10
    multiply_add: float = 2e-11
    kernel: float = 3e-7
    host: float = 1.5e-5
    message: float = 3e-5
    byte: float = 1e-10
    start: float = 0.0
    threads: int = 2


class PlaceCosts:
    """What nodes and messages cost where each device has so many threads."""

    def __init__(self, rates: Rates, threads: int):
        self.rates, self.threads = rates, threads

    def of(self, node: Node) -> float:
        """Seconds of a node on one device."""
        if node.graphs:
            return self._of_graphs(node)
        if node.op.moves == "view" or not any(isinstance(x, Value) for x in node.inputs):
            return 0.0
        work = node_work(node, _sizes(node))
        seconds = self._kernel(node, work)
        if node.op.is_host:
            return self.rates.host + work * self.rates.element
        fused = node.op.elementwise and any(isinstance(x, Value) and x.node is not None and x.node.op.elementwise
                                            for x in node.inputs)
        return seconds / 4 if fused else seconds + self.rates.kernel

    def _kernel(self, node: Node, work: int) -> float:
        products = multiply_adds(node, _sizes(node))
        alone = max(work * self.rates.element, products * self.rates.multiply_add)
        return alone / self.threads if work >= FEW else alone

    def _of_graphs(self, node: Node) -> float:
        found = [sum(map(self.of, graph.nodes)) for graph in node.graphs]
        if node.op is scan:
            return _number(node.attrs["length"]) * sum(found)
        return MAX_ITERATIONS * sum(found) if node.op is while_loop else max(found, default=0.0)

    def copy(self, x: Value) -> float:
        """Seconds for which whoever sends, or receives, does nothing else."""
        return self.rates.message / 3 + bytes_of(x) * self.rates.byte

    def travel(self, x: Value) -> float:
        """Seconds between that."""
        return self.rates.message / 3


def bytes_of(x: Value) -> int:
    """The bytes of a value."""
    return _number(x.size) * x.dtype.itemsize


def _number(dim: Any) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, _Any())


def _sizes(node: Node) -> Mapping[str, int]:
    return _Any()


class _Any(dict[str, int]):
    """A size for every symbol."""

    def __missing__(self, name: str) -> int:
        return ANY_SIZE


# ---------------------------------------------------------------- measuring

Compile = Callable[[Graph], Any]
_measured: list[Rates] = []
_lock = Lock()


def measured_rates(compile: Compile) -> Rates:
    """The rates of this machine, measured when first asked for."""
    with _lock:
        if not _measured:
            _measured.append(_measure(compile))
    return _measured[0]


def _measure(compile: Compile) -> Rates:
    threads = get_num_threads()
    size, side = 1 << 16, 256
    x, m = np.ones(size, np.float32), np.ones((side, side), np.float32)
    elements = _seconds(compile(trace(lambda x: multiply(x, x), TensorType(float32, (size,)))), [x])
    matrix = TensorType(float32, (side, side))
    products = _seconds(compile(trace(lambda x: matmul_op(x, x), matrix)), [m])
    small, large = _message(1), _message(1 << 20)
    start = min(_timed(lambda: run_side_by_side([int] * 2, _nobody_waits)) for _ in range(50))
    return Rates(element=elements * threads / size, multiply_add=products * threads / side ** 3, message=small,
                 byte=max(large - small, 0.0) / (1 << 22), start=2 * start, threads=threads)


def _nobody_waits(error: BaseException) -> None:
    """No job waits for another."""


def _seconds(program: Any, arrays: list[Any]) -> float:
    program.run(arrays)
    return min(_timed(lambda: program.run(arrays)) for _ in range(20))


def _timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _message(elements: int, iterations: int = 10) -> float:
    """Of an array to another thread: half of its way there and back."""
    first, second = LocalTransport(Mesh({"devices": 2})).begin().values()
    array = np.zeros(elements, np.float32)

    def ask() -> float:
        return min(_timed(there_and_back) for _ in range(iterations))

    def there_and_back() -> None:
        first.send(array, 1, 0)
        first.recv(array.shape, array.dtype, 1, 0)

    def answer() -> None:
        for _ in range(iterations):
            second.send(second.recv(array.shape, array.dtype, 0, 0), 0, 0)
    best: float = run_side_by_side([ask, answer], on_failure=first.abort)[0]
    return best / 2
