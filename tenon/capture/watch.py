"""A function's run -> the code that ran, and a stop just before a call whose effect a graph cannot repeat."""

from __future__ import annotations

import datetime
import io
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenon.errors import PACKAGE, CaptureError, Location, location_of

PRINTING = (print, input, open)
NOW = ("now", "today", "utcnow")
LOOKING_UP = (eval, exec, globals)                      # names that only they know
WRITING = frozenset({"print", "input", "open", "write", "writelines"})
LIBRARIES = tuple({p for p in (sys.prefix + "/lib", sys.base_prefix + "/lib", PACKAGE) if p})
ELSEWHERE = (*LIBRARIES, "<frozen", "<__array_function__")
FRONT_END = (PACKAGE + "nn/", PACKAGE + "optim/", PACKAGE + "random.py")    # what holds users' state


class UnsafeCall(BaseException):
    """Raised out of a capture just before something that a graph cannot do: the function runs by part instead.

    Not an Exception, since user code that catches those must not see it.
    """

    def __init__(self, what: str, frame: types.FrameType | None = None, where: Location | None = None,
                 hint: str | None = None):
        super().__init__(what)
        self.what, self.where, self.hint = what, where or (frame and location_of(frame)), hint


@dataclass
class Watch:
    """The code that ran."""

    codes: set[types.CodeType] = field(default_factory=set)
    iterators: Sequence[Any] = ()       # from outside, which must not be moved

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Take note of everything this thread runs in the block; stop it before an unrepeatable call."""
        before: Any = sys.getprofile()
        sources = _Sources()
        places = [_place(x) for x in self.iterators]
        sys.setprofile(self._event)
        try:
            yield self
        except BaseException:
            sources.put_back()
            raise
        finally:
            sys.setprofile(None)
            if hasattr(before, "enable"):
                before.enable()     # cProfile's profiler, which is no function
            else:
                sys.setprofile(before)
        if moved := sources.put_back():
            raise UnsafeCall(f"{moved} draws from a generator that is not Tenon's")
        if places != [_place(x) for x in self.iterators]:
            raise CaptureError("the captured function moved an iterator from outside, which a graph cannot repeat",
                               hint="take the items outside of the jitted function, and pass them in")

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            if follows(frame.f_code):
                self.codes.add(frame.f_code)
        elif event == "c_call":
            if arg is next and self.iterators and follows(frame.f_code):
                raise UnsafeCall("next() moves an iterator", frame)
            if is_unrepeatable(arg) if follows(frame.f_code) else _writes(arg, frame):
                raise UnsafeCall(f"{getattr(arg, '__name__', arg)}() acts outside the program", _user_frame(frame))


def _place(iterator: Any) -> Any:
    """How far an iterator is, for those that can tell."""
    if isinstance(iterator, types.GeneratorType):
        return iterator.gi_frame and (iterator.gi_frame.f_lasti, repr(iterator.gi_frame.f_locals))
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        return repr(iterator.__reduce__())
    return None


def is_unrepeatable(function: Any) -> bool:
    """Whether a built-in function acts on, or depends on, the world outside the program."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        return issubclass(owner, datetime.date) and str(getattr(function, "__name__", "")) in NOW
    return bool(function in PRINTING or function in LOOKING_UP
                or getattr(function, "__module__", None) in ("time", "_random")
                or isinstance(owner, (random.Random, np.random.Generator, np.random.RandomState, io.IOBase)))


def _writes(function: Any, frame: types.FrameType | None) -> bool:
    """Whether library code opens, reads or writes a file, other than to import something."""
    if getattr(function, "__name__", "") not in WRITING:
        return getattr(function, "__module__", None) == "_thread" and function.__name__.startswith("start_")
    if function not in PRINTING and not isinstance(getattr(function, "__self__", None), io.IOBase):
        return False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(("<frozen importlib", PACKAGE)) or name.endswith(("linecache.py", "tokenize.py")):
            return False
        if follows(frame.f_code):
            return True
        frame = frame.f_back
    return True


def _user_frame(frame: types.FrameType) -> types.FrameType:
    found: types.FrameType | None = frame
    while found is not None and not follows(found.f_code):
        found = found.f_back
    return found or frame


def follows(code: types.CodeType) -> bool:
    """Whether what this code reads is guarded: user code, layers and optimizers, not libraries."""
    return code.co_filename.startswith(FRONT_END) or not code.co_filename.startswith(ELSEWHERE)


class _Sources:
    """The global generators of random numbers, which library code draws from without a trace."""

    def __init__(self) -> None:
        self.python = random.getstate()
        self.numpy: Any = np.random.get_state(legacy=False)

    def put_back(self) -> str:
        """Undo what was drawn, for the run that draws it again; says from which."""
        if random.getstate() != self.python:
            random.setstate(self.python)
            return "random"
        if not _equal(np.random.get_state(legacy=False), self.numpy):
            np.random.set_state(self.numpy)
            return "numpy.random"
        return ""


@dataclass(eq=False)
class Kept:
    """A mutable thing that effects cannot describe: how to read all of it, and how to put it back."""

    holder: Any
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]
    path: str

    def __post_init__(self) -> None:
        self.before = self.read(self.holder)

    def put_back(self) -> str | None:
        """Undo what the captured function changed; says what it was, None where nothing changed."""
        if _equal(self.read(self.holder), self.before):
            return None
        self.write(self.holder, self.before)
        return f"{self.path}, of type {type(self.holder).__name__}, is changed by the function"


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[k], right[k]) for k in left)
    return bool(left == right)
