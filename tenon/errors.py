"""Errors that say what went wrong, where in the user's program, why, and how to mend it."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable
from contextvars import ContextVar
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tenon.error_context import Context, context_of
from tenon.error_hints import hint_for
from tenon.records import dataclass

ADDRESSABLE = 1 << 47       # bytes
PACKAGE = os.path.dirname(__file__) + os.sep     # not pathlib: it takes long to import
KNOWN_CODE = (PACKAGE, os.path.dirname(np.__file__) + os.sep)
STARTS_WITH_A_NAME = r"[\w.]+(\(.*?\)|\[.*?\])?( = value)?: "     # compiled by the first error


@dataclass(frozen=True)
class Location:
    """A place in a source file: the line, and the columns of the expression where they are known."""

    file: str
    line: int
    column: int | None = None
    end_column: int | None = None
    function: str = ""
    derives: Location | None = None     # of what is computed for a gradient: where that was computed which it is of

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    def excerpt(self) -> str:
        """The source line with carets under the expression, or an empty string where there is no source."""
        source = linecache.getline(self.file, self.line).rstrip("\n")
        if not source.strip():
            return f"  {self}"
        prefix = f"  {self}   "
        shown = source.lstrip()
        indent = len(source) - len(shown)
        if self.column is None or self.end_column is None:
            return prefix + shown
        column = len(source.encode()[:self.column].decode(errors="replace")) - indent
        width = max(1, self.end_column - self.column)
        return f"{prefix}{shown}\n{' ' * (len(prefix) + column)}{'^' * width}"


MAX_LOCATIONS = 4096
_locations: dict[tuple[int, int], tuple[CodeType, Location]] = {}     # by identity: equal code may stand elsewhere


def location_of(frame: FrameType) -> Location:
    """The place that `frame` is executing."""
    code, instruction = frame.f_code, frame.f_lasti
    known = _locations.get((id(code), instruction))
    if known is None:
        if len(_locations) >= MAX_LOCATIONS:
            _locations.clear()
        known = _locations[id(code), instruction] = code, _location(code, instruction, frame.f_lineno)
    return known[1]


def location_in(code: CodeType, instruction: int) -> Location:
    """The place of an instruction, which a frame that may be gone was executing."""
    return _location(code, instruction, None)


def _location(code: CodeType, instruction: int, line: int | None) -> Location:
    column = end_column = None
    for start, end, begin, finish in islice(code.co_positions(), max(0, instruction // 2), instruction // 2 + 1):
        line = line or start
        if start == end:
            line, column, end_column = start, begin, finish
    return Location(code.co_filename, line or 0, column, end_column, code.co_name)


def user_location() -> Location | None:
    """Where the innermost frame outside Tenon's own code (and Python's) stands."""
    frame = _users_frame()
    return location_of(frame) if frame is not None else None


def _users_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, "<frozen")):
        frame = frame.f_back
    return frame


ARGS: Any = BaseException.args        # the attribute of every exception

# Told a text of Tenon's that the program reads: in a capture it may name sizes for which a call has numbers.
program_reads: ContextVar[Callable[[str], None] | None] = ContextVar("program_reads", default=None)


def given(text: str) -> str:
    """The text of an error, or of a type, given to whoever asks for it."""
    if (tell := program_reads.get()) is not None and not sys._getframe(2).f_code.co_filename.startswith(PACKAGE):
        tell(text)
    return text


class TenonError(RuntimeError):
    """What happened; `where` in the user's program (found by itself when not given); `why`; and a `hint` to mend it."""

    def __init__(self, what: str, where: Location | None = None, why: str | None = None, hint: str | None = None):
        self.what, self.why, self.hint = what, why, hint or hint_for(what)
        self.where, self._context = where, Context()
        self._frame: FrameType | None = None        # looked at when somebody asks: most errors are caught
        if where is None and (frame := _users_frame()) is not None:
            self.where = self._at = location_of(frame)
            self._frame = frame
        self._nameless = "" if re.match(STARTS_WITH_A_NAME, what) else what
        super().__init__(what)

    @property
    def context(self) -> Context:
        """What the line of the user's calls, and what the names in it are."""
        if self._frame is not None:
            frame, self._frame = self._frame, None
            self._context = _context(frame, self._at)
        return self._context if self.where is not None else Context()       # the line is not told

    @property
    def args(self) -> tuple[Any, ...]:
        """What the error was made with."""
        found: tuple[Any, ...] = ARGS.__get__(self)
        given(str(found))
        return found

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        ARGS.__set__(self, args)

    def __reduce__(self) -> Any:
        self.context    # noqa: B018    a frame is of this process
        return super().__reduce__()

    def named(self, operator: str) -> None:
        """Begin with the operator that the user called, where the message names none."""
        if self._nameless:
            self.what = f"{operator}: {self._nameless}"
            ARGS.__set__(self, (self.what,))

    def _with_name(self) -> str:
        """What happened, with the name of what the user called where another one of Tenon's is told, or none."""
        called, name = self.context.called, self.what.partition(":")[0]
        alike = name.isidentifier() and (called in name or name in called)      # max_pool for max_pool2d
        told = not called or alike or name.isupper() or re.search(rf"\b{called}\b", self.what)
        return self.what if told else f"{called}: {self.what}"

    def __str__(self) -> str:
        rows = [self._with_name()]
        if self.where:
            rows.append(self.where.excerpt())
        if self.context.operands:
            rows.append(f"  with: {self.context.operands}")
        if self.why:
            rows.append(f"  why: {self.why}")
        if self.hint:
            rows.append(f"  hint: {self.hint}")
        return given("\n".join(rows))

    def __repr__(self) -> str:
        return given(super().__repr__())


