"""A capture and arguments -> the time of every step of its program, with the memory it touches and the arithmetic.

All steps are run one after the other, on the calling thread, so that each finds in the caches what it finds there in a
run; that is repeated, and the least time of each is told.  What a call assigns is written to copies, in place as a
call does it.  Steps inside of branches and loops are timed once, not once a turn.  Of a step that several threads share
the part of each is run too, alone: how much longer the whole step takes than the longest part says what sharing it can
save at most.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from tenon.capture.captured import Captured
from tenon.capture.constant_weights import WithConstants, given, late_program
from tenon.dims.symbolic_dim import evaluate
from tenon.errors import ArgumentError, Location
from tenon.graph.interpret import running
from tenon.graph.ir import Node
from tenon.llvm.work_partition import PARTS_PER_THREAD
from tenon.program import step_executor as native
from tenon.program.backend_interface import Executable
from tenon.program.kernel import multiply_adds
from tenon.program.steps import HostStep, KernelStep, Leaf, leaves, touched
from tenon.records import dataclass, field
from tenon.runtime.program import Program
from tenon.runtime.program_layout import Layout
from tenon.runtime.run_frame import Frame
from tenon.tensor_state import in_memory

KERNELS = (native.KERNEL_ONE, native.KERNEL_ALL)
DRIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)


@dataclass(frozen=True)
class Timed:
    """One step: seconds, bytes of memory that it is given, floating-point operations of products in it.

    `parts` are the times of the parts that threads have, each alone; all of it where one thread runs the step.
    """

    name: str
    seconds: float
    parts: tuple[float, ...]
    bytes: int
    operations: float
    where: Location | None
    step: Leaf | None = field(default=None, repr=False)     # None: a copy
    sizes: Mapping[str, int] = field(default_factory=dict, repr=False)      # of the symbols in its types

    @property
    def longest(self) -> float:
        """The time of the longest part."""
        return max(self.parts)


def timed_steps(captured: Captured, executable: Executable, args: Sequence[Any], keywords: Mapping[str, Any],
                repeats: int) -> tuple[Timed, ...]:
    """The steps of the program of a capture, in the order in which they run in a call with these arguments."""
    given_leaves = captured.leaves_of(args, keywords)
    leaves = captured.arguments(given_leaves)
    assert leaves is not None
    if not isinstance(late_program(executable), Program):
        raise ArgumentError("profile: the program is not made of native steps of one device",
                            hint="tn.debug.device_timelines times several devices; TENON_BACKEND=cpu makes steps")
    arrays: Any = [in_memory(holder.own.payload) for holder in captured.inputs.holders(leaves)]
    donated: Sequence[int] = captured.donations
    arrays = [x.copy() if k in donated else x for k, x in enumerate(arrays)]
    if isinstance(executable, WithConstants):
        ready = executable.ready_for(arrays)
        arrays, donated = given(ready, arrays), [ready.parts.reads.index(k) for k in donated]
    program = late_program(executable)      # for these constants, now that they were looked at
    return tuple(_timed(program, arrays, donated, repeats))


def _timed(program: Program, arrays: Sequence[np.ndarray], donated: Sequence[int], repeats: int) -> Iterator[Timed]:
    program.run(arrays, donated)                # compiles what is missing
    layout = program._layout_for([a.shape for a in arrays], donated)
    frame = Frame(layout, native.driver())
    arena = np.zeros(layout.memory.size + layout.scratch * layout.threads + 64, np.uint8)
    results = frame.run(arrays, arena)          # from here on every pointer is bound, and all memory holds numbers
    kernels = deque(step for step in leaves(program.parts.steps) if isinstance(step, KernelStep))
    # Moves are made too: after the run the pointers of a loop are behind its last row.
    rows = [(row, label) for row, label in zip(layout.steps.reshape(-1, native.STEP_WORDS), layout.labels, strict=True)
            if row[0] in (*KERNELS, native.COPY, native.MOVE) or _host_step(layout, row) is not None]
    functions: list[list[float]] = []       # of the kernel at hand: seconds, then those of each part
    passes = [[_times(frame, layout, row) for row, _ in rows] for _ in range(repeats)]
    for (row, label), times in zip(rows, zip(*passes, strict=True), strict=True):
        seconds, *parts = map(min, zip(*times, strict=True))
        parts = parts or [seconds]
        if row[0] == native.MOVE:
            continue
        if row[0] == native.COPY:
            yield Timed(label, seconds, tuple(parts), 2 * int(row[2]), 0.0, None)
            continue
        host = _host_step(layout, row)
        if host is not None:
            yield Timed(host.node.op.name, seconds, tuple(parts), _bytes(host, layout), 0.0, host.node.loc, host,
                        layout.sizes)
            continue
        functions.append([seconds, *parts])
        if len(functions) < len(kernels[0].unit.functions):
            continue
        step, (seconds, *parts) = kernels.popleft(), map(sum, zip_longest(*functions, fillvalue=0.0))
        functions.clear()
        done = sum(operations(node, layout.sizes) for node in step.unit.body.nodes)
        yield Timed(step.unit.name, seconds, tuple(parts), _bytes(step, layout), done, step.node.loc, step,
                    layout.sizes)
    del results     # whose memory the frame has written in until here


def _host_step(layout: Layout, row: np.ndarray) -> HostStep | None:
    """What NumPy does in a row of the table of steps."""
    step = layout.host[int(row[1])] if row[0] == native.HOST and row[1] != native.CHECK else None
    return step if isinstance(step, HostStep) else None


def _bytes(step: Leaf, layout: Layout) -> int:
    return sum(int(evaluate(x.bytes, layout.sizes)) for x in touched(step))


def _times(frame: Frame, layout: Layout, row: np.ndarray) -> list[float]:
    """Seconds of a row of the table of steps; then those of the part of each thread, where several share it."""
    if _host_step(layout, row) is not None:
        with running(layout.sizes):
            started = time.perf_counter()
            frame.host_step(int(row[1]))        # within a branch it may find nothing that it can work on, and fails
            return [time.perf_counter() - started]
    table = np.concatenate([row, [native.END] + [0] * (native.STEP_WORDS - 1)])
    frame.context[native.STEPS] = table.ctypes.data
    shared = row[0] == native.KERNEL_ALL and layout.threads > 1
    if shared:
        table[native.MIN_PARTS_WORD] = PARTS_PER_THREAD  # nobody does the parts of another
    parts = [(k, layout.threads) for k in range(layout.threads)] if shared else []
    times = [_once(frame, *part) for part in [(0, 1), *parts]]
    frame.context[native.STEPS] = layout.steps.ctypes.data
    return times


def _once(frame: Frame, thread: int, threads: int) -> float:
    """Seconds that one of so many threads is busy with the table at hand."""
    started = time.perf_counter()
    DRIVE(frame.driver.drive)(frame.address, thread, threads)
    return time.perf_counter() - started


def operations(node: Node, sizes: Any = None) -> float:
    """The floating-point operations of a product, two a multiply-add; 0 for all other operators."""
    return 2.0 * multiply_adds(node, sizes or {})
