"""Guarded inputs -> what checks them and runs the program: in one native call, or natively checked and run as ever.

One native pass looks at everything that a call depends on.  A program is run in that same pass, unless Python runs a
step of it that must not be repeated: what a step raises sends the call the slow way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.buffer_ownership import EXPORTS
from tenon.capture.captured import Captured
from tenon.capture.constant_weights import given, late_program
from tenon.capture.fast_call_results import FastCallResults, off_the_graph
from tenon.capture.guarded_inputs import CONTIGUOUS_AND_ALIGNED, GuardedInputs, addresses, as_tensors
from tenon.capture.match_arguments import MISS, Call, Run
from tenon.capture.replay import run
from tenon.capture.size_reader import NewArray, SizeLimits
from tenon.capture.store_results import Stopped
from tenon.dims.symbolic_dim import Dim, evaluate, symbol
from tenon.in_place import Loan
from tenon.records import replace
from tenon.runtime.buffer_pool import MIN_POOLED_BYTES, take
from tenon.types import Shape

if TYPE_CHECKING:
    from tenon.cpython.guard_table import Input
    from tenon.graph.ir import Graph
    from tenon.runtime.run_frame import Frame


class RunMaker:
    """Makes the function of a call's leaves that runs the program, or says MISS where a condition does not hold."""

    def __init__(self, inputs: GuardedInputs):
        self.captured, self.inputs, self.max_sizes = inputs.captured, inputs, inputs.max_sizes
        self.builtin: Call | None = None            # the call that is one native function, if there is one

    def made(self, only_quick: bool = False) -> Run | None:
        """What makes calls."""
        rows = self.inputs.rows()
        if rows is None:
            return None
        quick = None if self.captured.differentiable and self.captured.halves is None else self._quick(rows)
        return quick or (None if only_quick else self._checked(rows))

    def _checked(self, rows: Sequence[Input]) -> Run | None:
        """Look at everything natively, then run as ever."""
        inputs, captured = self.inputs, self.captured
        looked = [replace(row, place=inputs.native.ANY, flags=0, array=0) for row in rows]
        check, rest, at = inputs.table(looked).check, inputs.guards.rest, inputs.containers_at
        arrays, read = any(isinstance(x, np.ndarray) for x in inputs.leaves), inputs.reader()
        if read is None:
            return None

        def sized(leaves: tuple[Any, ...]) -> bool:
            words = read(leaves)
            return words is not None and bool(check(leaves, *words))
        holds = check if self.max_sizes is None else sized
        if not holds(tuple(inputs.leaves)):
            return None

        def call(leaves: tuple[Any, ...]) -> Any:
            if not holds(leaves) or (rest is not None and not rest.hold()):
                return MISS
            try:
                return run(captured, as_tensors(leaves) if arrays else leaves, leaves[at:])
            except Stopped:
                return off_the_graph(captured)
        return call

    def _quick(self, rows: list[Input]) -> Run | None:
        """Look at everything and run the program in one native call."""
        inputs, ready, arrays = self.inputs, self.inputs.ready, self.inputs.arrays
        program = late_program(self.captured.program)
        if not hasattr(program, "quick_frame"):     # of stages, or of another backend
            return None
        if not all(_is_ready(array) for k, array in enumerate(arrays) if inputs.place(k) >= 0):
            return None                             # each run copies it
        arrays = given(ready, arrays) if ready else arrays
        reads = ready.parts.reads if ready else range(len(arrays))
        frame = self._frame(program, arrays, reads)
        if frame is None:
            return None
        if ready:
            inputs.guards.native.words.append((EXPORTS.ctypes.data, ready.exports))
            for k, array in enumerate(ready.made, len(ready.parts.reads)):
                frame.objects[k] = id(array)
        loans = _lend(rows, frame)
        donors = [None if donor is None else reads[donor] for _, _, donor in frame.layout.results]
        places = [len(arrays) + k for k, donor in enumerate(donors) if donor is None]
        made = [NewArray(np.empty if _is_small(shape, dtype, self.max_sizes) else take, shape, dtype)
                for shape, dtype, donor in self._results(frame, program.graph) if donor is None]
        self._write_sizes_in(frame)
        new_arrays = inputs.reader(made, self._limits(frame))
        if new_arrays is None:
            return None
        results = FastCallResults(inputs, inputs.table(rows, frame, places, loans), new_arrays, donors)
        made_run = results.run(places, made)
        self.builtin = None if frame.layout.host else results.builtin      # which asks nobody for errors of Python
        return made_run

    def _frame(self, program: Any, arrays: Sequence[Any], reads: Sequence[int]) -> Frame | None:
        """The memory of a run, where results take that of arguments only if these are assigned."""
        donated = [] if self.captured.differentiable else [self.inputs.place(k) for k in self.captured.donations]
        frame = program.quick_frame(arrays, donated, self.max_sizes)
        if frame is not None and not _only_updates(frame, reads, self.captured):
            frame = program.quick_frame(arrays, most=self.max_sizes)
        return frame  # type: ignore[no-any-return]

    def _results(self, frame: Frame, graph: Graph) -> list[tuple[Shape, Any, int | None]]:
        """The shapes and element types of the results, and whose memory each takes."""
        types = [result.type for result in graph.results]
        return [(shape if self.max_sizes is None else type.shape, dtype, donor)
                for type, (shape, dtype, donor) in zip(types, frame.layout.results, strict=True)]

    def _write_sizes_in(self, frame: Frame) -> None:
        """Let the frame have words of its own for the sizes that kernels are given, where calls have others."""
        if self.max_sizes is not None:
            self.inputs.sized += zip(addresses(frame.own_sizes()), map(symbol, frame.layout.size_names), strict=True)

    def _limits(self, frame: Frame) -> SizeLimits | None:
        """How large sizes may be for the memory of the frame."""
        if self.max_sizes is None:
            return None
        most: dict[Dim, int] = {symbol(name): size for name, size in self.max_sizes.items()}
        return SizeLimits({**most, **frame.layout.room}, self.captured.outgrown)


def _lend(rows: list[Input], frame: Frame) -> list[Loan]:
    """Loans of the tensors whose memory results take; their rows say that nobody else may hold them."""
    taken = {donor for _, _, donor in frame.layout.results if donor is not None}
    lent = [k for k, row in enumerate(rows) if row.place in taken]
    for number, k in enumerate(lent, 1):
        rows[k] = replace(rows[k], alone=number)
    return [Loan(frame.phase) for _ in lent]


def _only_updates(frame: Any, reads: Sequence[int], captured: Captured) -> bool:
    """Whether results take no memory but that of the tensors they are assigned to."""
    updates = set(captured.updates)
    return all(donor is None or (reads[donor], k) in updates
               for k, (_, _, donor) in enumerate(frame.layout.results))


def _is_ready(array: np.ndarray) -> bool:
    """Whether machine code may read an array as it lies."""
    return array.flags.num & CONTIGUOUS_AND_ALIGNED == CONTIGUOUS_AND_ALIGNED


def _is_small(shape: Shape, dtype: Any, most: Mapping[str, int] | None) -> bool:
    """Whether the allocator has the memory of such an array at hand."""
    return bool(math.prod(evaluate(dim, most or {}) for dim in shape) * dtype.itemsize < MIN_POOLED_BYTES)
