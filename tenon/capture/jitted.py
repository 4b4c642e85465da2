"""A function -> calls of its compiled graphs: by a fast path, by the slow path, or with graph breaks.

A function that does what a graph cannot repeat runs with graph breaks, and `tn.explain` says why.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.autocast import autocasting
from tenon.capture.background_compile import InTheBackground
from tenon.capture.capture_cache import CaptureRecord, Family, Reason
from tenon.capture.captured import Captured
from tenon.capture.capturing import Capturing
from tenon.capture.code_monitor import comes_from_library, stack_where
from tenon.capture.counted_loops import CountedLoops
from tenon.capture.fast_call import make_fast_call
from tenon.capture.fast_call_results import OffTheGraph
from tenon.capture.fast_call_table import FastCallTable, added, plain_values, without
from tenon.capture.graph_breaks import Around, Instead, Run
from tenon.capture.lazy_tensors import FunctionParts
from tenon.capture.match_arguments import MISS
from tenon.capture.opened_objects import classes_to_open
from tenon.capture.preload_fast_calls import preload
from tenon.capture.pytree import BOUND, Structure, unfold
from tenon.capture.replay import run
from tenon.capture.store_results import Stopped
from tenon.config import usable_cores
from tenon.devices import device_count
from tenon.eager.grad_mode import modes, recording
from tenon.errors import ArgumentError, CaptureError, CompilerDefect
from tenon.gc_control import LARGE_PROGRAM_STEPS, give_back_soon
from tenon.graph.ir import PROCESS, Graph
from tenon.graph.op import at_once, current
from tenon.locks import Lock
from tenon.sharding.mesh import Mesh
from tenon.tensor import asarray

if TYPE_CHECKING:
    from tenon.capture.split.breaks import FunctionPart
    from tenon.pipelining.pipelined import Pipeline

MAX_FAILURES = 16       # of a capture that has never succeeded
MAX_FAILURES_COUNTED = 2        # of one with a loop counted by a number, which it might know
MAX_RAISED = 10         # captures that raised an error, behind which ever more calls are made as they are
WEIGHED_AT = 2          # calls of a piece by the slow path, after which it may be left to Python
FAST_CALL_AT = frozenset(2 ** k for k in range(1, 16))     # calls by the slow path at which a fast one is made anew


class Jitted(Capturing):
    """A function that runs as compiled graphs."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False, memory_budget: int | None = None,
                 constants: bool = True, autotune: bool = False, background: bool = False,
                 pipeline: Pipeline | None = None, place: Sequence[str] | str | None = None, mesh: Mesh | None = None):
        functools.update_wrapper(self, function)
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__: str = name if name.isidentifier() else "function"
        self.function, self.memory_budget = function, memory_budget
        self.pipeline, self.mesh = pipeline, mesh if pipeline is None else pipeline.mesh_for(mesh)
        self.fullgraph = fullgraph or self.mesh is not None     # what runs with graph breaks is on one device
        self.constants, self.autotune, self.background = constants, autotune, background
        self.place = _devices_to_place_on(place)
        self.converting = False         # whether its control flow depends on tensors
        self.records: dict[Any, CaptureRecord] = {}
        self.families: dict[Any, Family] = {}
        self.opened: Set[type] = BOUND          # classes of arguments that are made anew for each call
        self._lock = Lock()
        self._as_it_is = 0              # how many of the next calls are made without a look at their arguments
        self._plainly: Callable[..., Any] = function    # what runs these
        self.part: FunctionPart | None = None   # what runs it in pieces
        self._bound_as: Callable[..., Any] = _itself    # what makes what runs it of that, where it is a bound method
        self.loops = CountedLoops()
        self._growing: Reason | None = None     # why calls whose arguments are nested otherwise run in pieces too
        self.division: Any = None       # of arguments and state over the mesh, where a plan found one
        self._is_whole = False          # whether it cannot be split
        self.is_piece = False           # whether it is a piece of another, or called by one, which nobody sees
        self._fast_calls: FastCallTable = ()
        self._around: tuple[Around, ...] = ()       # what debugging tools put around runs of captures
        self._recompiles = 0
        self._alone = 0                 # how many captures served one call
        self._unlike = 0                # how many calls in a row were like none before
        self._waited = 0                # how many of them were not captured since the last capture
        self._unlike_parts = FunctionParts(self.__name__)
        self._instead: Instead | None = None        # what makes calls in their place

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """To a pickle or a copy: its name, where that leads to it, as of a function; else what it was made of."""
        name: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (type(self), (
            self.function, self.fullgraph, self.memory_budget, self.constants, self.autotune, self.background,
            self.pipeline, self.place, self.mesh))

    def __repr__(self) -> str:
        return f"<tenon.jit {self.function!r}>"

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if current() is not None:
            if not at_once():       # within a capture, or a batch: a part of that
                return self.function(*args, **keywords)
            return self._find_and_run(args, keywords)       # in the block of a device
        if self._as_it_is:
            self._as_it_is -= 1
            return self._plainly(*args, **keywords)
        try:
            for (recorded, narrow), call in self._fast_calls:
                if recorded is recording() and narrow is autocasting():
                    result = call(args, keywords)
                    if result is not MISS:
                        return result
        except OffTheGraph:
            made: Callable[..., Any] | None = self.function     # behind the handler, whose error would be its context
        else:
            made = None
        return self._find_and_run(args, keywords) if made is None else made(*args, **keywords)

    def _find_and_run(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call by the slow path, which may make a fast one for those that follow."""
        if self._instead is not None:
            return self._instead(self.function, args, keywords)
        try:
            leaves, structure, containers = unfold((args, keywords), classes=self.opened)
        except ArgumentError as error:      # a list that contains itself
            return self._with_graph_breaks(self._refused(Reason(f"among the arguments, {error}")), args, keywords)
        if self.is_piece and (left := self._left_to_numpy(leaves, structure)) is not None:
            return left(*args, **keywords)
        given = leaves
        leaves = [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves]
        record = self._record(leaves, structure)
        if record.family.are_made_anew and (more := classes_to_open(leaves, self.opened)):
            self.opened |= more
            return self._find_and_run(args, keywords)
        if record.eager is not None:
            self._unlike = 0
            return self._with_graph_breaks(record, args, keywords)
        captured, arguments = self._find(record, leaves, containers)
        if captured is None and record.as_it_is:
            return self._while_it_raises(record, args, keywords)
        try:
            if captured is None:
                with self._lock:
                    captured, arguments = self._find(record, leaves, containers)
                    if captured is None:
                        captured, arguments = self._capture(record, leaves, structure, containers)
            if captured is not None:
                if (changed := captured.changed_array(given)) is not None:
                    refused = self._refuse_array(changed, structure)
                    return self._with_graph_breaks(refused, args, keywords)
                if self.background and not is_made(captured, arguments):
                    return self.function(*args, **keywords)
                if captured.calls == 0:
                    preload()
                captured.calls += 1
                if captured.calls == 2:
                    self._served()
                makes_fast = captured.calls in FAST_CALL_AT and not self._around and self.mesh is None
                if makes_fast:      # before the run: all is as the capture needs it
                    self._add_fast_call(captured, structure, given, containers)
                    if self.part is not None and (captured.calls > WEIGHED_AT or captured.differentiable) and (
                            captured.fast_call is None or captured.differentiable):
                        self.part.weigh(captured.graph, captured.differentiable)
                result = self._run(captured, arguments, containers)
                captured.succeeded = True
                return result
        except Stopped as stopped:
            if self.mesh is not None:       # to run it once more, on one device, is no way out
                raise stopped.error from None
            reason = stopped
        else:
            return self._with_graph_breaks(record, args, keywords)
        if captured is None and self.fullgraph and isinstance(reason.error, CaptureError):
            raise reason.error
        if captured is not None and not reason.broken:
            self._count_failure(record, captured)
        if captured is None and not self.fullgraph:
            record.raised += 1
            record.as_it_is = 2 ** min(record.raised - 1, MAX_RAISED)
        result = self.function(*args, **keywords)       # which raises the error again, or deals with it
        record.as_it_is = 0
        if captured is None or reason.broken:
            library = captured is None and comes_from_library(reason.error)
            words = "a library refuses what only the graph knows:" if library else \
                "capturing it raised" if captured is None else "compiling its graph raised"
            stack = stack_where(reason.error) if captured is None else None
            self._refuse(record, Reason(f"{words} {type(reason.error).__name__}: {reason.error}", stack=stack or None,
                                        bug=not library and not isinstance(reason.error, CaptureError)))
        return result

    def _while_it_raises(self, record: CaptureRecord, args: Any, keywords: Any) -> Any:
        """A call after one that raised an error where it was to be captured: it is likely to raise one too, and is
        made as it is.  The oftener that happened, the more calls without an error come before the next capture."""
        result = self.function(*args, **keywords)
        record.as_it_is = max(record.as_it_is - 1, 0)
        return result

    def _run(self, captured: Captured, arguments: Sequence[Any], containers: Sequence[Any]) -> Any:
        made: Run = run
        for around in self._around:
            made = partial(around, made)
        return made(captured, arguments, containers)

    @contextmanager
    def with_calls(self, instead: Instead) -> Iterator[None]:
        """Let `instead(function, args, keywords)` make all calls in this block, of all threads."""
        with self._lock:
            table, self._fast_calls, self._as_it_is = self._fast_calls, (), 0
            before, self._instead = self._instead, instead
        try:
            yield
        finally:
            with self._lock:
                self._fast_calls, self._instead = table, before

    @contextmanager
    def with_around(self, around: Around) -> Iterator[None]:
        """Let `around(run, captured, arguments, containers)` make the runs of captures in this block, of all threads;
        those of the function's pieces, where it is split, too.

        Such calls take the slow path; fast paths are there again afterwards.
        """
        tables = {x: x._look_at(around) for x in self.with_pieces()}
        try:
            yield
        finally:
            for x in {**tables, **dict.fromkeys(self.with_pieces(), ())}:      # those that were made meanwhile, too
                x._look_away(around, tables.get(x, ()))

    def with_pieces(self) -> list[Jitted]:
        """The function, the pieces that it is split into, and the functions that these call."""
        found = {self: None}
        pending = [self]
        while pending:
            part = pending.pop().part
            inner = [] if part is None else [*part.split.compiled.values(), *part.callees]
            pending += [x for x in inner if x not in found]
            found |= dict.fromkeys(inner)
        return list(found)

    def _look_at(self, around: Around) -> FastCallTable:
        with self._lock:
            table, self._fast_calls, self._around = self._fast_calls, (), (*self._around, around)
            self._as_it_is = 0
        return table

    def _look_away(self, around: Around, table: FastCallTable) -> None:
        with self._lock:
            self._around = tuple(x for x in self._around if x is not around)
            self._fast_calls = table

    def _count_failure(self, record: CaptureRecord, captured: Captured) -> None:
        """A graph that has never held the way of a call only costs time, and is left."""
        captured.failures += 1
        if captured.counted and captured.failures >= MAX_FAILURES_COUNTED:
            self.loops.written_out |= captured.counted
            self._fast_calls = without(self._fast_calls, [captured.fast_call])
            record.captures = [x for x in record.captures if x is not captured]
            return
        if captured.failures >= MAX_FAILURES and not captured.succeeded and not self.fullgraph:
            self._fast_calls = without(self._fast_calls, [captured.fast_call])
            self._refuse(record, Reason(
                f"its first {MAX_FAILURES} calls raised an error, or took a way that the graph does not hold"))

    def _add_fast_call(self, captured: Captured, structure: Structure, leaves: Sequence[Any],
                 containers: Sequence[Any]) -> None:
        """Make a fast path for calls like this one, in the place of the one that this capture had."""
        try:
            call = make_fast_call(captured, structure, leaves, containers)
        except CompilerDefect:
            raise
        except Exception:       # what is wrong with the program, running it says
            return
        if call is not None:
            table, captured.fast_call = without(self._fast_calls, [captured.fast_call]), call
            self._fast_calls = added(table, modes(), call, plain_values(captured, structure, leaves),
                                      last=captured.sized)
            if len(captured.graph.nodes) >= LARGE_PROGRAM_STEPS:
                give_back_soon()    # the fast path is machine code too

    def capture(self, *args: Any, **keywords: Any) -> Captured:
        """The capture that a call with these arguments would use; nothing of the program is run.

        Raises CaptureError when such a call would run with graph breaks.
        """
        record, captured = self.look(*args, **keywords)
        if captured is None:
            raise CaptureError(f"{self.__name__}: {record.eager or record.full}")
        return captured

    def look(self, *args: Any, **keywords: Any) -> tuple[CaptureRecord, Captured | None]:
        """What a call with these arguments would use: what is known of such calls, and a capture if there can be one.

        Nothing of the program is run, or compiled.
        """
        try:
            leaves, structure, containers = unfold((args, keywords), classes=self.opened)
        except ArgumentError as error:
            return self._refused(Reason(f"among the arguments, {error}")), None
        record = self._record(leaves, structure)
        if record.eager is not None:
            return record, None
        try:
            found, _ = self._find(record, leaves, containers)
            return record, found or self._capture(record, leaves, structure, containers, at_once=True)[0]
        except Stopped as stopped:
            if isinstance(stopped.error, Exception):
                raise stopped.error from None
            raise CaptureError(f"{self.__name__} raises {type(stopped.error).__name__}: {stopped.error}") from None

    def graph(self, *args: Any, **keywords: Any) -> Graph:
        """The captured graph of a call with these arguments, before any pass."""
        return self.capture(*args, **keywords).graph


def _devices_to_place_on(place: Sequence[str] | str | None) -> tuple[str, ...] | None:
    """The names of the devices; "auto" means all logical devices, and one a core where there is only one."""
    if place is None:
        return None
    if place == "processes":
        world = import_module("tenon.distributed.world")        # by name: it stands above
        return tuple(f"{PROCESS}{k}" for k in range(world.size()))
    count = device_count() if device_count() > 1 else usable_cores()
    names = tuple(f"cpu:{k}" if k else "cpu" for k in range(count)) if place == "auto" else place
    if isinstance(names, str) or not names or not all(isinstance(x, str) and x for x in names) or \
            len(set(names)) < len(names):
        raise ArgumentError(f"jit: place is \"auto\", \"processes\" or the names of devices, each once, not {place!r}")
    return tuple(names)


def _itself(driver: Callable[..., Any]) -> Callable[..., Any]:
    return driver


def is_made(captured: Captured, arguments: Sequence[Any]) -> bool:
    """Whether the code of a capture is there, or it is up to the call to make it; another thread is asked to, once."""
    if captured.making is None:
        captured.making = InTheBackground(captured, arguments)
    return bool(captured.making.done)


Jitted.own = frozenset(vars(Jitted(lambda: None))) - {"function"}
