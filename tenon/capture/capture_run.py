"""One attempt at a capture: the function is called once with stand-ins for its tensors, under the eyes of a watch.

What the call reads is guarded, what it changes is put back and becomes part of the graph; what no graph can repeat
raises UnsafeCall, a size whose number is asked for PinnedSize or UndecidedSize, an error of the function's Stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from types import CodeType
from typing import Any

from tenon.capture.capture_cache import argument_names
from tenon.capture.captured import Captured
from tenon.capture.changing_inputs import ChangingInputs
from tenon.capture.code_monitor import CodeWatch, UnsafeCall
from tenon.capture.code_names import names_of
from tenon.capture.convert.convert_function import convert
from tenon.capture.convert.converting_capture import ConvertingCapture
from tenon.capture.convert.data_sizes import DataSizes, refusal
from tenon.capture.convert.state_snapshot import World
from tenon.capture.counted_loops import CountedLoops
from tenon.capture.deferred_signals import handled_later
from tenon.capture.effects import Effect, Snapshot, stored_items
from tenon.capture.finish_capture import conclude
from tenon.capture.guard_discovery import Reach
from tenon.capture.guard_places import LENGTH, GuardPlace, Key
from tenon.capture.number_attributes import by_definition
from tenon.capture.parameter_sources import Held
from tenon.capture.pytree import Structure, unfold
from tenon.capture.raised_exceptions import is_of_the_program
from tenon.capture.runtime_numbers import in_graph
from tenon.capture.store_results import Stopped, sizes_of
from tenon.capture.symbolic_numbers import SymNumber
from tenon.capture.trace import Capture, capturing
from tenon.dims.size_assumptions import Assumptions, assuming, learn, told_by
from tenon.dims.symbolic_dim import Dim, SymbolicDim, evaluate
from tenon.dims.undecided_sizes import UndecidedSize
from tenon.errors import PACKAGE, CompilerDefect
from tenon.records import dataclass, field
from tenon.tensor import Tensor
from tenon.tensor_state import leaf_hooks
from tenon.types import TensorType

MAX_CALLS = 3       # for one capture


class Disturbed(Exception):
    """Another thread set what the function reads."""


@dataclass(frozen=True)
class Attempt:
    """A call of a function with these leaves, whose tensors (and those in `places`) have these types.

    Its control flow is converted or not.
    """

    function: Callable[..., Any]
    name: str
    converting: bool
    leaves: Sequence[Any]
    structure: Structure
    types: list[TensorType]
    places: Sequence[GuardPlace] = ()        # where other numbers and tensors stand in every call
    told: Mapping[str, Dim] = field(default_factory=dict)       # what sizes that the data decide are known to be
    # what symbols of numbers are known to be, and which have to be numbers; None where no number is a size
    numbers: tuple[Mapping[str, Dim], Set[str]] | None = None
    loops: CountedLoops | None = None       # None where they are all written out

    def capture(self) -> Captured:
        """Call the function; the graph of what it did, with all that it read and changed.

        Once more, where another thread set a global that it reads meanwhile: nobody can say which value it read.
        """
        for _ in range(MAX_CALLS):
            with suppress(Disturbed), handled_later():
                return self._capture()
        raise UnsafeCall("other threads set what the function reads, again and again", passing=True)

    def _capture(self) -> Captured:
        moving = ChangingInputs(self.places, self.leaves)
        with moving.placed():
            found = self._capture_with(moving)
        found.opened = self.structure.kinds()
        return found

    def _capture_with(self, moving: ChangingInputs) -> Captured:
        args, keywords = self.structure.build(moving.leaves)
        containers = unfold((args, keywords), classes=self.structure.kinds())[2]
        before = self._reached_before(containers)
        moving.refuse_aliases(before.known())
        if before.iterators or before.ending:
            self._refuse_before()
        holders = list(before.holders.values())
        snapshot = Snapshot(holders, before.cells)
        world = World(holders, before.cells, snapshot, containers)
        capture = ConvertingCapture(self.name, world) if self.converting else Capture(self.name)
        capture.reached = before.tensors
        if not self.converting and any(place.kind == LENGTH for place, _ in moving.found):
            raise UnsafeCall("the length of a list changes from call to call", convertible=True)
        if moving.found or any(isinstance(dim, SymbolicDim) for type in self.types for dim in type.shape):
            capture.numbers, moving.numbers.converting = moving.numbers, self.converting
            capture.by_definition = by_definition
        capture.loops = moving.numbers.loops = self.loops
        watch = CodeWatch(iterators=before.iterators, undecided=lambda: capture.undecided, cached=before.cached())
        given = [*self.leaves, *(x for _, x in moving.tensors)]
        assumptions = Assumptions(sizes_of(self.types, given), refuse=refusal,
                                  stand_in=None if self.numbers is None else moving.numbers.sizes.behind)
        moving.numbers.sizes.make = partial(self._size_of, moving, assumptions.sizes)
        sizes = [assumptions.sizes]
        if isinstance(capture, ConvertingCapture):
            data_sizes = DataSizes(self.told, assumptions.sizes, lambda x: capture.array_of(x, given))
            capture.data_sizes, assumptions.look_up = data_sizes, data_sizes.look_up
            moving.numbers.in_graph = in_graph
            sizes.append(data_sizes.sizes)
        self._learn_numbers(moving, sizes)
        with assuming(assumptions), capturing(capture):
            self._add_arguments(capture, moving)
            with assumptions.heeding():
                result, changes = self._observe(capture, watch, snapshot, before, args, keywords)
        if assumptions.sizes or moving.found:
            self._refuse_types(watch.as_written, bool(assumptions.sizes))
        moving.settle()
        reach = self._reached(watch.codes, changes, moving.names, watch.library)
        for _, value in moving.fixed:
            reach.add(value, "an item of a container")
        for kind in {form.kind for _, form in moving.nests}:
            reach.add(kind, kind.__name__)
        for variable in watch.variables.values():
            reach.add(variable, f"the variable {variable.name!r}")
        for hooks in capture.called_hooks:
            reach.add(hooks, "the hooks of a gradient")
        reach.add_references()
        reach.add_decimals()
        reach.groups += world.guards(changes)
        reach.compare_arrays([s.holder for s in capture.sources if isinstance(s, Held)])
        if reach.opaque:
            raise UnsafeCall(reach.opaque[0])
        known = before.known().difference(id(x) for x in moving.made if id(x) not in moving.copies)
        captured = conclude(capture, result, changes, self.types, reach, known, before.tables(), containers,
                            assumptions, moving, watch.sightings)
        captured.callers = watch.callers
        return captured

    def _learn_numbers(self, moving: ChangingInputs, sizes: Sequence[dict[str, int]]) -> None:
        """Let numbers that change be sizes, which are noted here."""
        if self.numbers is not None:
            moving.numbers.told, moving.numbers.exact = self.numbers
            moving.numbers.learn = lambda dim, size: [learn(dim, size, known) for known in sizes]

    def _size_of(self, moving: ChangingInputs, sizes: Mapping[str, int], name: str) -> tuple[Dim, SymNumber]:
        """A size that tells a symbol, and its number in every call."""
        tensor, axis, dim = next((k, axis, dim) for k, type in enumerate(self.types)
                                 for axis, dim in enumerate(type.shape) if told_by(dim) == name)
        return dim, moving.size(tensor, axis, evaluate(dim, sizes))

    def _refuse_types(self, codes: Iterable[CodeType], sized: bool) -> None:
        """What asks a value for its type is given that of a stand-in, unless it is rewritten."""
        if not any("type" in names_of(code).global_names for code in codes if not code.co_filename.startswith(PACKAGE)):
            return
        what = "a value that changes may have been asked for its type"
        if self.converting and sized:
            raise UndecidedSize(what)
        raise UnsafeCall(what, convertible=True)

    @property
    def _root(self) -> Any:
        """The function of a method."""
        return getattr(self.function, "__func__", self.function)

    def _reached_before(self, containers: Sequence[Any]) -> Reach:
        """All that the call can find, and may change."""
        reach = Reach(None)
        reach.add(self._root, self.name)
        for x in [*self.leaves, *containers]:
            reach.add(x, "argument")
        for key, hooks in list(leaf_hooks.items()):
            if key in reach.tensors:
                reach.add(hooks, "the hooks of a gradient")
        return reach

    def _refuse_before(self) -> None:
        """What code that the function names can find an iterator may move it, and make objects whose end is an act,
        which could not be undone."""
        code = getattr(self._root, "__code__", None)
        codes: set[CodeType] = set() if code is None else {code}
        while True:
            reach = self._reached(codes, ())
            if reach.iterators or reach.ending:
                raise UnsafeCall((reach.ending or reach.opaque)[0])
            more = reach.passed_by()
            if not more:
                return
            codes |= more

    def _add_arguments(self, capture: Capture, moving: ChangingInputs) -> None:
        names = [*argument_names(self._root, self.structure), *("" for _ in moving.tensors)]
        listed = [*self.leaves, *(x for _, x in moving.tensors)]
        tensors = [(k, x) for k, x in enumerate(listed) if isinstance(x, Tensor)]
        for (k, x), type in zip(tensors, self.types, strict=True):
            capture.argument(x, k, type, names[k])
        moving.numbers.declare = lambda x, k, type: capture.argument(x, moving.base + k, type, "")

    def _observe(self, capture: Capture, watch: CodeWatch, snapshot: Snapshot, before: Reach, args: Any,
                 keywords: Any) -> tuple[Any, list[Effect]]:
        """The result of the call and what it changed, which is put back."""
        try:
            try:
                with watch.running():
                    result = self._call(args, keywords)
            finally:
                left = snapshot.leave(watch.stored())
            if not left.isdisjoint(watch.read()):
                raise Disturbed
            changes = snapshot.changes()
        except UnsafeCall as unsafe:
            unsafe.before = tuple(capture.builder.nodes)
            raise
        finally:
            snapshot.restore()
            moved = [kept.put_back() for kept in before.kept]
        if any(moved):
            raise UnsafeCall(next(filter(None, moved)))
        return result, changes

    def _call(self, args: Any, keywords: Any) -> Any:
        try:
            function = convert(self.function) if self.converting else self.function
            return function(*args, **keywords)
        except (UndecidedSize, CompilerDefect):
            raise
        except BaseException as error:
            if is_of_the_program(error):
                raise Stopped(error) from error
            raise

    def _reached(self, codes: set[CodeType], changes: Sequence[Effect], moved: Collection[Key] = (),
                 library: Iterable[CodeType] = ()) -> Reach:
        """All that this code reads, which is to be guarded."""
        appended = [id(e.holder) for e in changes if e.kind in ("list", "deque") and e.key is not None]
        changed = {(id(e.holder), e.key) for e in changes if e.kind in ("attribute", "slot", "item")}
        named: frozenset[str] = frozenset()
        while True:
            reach = Reach(codes, appended, stored_items(changes), moved, library, named, changed)
            self._add_roots(reach)
            if reach.named <= named:
                return reach
            named |= reach.named        # by objects that look up attributes, which were found late

    def _add_roots(self, reach: Reach) -> None:
        reach.add(self._root, self.name)
        for k, leaf in enumerate(self.leaves):
            if isinstance(leaf, Tensor):
                reach.add_argument(leaf, f"argument {k}")
            else:
                reach.add(leaf, f"argument {k}")
        for kind in self.structure.kinds():
            reach.add(kind, kind.__name__)
