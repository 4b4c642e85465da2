"""`@tn.jit`: capture + guards + pipeline + cache.  Delete the line and nothing changes but speed.

A call is reduced to a key (the structure of its arguments, Python values, element types); under a key stand captures,
each with the sizes and guards under which it holds.  A call that fits none is captured anew, a size that changed
becoming a symbol.  A function that does what a graph cannot repeat runs by part, and `tn.explain` says why.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from tenon.autocast import autocasting
from tenon.capture.argument_roots import reference
from tenon.capture.background import InTheBackground
from tenon.capture.capture_cache import (
    CaptureRecord,
    Family,
    Reason,
    argument_names,
    argument_tops,
    argument_types,
    places,
)
from tenon.capture.captured import Captured
from tenon.capture.classes import StandsFor
from tenon.capture.code_monitor import UnsafeCall, stack_where
from tenon.capture.counted_loops import CountedLoops, is_how_many, last_place
from tenon.capture.fast_call import MISS, make_fast_call, make_ready
from tenon.capture.graph_breaks import FunctionParts
from tenon.capture.guard_places import ARGUMENT, CHANGING, NUMBERS, GuardPlace, changed, root_of, stored_at
from tenon.capture.guards import same_atom
from tenon.capture.histories import growing_arguments, history_reads, reads_of_growing, what_grows
from tenon.capture.leaf_keys import aliases, leaf_key
from tenon.capture.moving import value_in
from tenon.capture.opened_objects import classes_to_open, has_attributes_alone
from tenon.capture.pattern import pattern_of, rebound
from tenon.capture.pytree import BOUND, Structure, unfold
from tenon.capture.reasons import is_another_text, warn_of_recompiles, why_anew
from tenon.capture.replay import holds, run
from tenon.capture.settle import Stopped
from tenon.capture.short_ways import Ways, added, plain_values, without
from tenon.capture.symbolic_numbers import Unmoved
from tenon.capture.trace import Held
from tenon.config import ConfigError, usable_cores
from tenon.devices import device_count, placing
from tenon.dims import (
    BY_NUMBER,
    Dim,
    PinnedSize,
    UndecidedSize,
    is_by_data,
    substitute,
    symbol,
)
from tenon.eager.grad_mode import modes, recording
from tenon.errors import ArgumentError, CaptureError, CompilerDefect
from tenon.gc_control import LARGE_PROGRAM_STEPS, give_back_soon
from tenon.graph.ir import (
    AUTOTUNE,
    DEVICES,
    DIVIDED,
    DONATED,
    HELD,
    MEMORY_BUDGET,
    MESH,
    PIPELINE,
    PLACE,
    PROCESS,
    SIZES,
    UPDATES,
    Graph,
)
from tenon.graph.op import at_once, current
from tenon.locks import Lock, unforked
from tenon.observe import emit, span, timed
from tenon.sharding.annotations import check_no_mesh_is_named
from tenon.sharding.awaiting_plan import is_awaiting
from tenon.sharding.mesh import Mesh
from tenon.tensor import Tensor, asarray
from tenon.types import TensorType

if TYPE_CHECKING:
    from tenon.capture.split.breaks import FunctionPart
    from tenon.pipelining.pipelined import Pipeline
    from tenon.planning.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])
Run = Callable[[Captured, Sequence[Any], Sequence[Any]], Any]
Instead = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
Around = Callable[[Run, Captured, Sequence[Any], Sequence[Any]], Any]
MOST_RECORDS = 256      # keys of one function; those that come later share one record, and run by part
MOST_CAPTURES = 64      # of one key; what fits none of them runs by part, which is right and says so
CALLS_AS_IT_IS = 63     # of a function that never was a graph, before its arguments are looked at again
MOST_TEXTS = 16         # captures that differ in text alone, such as a message, before others run by part
MOST_BOUND = 16         # of other objects' captures, for one key
MOST_OF_A_FAMILY = 256  # captures for objects of the same classes, which others replace
MOST_PASSED = 4         # calls in a row that make parameters, before those like them run by part for good
MOST_FAILURES = 16      # of a capture that has never succeeded
MOST_FAILURES_COUNTED = 2       # of one with a loop counted by a number, which it might know
WARN_AT = 9             # captures beside the first, of which the user is told once
WEIGHED_AT = 2          # calls of a piece by the long way, after which it may be left to Python
MOST_NEW = 6            # captures of a piece in a row that served one call, before it is split once more
SHORTEN_AT = frozenset(2 ** k for k in range(1, 16))     # calls by the long way after which a short one is made anew


class Jitted(StandsFor):
    """A function that runs as compiled graphs."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False, memory_budget: int | None = None,
                 constants: bool = True, autotune: bool = False, background: bool = False,
                 pipeline: Pipeline | None = None, place: Sequence[str] | str | None = None, mesh: Mesh | None = None):
        functools.update_wrapper(self, function)
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__: str = name if name.isidentifier() else "function"
        self.function, self.memory_budget = function, memory_budget
        self.pipeline, self.mesh = pipeline, mesh if pipeline is None else pipeline.mesh_for(mesh)
        self.fullgraph = fullgraph or self.mesh is not None     # what runs by part is on one device
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
        self._short_ways: Ways = ()
        self._around: tuple[Around, ...] = ()       # what debugging tools put around runs of captures
        self._recompiles = 0
        self._instead: Instead | None = None        # what makes calls in their place

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

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
        for (recorded, narrow), call in self._short_ways:
            if recorded is recording() and narrow is autocasting():
                result = call(args, keywords)
                if result is not MISS:
                    return result
        return self._find_and_run(args, keywords)

    def _find_and_run(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call by the long way, which may make a short one for those that follow."""
        if self._instead is not None:
            return self._instead(self.function, args, keywords)
        try:
            leaves, structure, containers = unfold((args, keywords), classes=self.opened)
        except ArgumentError as error:      # a list that contains itself
            return self._by_part(self._refused(Reason(f"among the arguments, {error}")), args, keywords)
        if self.is_piece and (left := self._left_to_numpy(leaves, structure)) is not None:
            return left(*args, **keywords)
        given = leaves
        leaves = [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves]
        record = self._record(leaves, structure)
        if record.family.are_made_anew and (more := classes_to_open(leaves, self.opened)):
            self.opened |= more
            return self._find_and_run(args, keywords)
        if record.eager is not None:
            return self._by_part(record, args, keywords)
        captured, arguments = self._find(record, leaves, containers)
        if captured is None and record.raises:
            return self._while_it_raises(record, args, keywords)
        try:
            if captured is None:
                with self._lock:
                    captured, arguments = self._find(record, leaves, containers)
                    if captured is None:
                        captured, arguments = self._capture(record, leaves, structure, containers)
            if captured is not None:
                if self.background and not is_made(captured, arguments):
                    return self.function(*args, **keywords)
                if captured.calls == 0:
                    make_ready()
                captured.calls += 1
                shorter = captured.calls in SHORTEN_AT and not self._around and self.mesh is None
                if shorter:     # before the run: all is as the capture needs it
                    self._shorten(captured, structure, given)
                    if self.part is not None and (captured.calls > WEIGHED_AT or captured.differentiable) and (
                            captured.short is None or captured.differentiable):
                        self.part.weigh(captured.graph, captured.differentiable)
                result = self._run(captured, arguments, containers)
                captured.succeeded = True
                return result
        except Stopped as stopped:
            if self.mesh is not None:       # to run it once more, on one device, is no way out
                raise stopped.error from None
            reason = stopped
        else:
            return self._by_part(record, args, keywords)
        if captured is None and self.fullgraph and isinstance(reason.error, CaptureError):
            raise reason.error
        if captured is not None and not reason.broken:
            self._count_failure(record, captured)
        record.raises = captured is None and not self.fullgraph
        result = self.function(*args, **keywords)       # which raises the error again, or deals with it
        record.raises = False
        if captured is None or reason.broken:
            words = "capturing it" if captured is None else "compiling its graph"
            bug = not isinstance(reason.error, CaptureError)
            stack = stack_where(reason.error) if captured is None else None
            self._refuse(record, Reason(f"{words} raised {type(reason.error).__name__}: {reason.error}",
                                        stack=stack or None, bug=bug))
        return result

    def _while_it_raises(self, record: CaptureRecord, args: Any, keywords: Any) -> Any:
        """A call after one that raised an error where it was to be captured: it is likely to raise one too, and is
        made as it is."""
        result = self.function(*args, **keywords)
        record.raises = False
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
            ways, self._short_ways, self._as_it_is = self._short_ways, (), 0
            before, self._instead = self._instead, instead
        try:
            yield
        finally:
            with self._lock:
                self._short_ways, self._instead = ways, before

    @contextmanager
    def with_around(self, around: Around) -> Iterator[None]:
        """Let `around(run, captured, arguments, containers)` make the runs of captures in this block, of all threads;
        those of the function's pieces, where it is split, too.

        Such calls go the long way; short ways are there again afterwards.
        """
        ways = {x: x._look_at(around) for x in self.with_pieces()}
        try:
            yield
        finally:
            for x in {**ways, **dict.fromkeys(self.with_pieces(), ())}:      # those that were made meanwhile, too
                x._look_away(around, ways.get(x, ()))

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

    def _look_at(self, around: Around) -> Ways:
        with self._lock:
            ways, self._short_ways, self._around = self._short_ways, (), (*self._around, around)
        return ways

    def _look_away(self, around: Around, ways: Ways) -> None:
        with self._lock:
            self._around = tuple(x for x in self._around if x is not around)
            self._short_ways = ways

    def _count_failure(self, record: CaptureRecord, captured: Captured) -> None:
        """A graph that has never held the way of a call only costs time, and is left."""
        captured.failures += 1
        if captured.counted and captured.failures >= MOST_FAILURES_COUNTED:
            self.loops.written_out |= captured.counted
            self._short_ways = without(self._short_ways, [captured.short])
            record.captures = [x for x in record.captures if x is not captured]
            return
        if captured.failures >= MOST_FAILURES and not captured.succeeded and not self.fullgraph:
            self._short_ways = without(self._short_ways, [captured.short])
            self._refuse(record, Reason(
                f"its first {MOST_FAILURES} calls raised an error, or took a way that the graph does not hold"))

    def _shorten(self, captured: Captured, structure: Structure, leaves: Sequence[Any]) -> None:
        """Make a short way for calls like this one, in the place of the one that this capture had."""
        try:
            call = make_fast_call(captured, structure, leaves)
        except CompilerDefect:
            raise
        except Exception:       # what is wrong with the program, running it says
            return
        if call is not None:
            ways, captured.short = without(self._short_ways, [captured.short]), call
            self._short_ways = added(ways, modes(), call, plain_values(captured, structure, leaves),
                                      last=captured.sized)
            if len(captured.graph.nodes) >= LARGE_PROGRAM_STEPS:
                give_back_soon()    # the short way is machine code too

    def _by_part(self, record: CaptureRecord, args: Any, keywords: Any) -> Any:
        if record.eager is not None:
            self._say_no(record.eager)
        driver = self._driver() if record.split else None
        if driver is not None:
            self._run_plainly(driver)
            return driver(*args, **keywords)
        if record.parts is None:
            record.parts = FunctionParts(self.__name__)
        if record.parts.eager:
            self._run_plainly(self.function)
        return record.parts.run(lambda: self.function(*args, **keywords))

    def _run_plainly(self, function: Callable[..., Any]) -> None:
        """Make the next calls without a look at their arguments, where all so far ran in pieces, or as eager code."""
        if not self.fullgraph and all(
                record.eager is not None and (record.split or (record.parts is not None and record.parts.eager))
                for record in self.records.values()):
            self._plainly, self._as_it_is = function, CALLS_AS_IT_IS

    @property
    def is_split(self) -> bool:
        """Whether calls that one graph cannot hold run in pieces."""
        return self._driver() is not None

    def _driver(self) -> Callable[..., Any] | None:
        """What runs the function in pieces."""
        driver = None if self.part is None else self.part.driving()
        return None if driver is None else self._bound_as(driver)

    def _split_at(self, reason: Reason) -> bool:
        """Split the function where a capture stopped; whether that can be."""
        if reason.stack is None or (part := self._to_split()) is None:
            return False
        return part.note(reason) or part.split.version > 0

    def _split_at_all(self, reasons: Sequence[Reason]) -> bool:
        """The same for several places; whether that can be at any."""
        done = [self._split_at(reason) for reason in reasons]
        return any(done)

    def _to_split(self) -> FunctionPart | None:
        """The function as a part that can be split; None where it has to be whole."""
        if self.fullgraph or self._is_whole:
            return None
        if self.part is None:
            with unforked:
                from tenon.capture.split.breaks import split_of  # local: as below
            if (found := split_of(self.function, self._piece)) is None:
                self._is_whole = True
                return None
            self.part, self._bound_as = found
        return self.part

    def _left_to_numpy(self, leaves: Sequence[Any], structure: Structure) -> Callable[..., Any] | None:
        """What runs a piece whose variables hold arrays that NumPy computes with; None where a graph may."""
        if not any(isinstance(x, np.ndarray) for x in leaves):
            return None
        names = argument_tops(getattr(self.function, "__func__", self.function), structure)
        part = self._to_split()
        plain: Callable[..., Any] = self.function
        if part is None:
            return plain
        arrays = {name for name, x in zip(names, leaves, strict=True) if isinstance(x, np.ndarray)}
        if part.leave_arrays(arrays):
            return self._driver() or plain
        return None

    def _piece(self, function: Callable[..., Any], part: FunctionPart | None) -> Jitted:
        """A piece of this function, or a function that it calls, as graphs of its own."""
        piece = Jitted(function, memory_budget=self.memory_budget, constants=self.constants, autotune=self.autotune,
                       background=self.background, place=self.place)
        piece.part, piece.is_piece, piece._around = part, True, self._around
        return piece

    def capture(self, *args: Any, **keywords: Any) -> Captured:
        """The capture that a call with these arguments would use; nothing of the program is run.

        Raises CaptureError when such a call would run by part.
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
            return record, found or self._capture(record, leaves, structure, containers)[0]
        except Stopped as stopped:
            if isinstance(stopped.error, Exception):
                raise stopped.error from None
            raise CaptureError(f"{self.__name__} raises {type(stopped.error).__name__}: {stopped.error}") from None

    def graph(self, *args: Any, **keywords: Any) -> Graph:
        """The captured graph of a call with these arguments, before any pass."""
        return self.capture(*args, **keywords).graph

    def _record(self, leaves: Sequence[Any], structure: Structure) -> CaptureRecord:
        key = (structure, (*modes(), placing()), tuple(map(leaf_key, leaves)), aliases(leaves))
        record = self.records.get(key)
        if record is None and len(self.records) >= MOST_RECORDS:    # such as a step number: it would fill the memory
            return self._refused(Reason(
                f"called with more than {MOST_RECORDS} combinations of types and Python values"))
        if record is None:
            gone = partial(_forget, weakref.ref(self), key)
            alive = [reference(x, gone) or x for x in leaves if not isinstance(x, Tensor)]
            classes = tuple([leaf_key(x) if reference(x) is None and not has_attributes_alone(x)
                             and not isinstance(x, Iterator) else type(x) for x in leaves])
            family = self.families.setdefault((structure, (*modes(), placing()), classes, aliases(leaves)), Family())
            if family.refused is not None and family.refuses_all:
                return family.refused
            family.objects += 1
            family.gone += any(reference(x) is None and has_attributes_alone(x) for x in leaves)
            record = self.records.setdefault(key, CaptureRecord(family, alive=alive))
        else:
            record.family.repeats += 1
        return record

    def _refused(self, reason: Reason) -> CaptureRecord:
        """What is known of calls that have no key of their own."""
        return self.records.setdefault(None, CaptureRecord(eager=reason))

    def _find(self, record: CaptureRecord, leaves: Sequence[Any],
              containers: Sequence[Any]) -> tuple[Captured | None, Sequence[Any]]:
        """The capture that fits a call, and its arguments with what that capture reads anew."""
        for captured in (*record.captures, *record.bound):
            arguments = captured.arguments(leaves)
            if arguments is not None and holds(captured, arguments, containers):
                return captured, arguments
        return None, leaves

    def _bind(self, record: CaptureRecord, leaves: Sequence[Any],
              containers: Sequence[Any]) -> tuple[Captured | None, Sequence[Any]]:
        """A capture that was made for other objects, bound to those of this call; none where the objects are the same,
        but other tensors are in them, which are inputs of a further capture."""
        fresh = {place.name for captured in last_of(record) for place, before in changes_since(captured, leaves)
                 if type(before) not in CHANGING} - record.unmoved
        for pattern in record.family.patterns:
            captured = pattern.bind(leaves)
            arguments = None if captured is None or not fresh <= captured.moved else captured.arguments(leaves)
            if captured is not None and arguments is not None and holds(captured, arguments, containers):
                record.bound = [captured, *record.bound[:MOST_BOUND - 1]]
                return captured, arguments
        if fresh:
            return None, leaves
        for before in (*record.captures, *record.bound):
            captured = rebound(before, leaves)
            arguments = None if captured is None else captured.arguments(leaves)
            if captured is not None and arguments is not None and holds(captured, arguments, containers):
                record.bound = [captured]       # which keeps no more than one
                return captured, arguments
        return None, leaves

    def _capture(self, record: CaptureRecord, leaves: list[Any], structure: Structure,
                 containers: Sequence[Any]) -> tuple[Captured | None, Sequence[Any]]:
        """A new capture for this call, and its arguments; None when the function runs by part."""
        if record.full is not None:
            return None, leaves
        captured, arguments = self._bind(record, leaves, containers)
        if captured is not None:
            if self.part is not None:
                self.part.captured(len(captured.graph.nodes), structure, leaves)
            return captured, arguments
        if self._growing is not None and not record.captures and self.is_split:
            self._leave(record, self._growing)
            return None, leaves
        growing = [] if self.fullgraph else reads_of_growing(record.captures)
        if self._split_at_all(growing):
            self._leave(record, growing[0])
            return None, leaves
        if not self.fullgraph and (grown := what_grows(record.captures)) is not None:
            self._give_up(record, grown)
            return None, leaves
        names = argument_names(getattr(self.function, "__func__", self.function), structure)
        why = why_anew(record.captures, self.records, leaves, structure, (*modes(), placing()), names)
        if record.family.captures >= MOST_OF_A_FAMILY:
            record.full = Reason(f"captured {MOST_OF_A_FAMILY} times for objects of the same classes")
            self._tell(record.full)
            return None, leaves
        if len(record.captures) >= MOST_CAPTURES:
            record.full = Reason(f"captured {MOST_CAPTURES} times, each time with something changed, at last: {why}")
            self._tell(record.full)
            return None, leaves
        if self.is_piece and len(record.captures) >= MOST_NEW and all(
                captured.calls < 2 for captured in record.captures[-MOST_NEW:]):
            self._give_up(record, Reason(f"captured anew at every call, at last: {why}", stack=()))
            return None, leaves
        if record.captures and is_another_text(record.captures[-1], leaves):
            record.texts += 1
            reason = Reason(f"captured for {record.texts} texts in one place, at last: {why}", stack=record.text_read)
            if record.texts >= MOST_NEW and not self.fullgraph and all(
                    captured.calls < 2 for captured in record.captures[-MOST_NEW:]):
                self._give_up(record, reason)
                return None, leaves
            if record.texts >= MOST_TEXTS:
                record.full = reason
                self._tell(record.full)
                return None, leaves
        try:
            seconds: dict[str, float] = {}
            with span("capture", function=self.__name__), timed(seconds, "capture"):
                captured = self._moving(record, leaves, structure)
                if not captured.apart.isdisjoint(map(id, containers)) or captured.meets(containers):
                    raise UnsafeCall("a container among the arguments is one that the function finds elsewhere too")
                if captured.chosen and self.part is not None and self.part.whole is None:
                    raise UnsafeCall("a tensor may be another one for what comes behind, as the data decide")
        except UnsafeCall as unsafe:
            if unsafe.passing and record.passed < MOST_PASSED and not self.fullgraph:
                record.passed += 1
                return None, leaves
            self._refuse(record, Reason(unsafe.what, unsafe.where, unsafe.hint, unsafe.before, unsafe.stack))
            return None, leaves
        except (Stopped, CaptureError, ConfigError, CompilerDefect):
            raise
        except Exception as error:      # a mistake of Tenon's, which is no reason to stop the program
            self._refuse(record, Reason(f"capturing it came to {type(error).__name__}: {error}", bug=True))
            return None, leaves
        if self._leave_histories(record, captured, structure, leaves):
            return None, leaves
        if self.mesh is not None:
            self._note_mesh(captured)
        else:
            check_no_mesh_is_named(captured.graph)
        notes: dict[str, Any] = {
            MEMORY_BUDGET: self.memory_budget, AUTOTUNE: self.autotune or None, PLACE: self.place,
            DONATED: None if captured.differentiable else captured.donations or None,
            UPDATES: None if captured.differentiable else captured.updates or None}
        notes |= {name: captured.graph.notes.get(name) for name in (SIZES, DEVICES, DIVIDED, HELD, MESH, PIPELINE)}
        captured.graph.notes = {name: value for name, value in notes.items() if value is not None}
        if not self.constants or self.place is not None or self.mesh is not None:
            captured.constants = ()
        captured.seconds.update(seconds)
        captured.counted = frozenset(self.loops.tried)
        captured.why = why
        self._note_recompile(why)
        record.captures.append(captured)
        record.family.captures += 1
        record.passed = 0
        if self.mesh is None and (pattern := pattern_of(captured, leaves)) is not None:
            record.family.patterns = [*record.family.patterns[1 - MOST_CAPTURES:], pattern]
        emit("captured", function=self.__name__, nodes=len(captured.graph.nodes))
        if self.part is not None:
            self.part.captured(len(captured.graph.nodes), structure, leaves)
        given = captured.arguments(leaves)
        return (None, leaves) if given is None else (captured, given)

    def _leave_histories(self, record: CaptureRecord, captured: Captured, structure: Structure,
                         leaves: Sequence[Any]) -> bool:
        """Leave to Python what reads a container that both this capture and the one before prolong; whether there is
        such a thing."""
        if self.fullgraph:
            return False
        if record.captures:
            found = history_reads(record.captures, captured, leaves)
            return self._split_at_all(found) and self._leave(record, found[0])
        earlier = [(key[0], x.captures[-1]) for key, x in self.records.items() if x.captures and key[0] != structure]
        names = growing_arguments([*earlier, (structure, captured)], self._parameters(), self.is_piece)
        reason = Reason(f"{', '.join(names)} is longer at every call")
        part = self._to_split() if names else None
        if part is None or not part.leave(names, reason):
            return False
        self._growing = reason
        for x in [*self.records.values(), record]:
            self._leave(x, reason)
        return True

    def _leave(self, record: CaptureRecord, reason: Reason, split: bool = True) -> bool:
        """Let calls like this one run in pieces; the captures for them would serve no other call."""
        emit("fallback", function=self.__name__, reason=reason.what)
        record.eager, record.split = reason, split
        self._short_ways = without(self._short_ways, [x.short for x in record.captures])
        record.captures.clear()
        return True

    def _give_up(self, record: CaptureRecord, reason: Reason) -> None:
        """The same, or by part."""
        self._refuse(record, reason)
        self._leave(record, reason, record.split)

    def _parameters(self) -> tuple[str, ...]:
        """The names of those that take arguments by their place."""
        code = getattr(getattr(self.function, "__func__", self.function), "__code__", None)
        return () if code is None else code.co_varnames[:code.co_argcount]

    def _note_mesh(self, captured: Captured) -> None:
        """Let the graph say on which devices it runs, and whether in stages."""
        if self.pipeline is not None:
            with unforked:
                from tenon.capture.note_pipeline import pipeline_note  # local: few programs are pipelines
            captured.graph.notes = {**captured.graph.notes, PIPELINE: pipeline_note(captured, self.pipeline)}
        if captured.differentiable:
            raise CaptureError(f"{self.__name__} runs on {self.mesh!r}, and its result carries a gradient",
                               hint="call backward() and the optimizer in the function, or it in a block of "
                                    "tn.no_grad()")
        held = tuple(k for k, source in enumerate(captured.sources) if isinstance(source, Held))
        captured.graph.notes = {**captured.graph.notes, MESH: self.mesh, HELD: held}
        self._divide(captured)

    def _divide(self, captured: Captured) -> None:
        """Split state of which a plan is to say how."""
        if self.mesh is not None and any(is_awaiting(source.holder, self.mesh) for source in captured.sources
                                         if isinstance(source, Held)):
            above = import_module("tenon.planning.divided_step")        # by name: it stands above
            above.divide_as_awaited(self, captured, self.mesh)

    def _note_recompile(self, why: str) -> None:
        """Say that there is a further capture, and warn where there are many."""
        if not why:
            return
        self._recompiles += 1
        emit("recompiled", function=self.__name__, why=why, number=self._recompiles)
        if self._recompiles == WARN_AT:
            warn_of_recompiles(self.__name__, WARN_AT, why)

    def _moving(self, record: CaptureRecord, leaves: list[Any], structure: Structure) -> Captured:
        """A capture that reads anew what is another number or tensor than before, as far as the function allows."""
        note_changes(record, leaves)
        converting = self.converting
        while places := tuple(place for name, place in record.moving.items() if name not in record.unmoved):
            try:
                captured = self._converted(record, leaves, structure, places)
                if captured.further is not None:
                    record.text_read = captured.further.program.text_asked or record.text_read
                return captured
            except Unmoved as unmoved:
                record.text_read = unmoved.stack
                record.unmoved.update(root_of(place).name for place in unmoved.places)
            except (UnsafeCall, Exception) as error:
                with suppress(UnsafeCall):      # the message of an error may be text that the graph computes
                    emit("captured.by_value", function=self.__name__, reason=str(error))
                self.converting = converting
                break
        return self._converted(record, leaves, structure, ())

    def _converted(self, record: CaptureRecord, leaves: list[Any], structure: Structure,
                   moving: Sequence[GuardPlace]) -> Captured:
        """A capture, with control flow on tensors where the function has any, and loops that run as often as a number
        says that changes, as far as their bodies can be recorded."""
        before = self.converting
        sizes: Set[str] = frozenset()       # whose numbers would do where the function cannot be rewritten
        while True:
            self.loops.begin()
            try:
                return self._trace_sizes(record, leaves, structure, moving)
            except (Unmoved, CompilerDefect):
                raise
            except (UnsafeCall, Exception) as error:
                if isinstance(error, UnsafeCall) and error.convertible and not self.converting:
                    self.converting, sizes = True, error.sizes
                elif self.loops.give_up():
                    self.converting = before
                elif sizes and isinstance(error, UnsafeCall):
                    record.exact.update(places(argument_types(leaves, record, places=moving), sizes))
                    self.converting, sizes = before, frozenset()
                else:
                    raise

    def _trace_sizes(self, record: CaptureRecord, leaves: list[Any], structure: Structure,
                     moving: Sequence[GuardPlace]) -> Captured:
        """A capture with symbols for the sizes that change, as far as the function does not need their numbers."""
        known: dict[str, Dim] = {}
        told: dict[str, Dim] = {}       # of sizes that the data decide
        agreed: set[tuple[int, int]] = set()    # axes whose sizes are numbers in this capture
        numbers: set[str] = set()               # symbols of numbers that are numbers in this capture
        while True:
            types = argument_types(leaves, record, known, moving, agreed)
            try:
                return self._attempt(leaves, structure, types, moving, told, (known, numbers))
            except PinnedSize as pinned:
                if not self.converting and is_how_many(pinned.__traceback__) and \
                        self.loops.tries(last_place(pinned.__traceback__)):
                    raise UnsafeCall("a loop runs as often as a size says that changes", convertible=True) from None
                if pinned.solution is not None and is_by_data(symbol(pinned.solution[0])):
                    told |= [pinned.solution]
                elif pinned.solution is None:
                    numbers |= {name for name in pinned.names if name.startswith(BY_NUMBER)}
                    (agreed if pinned.agreed else record.exact).update(places(types, pinned.names))
                else:
                    known = {name: substitute(dim, dict([pinned.solution])) for name, dim in known.items()}
                    known |= [pinned.solution]
            except UndecidedSize:
                return self._attempt(leaves, structure, argument_types(leaves, None, places=moving), moving)

    def _attempt(self, leaves: list[Any], structure: Structure, types: list[TensorType],
                 moving: Sequence[GuardPlace], told: Mapping[str, Dim] = MappingProxyType({}),
                 numbers: tuple[Mapping[str, Dim], Set[str]] | None = None) -> Captured:
        with unforked:
            from tenon.capture.capture_run import (
                Attempt,  # local: what captures is loaded when something is first captured
            )

        return Attempt(self.function, self.__name__, self.converting, leaves, structure, types, moving,
                       told, numbers, self.loops).capture()

    def _refuse(self, record: CaptureRecord, reason: Reason) -> None:
        """Let calls like this one run by part, or say that they cannot be one graph."""
        record.eager = reason
        record.family.refusals += 1
        record.family.refused = record
        self._tell(reason)
        record.split = self._split_at(reason)

    def _tell(self, reason: Reason) -> None:
        """Say that calls run by part; raises where they must not."""
        emit("fallback", function=self.__name__, reason=reason.what)
        self._say_no(reason)

    def _say_no(self, reason: Reason) -> None:
        """With `fullgraph=True`, every call that would run by part is an error."""
        if self.fullgraph:
            raise CaptureError(reason.what, where=reason.where, hint=reason.hint) from None


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


def _forget(jitted: weakref.ref[Jitted], key: Any, _: Any) -> None:
    """An argument that a key names is gone, and what is known of such calls with it."""
    if (function := jitted()) is not None and (record := function.records.pop(key, None)) is not None:
        record.family.gone += 1
        function._short_ways = without(function._short_ways, [c.short for c in (*record.captures, *record.bound)])


def note_changes(record: CaptureRecord, leaves: Sequence[Any]) -> None:
    """Take note of the places where another number or tensor stands than at the captures so far."""
    if not record.captures:
        for place in (place for pattern in record.family.patterns for place in pattern.changed(leaves)):
            record.moving.setdefault(place.name, place)
    for captured in (*record.captures, *record.bound[:1]):
        for place, before in changes_since(captured, leaves):
            record.moving.setdefault(place.name, place)
            if isinstance(before, Tensor):
                record.shapes.setdefault(place.name, before.own.payload.shape)
        for place in numbers_stored(captured, leaves):
            record.moving.setdefault(place.name, place)


def changes_since(captured: Captured, leaves: Sequence[Any]) -> Iterator[tuple[GuardPlace, Any]]:
    """The places where another number or tensor stands than at a capture, and which that was."""
    for k, value in captured.values:
        if type(leaves[k]) in CHANGING and not same_atom(leaves[k], value):
            yield GuardPlace(ARGUMENT, None, k), value
    yield from changed(captured.guards.groups)


def numbers_stored(captured: Captured, leaves: Sequence[Any]) -> Iterator[GuardPlace]:
    """Where a capture has stored numbers, such as a counter that was not there at first."""
    for effect, number in captured.effects:
        own = number is not None and 0 <= -1 - number < len(leaves)
        holder = leaves[-1 - number] if number is not None and own else effect.holder
        place = None if holder is None else stored_at(effect, holder)
        if place is not None and type(value_in(place, leaves)) in NUMBERS:
            yield place


def last_of(record: CaptureRecord) -> list[Captured]:
    """The last capture for these objects."""
    return record.captures[-1:] or record.bound[:1]


Jitted.own = frozenset(vars(Jitted(lambda: None))) - {"function"}


# ---------------------------------------------------------------- the public functions

NOT_FUNCTIONS = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def _innermost(function: Any) -> Any:
    """What is behind partial functions and caches, or the `__call__` of an object."""
    while not isinstance(function, (type, types.FunctionType, types.MethodType)):
        called = getattr(type(function), "__call__", None)  # noqa: B004
        inner = function.func if isinstance(function, functools.partial) else \
            getattr(function, "__wrapped__", None) or (called if isinstance(called, types.FunctionType) else None)
        if inner is None:
            return function
        function = inner
    return function


def _planned(plan: Plan | str, options: dict[str, Any]) -> Callable[[Any], Any]:
    """What makes a function that runs as a plan says; "auto" says one at the first call."""
    if not isinstance(plan, str):
        return functools.partial(plan.applied, options=options)
    above = import_module("tenon.planning.planned_step")       # by name: it stands above
    return functools.partial(above.auto_planned_step, options=options)


@overload
def jit(function: F, *, fullgraph: bool = ..., memory_budget: float | None = ..., constants: bool = ...,
        autotune: bool = ..., background: bool = ..., pipeline: Pipeline | None = ...,
        place: Sequence[str] | str | None = ..., mesh: Mesh | None = ..., plan: Plan | str | None = ...) -> F: ...


@overload
def jit(function: None = None, *, fullgraph: bool = ..., memory_budget: float | None = ..., constants: bool = ...,
        autotune: bool = ..., background: bool = ..., pipeline: Pipeline | None = ...,
        place: Sequence[str] | str | None = ..., mesh: Mesh | None = ...,
        plan: Plan | str | None = ...) -> Callable[[F], F]: ...


def jit(function: Any = None, *, fullgraph: bool = False, memory_budget: float | None = None,
        constants: bool = True, autotune: bool = False, background: bool = False,
        pipeline: Pipeline | None = None, place: Sequence[str] | str | None = None,
        mesh: Mesh | None = None, plan: Plan | str | None = None) -> Any:
    """Run a function as one compiled graph: forward, backward and the optimizer's update included.

    Works on functions and methods, with arguments nested in containers; tensors among them are inputs of the graph,
    Python values are part of what it is compiled for, but numbers that change become inputs.  Whatever the function
    reads is guarded, whatever it assigns is assigned by every call.  `fullgraph=True` raises CaptureError where it
    would otherwise run by part.
    `memory_budget` is how many bytes may lie between kernels, beside arguments and results: values are computed again
    instead of being kept, the cheapest first, until that holds.  Where nothing helps, the call raises OverBudget, as it
    does where that which loops keep of their turns for gradients does not fit; 0 asks for as little as can be.  Without
    a budget, a large graph computes again what is done element by element, as long as that takes at most a hundredth or
    two of its time.
    Where no gradient is recorded, what depends on tensors from outside alone (weights) is computed once, and again when
    they change; `constants=False` saves the memory that this takes.
    `autotune=True` measures, where several schedules claim a product, which is the fastest on this machine, once: it is
    remembered beside the code, so that later runs are the same to the bit.
    `background=True` lets another thread compile: until that is done, calls run eagerly.  What goes wrong there is told
    by the call that comes then.
    `pipeline=tn.distributed.Pipeline(stages=2, micro_batches=8)` cuts a training step in stages, each on a device of
    its own, through which parts of the batch go one after the other; with a mesh, these are along its axis "pipe".
    `place="auto"` lets parts of the graph run on several logical devices at once, where a model of costs, measured on
    this machine, says that this is sooner than one device with all threads; `place=("cpu", "cpu:1")` names them, and
    `place="processes"` does the same over the processes of `tenon launch`, all of which have the results.
    With a `mesh`, the graph runs on all its devices: what `tn.distributed.shard` has split is, and collectives are put
    where they have to be (`tn.distributed.explain` says which); a pipeline's stages are its axis "pipe".  All that the
    function does is one graph then, backward pass included.  A `plan` of `tn.distributed.plan(step, *args)` chooses the
    mesh: rows of the arguments are divided over it, and weights with what an optimizer keeps, as its best has them.
    `plan="auto"` makes one at the first call: over a mesh of axes "data" and "model", or over what there is.

    >>> @tn.jit
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(tn.tensor([1.0, 2.0]))
    tensor([3., 5.])
    """
    options: dict[str, Any] = {"fullgraph": fullgraph, "memory_budget": memory_budget, "constants": constants,
                               "autotune": autotune, "background": background, "pipeline": pipeline, "place": place,
                               "mesh": mesh}
    if isinstance(memory_budget, float) and memory_budget.is_integer():        # 8e9
        options["memory_budget"] = memory_budget = int(memory_budget)
    if memory_budget is not None and (isinstance(memory_budget, bool) or not isinstance(memory_budget, int)
                                      or memory_budget < 0):
        raise ArgumentError(f"jit: memory_budget is a number of bytes, not {memory_budget!r}")
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ArgumentError(f"jit: mesh is a Mesh, not {type(mesh).__name__}", hint='tn.distributed.Mesh({"data": 2})')
    if pipeline is not None and not hasattr(pipeline, "mesh_for"):      # its class is not loaded for others
        raise ArgumentError(f"jit: pipeline is a Pipeline, not {type(pipeline).__name__}",
                            hint="tn.distributed.Pipeline(stages=2, micro_batches=8)")
    if (mesh is not None or pipeline is not None) and place is not None:
        raise ArgumentError("jit: a mesh or a pipeline is not combined with places yet", hint="give one of them")
    if (mesh is not None or pipeline is not None) and background:
        raise ArgumentError("jit: background=True is for one device; a mesh waits for its programs")
    if plan is not None and plan != "auto" and not hasattr(plan, "applied"):       # its class is not loaded for others
        raise ArgumentError(f"jit: plan is a Plan or \"auto\", not {type(plan).__name__}",
                            hint="tn.distributed.plan(step, *args)")
    if function is None:
        return functools.partial(jit, plan=plan, **options)
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(jit(function.__func__, plan=plan, **options))
    if not callable(function):
        raise ArgumentError(f"jit takes a function, not {type(function).__name__}",
                            hint="it decorates functions, methods, and objects that can be called")
    if any(kind(_innermost(function)) for kind in NOT_FUNCTIONS):
        name = getattr(_innermost(function), "__qualname__", repr(function))
        raise ArgumentError(f"jit: {name} is a generator or a coroutine, which has no single result",
                            hint="jit a function that does one step, and call it from there")
    make: Callable[[Any], Any] = _planned(plan, options) if plan is not None else lambda whole: Jitted(whole, **options)
    if isinstance(function, types.MethodType):
        return types.MethodType(make(function.__func__), function.__self__)
    return make(function)

