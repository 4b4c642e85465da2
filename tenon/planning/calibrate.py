"""This machine -> a cluster of logical devices, each a thread of one process: what its kernels and messages cost.

    cluster = calibrate(devices=2)          # about two seconds

Times are processor time of a thread, so other work on the machine counts little.  A device's peak is the rate of its
own products, so efficiencies are relative to that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tenon.errors import ArgumentError
from tenon.graph.build import trace
from tenon.ops.collectives import all_reduce
from tenon.ops.communicator import speaking
from tenon.ops.trigonometric import tanh
from tenon.pipeline import compile
from tenon.planning.cluster import Chip, Cluster, Efficiencies, Interconnect
from tenon.runtime.local_transport import LocalTransport
from tenon.sharding.mesh import Mesh
from tenon.types import DTYPES, TensorType, float32

REPEATS = 15
SECONDS = 0.1                   # of runs at least: short ones all fall into a moment in which another process is busy
LARGE, SHALLOW = 256, 32        # rows, columns and depth of a product; the depth of one whose sums are short
STREAM = 1 << 20                # elements of arrays that a step reads: what the last cache of a core, or all, holds
RESULT = 1 << 22               # elements of a result that is too large to be kept at hand
MESSAGE = 1 << 21              # bytes of a long message
MESSAGES = 100                  # of each length, for all ranks must send as many
TANH = 10                       # operations that `tenon.planning.node_work` counts for one


def calibrate(devices: int = 2, memory: float | None = None) -> Cluster:
    """Measure this machine: a cluster of `devices` threads that share its `memory` (bytes; all there is, unless said).

    Raises ArgumentError where `devices` is no whole number from 1 on.
    """
    if type(devices) is not int or devices < 1:
        raise ArgumentError(f"calibrate: devices is a whole number from 1 on, not {devices!r}")
    large, shallow = (_product_rate(depth) for depth in (LARGE, SHALLOW))
    add, launch = _run(lambda x, y: (x + y).sum(), (STREAM,), (STREAM,)), _run(lambda x: x + 1.0, (1,))
    bandwidth = 2 * 4 * STREAM / add
    functions = _run(lambda x: tanh(x).sum(), (STREAM,)) - 4 * STREAM / bandwidth
    kept, own = _run(lambda x: (x + 1.0).sum(), (RESULT,)), _run(lambda x: x + 1.0, (RESULT,))
    fresh = 4 * RESULT / max(own - kept, 1e-9)
    arithmetic = min(1.0, TANH * STREAM / max(functions, 1e-9) / large)
    depth = max(0.0, min(LARGE, SHALLOW * (large / shallow - 1)))
    large *= 1 + depth / LARGE
    peaks = tuple((t.name, large * min(1.0, float32.itemsize / t.itemsize)) for t in DTYPES)     # by width
    chip = Chip("a thread of this machine", memory or _memory() / devices, bandwidth, peaks,
                fused_products=True, fused_attention=True, moves_apart=True,
                efficiency=Efficiencies(1.0, depth, 1.0, launch, arithmetic, fresh))
    rate, latency = _messages(max(2, devices))
    return Cluster("this machine", chip, (Interconnect("memory", devices, rate, latency),))


def _product_rate(depth: int) -> float:
    seconds = _run(lambda a, b: a @ b, (LARGE, depth), (depth, LARGE))
    return 2.0 * LARGE * LARGE * depth / seconds


def _run(function: Callable[..., Any], *shapes: tuple[int, ...]) -> float:
    """The least processor time of a compiled function's run on one thread."""
    program = compile(trace(function, *(TensorType(float32, shape) for shape in shapes)))
    arrays = [np.full(shape, 0.5, np.float32) for shape in shapes]
    once = least_seconds(lambda: program.run(arrays), 1)
    return least_seconds(lambda: program.run(arrays), max(REPEATS, int(SECONDS / once)))


def least_seconds(run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The least processor time of this thread that some runs take, after one that compiles and warms."""
    run()
    found = []
    for _ in range(repeats):
        started = time.thread_time()
        run()
        found.append(time.thread_time() - started)
    return min(found)


def _messages(devices: int) -> tuple[float, float]:
    """(bytes a second, seconds) of an all-reduce's messages between so many threads, as the models of
    `tenon.planning.collective_time` take them."""
    arrays = [np.ones(n, np.float32) for n in (MESSAGE // 4, 1)]
    programs = [compile(trace(lambda x: all_reduce(x, over=("data",)) * 2.0, TensorType(float32, x.shape)))
                for x in arrays]

    def speak(rank: int, speaker: Any) -> list[float]:
        return [least_seconds(partial(program.run, [x]), MESSAGES) for program, x in zip(programs, arrays, strict=True)]
    times = on_ranks(Mesh({"data": devices}), speak)
    long, short = max(x for x, _ in times), max(x for _, x in times)
    steps = max(1, 2 * (devices - 1).bit_length())
    return 2 * MESSAGE * (devices - 1) / devices / max(long - short, 1e-9), short / steps


def on_ranks(mesh: Mesh, run: Callable[[int, Any], Any]) -> list[Any]:
    """What `run(rank, communicator)` gives in a thread for each rank, all at once.  Raises what one of them raised."""
    found: list[Any] = [None] * mesh.size
    errors: list[BaseException] = []
    speakers = LocalTransport(mesh).begin()

    def one(rank: int) -> None:
        with speaking(speakers[rank]):
            try:
                found[rank] = run(rank, speakers[rank])
            except BaseException as error:
                errors.append(error)
                speakers[rank].abort(error)
            finally:
                speakers[rank].close()
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(mesh.size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def _memory() -> float:
    """Bytes of this machine's memory."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return 8e9


