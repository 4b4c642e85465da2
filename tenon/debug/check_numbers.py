"""Compiled steps, watched for numbers that should not be there: NaN, infinities, what is out of a range.

    with tn.debug.check(step):
        step(x, y)          # raises BadNumber where an operation first makes one: its line, its inputs, what led to it

Every kernel's results are looked at as they are made.  The first kernel that has made a bad number is repeated by the
interpreter on what it read, so the operation within it is found.  The step that is ended so has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np

from tenon.capture.captured import Captured
from tenon.capture.graph_breaks import Run
from tenon.capture.jitted import Jitted
from tenon.debug.array_summary import summary_of
from tenon.debug.bad_numbers import Around, BadNumber, bad_number
from tenon.debug.check_repeatability import RepeatChecker
from tenon.debug.instrumented_calls import instrumented, jitted_of, programs_of, runs_on_devices
from tenon.debug.module_paths import module_path
from tenon.debug.overflow import OverflowChecker
from tenon.debug.value_names import Names
from tenon.errors import ArgumentError
from tenon.graph.interpret import interpret, running, witnessed
from tenon.graph.ir import Node, Value
from tenon.ops.graph_calls import fused
from tenon.program.steps import HostStep, KernelStep, LookStep, Storage
from tenon.records import dataclass, field
from tenon.runtime.instrumented_program import Halted, RunAgain, StepObserver, body_of, inputs_of, outputs_of
from tenon.runtime.run_frame import Frame
from tenon.tensor_state import in_memory

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Wanted:
    """Which numbers are bad."""

    nan: bool
    inf: bool
    range: tuple[float, float] | None

    def bad(self, array: Array) -> tuple[str, Array] | None:
        """(what is wrong, where) for an array that has a bad number."""
        if array.dtype.kind not in "fc" and not (array.dtype.itemsize == 2 and array.dtype.kind == "V"):
            return self._outside(array) if array.dtype.kind in "iu" else None
        if self._is_fine(array):
            return None
        for name, wanted, mask in (("NaN", self.nan, np.isnan), ("inf", self.inf, np.isinf)):
            if wanted and (found := np.asarray(mask(array))).any():
                return f"makes a{'n' if name == 'inf' else ''} {name}", found
        return self._outside(array)

    def suspects(self, array: Array) -> bool:
        """Whether what made it may have made a bad number: a NaN may hide an infinity that led to it."""
        return self.bad(array) is not None or (not self.nan and array.dtype.kind in "fc" and not self._is_fine(array)
                                               and bool(np.isnan(array).any()))

    def _is_fine(self, array: Array) -> bool:
        """Whether a quick look is enough: a sum is finite only if all of its terms are."""
        if self.range is not None:
            return False
        with np.errstate(all="ignore"):
            return bool(np.isfinite(np.add.reduce(array, axis=None)))

    def _outside(self, array: Array) -> tuple[str, Array] | None:
        if self.range is None or not array.size:
            return None
        size = np.abs(array) if array.dtype.kind == "c" else array
        found = np.asarray((size < self.range[0]) | (size > self.range[1]))
        return (f"makes a number outside of {self.range[0]:g} to {self.range[1]:g}", found) if found.any() else None


@contextmanager
def check(function: Any, nan: bool = True, inf: bool = True, range: tuple[float, float] | None = None,
          overflow: bool = False, repeatable: bool = False) -> Iterator[None]:
    """Raise BadNumber where a compiled call of a jitted function first makes a NaN, an infinity, or a number out of
    `range`, forward or in the gradient; nothing is captured or compiled anew, and the call has changed nothing.

    An operation makes a bad number if none of what it reads holds one: a mask of minus infinity is none.  With
    `overflow=True` integers that wrap round are bad ones, and casts to a type that has no room: 300 to int8, 1e6 to
    float16.  With `repeatable=True` a call runs twice on the same inputs, and NotRepeatable is raised where the second
    run makes something else; what a call prints is printed twice then.

    >>> @tn.jit
    ... def f(x):
    ...     shifted = x - 1.0
    ...     return tn.log(shifted).sum()
    >>> try:
    ...     with tn.debug.check(f):
    ...         y = f(tn.tensor([2.0, 0.5]))
    ... except tn.debug.BadNumber as error:
    ...     print(error.what)
    log: makes a NaN, in 1 of 2 elements
    """
    if range is not None and not range[0] <= range[1]:
        raise ArgumentError(f"check: range is (least, largest), not {range!r}")
    observers: list[StepObserver] = [OverflowChecker()] if overflow else []
    checker = _Checker(Wanted(nan, inf, range))
    observers += [checker] if nan or inf or range is not None else []
    observers += [RepeatChecker()] if repeatable else []
    jitted = jitted_of(function, "check")

    def around(run: Run, captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> Any:
        checker.call = jitted, captured, leaves
        if runs_on_devices(captured):
            checker.again = True        # no device can begin anew by itself
            if repeatable:
                raise ArgumentError("check: repeatable=True looks at functions on one device")
        try:
            return run(captured, leaves, containers)
        except BadNumber as error:
            if captured.mesh is not None:       # its arguments are in parts, which other processes may hold
                raise
            raise error.made_in(module_path(jitted, captured, leaves, error, checker.wanted.bad)) from None
    with instrumented(jitted, observers, around, devices=True):
        yield


@dataclass(eq=False)
class _Checker:
    """Looks at what every kernel makes.  Where one that writes where it reads has made a bad number, the run is made
    once more, and what such kernels read is kept."""

    wanted: Wanted
    keeps: bool = True
    again: bool = False
    call: tuple[Jitted, Captured, Sequence[Any]] | None = None
    kept: dict[int, list[Array]] = field(default_factory=dict)      # by thread: devices run at once

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        numbers = any(x.dtype.kind in "fc" or self.wanted.range for x in step.node.outputs)
        return self.again and numbers and isinstance(step, KernelStep) and bool(_overwritten(step)), numbers

    def see(self, frame: Frame, look: LookStep) -> None:
        step = look.step
        if look.before:
            assert isinstance(step, KernelStep)
            shared = _overwritten(step)
            self.kept[get_ident()] = [x.copy() if k in shared else x for k, x in enumerate(inputs_of(frame, step))]
            return
        made = outputs_of(frame, step)
        if not any(map(self.wanted.suspects, made)):
            return
        if isinstance(step, KernelStep):
            shared = _overwritten(step)
            if shared and not self.again:
                self.again = True
                raise RunAgain
            error = self._within(step, frame, self.kept[get_ident()] if shared else inputs_of(frame, step))
        else:
            given = [None if x is None else frame.argument(x, place)
                     for x, place in zip(step.node.inputs, step.arguments, strict=True)]
            error = self._made_by(step.node, given, made, {}, {})
        error = error or self._given(step, made)
        if error is not None:
            raise Halted(error)

    def _given(self, step: KernelStep | HostStep, made: Sequence[Array]) -> BadNumber | None:
        """The error of an argument or a tensor from outside whose NaN has come to a result of the call."""
        if self.call is None or not self.wanted.nan or not any(map(_has_nan, made)):
            return None
        jitted, captured, leaves = self.call
        results = {x for program, _ in programs_of(captured) for x in program.graph.results}
        if results.isdisjoint(step.node.outputs):
            return None
        names = Names(jitted, captured).tensors
        for k, x in enumerate(captured.inputs.holders(leaves)):
            if _has_nan(array := np.asarray(in_memory(x.own.payload))):
                name = names.get(k, "an argument")
                return BadNumber(f"{name} holds a NaN when the call begins, and it comes to a result", step.node.loc,
                                 why=f"{name} is {summary_of(array, bins=0)}",
                                 hint="look at where it comes from: what loads the data, or an earlier step")
        return None

    def _within(self, step: KernelStep, frame: Frame, inputs: Sequence[Array]) -> BadNumber | None:
        """The error of the first operation in a kernel's body that makes a bad number."""
        body = body_of(step)
        values: dict[Value, Array] = dict(zip(body.params, inputs, strict=False))
        outside = dict(zip(body.params, step.node.inputs, strict=False)) if step.node.op is fused else {}
        found: list[BadNumber] = []

        def see(node: Node, given: Sequence[Any], made: Sequence[Array]) -> None:
            values.update(zip(node.outputs, made, strict=True))
            if not found and (error := self._made_by(node, given, made, values, outside)) is not None:
                found.append(error)
        with running(frame.layout.sizes), np.errstate(all="ignore"), witnessed(see):
            interpret(body, inputs, frame.layout.sizes)
        if found:
            return found[0]
        handed_on = any(self.wanted.bad(np.asarray(x)) for x in values.values())
        return None if handed_on else self._of_the_code(step)

    def _made_by(self, node: Node, given: Sequence[Any], made: Sequence[Array],
                 values: Mapping[Value, Array], outside: Around) -> BadNumber | None:
        """The error of an operation, where it makes what none of its inputs holds."""
        for array in made:
            bad = self.wanted.bad(np.asarray(array))
            if bad is not None and not any(x is not None and self.wanted.bad(np.asarray(x)) for x in given):
                return bad_number(node, bad, given, values, outside)
        return None

    @staticmethod
    def _of_the_code(step: KernelStep) -> BadNumber:
        """The error of a kernel that makes what its interpreter does not."""
        node = next((n for n in reversed(step.unit.body.nodes) if n.loc is not None), step.node)
        what = f"{step.unit.name}: the kernel makes a number that is NaN, infinite or out of range"
        return BadNumber(what, node.loc, why="its interpreter does not: tn.debug.bisect says more")


def _has_nan(array: Array) -> bool:
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


def _overwritten(step: KernelStep) -> set[int]:
    """The inputs of a kernel whose memory its outputs have."""
    outputs: set[Storage] = set(step.outputs)
    return {k for k, x in enumerate(step.inputs) if x in outputs} | {k for _, k in step.unit.facts.in_place}
