"""A program and observers -> the same program, run with looks at its memory between its steps.

    program.instrumented = InstrumentedProgram(program, (observer,))     # until it is None again

The kernels, their code and their order are those of the program.  Only the table of steps is made anew, with a call to
Python before or after the steps that an observer asks for.  Where one asks for copies, a run gets copies of what it
would update in place: an observer that raises then ends the run before anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tenon.graph.interpret import concrete_type
from tenon.graph.ir import Graph, Value
from tenon.program.backend_interface import Array, Then
from tenon.program.steps import BranchStep, HostStep, KernelStep, LookStep, LoopStep, Step, Storage, resolve
from tenon.records import replace
from tenon.runtime.arena_planning import aligned_bytes
from tenon.runtime.buffer_pool import take
from tenon.runtime.program import Program
from tenon.runtime.program_layout import Layout, make_layout, take_donated
from tenon.runtime.run_frame import Frame
from tenon.runtime.thread_pool import pool
from tenon.types import TensorType


class Halted(BaseException):
    """Takes an error of an observer's out of a call; what deals with errors of the program must not see it."""

    def __init__(self, error: Exception):
        super().__init__(str(error))
        self.error = error


class RunAgain(BaseException):
    """Ends a run that is to be made once more, since an observer wants to see more than it did."""


class StepObserver(Protocol):
    """Who looks at memory.  `keeps` is whether the arguments of a run are to stay as they are."""

    keeps: bool

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        """Whether to look before the step, at what it reads, and after it, at what it has made."""

    def see(self, frame: Frame, look: LookStep) -> None:
        """Look.  A Halted that it raises ends the run, and Again begins it anew."""


@runtime_checkable
class Repeating(Protocol):
    """An observer who wants to see a call twice, on the same arguments: it `keeps` them."""

    def begin_turn(self, turn: int) -> None:
        """A run begins: the first of a call, which changes nothing, is turn 0, and the one that repeats it turn 1."""


class InstrumentedProgram:
    """A program, run with looks between its steps; an `Executable`."""

    def __init__(self, program: Program, observers: Sequence[StepObserver],
                 given: Callable[[Sequence[Array]], None] | None = None):
        self.program, self.observers = program, tuple(observers)
        self.given = given              # outside of jitted calls: who is told of the arguments
        self._frames: dict[Any, list[Frame]] = {}
        self._place_looks()

    def _place_looks(self) -> None:
        self.parts = replace(self.program.parts, steps=tuple(self._with_looks(self.program.parts.steps)))
        self._layouts: dict[Any, Layout] = {}

    @property
    def graph(self) -> Graph:
        """What is run, after all passes."""
        return self.program.graph

    def run(self, arrays: Sequence[Array], donated: Collection[int] = (), then: Then | None = None) -> list[Array]:
        """The results; in memory of donated arguments only where no observer keeps them."""
        accepted = self.program._accept(arrays)
        if self.given is not None:
            self.given(accepted)
        repeating = [x for x in self.observers if isinstance(x, Repeating)]
        if repeating:
            self._run_turn(0, repeating, accepted, donated, None)
        return self._run_turn(1, repeating, accepted, donated, then)

    def _run_turn(self, turn: int, repeating: Sequence[Repeating], arrays: Sequence[Array], donated: Collection[int],
                  then: Then | None) -> list[Array]:
        """One run of a call; where an observer wants to see more, it is begun anew."""
        for observer in repeating:
            observer.begin_turn(turn)
        try:
            return self._run(arrays, donated, then)
        except RunAgain:
            self._place_looks()
        for observer in repeating:
            observer.begin_turn(turn)
        return self._run(arrays, donated, then)

    def _run(self, arrays: Sequence[Array], donated: Collection[int], then: Then | None) -> list[Array]:
        keeps = any(observer.keeps for observer in self.observers)
        given = [copy_of(x) if keeps and k in donated else x for k, x in enumerate(arrays)]
        layout = self._layout([x.shape for x in given], donated)
        idle = self._frames.setdefault(layout, [])
        try:
            frame = idle.pop()
        except IndexError:
            frame = self._new_frame(layout)
        try:
            return frame.run(given, frame.arena, then)
        except Halted as halted:
            raise halted if self.given is None else halted.error from None
        finally:
            idle.append(frame)

    def _new_frame(self, layout: Layout) -> Frame:
        frame = Frame(layout, self.program._native)
        needed = layout.memory.size + layout.scratch * layout.threads
        frame.use(aligned_bytes(needed) if needed else None)
        return frame

    def _layout(self, shapes: Sequence[tuple[int, ...]], donated: Collection[int]) -> Layout:
        """The plan of a run, in which the same results take the memory of the same arguments as without looks."""
        plain, threads = self.program._layout_for(shapes, donated), pool().threads
        key = tuple(plain.sizes.values()), frozenset(donated), threads
        if key not in self._layouts:
            taken = take_donated(self.program.parts, sorted(donated))
            self._layouts[key] = make_layout(self.parts, self.program._address_of, plain.sizes, taken, threads)
        return self._layouts[key]

    def _with_looks(self, steps: Iterable[Step]) -> Iterator[Step]:
        for step in steps:
            match step:
                case BranchStep():
                    yield replace(step, branches=tuple(tuple(self._with_looks(part)) for part in step.branches))
                case LoopStep():
                    yield replace(step, body=tuple(self._with_looks(step.body)),
                                  condition=tuple(self._with_looks(step.condition)))
                case KernelStep() | HostStep():
                    wanted = [(observer, *observer.wants(step)) for observer in self.observers]
                    yield from (LookStep(step, x.see, step.inputs, before=True) for x, before, _ in wanted if before)
                    yield step
                    yield from (LookStep(step, x.see, step.outputs) for x, _, after in wanted if after)
                case _:
                    yield step


