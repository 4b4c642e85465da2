"""A jitted function -> calls that stop in Python's debugger, at a line of the user's, with tensors as real values.

    with tn.debug.stop(step, line="train.py:14", when=lambda v: v["loss"] > 10):
        step(x, y)

Calls in the block run as Python code, operator by operator: what they compute and leave is what compiled calls leave.
Calls after it are compiled again; nothing is captured anew for it.  `breakpoint()` in a jitted function needs none of
this: the function runs in pieces around it.
"""

from __future__ import annotations

import pdb  # noqa: T100    that is what this module is for
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any

from tenon.debug.instrumented_calls import jitted_of
from tenon.errors import PACKAGE, ArgumentError, location_of

When = Callable[[Mapping[str, Any]], Any]
Trace = Callable[[FrameType, str, Any], Any]


class Debugger(pdb.Pdb):
    """Python's own, whose stack has the user's frames alone."""

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of the program, and which is the one at hand."""
        stack, _ = super().get_stack(f, t)
        shown = [pair for pair in stack if not pair[0].f_code.co_filename.startswith((PACKAGE, "<frozen"))]
        return shown, len(shown) - 1


@contextmanager
def stop(function: Any, line: str | None = None, when: When | None = None,
         debugger: Callable[[], pdb.Pdb] = Debugger) -> Iterator[None]:
    """Open pdb in calls of a jitted function: at a `line` such as "train.py:14", where `when` holds of the variables
    there, or both; at the first line where neither is given.

    `when` is asked with the variables by name; one that needs a variable that is not there yet does not hold.  Such a
    call runs uncompiled, and slower.  Raises ArgumentError for a function without `@tn.jit`.

    >>> import io, pdb
    >>> @tn.jit
    ... def double(x):
    ...     y = x * 2
    ...     return y
    >>> said = io.StringIO()
    >>> with tn.debug.stop(double, when=lambda v: "y" in v,
    ...                    debugger=lambda: pdb.Pdb(stdin=io.StringIO("p y + 1\\nc\\n"), stdout=said)):
    ...     double(tn.ones(2))
    tensor([2., 2.])
    >>> "tensor([3., 3.])" in said.getvalue()
    True
    """
    jitted = jitted_of(function, "stop")
    if line is not None and not line.rpartition(":")[2].isdigit():
        raise ArgumentError(f"stop: a line is FILE:NUMBER, as in train.py:14, not {line!r}")
    code = getattr(getattr(jitted.function, "__func__", jitted.function), "__code__", None)

    def call(plain: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(_tracer(line, when, code, debugger))
        try:
            return plain(*args, **keywords)
        finally:
            sys.settrace(before)
    with jitted.with_calls(call):
        yield


def _tracer(line: str | None, when: When | None, code: CodeType | None, debugger: Callable[[], pdb.Pdb]) -> Trace:
    """What Python tells of every line of the user's, until one is a line to stop at."""
    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename.startswith((PACKAGE, "<frozen")):
            return None
        if event != "line" or not _is_the_line(frame, line, when, code) or not _holds(when, frame.f_locals):
            return trace
        found = debugger()
        found.set_trace(frame)
        return found.trace_dispatch(frame, event, arg)
    return trace


def _is_the_line(frame: FrameType, line: str | None, when: When | None, code: CodeType | None) -> bool:
    if line is not None:
        return str(location_of(frame)) == line
    return when is not None or code is None or frame.f_code is code


def _holds(when: When | None, variables: Mapping[str, Any]) -> bool:
    if when is None:
        return True
    try:
        return bool(when(variables))
    except LookupError:
        return False
