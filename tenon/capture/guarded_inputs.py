"""A capture and a call that it was right for -> the table of all that machine code looks at before a call like it.

That the arguments have these types, sizes and flags, that every value and tensor from outside is what it was: a row
for each tensor, array and object (`tenon.cpython.guard_table`), beside the conditions of guards (`native_guards`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.capture.argument_roots import reference
from tenon.capture.captured import Captured
from tenon.capture.constant_weights import WithConstants
from tenon.capture.guard_places import CHANGING
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.preload_fast_calls import state_slots
from tenon.capture.size_reader import NewArray, SizeLimits, SizeReader, array_maker, size_reader
from tenon.dims.symbolic_dim import Dim
from tenon.in_place import Loan, UpdatedState
from tenon.locks import unforked
from tenon.records import replace
from tenon.runtime.buffer_pool import Lease
from tenon.tensor import Tensor, asarray
from tenon.tensor_state import TensorState
from tenon.types import Shape

if TYPE_CHECKING:
    from tenon.cpython.guard_table import Input
    from tenon.cpython.jit_fast_call import FastCalls

CONTIGUOUS_AND_ALIGNED = 0x101      # of ndarray.flags


class GuardedInputs:
    """Collects the conditions of a capture; its first `own` leaves are a call's arguments, the last `changed` ones
    containers that it changes.
    """

    def __init__(self, captured: Captured, leaves: Sequence[Any], own: int, changed: int,
                 max_sizes: Mapping[str, int] | None = None):
        with unforked:
            from tenon.capture.native_guards import GuardConditions
            from tenon.cpython import guard_table, jit_fast_call  # local: LLVM is slow to load, and not always needed
        self.native, self.calls, self.captured = guard_table, jit_fast_call, captured
        self.max_sizes = max_sizes      # for which there is to be memory, where they may be others in other calls
        self.sized: list[tuple[int, Dim]] = []                  # where such sizes are written, for machine code
        self.leaves, self.own, self.containers_at = leaves, own, len(leaves) - changed
        values = dict(captured.values)
        self.renewed = {id(x) for x, _, without_grad, *_ in captured.held if without_grad is None}
        self.free = {k for k, x in enumerate(leaves) if k >= own or (type(x) in CHANGING and k not in values)}
        self.guards = GuardConditions(captured.guards)
        kept = [x for k, x in enumerate(leaves) if not isinstance(x, (Tensor, np.ndarray)) and k not in self.free
                and reference(x) is None]
        self.arrays: list[Any] = [x.own.payload for x in captured.inputs.holders(as_tensors(leaves))]
        program = captured.program
        self.ready = program.ready_for(self.arrays) if isinstance(program, WithConstants) else None
        self.kept: list[Any] = [kept, self.guards.kept, self.ready]     # what the tables point to

    def rows(self) -> list[Input] | None:
        """A row for everything that is read or looked at; None where something cannot be described."""
        rows = [self._row(source, self.place(k), param.type.shape) for k, (source, param) in enumerate(
            zip(self.captured.sources, self.captured.graph.params, strict=True))]
        for k, array in self.ready.watched if self.ready else ():
            row = rows[k]
            rows[k] = None if row is None else replace(row, array=id(array))
        read = {id(source.holder) for source in self.captured.sources if isinstance(source, Held)}
        rows += [self._row(Held(x), self.native.ANY) for x, *_ in self.captured.held if id(x) not in read]
        rows += [self._identity(k, x) for k, x in self.captured.same]
        rows += [self._identity(k, x) for k, x in enumerate(self.leaves)
                 if not isinstance(x, (Tensor, np.ndarray)) and k not in self.free]
        return None if None in rows else rows  # type: ignore[return-value]

    def place(self, k: int) -> int:
        """Where an input stands among the arguments of the program that is run."""
        reads = self.ready.parts.reads if self.ready else range(len(self.arrays))
        return reads.index(k) if k in reads else self.native.ANY

    def _row(self, source: Source, place: int, dims: Shape = ()) -> Input | None:
        """What is looked at of the tensor or array that a source stands for, in these dimensions."""
        base = source.source if isinstance(source, GradientOf) else source
        holder = self.leaves[base.position] if isinstance(base, Argument) else base.holder
        kind, flag, grad = self.native.PLAIN, 0, None
        array: Any = holder
        if isinstance(holder, Tensor):
            own = holder.own
            kind, flag, grad, array = self.native.TENSOR, id(bool(own.requires_grad)), own.grad, own.payload
        if isinstance(source, GradientOf):
            kind, array = self.native.GRADIENT, getattr(getattr(grad, "own", None), "payload", None)
        if not isinstance(array, np.ndarray):
            return None
        shape = np.array(array.shape, np.int64)
        self.kept += shape, array.dtype
        either = kind == self.native.PLAIN or (kind == self.native.TENSOR and id(holder) in self.renewed)
        if self.max_sizes is not None:
            self.sized += [(address, dim) for address, dim in zip(addresses(shape), dims, strict=False)
                           if not isinstance(dim, int)]
        leaf = base.position if isinstance(base, Argument) else -1
        return self.native.Input(
            0 if leaf >= 0 else id(holder), max(leaf, 0), id(type(holder)), kind, flag,
            self.native.ANY if either else int(grad is not None), id(array.dtype), array.ndim,
            shape.ctypes.data, CONTIGUOUS_AND_ALIGNED if place >= 0 else 0, place, 0, id(type(grad)))

    def _identity(self, leaf: int, x: Any) -> Input:
        """The condition that a leaf is this object."""
        return self.native.Input(0, leaf, id(type(x)), self.native.PLAIN, id(x), self.native.ANY, 0, 0, 0, 0,
                                 self.native.ANY, 0, 0)

    def table(self, rows: Sequence[Input], frame: Any = None, places: Sequence[int] = (),
              loans: Sequence[Loan] = ()) -> FastCalls:
        """The native functions that look at all this, and run the program of `frame`, if there is one."""
        conditions, run = self.guards.native, None
        if frame is not None:
            run = self.calls.ProgramRun(frame.objects_at, len(frame.objects), frame.address, places,
                                 frame.pool, frame.takes_long or bool(frame.layout.host),
                                 (frame.statuses.ctypes.data, len(frame.statuses)),
                                 loans, (id(UpdatedState), id(TensorState)))
            conditions = replace(conditions, words=[*conditions.words, *frame.conditions])
        made = self.calls.FastCalls(state_slots(), conditions, rows, Lease, (frame, self.kept), run,
                                    [address for address, _ in self.sized])
        if frame is not None and frame.layout.host:
            made.call = frame.with_host_steps(made.call)
        return made

    def reader(self, results: Sequence[NewArray] = (), limits: SizeLimits | None = None) -> SizeReader | None:
        """What reads the sizes of a call, in the order in which they are written."""
        if self.max_sizes is None:
            return array_maker(results)
        return size_reader(self.captured, self.leaves, [dim for _, dim in self.sized], results, limits)


def addresses(words: np.ndarray) -> Iterable[int]:
    """Where 64-bit words lie."""
    return (words.ctypes.data + words.itemsize * k for k in range(words.size))


def as_tensors(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The leaves, with tensors in the place of arrays."""
    return tuple([asarray(x) if isinstance(x, np.ndarray) else x for x in leaves])