def copy_of(array: Array) -> Array:
    """The same elements, in memory that is used again."""
    made = take(array.shape, array.dtype)
    np.copyto(made, array)
    return made


def body_of(step: KernelStep) -> Graph:
    """What a kernel computes; a whole loop has the values that it reads as parameters."""
    if not step.given:
        return step.unit.body
    params = tuple(x for x in dict.fromkeys(step.node.inputs) if isinstance(x, Value))
    return replace(step.unit.body, params=params)


def inputs_of(frame: Frame, step: KernelStep) -> list[Array]:
    """What a kernel reads, as the parameters of its body."""
    if step.given:
        places = dict(zip(step.node.inputs, step.given, strict=True))
        return [_given(frame, resolve(places[x]), concrete_type(x.type, frame.layout.sizes))
                for x in body_of(step).params]
    found = []
    for k, (param, storage) in enumerate(zip(step.unit.body.params, step.inputs, strict=False)):
        type, start = concrete_type(param.type, frame.layout.sizes), step.pieces.get(k, 0)
        whole = concrete_type(storage.type, frame.layout.sizes)
        raw = frame.view(storage, whole).reshape(-1).view(np.uint8)
        size = int(type.size) * type.dtype.itemsize
        found.append(raw[start:start + size].view(type.dtype.numpy).reshape(type.shape))
    return found


def _given(frame: Frame, storage: Storage, type: TensorType) -> Array:
    """What a loop is given.  Its code holds small constants itself, and what it never reads need not be there."""
    if storage.data is not None:
        return storage.data.view(type.dtype.numpy).reshape(type.shape)
    return frame.view(storage, type) if storage in frame.layout.of else np.zeros(type.shape, type.dtype.numpy)


def outputs_of(frame: Frame, step: KernelStep | HostStep) -> list[Array]:
    """What a step has made, as the outputs of its node."""
    types = [concrete_type(x.type, frame.layout.sizes) for x in step.node.outputs]
    return [frame.view(storage, type) for storage, type in zip(step.outputs, types, strict=False)]


