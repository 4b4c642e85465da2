"""Compiled steps, watched for numbers that should not be there: NaN, infinities, what is out of a range.

    with tn.debug.check(step):
        step(x, y)          # raises BadNumber where an operation first makes one: its line, its inputs, what led to it

Every kernel's results are looked at as they are made.  The first kernel that has made a bad number is repeated by the
interpreter on what it read, so the operation within it is found.  The step that is ended so has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenon.debug.looked_at import jitted_of, looked_at
from tenon.debug.summary import summary_of
from tenon.errors import ArgumentError, Location, TenonError
from tenon.graph.interpret import interpret, running, witnessed
from tenon.graph.ir import Literal, Node, Value
from tenon.ops.call import fused
from tenon.program.steps import HostStep, KernelStep, LookStep, Storage
from tenon.records import dataclass, field
from tenon.runtime.frame import Frame
from tenon.runtime.looking import Halted, RunAgain, inputs_of, outputs_of

Array = np.ndarray[Any, Any]
LONGEST_CHAIN = 6


class BadNumber(TenonError, ArithmeticError):
    """A value that `tn.debug.check` was told to look for; `operator` made it, `place` is the element's index."""

    operator: str = ""
    place: tuple[int, ...] = ()


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
                return name, found
        return self._outside(array)

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
        return (f"number outside of {self.range[0]:g} to {self.range[1]:g}", found) if found.any() else None


@contextmanager
def check(function: Any, nan: bool = True, inf: bool = True,
          range: tuple[float, float] | None = None) -> Iterator[None]:
    """Raise BadNumber where a compiled call of a jitted function first makes a NaN, an infinity, or a number out of
    `range`, forward or in the gradient; nothing is captured or compiled anew, and the call has changed nothing.

    An operation makes a bad number if none of what it reads holds one: a mask of minus infinity is none.

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
    with looked_at(jitted_of(function, "check"), (_Checker(Wanted(nan, inf, range)),)):
        yield


@dataclass(eq=False)
class _Checker:
    """Looks at what every kernel makes.  Where one that writes where it reads has made a bad number, the run is made
    once more, and what this kernel reads is kept."""

    wanted: Wanted
    keeps: bool = True
    suspect: KernelStep | None = None
    kept: list[Array] = field(default_factory=list)

    def wants(self, step: KernelStep | HostStep) -> tuple[bool, bool]:
        numbers = any(x.dtype.kind in "fc" or self.wanted.range for x in step.node.outputs)
        return step is self.suspect, numbers

    def see(self, frame: Frame, look: LookStep) -> None:
        step = look.step
        if look.before:
            assert isinstance(step, KernelStep)
            shared = _overwritten(step)
            self.kept = [x.copy() if k in shared else x for k, x in enumerate(inputs_of(frame, step))]
            return
        made = outputs_of(frame, step)
        if not any(self.wanted.bad(x) for x in made):
            return
        if isinstance(step, KernelStep):
            shared = _overwritten(step)
            if shared and step is not self.suspect:
                self.suspect = step
                raise RunAgain
            error = self._within(step, frame, self.kept if shared else inputs_of(frame, step))
        else:
            given = [None if x is None else frame.argument(x, place)
                     for x, place in zip(step.node.inputs, step.arguments, strict=True)]
            error = self._made_by(step.node, given, made, {}, {})
        if error is not None:
            raise Halted(error)

    def _within(self, step: KernelStep, frame: Frame, inputs: Sequence[Array]) -> BadNumber | None:
        """The error of the first operation in a kernel's body that makes a bad number."""
        body = step.unit.body
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
                return _error(node, bad, given, values, outside)
        return None

    @staticmethod
    def _of_the_code(step: KernelStep) -> BadNumber:
        """The error of a kernel that makes what its interpreter does not."""
        node = next((n for n in reversed(step.unit.body.nodes) if n.loc is not None), step.node)
        what = f"{step.unit.name}: the kernel makes a number that is NaN, infinite or out of range"
        return BadNumber(what, node.loc, why="its interpreter does not: tn.debug.bisect says more")


