"""A function's run -> the code that ran, and a stop just before a call whose effect a graph cannot repeat."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from inspect import CO_GENERATOR
from typing import Any

from tenon.capture.c_function_purity import is_impure
from tenon.capture.code_names import CodeNames, module_of, names_of
from tenon.capture.code_origin import (
    OWN,
    STANDS_FOR,
    caller_of,
    counts_elements,
    follows,
    runs_for_tenon,
    user_frame,
)
from tenon.capture.frame_locals import FrameLocals
from tenon.capture.kept_state import RandomGenerators
from tenon.capture.stdout_watch import Streams
from tenon.capture.suspended_generators import SuspendedGenerators
from tenon.capture.text_streams import tells
from tenon.errors import PACKAGE, CaptureError, Location, location_in, location_of, user_location
from tenon.gc_control import COLLECTOR
from tenon.graph.ir import Node
from tenon.locks import Lock
from tenon.records import dataclass, field

DRAWING = ("urandom", "getrandom", "generate_time_safe")
MAX_CAUGHT = 100        # stops that the program may catch
# What wakes other threads, waits for them, or asks which ones run.
SIGNALLING = {function.__code__: function.__qualname__ for function in (
    threading.Condition.notify, threading.Condition.wait, threading.Thread.start, threading.current_thread,
    threading.active_count, threading.enumerate, queue.Queue.put, queue.Queue.get, queue.Queue.task_done)}
# What a capture that converts has text in the graph for.
OUTPUT_CALLS = frozenset(getattr(owner, name).__code__ for owner in (logging, logging.Logger)
                     for name in ("debug", "info", "warning", "error", "critical", "log"))
LOCKS = (type(threading.Lock()), type(threading.RLock()))

# Functions whose calls need no look, by identity, and what has only such methods.
HARMLESS = frozenset(map(id, (isinstance, issubclass, len, id, getattr, hasattr, setattr, callable, iter, repr, hash,
                              abs, all, any, divmod, max, min, sum, sorted, sys.getprofile, sys.setprofile)))
PLAIN_OWNERS = frozenset((list, tuple, dict, set, frozenset, str, int, float, deque, Lock))


Stack = tuple[tuple[types.CodeType, int, int | None], ...]      # code of users', line and column, innermost first
Callers = dict[types.CodeType, tuple[tuple[types.CodeType, int], ...]]      # code and instructions, innermost first


class UnsafeCall(BaseException):
    """Raised out of a capture just before something that a graph cannot do: the function runs with graph breaks.

    Not an Exception, since user code that catches those must not see it; where it catches everything, the watch has
    noted it.
    """

    before: tuple[Node, ...] = ()       # what was captured until then
    sizes: Set[str] = frozenset()       # whose numbers would do where the function cannot be rewritten

    def __init__(self, what: str, frame: types.FrameType | None = None, where: Location | None = None,
                 hint: str | None = None, convertible: bool = False, passing: bool = False):
        super().__init__(what)
        self.convertible = convertible      # whether the function may be one graph once it is rewritten
        self.passing = passing              # whether another call may be one graph, as after one that made parameters
        self.what, self.where, self.hint = what, where or (frame and location_of(frame)), hint
        self.stack = _stack(frame or sys._getframe(1))
        if (watch := _watching.get()) is not None:
            watch.noted.append(self)
            if len(watch.noted) > MAX_CAUGHT:
                leave_by_force(what)


def stack_of(place: tuple[types.CodeType, int, int | None], callers: Sequence[tuple[types.CodeType, int]]) -> Stack:
    """A place in code, and the places that called that code."""
    found = [place]
    for code, instruction in callers:
        where = location_in(code, instruction)
        found.append((code, where.line, where.column))
    return tuple(found)


def stack_where(error: BaseException) -> Stack:
    """What ran when an error was raised."""
    found, trace = [], error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if follows(code) and not code.co_filename.startswith(PACKAGE):
            where = location_in(code, trace.tb_lasti)
            found.append((code, where.line, where.column))
        trace = trace.tb_next
    return tuple(reversed(found))


def comes_from_library(error: BaseException) -> bool:
    """Whether neither Tenon's code nor the user's raised an error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    return code is not None and not follows(code) and not code.co_filename.startswith(PACKAGE)


