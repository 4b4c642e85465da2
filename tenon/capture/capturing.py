"""A call that no capture fits -> a new capture, or the reason why it runs with graph breaks.

A size that changed becomes a symbol, a number or a tensor that is another one an input, as far as the function allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tenon.capture.capture_cache import CaptureRecord, Reason, argument_names, argument_types, places
from tenon.capture.capture_lookup import changes_since
from tenon.capture.capture_pattern import pattern_of
from tenon.capture.captured import Captured
from tenon.capture.changing_inputs import shapes_in, value_in
from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.counted_loops import CountedLoops, is_how_many, last_place
from tenon.capture.fast_call_table import without
from tenon.capture.graph_breaks import MAX_UNLIKE, GraphBreaks
from tenon.capture.growing_containers import growing_arguments, history_reads, reads_of_growing, what_grows
from tenon.capture.guard_places import CHANGING, NUMBERS, GuardPlace, root_of, stored_at
from tenon.capture.lazy_tensors import FunctionParts
from tenon.capture.parameter_sources import Held
from tenon.capture.pytree import Structure
from tenon.capture.recompile_reasons import is_another_text, warn_of_recompiles, why_anew
from tenon.capture.store_results import Stopped
from tenon.capture.symbolic_numbers import Unmoved
from tenon.config import ConfigError
from tenon.devices import placing
from tenon.dims.symbolic_dim import BY_NUMBER, Dim, PinnedSize, is_by_data, substitute, symbol
from tenon.dims.undecided_sizes import UndecidedSize
from tenon.eager.grad_mode import modes
from tenon.errors import CaptureError, CompilerDefect
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
    SIZES,
    UPDATES,
)
from tenon.locks import unforked
from tenon.observe import emit, span, timed
from tenon.sharding.annotations import check_no_mesh_is_named
from tenon.sharding.awaiting_plan import is_awaiting
from tenon.sharding.mesh import Mesh
from tenon.types import TensorType

if TYPE_CHECKING:
    from tenon.pipelining.pipelined import Pipeline

MAX_CAPTURES = 64       # of one key; what fits none of them runs with graph breaks, which is right and says so
MAX_OF_A_FAMILY = 256   # captures for objects of the same classes, which others replace
MAX_PASSED = 4          # calls in a row that make parameters, before those like them run with graph breaks for good
WARN_AT = 9             # calls beside the first that no capture fitted, of which the user is told once
MAX_REBOUND = 16        # bindings in a row to other objects, each for one call, of a graph that is small
SMALL_GRAPH = 64        # nodes
MAX_NEW = 6             # captures that served one call, before further ones await a second call like theirs


class Capturing(GraphBreaks):
    """A function that captures its calls."""

    mesh: Mesh | None
    pipeline: Pipeline | None
    loops: CountedLoops
    converting: bool
    _growing: Reason | None
    _recompiles: int
    _alone: int
    _unlike_parts: FunctionParts
    _waited: int

    def _capture(self, record: CaptureRecord, leaves: list[Any], structure: Structure, containers: Sequence[Any],
                 at_once: bool = False) -> tuple[Captured | None, Sequence[Any]]:
        """A new capture for this call, and its arguments; None when the function runs with graph breaks."""
        if record.full is not None:
            return None, leaves
        captured, arguments = self._bind(record, leaves, containers)
        if self._is_outgrown(record) if captured is None else self._is_bound_anew(record, captured, leaves):
            return None, leaves
        if captured is not None:
            self._served()
            if self.part is not None:
                self.part.captured(len(captured.graph.nodes), structure, leaves)
            return captured, arguments
        names = argument_names(getattr(self.function, "__func__", self.function), structure)
        why = why_anew(record.captures, self.records, leaves, structure, (*modes(), placing()), names)
        if self._is_full(record, why) or not (at_once or self._may_come_again(record, leaves, why)):
            return None, leaves
        captured = self._made(record, leaves, structure, containers)
        self._alone += 1
        if captured is None or self._leave_histories(record, captured, structure, leaves):
            return None, leaves
        self._annotate(captured)
        self._keep(record, captured, leaves, why)
        if self.part is not None:
            self.part.captured(len(captured.graph.nodes), structure, leaves)
        given = captured.arguments(leaves)
        return (None, leaves) if given is None else (captured, given)

    def _is_bound_anew(self, record: CaptureRecord, captured: Captured, leaves: Sequence[Any]) -> bool:
        """Whether a small capture is bound to other objects at every call, which takes longer than the call."""
        if self.fullgraph or record.rebound < MAX_REBOUND or len(captured.graph.nodes) > SMALL_GRAPH:
            return False
        place = next((place for before in record.captures[-1:] for place, _ in changes_since(before, leaves)), None)
        named = "" if place is None else f": {place.path}"
        return self._give_up(record, Reason(f"other objects are found at every call{named}"))

    def _is_outgrown(self, record: CaptureRecord) -> bool:
        """Whether calls are left to Python because something that they read is longer each time."""
        if self._growing is not None and not record.captures:
            record.parts = record.parts or self._unlike_parts
            return self._leave(record, self._growing)
        growing = [] if self.fullgraph else reads_of_growing(record.captures)
        if self._split_at_all(growing):
            return self._leave(record, growing[0])
        if not self.fullgraph and (grown := what_grows(record.captures)) is not None:
            return self._give_up(record, grown)
        return False

    def _is_full(self, record: CaptureRecord, why: str) -> bool:
        """Whether there are so many captures that a further one would serve nobody."""
        if record.family.captures >= MAX_OF_A_FAMILY:
            return self._fill(record, Reason(f"captured {MAX_OF_A_FAMILY} times for objects of the same classes"))
        if len(record.captures) >= MAX_CAPTURES:
            return self._fill(record, Reason(
                f"captured {MAX_CAPTURES} times, each time with something changed, at last: {why}"))
        if self.is_piece and self._alone >= MAX_NEW:
            return self._give_up(record, Reason(f"captured anew at every call, at last: {why}", stack=()))
        return False

    def _served(self) -> None:
        """A capture was of use to a second call."""
        self._alone, self._unlike = max(self._alone - 1, 0), 0

    def _may_come_again(self, record: CaptureRecord, leaves: Sequence[Any], why: str) -> bool:
        """Whether a capture may serve other calls: captures do so on the whole, a call like this was there before, or
        many were not captured since the last one."""
        sight = (why, *numbers_moved(record, leaves))
        if self.fullgraph or self._around or self._alone < MAX_NEW or sight in record.seen or \
                self._waited >= 2 ** (self._alone - MAX_NEW + 1):
            record.seen.discard(sight)
            self._waited = 0
            return True
        if len(record.seen) >= MAX_CAPTURES:
            record.seen.clear()
        record.seen.add(sight)
        record.parts = record.parts or self._unlike_parts
        self._note_recompile(why, captured=False)
        self._waited += 1
        self._unlike += 1
        reason = Reason(f"captured anew at every call, at last: {why}", stack=record.number_read)
        if record.captures and is_another_text(record.captures[-1], leaves):
            self._give_up(record, reason)
        elif self._unlike == MAX_UNLIKE and not (self._split_at(reason) and self._leave(record, reason)):
            record.unlike = reason
        return False

    def _fill(self, record: CaptureRecord, reason: Reason) -> bool:
        """Let calls that no capture fits run with graph breaks; those there are stay in use."""
        record.full = reason
        self._tell(reason)
        return True

    def _made(self, record: CaptureRecord, leaves: list[Any], structure: Structure,
              containers: Sequence[Any]) -> Captured | None:
        """A new capture; None where the function cannot be one graph, or passes by once more."""
        seconds: dict[str, float] = {}
        try:
            with span("capture", function=self.__name__), timed(seconds, "capture"):
                captured = self._moving(record, leaves, structure)
                if not captured.apart.isdisjoint(map(id, containers)) or captured.meets(containers):
                    raise UnsafeCall("a container among the arguments is one that the function finds elsewhere too")
                if captured.chosen and self.part is not None and self.part.whole is None:
                    raise UnsafeCall("a tensor may be another one for what comes behind, as the data decide")
        except UnsafeCall as unsafe:
            if unsafe.passing and record.passed < MAX_PASSED and not self.fullgraph:
                record.passed += 1
                return None
            self._refuse(record, Reason(unsafe.what, unsafe.where, unsafe.hint, unsafe.before, unsafe.stack))
            return None
        except (Stopped, CaptureError, ConfigError, CompilerDefect):
            raise
        except Exception as error:      # a mistake of Tenon's, which is no reason to stop the program
            self._refuse(record, Reason(f"capturing it came to {type(error).__name__}: {error}", bug=True))
            return None
        captured.seconds.update(seconds)
        return captured

    def _annotate(self, captured: Captured) -> None:
        """Give the graph what passes and backends are to know of the call."""
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

    def _keep(self, record: CaptureRecord, captured: Captured, leaves: Sequence[Any], why: str) -> None:
        """Make a capture one of those that calls are compared with."""
        captured.counted = frozenset(self.loops.tried)
        captured.why = why
        self._note_recompile(why)
        record.captures.append(captured)
        record.family.captures += 1
        record.passed = 0
        if self.mesh is None and (pattern := pattern_of(captured, leaves)) is not None:
            record.family.patterns = [*record.family.patterns[1 - MAX_CAPTURES:], pattern]
        emit("captured", function=self.__name__, nodes=len(captured.graph.nodes))

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
        self._fast_calls = without(self._fast_calls, [x.fast_call for x in record.captures])
        record.captures.clear()
        return True

    def _give_up(self, record: CaptureRecord, reason: Reason) -> bool:
        """The same, or with graph breaks."""
        self._refuse(record, reason)
        return self._leave(record, reason, record.split)

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

    def _note_recompile(self, why: str, captured: bool = True) -> None:
        """Say that there is a further capture, and warn where many calls found none that fits."""
        if not why:
            return
        self._recompiles += 1
        if captured:
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
                    record.number_read = captured.further.program.asked_at or record.number_read
                return captured
            except Unmoved as unmoved:
                record.number_read = unmoved.stack
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
                    known.clear()       # symbols are numbered anew
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


def note_changes(record: CaptureRecord, leaves: Sequence[Any]) -> None:
    """Take note of the places where another number or tensor stands than at the captures so far."""
    if not record.captures:
        for place in (place for pattern in record.family.patterns for place in pattern.changed(leaves)):
            record.moving.setdefault(place.name, place)
    for captured in (*record.captures, *record.bound[:1]):
        for place, before in changes_since(captured, leaves):
            record.moving.setdefault(place.name, place)
            for name, shape in shapes_in(place, before):
                record.shapes.setdefault(name, shape)
        for place in numbers_stored(captured, leaves):
            record.moving.setdefault(place.name, place)


def numbers_moved(record: CaptureRecord, leaves: Sequence[Any]) -> Iterator[Any]:
    """The numbers and texts of this call that the last capture reads anew, or the type of what stands there now."""
    further = record.captures[-1].further if record.captures else None
    for place, _ in further.numbers if further is not None else ():
        value = value_in(place, leaves)
        yield value if type(value) in CHANGING else type(value)


def numbers_stored(captured: Captured, leaves: Sequence[Any]) -> Iterator[GuardPlace]:
    """Where a capture has stored numbers, such as a counter that was not there at first."""
    for effect, number in captured.effects:
        own = number is not None and 0 <= -1 - number < len(leaves)
        holder = leaves[-1 - number] if number is not None and own else effect.holder
        place = None if holder is None else stored_at(effect, holder)
        if place is not None and type(value_in(place, leaves)) in NUMBERS:
            yield place