def _overwritten(step: KernelStep) -> set[int]:
    """The inputs of a kernel whose memory its outputs have."""
    outputs: set[Storage] = set(step.outputs)
    return {k for k, x in enumerate(step.inputs) if x in outputs} | {k for _, k in step.unit.facts.in_place}


# ---------------------------------------------------------------- what is said

def _error(node: Node, bad: tuple[str, Array], given: Sequence[Any], values: Mapping[Value, Array],
           outside: Around) -> BadNumber:
    what, mask = bad
    place = tuple(int(k) for k in np.argwhere(np.atleast_1d(mask))[0])[:mask.ndim]
    where = node.loc
    gradient = where.derives if where is not None else None
    name = f"{node.op.name}: makes a{'n' if what.startswith('inf') else ''} {what}"
    count = f", in {int(mask.sum())} of {mask.size} elements" if mask.ndim else ""
    part = " (in the gradient)" if gradient is not None else ""
    rows = [f"{node.op.name} of {_described(x, a)}" for x, a in zip(node.inputs, given, strict=True) if a is not None]
    rows = [*rows, *_chain(node, values, outside)]
    error = BadNumber(f"{name}{count}{part}", gradient or where, why="\n       ".join(rows) or None,
                      hint=HINTS.get(node.op.name))
    error.operator, error.place = node.op.name, place
    return error


HINTS = {
    "log": "a number that may be 0 needs a least value, as in tn.log(tn.maximum(x, 1e-8))",
    "sqrt": "a number that may be below 0 by rounding needs tn.maximum(x, 0.0)",
    "divide": "a divisor that may be 0 needs a least value, as in x / (y + 1e-8)",
    "reciprocal": "a number that may be 0 needs a least value, as in 1 / (y + 1e-8)",
    "exp": "an exponent above 88 overflows float32: subtract the largest first, or use tn.softmax, tn.logsumexp",
    "subtract": "infinity minus infinity is NaN: look at where the infinities come from, with inf=True",
    "multiply": "zero times infinity is NaN, and large factors overflow: scale them down",
}


def _described(x: Any, array: Any) -> str:
    return repr(x.value) if isinstance(x, Literal) else str(summary_of(np.asarray(array), bins=0))


def _chain(node: Node, values: Mapping[Value, Array], outside: Around) -> Iterator[str]:
    """Where the inputs of an operation come from, operation by operation, back to arguments of the call.

    Of what other kernels made only the place is known; `outside` says what parameters of this one are around it.
    """
    seen: set[Node | Value] = {node}
    pending: list[tuple[Any, Around]] = [(x, outside) for x in node.inputs]
    while pending and len(seen) <= LONGEST_CHAIN:
        first, around = pending.pop(0)
        x, around = _origin(first, around)
        if not isinstance(x, Value) or (x.node or x) in seen:
            continue
        seen.add(x.node or x)
        told = f": {summary_of(np.asarray(values[first]), bins=0)}" if first in values else ""
        if x.node is None:
            yield f"from {x.name or 'an argument'}, which the call is given{told}"
            continue
        if x.node.op.name not in SILENT:
            yield f"from {x.node.op.name}{_at(x.node.loc)}{told}"
        pending += [(y, around) for y in x.node.inputs]


SILENT = ("broadcast_to", "reshape", "permute", "cast", "slice")       # which change no number
Around = Mapping[Value, Any]        # parameters of a kernel's body -> what they are around it


def _origin(x: Any, around: Around) -> tuple[Any, Around]:
    """What makes a value: within a kernel, an operation of its body."""
    while isinstance(x, Value):
        if x.node is None and x in around:
            x, around = around[x], {}
        elif x.node is not None and x.node.op is fused:
            body = x.node.attrs["body"]
            x, around = body.results[x.index], dict(zip(body.params, x.node.inputs, strict=True))
        else:
            break
    return x, around


def _at(where: Location | None) -> str:
    return "" if where is None else f" at {where}"