def _context(frame: FrameType, at: Location) -> Context:
    try:
        return context_of(frame, at.file, at.line, at.column, at.end_column)
    except Exception:       # an object of the user's that cannot be looked at: the error itself has to come through
        return Context()


# What NumPy raises where it cannot do what it is asked to.  Anything else may come from a handler of signals.
OF_NUMPY = (TenonError, TypeError, ValueError, ArithmeticError, LookupError, MemoryError)


class ShapeError(TenonError, ValueError):
    """Shapes, sizes or axes that do not fit the operator."""


class AxisError(ShapeError, IndexError):
    """An axis that the tensor does not have."""


class DTypeError(TenonError, TypeError):
    """An element type that the operator does not take."""


class ArgumentError(TenonError, ValueError, TypeError):
    """An argument that the operator does not take: its value, its name or its kind."""


class NameTaken(ArgumentError, KeyError):
    """A name that something else has."""


class OutOfRange(TenonError, IndexError):
    """An index outside the axis it indexes."""


def failed_check(operator: str, index: int, size: int, where: Location | None) -> TenonError:
    """The error of a check in a running program: an index out of range, or a matrix that is refused."""
    if operator.startswith(SMALL_MATRICES):
        return refused_matrix(operator.removeprefix(SMALL_MATRICES), where)
    if operator.startswith(ACCESSES):
        return BoundsError(f"{operator.removeprefix(ACCESSES)} of {size} elements at {index}, outside of it", where,
                           hint="this is an error of Tenon's own compiler, found by TENON_CHECK=bounds")
    if operator.startswith(READS):
        return BoundsError(f"{operator.removeprefix(READS)} at {index}, an axis of size {size}", where,
                           hint="it may read inside of its inputs only; s.when(condition, lambda: x(i), 0.0) asks")
    name = operator if operator not in ("", "wrap_index") else "x[key]"
    return OutOfRange(f"{name}: index {index} is out of range for an axis of size {size}", where,
                      hint=f"indices run from {-size} to {size - 1}" if size else "the axis is empty")


class CompilerDefect(TenonError):
    """What a compiler did wrong, found by TENON_CHECK, or a pass that a user added: no fallback may hide it."""


class BoundsError(CompilerDefect):
    """Code that reads or writes outside of a buffer."""


ACCESSES = "access: "               # what checks of the compiler's own positions are called
READS = "read: "                    # those of what a user's compute rule reads
SMALL_MATRICES = "small_"          # the operators that compiled programs have in the place of LAPACK


class LinearAlgebraError(TenonError, ArithmeticError):
    """A matrix that has no such decomposition or inverse: singular, not positive definite, no convergence."""


REFUSED = {"Matrix has infinities or NaN": "tn.isfinite finds them, tn.debug.check where they come from",
           "Singular matrix": "tn.linalg.pinv and tn.linalg.lstsq take singular matrices",
           "Matrix is not positive definite": "add a small multiple of the identity, or use tn.linalg.eigh"}


def refused_matrix(operator: str, where: Location | None = None, said: str = "") -> LinearAlgebraError:
    """The error of a matrix that NumPy refuses, in what it `said`, or compiled code does."""
    said = said or ("Matrix is not positive definite" if operator == "cholesky" else "Singular matrix")
    return LinearAlgebraError(f"{operator}: {said[:1].lower()}{said[1:]}", where, hint=REFUSED.get(said))


class OutOfMemory(TenonError, MemoryError):
    """A tensor that this machine has no memory for."""


class OverBudget(OutOfMemory):
    """What a program has to keep does not fit in the memory that the user allowed it."""


def out_of_memory(operator: str, type: object, bytes: int, where: Location | None = None) -> OutOfMemory:
    """The error of a result that is too large."""
    power = max(0, min(6, (bytes.bit_length() - 1) // 10))
    amount = f"{bytes / 1024 ** power:.4g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[power]}"
    return OutOfMemory(f"{operator.removesuffix('_op')}: {type} needs {amount}, and there is no such memory", where,
                       hint="look for an axis that broadcast by mistake, or work on a part at a time")


def step_error(error: Exception, operator: str, where: Location | None = None) -> TenonError:
    """What NumPy (or a user's operator) raised while it did a step, as an error at the user's line."""
    if isinstance(error, TenonError):
        error.where = where or error.where
        return error
    kind = OutOfRange if isinstance(error, IndexError) else TenonError
    made = kind(f"{operator}: {error}", where=where)
    made.__cause__ = error
    return made


class RecompileWarning(UserWarning):
    """A jitted function that is captured again and again, which takes longer than calling it saves."""


class DevicePlanError(ArgumentError):
    """What cannot be laid out over devices as it was asked to be."""


class CommunicationError(TenonError, RuntimeError):
    """A device of a run that another one waits for in vain: it failed, has gone, or does something else."""


class DeviceError(TenonError, RuntimeError):
    """Tensors on several devices in one operation."""


class GraphError(TenonError, ValueError):
    """A graph that breaks the rules of the intermediate representation."""


class CaptureError(TenonError, RuntimeError):
    """A program, or a part of one, that cannot be captured as a graph."""


class GradientError(TenonError, RuntimeError):
    """A derivative that was asked for and does not exist."""
