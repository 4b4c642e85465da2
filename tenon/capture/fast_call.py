"""A capture and a call that it was right for -> a fast path for the calls that follow, most of it machine code.

One native pass looks at everything that such a call depends on: that the arguments have these types, that every value
and tensor from outside is what it was, that no argument is a tensor from outside.  A quick program runs in that same
pass.  A call that is different in anything takes the slow path (`tenon.jit`), which knows why and captures if need be.

A tensor that the program assigns and that nobody else holds is updated in its own memory: nobody else can have its
state or its array, which their reference counts tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from operator import itemgetter, not_
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.atomic import at_once, later
from tenon.buffer_ownership import EXPORTS
from tenon.capture.argument_roots import reference
from tenon.capture.captured import Captured
from tenon.capture.constant_weights import WithConstants, given, late_program
from tenon.capture.donated_results import DonatedResults, DonatedRunResults
from tenon.capture.epilogue import epilogue
from tenon.capture.guard_places import CHANGING
from tenon.capture.guards import same_atom
from tenon.capture.nest_reader import nest_reader
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.prologue import Prologue
from tenon.capture.pytree import LEAF, Structure, unfold
from tenon.capture.replay import run
from tenon.capture.residuals import recorded
from tenon.capture.result_leaves import FromGraph
from tenon.capture.size_reader import NewArray, SizeLimits, SizeReader, array_maker, size_reader
from tenon.capture.store_results import OnTape, ResultStores, RunResults, Stopped, sizes_of
from tenon.cpython import object_layout
from tenon.dims import Dim, evaluate, symbol
from tenon.gc_control import COLLECTOR
from tenon.in_place import Loan, UpdatedState
from tenon.locks import unforked
from tenon.records import replace
from tenon.runtime.buffer_pool import MIN_POOLED_BYTES, Lease, take
from tenon.tensor import Tensor, asarray, fresh
from tenon.tensor_state import TensorState
from tenon.types import Shape

if TYPE_CHECKING:
    from tenon.cpython.guard_table import Input, Slots
    from tenon.cpython.jit_fast_call import FastCalls
    from tenon.graph.ir import Graph
    from tenon.runtime.run_frame import Frame

MISS = object()
MADE_ANEW = (slice, range, frozenset, complex, bytes)       # for each call, as a rule, and equal
CONTIGUOUS_AND_ALIGNED = 0x101      # of ndarray.flags
Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Run = Callable[[tuple[Any, ...]], Any]      # given the leaves


class OffTheGraph(Exception):
    """The graph of a call like earlier ones does not hold its way, such as one that raises; nothing was changed."""


def _off_the_graph(captured: Captured) -> Any:
    """The long way learns of failures where the capture may be a wrong one; else it would only fail once more."""
    if not captured.succeeded or captured.counted:
        return MISS
    raise OffTheGraph


def make_fast_call(captured: Captured, structure: Structure, leaves: Sequence[Any],
                   containers: Sequence[Any]) -> Call | None:
    """What makes calls like this one, which went well, or says MISS; None where there is no such way.

    Where the call changes some of the `containers` among its arguments, these stand behind the leaves.
    """
    if not object_layout.READABLE or captured.places is not None or captured.mesh is not None:
        return None
    prologue = captured.prologue
    further = () if prologue is None else prologue(leaves)
    if further is None:
        return None
    if captured.further is not None and captured.further.copied and any(
            child.has_changeable for part in structure.children for child in part.children):
        return None                     # containers from places and among the arguments may be the same
    own, changed = len(leaves), tuple(containers) if captured.uses_containers else ()
    leaves = (*leaves, *further, *changed)
    distinct = len(set(map(id, leaves)))
    found = _for_all_sizes(captured, leaves, own, len(changed)) or (
        None if captured.sized else _Maker(captured, leaves, own, len(changed)).made())
    if found is None:
        return None
    maker, made = found
    outside = captured.outside
    if captured.leaves_of_tape:
        made = _for_leaves(captured.leaves_of_tape, made)
    if pairs := _one_tensor(leaves):
        made = _with_pairs(pairs, made)
    anew = {k: leaves[k] for k, value in captured.values if leaves[k] is not value}
    anew |= {k: x for k, x in enumerate(leaves[:own]) if type(x) in MADE_ANEW}
    if prologue is not None:
        equal = _with_equal(anew, _read_anew(prologue, made, leaves, own, outside))
        return _with_leaves(structure, leaves[:own], equal, captured.apart, bool(changed))
    if maker.answer is not None and distinct == len(leaves) and is_plain(structure) and not anew:
        return maker.answer if not outside else _apart_from(outside, maker.answer)
    several = len(leaves) > 1

    def call(given: tuple[Any, ...]) -> Any:
        if outside and not outside.isdisjoint(map(id, given)):
            return MISS
        if several and len(set(map(id, given))) != distinct:
            return MISS
        return made(given)
    equal = _with_equal(anew, call if outside or several else made)
    return _with_leaves(structure, leaves[:own], equal, captured.apart, bool(changed))


def _with_equal(values: Mapping[int, Any], made: Run) -> Run:
    """The call, where these arguments are made anew for each, such as `rate * 0.5`: conditions want the objects."""
    if not values:
        return made

    def equal(given: tuple[Any, ...]) -> Any:
        leaves = list(given)
        for k, value in values.items():
            if not same_atom(leaves[k], value):
                return MISS
            leaves[k] = value
        return made(tuple(leaves))
    return equal


def _for_all_sizes(captured: Captured, leaves: Sequence[Any], own: int, changed: int) -> tuple[_Maker, Run] | None:
    """A way for calls whose sizes are others, too: with memory for twice these, or at least for these.

    Where it cannot be one native call, the first way is for these sizes alone, which may stay.
    """
    sizes = sizes_of(captured.types, leaves)
    for growth in (2, 1) if sizes else ():
        maker = _Maker(captured, leaves, own, changed, {name: growth * size for name, size in sizes.items()})
        found = maker.made(only_quick=captured.short is None and not captured.differentiable)
        if found is not None:
            captured.sized, captured.grows = True, growth > 1
            return found
    return None


def _for_leaves(places: Sequence[int], made: Run) -> Run:
    """The call, where these arguments were not computed from others."""
    def call(given: tuple[Any, ...]) -> Any:
        for k in places:
            if given[k].own.node is not None:
                return MISS
        return made(given)
    return call


def _one_tensor(leaves: Sequence[Any]) -> list[tuple[int, int]]:
    """The places in which a tensor stands once more, each behind the first one."""
    first = {id(x): k for k, x in reversed([*enumerate(leaves)])}
    return [(first[id(x)], k) for k, x in enumerate(leaves) if isinstance(x, Tensor) and first[id(x)] != k]


def _with_pairs(pairs: Sequence[tuple[int, int]], made: Run) -> Run:
    """The call, where the arguments in these places are one tensor."""
    def call(given: tuple[Any, ...]) -> Any:
        for first, other in pairs:
            if given[first] is not given[other]:
                return MISS
        return made(given)
    return call


def _read_anew(prologue: Prologue, made: Run, leaves: Sequence[Any], own: int,
               outside: frozenset[int]) -> Run:
    """The call, with what is read anew behind its own arguments; of its tensors as many must be one as were."""
    tensors = [k for k, x in enumerate(leaves) if isinstance(x, Tensor)]
    pick = itemgetter(*tensors) if len(tensors) > 1 else None
    distinct = len(tensors) - len(_one_tensor(leaves))

    def call(given: tuple[Any, ...]) -> Any:
        further = prologue(given)
        if further is None:
            return MISS
        given = (*given[:own], *further, *given[own:])
        if outside and not outside.isdisjoint(map(id, given)):
            return MISS
        if pick is not None and len(set(map(id, pick(given)))) != distinct:
            return MISS
        return made(given)
    return call


def make_ready() -> None:
    """Let another thread make the native functions of fast paths, while a first program is compiled: the second call
    would wait for LLVM, and take the memory again that is given back once the program is there.  Nothing is lost but
    that where the system has no more threads, or Python is about to end."""
    if object_layout.READABLE and not _ready.is_set():
        with suppress(RuntimeError):
            Thread(target=_load_natives, name="tenon-compile").start()


def _load_natives() -> None:
    with COLLECTOR:
        with unforked:
            from tenon.capture.native_guards import GuardConditions  # noqa: F401  # a second call loads it
            from tenon.cpython.jit_fast_call import library  # local: LLVM is slow to load, and not always needed
        library(_slots())
        _ready.set()


_ready = Event()


def is_plain(structure: Structure) -> bool:
    """Whether the leaves of a call are its positional arguments."""
    positional, named = structure.children
    return not named.children and all(child is LEAF for child in positional.children)


def _apart_from(outside: frozenset[int], call: Call) -> Call:
    """The call, for arguments that are none of the tensors from outside."""
    def apart(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return call(args, keywords) if outside.isdisjoint(map(id, args)) else MISS
    return apart


def _with_leaves(structure: Structure, leaves: Sequence[Any], call: Run,
                 apart: frozenset[int], changed: bool) -> Call:
    """A function of a call's arguments that gives their leaves to `call`, and says MISS where the structure differs.

    Behind them stand the containers, where they are `changed`.
    """
    positional, named = structure.children
    count, names = len(positional.children), named.labels

    def plain(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return call(args) if len(args) == count and not keywords else MISS

    def with_names(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        same = len(args) == count and tuple(keywords) == names
        return call((*args, *keywords.values())) if same else MISS

    def simple(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        leaves = read(args, keywords)
        return MISS if leaves is None else call(leaves)

    def nested(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        leaves, found, containers = unfold((args, keywords), classes=classes)
        if found != structure or not apart.isdisjoint(map(id, containers)):
            return MISS
        return call((*leaves, *containers) if changed else tuple(leaves))
    if any(child is not LEAF for child in (*positional.children, *named.children)):
        read: Any = nest_reader(structure, leaves, apart, changed)
        classes = structure.kinds()
        return nested if read is None else simple
    return with_names if names else plain


class _Maker:
    """Collects the conditions of a capture, and what is done where they hold."""

    def __init__(self, captured: Captured, leaves: Sequence[Any], own: int, changed: int,
                 most: Mapping[str, int] | None = None):
        with unforked:
            from tenon.capture.native_guards import GuardConditions
            from tenon.cpython import guard_table, jit_fast_call  # local: LLVM is slow to load, and not always needed
        self.native, self.calls, self.captured = guard_table, jit_fast_call, captured
        self.most = most        # the sizes for which there is to be memory, where they may be others in other calls
        self.sized: list[tuple[int, Dim]] = []                  # where such sizes are written, for machine code
        self.answer: Call | None = None                         # the call that is one builtin, if there is one
        # the first `own` are the call's arguments, the last ones containers that it changes
        self.leaves, self.own, self.containers_at = leaves, own, len(leaves) - changed
        values = dict(captured.values)
        self.renewed = {id(x) for x, _, without_grad, *_ in captured.held if without_grad is None}
        self.free = {k for k, x in enumerate(leaves) if k >= own or (type(x) in CHANGING and k not in values)}
        self.tensors = tuple([asarray(x) if isinstance(x, np.ndarray) else x for x in leaves])
        self.guards = GuardConditions(captured.guards)
        kept = [x for k, x in enumerate(leaves) if not isinstance(x, (Tensor, np.ndarray)) and k not in self.free
                and reference(x) is None]
        self.arrays: list[Any] = [x.own.payload for x in captured.inputs.holders(self.tensors)]
        program = captured.program
        self.ready = program.ready_for(self.arrays) if isinstance(program, WithConstants) else None
        self.kept: list[Any] = [kept, self.guards.kept, self.ready]     # what the tables point to

    def made(self, only_quick: bool = False) -> tuple[_Maker, Run] | None:
        """What makes calls, and who knows of it."""
        inputs = self.inputs()
        if inputs is None:
            return None
        run = None if self.captured.differentiable and self.captured.halves is None else self.quick(inputs)
        run = run or (None if only_quick else self.checked(inputs))
        return None if run is None else (self, run)

    # ------------------------------------------------------------ the conditions

    def inputs(self) -> list[Input] | None:
        """A row for everything that is read or looked at; None where something cannot be described."""
        rows = [self.row(source, self.place(k), param.type.shape) for k, (source, param) in enumerate(
            zip(self.captured.sources, self.captured.graph.params, strict=True))]
        for k, array in self.ready.watched if self.ready else ():
            row = rows[k]
            rows[k] = None if row is None else replace(row, array=id(array))
        read = {id(source.holder) for source in self.captured.sources if isinstance(source, Held)}
        rows += [self.row(Held(x), self.native.ANY) for x, *_ in self.captured.held if id(x) not in read]
        rows += [self.identity(k, x) for k, x in self.captured.same]
        rows += [self.identity(k, x) for k, x in enumerate(self.leaves)
                 if not isinstance(x, (Tensor, np.ndarray)) and k not in self.free]
        return None if None in rows else rows  # type: ignore[return-value]

    def place(self, k: int) -> int:
        """Where an input stands among the arguments of the program that is run."""
        reads = self.ready.parts.reads if self.ready else range(len(self.arrays))
        return reads.index(k) if k in reads else self.native.ANY

    def row(self, source: Source, place: int, dims: Shape = ()) -> Input | None:
        """What is looked at of the tensor or array that a source stands for, in these dimensions."""
        base = source.source if isinstance(source, GradientOf) else source
        holder = self.leaves[base.position] if isinstance(base, Argument) else base.holder
        kind, flag, grad = self.native.PLAIN, 0, None
        array: Any = holder
        if isinstance(holder, Tensor):
            own = holder.own
            kind, flag, grad, array = self.native.TENSOR, id(bool(own.requires_grad)), own.grad, own.payload
        if isinstance(source, GradientOf):
            kind, array = self.native.GRADIENT, getattr(getattr(grad, "own", None), "payload", None)
        if not isinstance(array, np.ndarray):
            return None
        shape = np.array(array.shape, np.int64)
        self.kept += shape, array.dtype
        either = kind == self.native.PLAIN or (kind == self.native.TENSOR and id(holder) in self.renewed)
        if self.most is not None:
            self.sized += [(address, dim) for address, dim in zip(_addresses(shape), dims, strict=False)
                           if not isinstance(dim, int)]
        leaf = base.position if isinstance(base, Argument) else -1
        return self.native.Input(
            0 if leaf >= 0 else id(holder), max(leaf, 0), id(type(holder)), kind, flag,
            self.native.ANY if either else int(grad is not None), id(array.dtype), array.ndim,
            shape.ctypes.data, CONTIGUOUS_AND_ALIGNED if place >= 0 else 0, place, 0, id(type(grad)))

    def identity(self, leaf: int, x: Any) -> Input:
        """The condition that a leaf is this object."""
        return self.native.Input(0, leaf, id(type(x)), self.native.PLAIN, id(x), self.native.ANY, 0, 0, 0, 0,
                                 self.native.ANY, 0, 0)

    def table(self, inputs: Sequence[Input], frame: Any = None, places: Sequence[int] = (),
              loans: Sequence[Loan] = ()) -> FastCalls:
        conditions, run = self.guards.native, None
        if frame is not None:
            run = self.calls.ProgramRun(frame.objects_at, len(frame.objects), frame.address, places,
                                 frame.pool, frame.takes_long,
                                 (frame.statuses.ctypes.data, len(frame.statuses)),
                                 loans, (id(UpdatedState), id(TensorState)))
            conditions = replace(conditions, words=[*conditions.words, *frame.conditions])
        return self.calls.FastCalls(_slots(), conditions, inputs, Lease, (frame, self.kept), run,
                                    [address for address, _ in self.sized])

    def reader(self, results: Sequence[NewArray] = (), limits: SizeLimits | None = None) -> SizeReader | None:
        """What reads the sizes of a call, in the order in which they are written."""
        if self.most is None:
            return array_maker(results)
        return size_reader(self.captured, self.leaves, [dim for _, dim in self.sized], results, limits)

    # ------------------------------------------------------------ what is done where they hold

    def checked(self, inputs: Sequence[Input]) -> Run | None:
        """Look at everything natively, then run as ever."""
        looked = [replace(row, place=self.native.ANY, flags=0, array=0) for row in inputs]
        check, rest, captured, at = self.table(looked).check, self.guards.rest, self.captured, self.containers_at
        arrays, read = any(isinstance(x, np.ndarray) for x in self.leaves), self.reader()
        if read is None:
            return None

        def sized(leaves: tuple[Any, ...]) -> bool:
            words = read(leaves)
            return words is not None and bool(check(leaves, *words))
        holds = check if self.most is None else sized
        if not holds(tuple(self.leaves)):
            return None

        def call(leaves: tuple[Any, ...]) -> Any:
            if not holds(leaves) or (rest is not None and not rest.hold()):
                return MISS
            try:
                return run(captured, _as_tensors(leaves) if arrays else leaves, leaves[at:])
            except Stopped:
                return _off_the_graph(captured)
        return call

    def quick(self, inputs: list[Input]) -> Run | None:
        """Look at everything and run the program in one native call."""
        ready, arrays, program = self.ready, self.arrays, late_program(self.captured.program)
        if not hasattr(program, "quick_frame"):     # of stages, or of another backend
            return None
        if not all(_is_ready(array) for k, array in enumerate(arrays) if self.place(k) >= 0):
            return None                             # each run copies it
        arrays = given(ready, arrays) if ready else arrays
        donated = [] if self.captured.differentiable else [self.place(k) for k in self.captured.donations]
        frame = program.quick_frame(arrays, donated, self.most)
        reads = ready.parts.reads if ready else range(len(arrays))
        if frame is not None and not _only_updates(frame, reads, self.captured):
            frame = program.quick_frame(arrays, most=self.most)
        if frame is None:
            return None
        if ready:
            self.guards.native.words.append((EXPORTS.ctypes.data, ready.exports))
            for k, array in enumerate(ready.made, len(ready.parts.reads)):
                frame.objects[k] = id(array)
        taken = {donor for _, _, donor in frame.layout.results if donor is not None}
        lent = [k for k, row in enumerate(inputs) if row.place in taken]
        for number, k in enumerate(lent, 1):
            inputs[k] = replace(inputs[k], alone=number)
        donors = [None if donor is None else reads[donor] for _, _, donor in frame.layout.results]
        places = [len(arrays) + k for k, donor in enumerate(donors) if donor is None]
        made = [NewArray(np.empty if _is_small(shape, dtype, self.most) else take, shape, dtype)
                for shape, dtype, donor in self.results(frame, program.graph) if donor is None]
        self.write_sizes_in(frame)
        new_arrays = self.reader(made, self.limits(frame))
        if new_arrays is None:
            return None
        loans = [Loan(frame.phase) for _ in lent]
        return self.quick_call(self.table(inputs, frame, places, loans), places, made, new_arrays, donors)

    def results(self, frame: Frame, graph: Graph) -> list[tuple[Shape, Any, int | None]]:
        """The shapes and element types of the results, and whose memory each takes."""
        types = [result.type for result in graph.results]
        return [(shape if self.most is None else type.shape, dtype, donor)
                for type, (shape, dtype, donor) in zip(types, frame.layout.results, strict=True)]

    def write_sizes_in(self, frame: Frame) -> None:
        """Let the frame have words of its own for the sizes that kernels are given, where calls have others."""
        if self.most is not None:
            self.sized += zip(_addresses(frame.own_sizes()), map(symbol, frame.layout.size_names), strict=True)

    def limits(self, frame: Frame) -> SizeLimits | None:
        """How large sizes may be for the memory of the frame."""
        if self.most is None:
            return None
        most: dict[Dim, int] = {symbol(name): size for name, size in self.most.items()}
        return SizeLimits({**most, **frame.layout.room}, self.captured.outgrown)

    def quick_call(self, calls: FastCalls, new: Sequence[int], made: Sequence[NewArray], new_arrays: SizeReader,
                   donors: Sequence[int | None]) -> Run:
        captured, rest, call = self.captured, self.guards.rest, calls.call
        donated = DonatedResults(captured, donors)
        at = self.containers_at
        if captured.differentiable:
            return self.recorded_call(calls, new_arrays)
        output = captured.output
        leaf = output.leaves[0] if output.structure is LEAF else None
        plain = isinstance(leaf, FromGraph) and donors[leaf.index] is None and not (
            leaf.requires_grad or leaf.number or leaf.grad or leaf.kind)
        if plain and len(made) == 1 and not (donated.changes or captured.effects or captured.output_effects):
            if rest is None and self.most is None:
                self.answer = calls.answer(self.calls.Answer(
                    len(self.leaves), made[0].empty, made[0].shape, made[0].dtype, new[0], Tensor, TensorState, MISS))

            def one(leaves: tuple[Any, ...]) -> Any:
                new = new_arrays(leaves)
                if new is not None and (rest is None or rest.hold()) and call(leaves, new):
                    return fresh(new[0])
                return MISS
            return one
        arrays, in_place = any(isinstance(x, np.ndarray) for x in self.leaves[:self.own]), any(donated.lenders)
        end = None if donated.changes or captured.failed is not None else epilogue(
            captured, [-1 if lender else place for lender, place in zip(donated.lenders, donated.new, strict=True)],
            in_place, call, MISS, arrays, at)

        def simple(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            assert end is not None
            return end(leaves, new) if new is not None and (rest is None or rest.hold()) else MISS

        def several(leaves: tuple[Any, ...]) -> Any:
            """The program writes in new memory: what is stored is looked for behind it."""
            new = new_arrays(leaves)
            if new is None or not ((rest is None or rest.hold()) and call(leaves, new)):
                return MISS
            result_stores = ResultStores(captured, _as_tensors(leaves) if arrays else leaves, captured.changes,
                                         leaves[at:])
            try:
                at_once(result_stores.stores(RunResults(new)) or ())
            except Stopped:
                return _off_the_graph(captured)
            return result_stores.value()

        def updating(leaves: tuple[Any, ...]) -> Any:
            """It writes in that of tensors too: what is stored is known before, and done where it ends."""
            new = new_arrays(leaves)
            if new is None or (rest is not None and not rest.hold()):
                return MISS
            tensors = _as_tensors(leaves) if arrays else leaves
            result_stores = ResultStores(captured, tensors, donated.changes, leaves[at:])
            results = DonatedRunResults(donated, new, tensors)
            try:
                stores = result_stores.stores(results)
            except Stopped:
                return MISS
            unless = chain(map(not_, later(call, leaves, new)), results.marks())
            return result_stores.value() if at_once(stores or (), unless) else MISS
        return simple if end is not None else updating if in_place else several

    def recorded_call(self, calls: FastCalls, new_arrays: SizeReader) -> Run:
        """The same of a call that is recorded: the program gives what the gradient needs, too."""
        captured, rest, call, at = self.captured, self.guards.rest, calls.call, self.containers_at
        arrays = any(isinstance(x, np.ndarray) for x in self.leaves)
        parts, graph, holders = captured.halves, captured.graph, captured.inputs.holders
        build, places = captured.output.structure.build, _places_on_tape(captured)
        assert parts is not None

        def on_tape(leaves: tuple[Any, ...]) -> Any:
            new = new_arrays(leaves)
            if new is None or not ((rest is None or rest.hold()) and call(leaves, new)):
                return MISS
            tensors = _as_tensors(leaves) if arrays else leaves
            made = recorded(graph, parts, holders(tensors), new, captured.by_data)
            if places:
                return build([made[k] for k in places])
            result_stores = ResultStores(captured, tensors, captured.changes, leaves[at:])
            try:
                at_once(result_stores.stores(OnTape(made)) or ())
            except Stopped:
                return _off_the_graph(captured)
            return result_stores.value()
        return on_tape


def _places_on_tape(captured: Captured) -> list[int]:
    """Which results are returned, where a call does nothing but to return results that are on the tape; else none."""
    leaves = captured.output.leaves
    acts = captured.changes, captured.effects, captured.gradients, captured.flags, captured.output_effects
    if any(acts) or captured.by_data or captured.failed is not None or captured.output.undecided:
        return []
    usual = all(isinstance(x, FromGraph) and x == FromGraph(x.index, True, released=False) for x in leaves)
    return [x.index for x in leaves] if usual else []


def _only_updates(frame: Any, reads: Sequence[int], captured: Captured) -> bool:
    """Whether results take no memory but that of the tensors they are assigned to."""
    updates = set(captured.updates)
    return all(donor is None or (reads[donor], k) in updates
               for k, (_, _, donor) in enumerate(frame.layout.results))


def _is_ready(array: np.ndarray) -> bool:
    """Whether machine code may read an array as it lies."""
    return array.flags.num & CONTIGUOUS_AND_ALIGNED == CONTIGUOUS_AND_ALIGNED


def _is_small(shape: Shape, dtype: Any, most: Mapping[str, int] | None) -> bool:
    """Whether the allocator has the memory of such an array at hand."""
    return bool(math.prod(evaluate(dim, most or {}) for dim in shape) * dtype.itemsize < MIN_POOLED_BYTES)


def _addresses(words: np.ndarray) -> Iterable[int]:
    """Where 64-bit words lie."""
    return (words.ctypes.data + words.itemsize * k for k in range(words.size))


def _as_tensors(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([asarray(x) if isinstance(x, np.ndarray) else x for x in leaves])


@cache
def _slots() -> Slots:
    with unforked:
        from tenon.cpython.guard_table import Slots  # local: as above
    names = "payload", "requires_grad", "grad", "node", "index"
    state = [object_layout.slot_offset(TensorState, name) for name in names]
    loan = [object_layout.slot_offset(Loan, name) for name in ("array", "copy")]
    return Slots(object_layout.slot_offset(Tensor, "own"), *state, *loan)
