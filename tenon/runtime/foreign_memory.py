"""A program, run on memory of another library: arguments by their addresses, results as arrays of ours.

    call = ForeignMemoryCall(program, [(4, 5), (5,)])
    y, = call.run([x.data_ptr(), b.data_ptr()])

Where the graph's notes say which results update which arguments, they are written into the memory of these.

The native driver reads the address of an array's elements at a place behind the array's head.  Words that hold the
addresses take the place of arguments that are no arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.graph.ir import DONATED
from tenon.program.backend_interface import Array, Executable
from tenon.runtime.buffer_pool import take
from tenon.runtime.guard_pages import guarding
from tenon.runtime.program import Program
from tenon.runtime.program_layout import Layout
from tenon.runtime.run_frame import DATA_OFFSET, Frame
from tenon.runtime.thread_pool import pool


class ForeignMemoryCall:
    """Runs a program on arguments of these shapes, which lie in order in memory.  Threads may run it at once."""

    def __init__(self, program: Executable, shapes: Sequence[tuple[int, ...]]):
        self.program, self.shapes = program, tuple(shapes)
        self._types = [(p.dtype.numpy, shape) for p, shape in zip(program.graph.params, self.shapes, strict=True)]
        self._layout: Layout | None = None
        self._idle: list[tuple[Frame, ctypes.Array[ctypes.c_int64]]] = []

    def run(self, addresses: list[int]) -> Sequence[Array | int]:
        """The results, or the places of the arguments in whose memory they are; whoever calls keeps the arguments'
        memory alive until then."""
        layout = self._layout
        if layout is None or layout.pool_threads != pool().threads:
            layout = self._make_layout()
        if layout is None or guarding():
            return self._run_on_arrays([_array_at(a, *type) for a, type in zip(addresses, self._types, strict=True)])
        try:
            frame, words = self._idle.pop()
            if frame.layout is not layout:
                frame, words = self._make_frame(layout)
        except IndexError:
            frame, words = self._make_frame(layout)
        try:
            words[:] = addresses    # type: ignore[assignment]
            return _run(frame, layout, len(addresses))
        finally:
            self._idle.append((frame, words))

    def _run_on_arrays(self, arrays: list[Array]) -> list[Array]:
        """The results, in memory of their own, which other backends do not promise."""
        results = self.program.run(arrays)
        return results if isinstance(self.program, Program) else [np.array(x, order="C", copy=True) for x in results]

    def _make_layout(self) -> Layout | None:
        """None where Python does a part of the program, which needs arrays."""
        if not isinstance(self.program, Program):
            return None
        layout = self.program.layout_for(self.shapes, self.program.graph.notes.get(DONATED, ()))
        self._layout = None if layout.host or layout.memory.walls else layout
        return self._layout

    def _make_frame(self, layout: Layout) -> tuple[Frame, ctypes.Array[ctypes.c_int64]]:
        assert isinstance(self.program, Program)
        frame = self.program.new_frame(layout)
        words = (ctypes.c_int64 * len(self.shapes))()
        for k in range(len(words)):
            frame.objects[k] = ctypes.addressof(words) + 8 * k - DATA_OFFSET
        return frame, words


def _run(frame: Frame, layout: Layout, count: int) -> list[Array | int]:
    objects = frame.objects
    results = [take(shape, dtype) if donor is None else donor for shape, dtype, donor in layout.results]
    for k, result in enumerate(results, count):
        objects[k] = objects[result] if isinstance(result, int) else id(result)
    try:
        if layout.checked:
            frame.run_checked(None)
        else:
            frame.drive()
        return results
    finally:
        frame.phase.end()


def _array_at(address: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    """The memory at an address as an array, which does not keep it alive."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.ndarray(shape, dtype, buffer=memory)