def stack_now() -> Stack:
    """What runs now."""
    return _stack(sys._getframe(1))


def _stack(frame: types.FrameType | None) -> Stack:
    """What runs, up to what began the capture."""
    watch, found = _watching.get(), []
    while frame is not None and (watch is None or frame is not watch._entered):
        if follows(frame.f_code):
            place = location_of(frame)
            found.append((frame.f_code, place.line, place.column))
        frame = frame.f_back
    return tuple(found)


def leave_by_force(what: str) -> None:
    """Let the code that catches this stop raise in its handler, which takes it out of the loop that it may be in."""
    def leave(frame: types.FrameType, event: str, arg: Any) -> Any:
        if event == "line" and _watching.get() is not None:
            sys.settrace(None)
            raise UnsafeCall(what)
        return leave
    if sys.gettrace() is not None:
        return              # a debugger is at work, and who sits at it
    sys.settrace(lambda *_: None)
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if follows(frame.f_code):
            frame.f_trace = leave
        frame = frame.f_back


_watching: ContextVar[CodeWatch | None] = ContextVar("_watching", default=None)


def _ask() -> None:
    """Stop a captured function before it writes to a standard stream."""
    frame = sys._getframe(2)
    watch = _watching.get()
    if watch is not None and not (watch.rests is not None and watch.rests()) and not runs_for_tenon(frame):
        raise UnsafeCall("print() acts outside the program", user_frame(frame), convertible=True)


STREAMS = Streams(_ask)


@dataclass
class CodeWatch:
    """The code that ran."""

    codes: set[types.CodeType] = field(default_factory=set)
    as_written: set[types.CodeType] = field(default_factory=set)    # those of them that ran as they are, not rewritten
    iterators: Sequence[Any] = ()       # from outside, which must not be moved
    undecided: Callable[[], bool] = lambda: False       # whether the data decide what containers hold
    cached: frozenset[types.CodeType] = frozenset()     # of functions whose results a cache keeps
    locks: dict[int, Any] = field(default_factory=dict)         # that were taken, and were not before
    library: set[types.CodeType] = field(default_factory=set)   # of libraries, that ran
    rests: Callable[[], bool] | None = None         # whether what acts may act, at this place of the program
    noted: list[UnsafeCall] = field(default_factory=list)       # stops, which the program may have caught
    sightings: FrameLocals = field(default_factory=FrameLocals)
    variables: dict[int, ContextVar[Any]] = field(default_factory=dict)     # of contexts, that libraries read
    callers: Callers = field(default_factory=dict)      # of each code, when it ran first
    suspended: SuspendedGenerators = field(default_factory=SuspendedGenerators)
    _entered: types.FrameType | None = None
    _known: dict[int, tuple[types.CodeType, bool]] = field(default_factory=dict)     # and whether it is followed

    @contextmanager
    def running(self) -> Iterator[CodeWatch]:
        """Take note of everything this thread runs in the block; stop it before an unrepeatable call."""
        sources = RandomGenerators()
        places = [place_of(x) for x in self.iterators]
        entered = sys._getframe(2)
        try:
            with self.stopping():
                self._entered = entered
                try:
                    yield self
                except BaseException:
                    self.suspended.end()
                    raise
                finally:
                    self.suspended.forget()
        except BaseException:
            sources.put_back()
            self._left_locks()
            raise
        moved, left = sources.put_back(), self._left_locks()
        if left:
            raise UnsafeCall("the function leaves a lock taken")
        if moved:
            raise UnsafeCall(f"{moved} draws from a generator that is not Tenon's")
        if places != [place_of(x) for x in self.iterators]:
            raise CaptureError("the captured function moved an iterator from outside, which a graph cannot repeat",
                               hint="take the items outside of the jitted function, and pass them in")

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """The same, without a look at what has happened when it ends.

        Nothing is collected meanwhile: finalizers and `gc.callbacks` are no acts of the function.
        """
        with COLLECTOR:
            before: Any = sys.getprofile()
            token, tracing, self._entered = _watching.set(self), sys.gettrace(), sys._getframe(2)
            STREAMS.begin()
            sys.setprofile(self._event)
            try:
                yield
            except Exception:
                if self.noted:
                    raise self.noted[0] from None
                raise
            finally:
                _watching.reset(token)
                self._entered = None
                sys.settrace(tracing)
                sys.setprofile(None)
                STREAMS.end()
                if hasattr(before, "enable"):
                    before.enable()     # cProfile's profiler, which is no function
                else:
                    sys.setprofile(before)
        if self.noted:
            raise self.noted[0]

    def stored(self) -> frozenset[str] | None:
        """The globals that the users' code can have set; None: any."""
        found = self._names()
        return None if any(names.sets_any for names in found) else frozenset().union(*(x.stored for x in found))

    def read(self) -> frozenset[str]:
        """The globals that the users' code can have read."""
        return frozenset().union(*(part for x in self._names() for part in (x.global_names, x.attributes)))

    def _names(self) -> list[CodeNames]:
        return [names_of(code) for code in self.codes if not code.co_filename.startswith(PACKAGE)]

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """One of the hundreds of thousands of events of a capture; what was looked at before is known by identity."""
        if self.rests is not None and self.rests():
            return
        if event == "call":
            code = frame.f_code
            if code.co_flags & CO_GENERATOR and not code.co_filename.startswith(PACKAGE):
                self.suspended.enter(frame)
            known = self._known.get(id(code))
            if known is None:
                known = self._known[id(code)] = code, follows(code)
                if known[1]:
                    self.codes.update(STANDS_FOR.get(code) or (code,))
                    if code not in STANDS_FOR:
                        self.as_written.add(code)
                    if not code.co_filename.startswith(PACKAGE):
                        self._note_callers(frame)
            if not known[1] and code not in self.library and not code.co_filename.startswith(OWN) \
                    and not runs_for_tenon(frame.f_back):
                self.library.add(code)
            if code in OUTPUT_CALLS and frame.f_back is not None and follows(frame.f_back.f_code):
                self._stop(f"{code.co_name}() acts outside the program", frame.f_back, convertible=True)
            if code in SIGNALLING and not runs_for_tenon(frame):
                self._stop(f"{SIGNALLING[code]}() is between threads", user_frame(frame))
            if known[1] and self.undecided() and counts_elements(frame):
                self._stop(f"{code.co_name}() runs as it is, where the data decide what containers hold",
                           user_frame(frame.f_back or frame))
        elif event == "return":
            self.suspended.leave(frame)
            if (known := self._known.get(id(frame.f_code))) is not None and known[1]:
                self.sightings.see(frame, arg)
            if not self.cached or frame.f_code not in self.cached:
                return
            if not _is_plain(arg):      # the cache would keep what is only good within this capture
                self._stop_passing(f"{frame.f_code.co_name}() is called the first time, and its result kept by a cache")
        elif event == "c_call":
            if id(arg) in HARMLESS:
                return
            owner = type(getattr(arg, "__self__", None))
            if owner in PLAIN_OWNERS:
                return
            if owner is ContextVar and arg.__name__ == "get":
                if not runs_for_tenon(frame):
                    self.variables[id(arg.__self__)] = arg.__self__
                return
            if arg is next and self.iterators and follows(frame.f_code):
                self._stop("next() moves an iterator", frame)
            if owner in LOCKS and not runs_for_tenon(caller_of(frame)):
                self._note_lock(arg, frame)
                return
            caller = caller_of(frame)
            own = follows(caller.f_code)
            if is_impure(arg, not own) and (
                    own or getattr(arg, "__name__", "") in DRAWING or not runs_for_tenon(caller)):
                what, place = f"{getattr(arg, '__name__', arg)}() acts outside the program", user_frame(frame)
                if getattr(arg, "__name__", "") == "__exit__":
                    UnsafeCall(what, place)     # is noted; what was entered has to be left
                else:
                    self._stop(what, place, convertible=own and (arg in (print, warnings.warn) or tells(arg)))

    def _note_callers(self, frame: types.FrameType) -> None:
        """What called this code, and what called that."""
        found, above = [], frame.f_back
        while above is not None and above is not self._entered:
            if follows(above.f_code):
                found.append((above.f_code, above.f_lasti))
            above = above.f_back
        self.callers.update(dict.fromkeys(STANDS_FOR.get(frame.f_code) or (frame.f_code,), tuple(found)))

    def _note_lock(self, method: Any, frame: types.FrameType) -> None:
        """A lock is taken and left again within the call, or the function runs with graph breaks."""
        lock = method.__self__
        if method.__name__ in ("acquire", "__enter__"):
            if id(lock) in self.locks or not is_taken(lock):
                self.locks.setdefault(id(lock), lock)
                return
        elif id(lock) in self.locks or method.__name__ in ("_is_owned", "__exit__"):    # a `with` shows no begin
            return
        self._stop(f"{method.__name__}() of a lock is between threads", user_frame(frame))

    def _left_locks(self) -> bool:
        """Leave the locks that are still taken; whether there were any."""
        taken = [lock for lock in self.locks.values() if is_taken(lock)]
        for lock in taken:
            lock.release()
        return bool(taken)

    @staticmethod
    def _stop_passing(what: str) -> None:
        raise UnsafeCall(what, where=user_location(), passing=True)

    def _stop(self, what: str, frame: types.FrameType, convertible: bool = False) -> None:
        """Python ends the watch with this exception; should the program catch it, its next line begins it again."""
        def again(frame: types.FrameType, event: str, arg: Any) -> Any:
            if _watching.get() is not None:
                sys.setprofile(self._event)
                return again
            return None

        above: types.FrameType | None = frame
        if sys.gettrace() is None:      # else a debugger is at work
            sys.settrace(again)
            while above is not None and above is not self._entered:
                above.f_trace, above = again, above.f_back
        raise UnsafeCall(what, frame, convertible=convertible)


@contextmanager
def unwatched() -> Iterator[None]:
    """A block of Tenon's own code within a function that is watched: there is nothing to watch, and much to call."""
    watching = sys.getprofile()
    if not isinstance(getattr(watching, "__self__", None), CodeWatch):
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(watching)


@contextmanager
def unwatched_calls(function: Any, values: Iterable[Any]) -> Iterator[None]:
    """A block that calls a function on such values: nothing to watch where the function and their classes are Tenon's.
    """
    watch = getattr(sys.getprofile(), "__self__", None)
    if not isinstance(watch, CodeWatch) or not function.__code__.co_filename.startswith(PACKAGE) \
            or not all(module_of(type(x)).startswith("tenon.") for x in values):
        yield
        return
    watch.codes.add(function.__code__)
    with unwatched():
        yield


def is_watched() -> bool:
    """Whether this code is watched."""
    return _watching.get() is not None


def is_taken(lock: Any) -> bool:
    """Whether a lock is taken, or one that counts is by this thread."""
    return bool(lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked())


def place_of(iterator: Any) -> Any:
    """How far an iterator is, for those that can tell.

    Those whose class says how to copy them can.  Python's own way would wrap a file in another, and so close it.
    """
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        return frame and (frame.f_lasti, [(name, _held(x)) for name, x in frame.f_locals.items()])
    kind: Any = type(iterator)
    if kind.__reduce__ is object.__reduce__:
        return None
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        return repr(iterator.__reduce__())
    return None


def _held(x: Any) -> Any:
    """What a variable of a generator says of how far it is."""
    if hasattr(type(x), "__next__"):
        return place_of(x)
    return (type(x), x) if isinstance(x, (int, float, str)) else id(x)


def _is_plain(x: Any) -> bool:
    """Whether a value cannot change, and holds nothing of a capture."""
    if type(x) in (tuple, frozenset):
        return all(map(_is_plain, x))
    return type(x) in (bool, int, float, complex, str, bytes, type(None), range) or isinstance(x, type)
