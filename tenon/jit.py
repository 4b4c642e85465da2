"""`@tn.jit`: capture + guards + pipeline + cache.  Delete the line and nothing changes but speed.

A call is reduced to a key (the structure of its arguments, Python values, element types); under a key stand captures,
each with the sizes and guards under which it holds.  A call that fits none is captured anew, a size that changed
becoming a symbol.  A function that does what a graph cannot repeat runs eagerly, and `tn.explain` says why.
"""

from __future__ import annotations

import functools
import inspect
import operator
import threading
import types
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tenon.autodiff import call
from tenon.backends.base import Executable
from tenon.capture.effects import MISSING, Effect, Snapshot
from tenon.capture.guards import Guards, is_atom
from tenon.capture.reach import Reach
from tenon.capture.trace import Argument, Capture, GradientOf, Held, Source, capturing, is_capturing
from tenon.capture.tree import Structure, flatten
from tenon.capture.watch import UnsafeCall, Watch
from tenon.dims import SMALLEST_SYMBOLIC_SIZE, Assumptions, Dim, SymbolicDim, UndecidedSize, assuming, symbol
from tenon.eager import eager, program_of
from tenon.errors import ArgumentError, CaptureError
from tenon.graph.ir import Graph, Value
from tenon.graph.op import interpreter
from tenon.observe import emit, span
from tenon.recording import is_grad_enabled
from tenon.state import changed, changes
from tenon.tape import RELEASED
from tenon.tensor import Tensor, asarray
from tenon.types import TensorType

F = TypeVar("F", bound=Callable[..., Any])
MOST_RECORDS = 256      # keys of one function; those that come later share one record, and run eagerly
SHARED = (type, types.ModuleType, types.BuiltinFunctionType)
MOST_CAPTURES = 32      # of one function; beyond them it runs eagerly, which is right and says so


@dataclass(frozen=True)
class FromGraph:
    """A leaf of the returned nest that is a result of the graph."""

    index: int
    requires_grad: bool
    released: bool      # it requires a gradient, and backward() has been through its tape


@dataclass(frozen=True)
class FromOutside:
    """A leaf that is an outside tensor itself."""

    source: Source


@dataclass(frozen=True)
class Nest:
    """A nest of leaves that are filled in after a run."""

    structure: Structure
    leaves: tuple[Any, ...]

    def build(self, fill: Callable[[Any], Any]) -> Any:
        return self.structure.build(map(fill, self.leaves))


@dataclass(eq=False)
class Captured:
    """One capture: the graph, what it needs to hold, and what to do with its results."""

    graph: Graph
    sources: list[Source]
    types: list[TensorType]                     # of the leaves of the arguments that are tensors
    guards: Guards
    assumptions: Assumptions
    output: Nest
    assigned: list[tuple[Source, int, bool]]    # tensor <- result, and whether it then carries a gradient
    gradients: list[tuple[Source, int | None]]  # tensor.grad <- result, or None
    effects: list[tuple[Effect, Nest]]
    flags: list[tuple[Source, bool]]            # tensor.requires_grad <- flag
    differentiable: bool
    held: list[tuple[Tensor, bool, bool]]       # tensors from outside: requires_grad, and whether .grad was None
    same: list[tuple[int, Tensor]]              # arguments that are such a tensor too: the leaf, and which tensor
    inputs: Inputs                              # the sources, as a call wants them
    outside: frozenset[int]                     # identities of the other tensors that can be reached from outside
    program: Executable | None = None
    checked: int = -1                           # the state of `tenon.tensor.changes` when the held tensors were right


@dataclass
class Reason:
    """Why a call was captured again, or was not captured at all."""

    what: str
    where: Any = None

    def __str__(self) -> str:
        return self.what + (f"\n{self.where.excerpt()}" if self.where else "")


@dataclass
class Record:
    """What happened to one key: its captures, and the reason for which it runs eagerly, if it does."""

    captures: list[Captured] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)      # of the tensors of the first call
    eager: Reason | None = None
    alive: list[Any] = field(default_factory=list)                  # keeps identities in the key from being reused


class Jitted:
    """A function that runs as compiled graphs."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False):
        functools.update_wrapper(self, function)
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__: str = name if name.isidentifier() else "function"
        self.function, self.fullgraph = function, fullgraph
        self.records: dict[Any, Record] = {}
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<tenon.jit {self.function!r}>"

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if is_capturing() or interpreter() is not eager:       # within a capture, or a batch: a part of that
            return self.function(*args, **keywords)
        leaves, structure = flatten((args, keywords))
        leaves = [asarray(x) if isinstance(x, np.ndarray) else x for x in leaves]
        record = self._record(leaves, structure)
        if record.eager is not None:
            return self.function(*args, **keywords)
        captured = self._find(record, leaves)
        if captured is None:
            with self._lock:
                captured = self._find(record, leaves) or self._capture(record, leaves, structure)
            if captured is None:
                return self.function(*args, **keywords)
        return run(captured, leaves)

    def capture(self, *args: Any, **keywords: Any) -> Captured:
        """The capture that a call with these arguments would use; nothing of the program is run.

        Raises CaptureError when such a call would run eagerly.
        """
        leaves, structure = flatten((args, keywords))
        record = self._record(leaves, structure)
        captured = self._find(record, leaves) or self._capture(record, leaves, structure)
        if captured is None:
            raise CaptureError(f"{self.__name__}: {record.eager}")
        return captured

    def graph(self, *args: Any, **keywords: Any) -> Graph:
        """The captured graph of a call with these arguments, before any pass."""
        return self.capture(*args, **keywords).graph

    def _record(self, leaves: Sequence[Any], structure: Structure) -> Record:
        key = (structure, is_grad_enabled(), tuple(map(leaf_key, leaves)), aliases(leaves))
        record = self.records.get(key)
        if record is None and len(self.records) >= MOST_RECORDS:    # such as a step number: it would fill the memory
            return self.records.setdefault(None, Record(eager=Reason(
                f"called with more than {MOST_RECORDS} combinations of types and Python values")))
        if record is None:
            record = self.records.setdefault(key, Record(alive=[x for x in leaves if not isinstance(x, Tensor)]))
        return record

    def _find(self, record: Record, leaves: Sequence[Any]) -> Captured | None:
        return next((c for c in record.captures if holds(c, leaves)), None)

    def _capture(self, record: Record, leaves: list[Any], structure: Structure) -> Captured | None:
        """A new capture for this call; None when the function has to run eagerly."""
        if sum(len(r.captures) for r in self.records.values()) >= MOST_CAPTURES:
            last = "; ".join(why_not(c, leaves) for c in record.captures[-1:]) or "the Python values of its arguments"
            record.eager = Reason(f"captured {MOST_CAPTURES} times, each time with something changed, at last: {last}")
            emit("fallback", function=self.__name__, reason=record.eager.what)
            return None
        try:
            with span("capture", function=self.__name__):
                captured = self._trace(leaves, structure, argument_types(leaves, record))
        except UndecidedSize:
            captured = self._trace(leaves, structure, argument_types(leaves, None))
        except UnsafeCall as unsafe:
            record.eager = Reason(f"{unsafe.what}, so the function runs eagerly", unsafe.where)
            emit("fallback", function=self.__name__, reason=record.eager.what)
            if self.fullgraph:
                raise CaptureError(record.eager.what, where=unsafe.where) from None
            return None
        captured.program = program_of(captured.graph)
        record.captures.append(captured)
        emit("captured", function=self.__name__, nodes=len(captured.graph.nodes))
        return captured

    def _trace(self, leaves: list[Any], structure: Structure, types: list[TensorType]) -> Captured:
        args, keywords = structure.build(leaves)
        before = Reach(None)
        root = getattr(self.function, "__func__", self.function)
        before.add(root, self.__name__)
        for leaf in leaves:
            before.add(leaf, "argument")
        snapshot = Snapshot(list(before.holders.values()), before.cells)
        capture, watch = Capture(self.__name__), Watch(iterators=before.iterators)
        assumptions = Assumptions(symbol_sizes(types, leaves))
        with assuming(assumptions), capturing(capture):
            tensors = [(k, x) for k, x in enumerate(leaves) if isinstance(x, Tensor)]
            names = argument_names(root, structure)
            for (k, x), type in zip(tensors, types, strict=True):
                capture.argument(x, k, type, names[k])
            try:
                with watch.running():
                    result = self.function(*args, **keywords)
                changes = snapshot.changes()
                changed_leaves, changed_structure = flatten((args, keywords))
            finally:
                snapshot.restore()
                moved = [kept.put_back() for kept in before.kept]
        if any(moved):
            raise UnsafeCall(next(filter(None, moved)))
        if changed_structure != structure or not all(map(operator.is_, changed_leaves, leaves)):
            raise UnsafeCall("the function changes a container among its arguments")
        reach = Reach(watch.codes)
        reach.add(root, self.__name__)
        for k, leaf in enumerate(leaves):
            if not isinstance(leaf, Tensor):
                reach.add(leaf, f"argument {k}")
        reach.compare_arrays([s.holder for s in capture.sources if isinstance(s, Held)])
        if reach.opaque:
            raise UnsafeCall(reach.opaque[0])
        return conclude(capture, result, changes, types, reach, before.known(), assumptions)


# ---------------------------------------------------------------- after the function has returned

def conclude(capture: Capture, result: Any, changes: list[Effect], types: list[TensorType], reach: Reach,
             known: Container[int], assumptions: Assumptions) -> Captured:
    """Everything the captured call leaves behind, as results of the graph and places for them.

    Raises UnsafeCall when it leaves an object that is new in every call, and not among those `known` before.
    """
    values: dict[Value, int] = {}
    tracked: list[Tensor] = []

    def index_of(tensor: Tensor) -> int:
        payload = tensor.own.payload
        assert isinstance(payload, Value)
        return values.setdefault(payload, len(values))

    def leaf(x: Any) -> Any:
        if id(x) in capture.seen:
            return FromOutside(capture.seen[id(x)].source)
        if not isinstance(x, Tensor) or not isinstance(x.own.payload, Value):
            if not (is_atom(x) or id(x) in known or x is MISSING or isinstance(x, SHARED)):
                raise UnsafeCall(f"the function makes an object of type {type(x).__name__}, new in every call")
            return x
        tracked.append(x)
        node = x.own.node
        return FromGraph(index_of(x), x.own.requires_grad, node is not None and node.released)

    def nest(tree: Any) -> Nest:
        leaves, structure = flatten(tree)
        return Nest(structure, tuple(map(leaf, leaves)))

    output = nest(result)
    effects = [(change, nest(change.value)) for change in changes]
    assigned, gradients, flags = [], [], []
    for seen in capture.seen.values():
        state = seen.state
        if seen.assigned:
            assert isinstance(state.payload, Value)
            carries = state.node is not None and not state.node.released
            assigned.append((seen.source, values.setdefault(state.payload, len(values)), carries))
        if seen.grad_changed:
            gradients.append((seen.source, None if state.grad is None else index_of(state.grad)))
        if state.requires_grad != seen.tensor.own.requires_grad:
            flags.append((seen.source, state.requires_grad))
    nodes = [x.own.node for x in tracked if x.own.node is not None]
    differentiable = any(not node.released for node in nodes) or any(carries for _, _, carries in assigned)
    graph, sources = capture.finish(list(values))
    held = [(seen.tensor, seen.tensor.own.requires_grad, seen.tensor.own.grad is None)
            for seen in capture.seen.values() if isinstance(seen.source, Held)]
    same = [(seen.source.position, seen.tensor) for key, seen in capture.seen.items()
            if isinstance(seen.source, Argument) and key in reach.tensors]
    outside = reach.tensors.union(id(x) for x, _, _ in held).difference(id(x) for _, x in same)
    return Captured(graph, sources, types, reach.guards(), assumptions, output, assigned, gradients, effects, flags,
                    differentiable, held, same, Inputs(sources), frozenset(outside))


# ---------------------------------------------------------------- a call that fits

def holds(captured: Captured, leaves: Sequence[Any]) -> bool:
    """Whether this capture is right for a call with these leaves."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    return (all(fits(type, x.own.payload.shape, sizes) for x, type in zip(tensors, captured.types, strict=True))
            and captured.assumptions.hold(sizes)
            and not any(id(x) in captured.outside for x in tensors)
            and all(leaves[k] is x for k, x in captured.same)
            and captured.guards.hold()
            and (captured.checked == changes() or held_tensors_hold(captured, leaves)))


def held_tensors_hold(captured: Captured, leaves: Sequence[Any]) -> bool:
    """Whether the tensors held have the types and flags that they had; remembered until one of any changes."""
    now = changes()
    for x, requires_grad, without_grad in captured.held:
        if x.own.requires_grad is not requires_grad or (x.own.grad is None) is not without_grad:
            return False
    if not all(source_holds(s, p, leaves) for s, p in zip(captured.sources, captured.graph.params, strict=True)):
        return False
    if not any(isinstance(s, GradientOf) or isinstance(getattr(s, "holder", None), np.ndarray)
               for s in captured.sources):
        captured.checked = now
    return True


def fits(type: TensorType, shape: Sequence[Dim], sizes: dict[str, int]) -> bool:
    """Whether the shape matches the type; `sizes` collects the symbols."""
    for dim, size in zip(type.shape, shape, strict=True):
        if isinstance(dim, SymbolicDim):
            if size < SMALLEST_SYMBOLIC_SIZE or sizes.setdefault(str(dim), int(size)) != size:
                return False
        elif dim != size:
            return False
    return True


def source_holds(source: Source, param: Value, leaves: Sequence[Any]) -> bool:
    """Whether a tensor held by the capture still has the type it had."""
    if isinstance(source, Argument):
        return True
    array = read(source, leaves)
    return array is not None and array.dtype == param.dtype.numpy and \
        (isinstance(source, GradientOf) or array.shape == param.shape)


def holder_of(source: Source, leaves: Sequence[Any]) -> Any:
    """The tensor (or array) that a source stands for in a call with these leaves."""
    if isinstance(source, Argument):
        return leaves[source.position]
    if isinstance(source, Held):
        return source.holder
    return holder_of(source.source, leaves).own.grad


def read(source: Source, leaves: Sequence[Any]) -> Any:
    """The array of a source now."""
    holder = holder_of(source, leaves)
    return holder.own.payload if isinstance(holder, Tensor) else holder


def run(captured: Captured, leaves: Sequence[Any]) -> Any:
    """Run the graph, then do what the function did: assignments, gradients, effects, the returned value."""
    assert captured.program is not None
    holders = captured.inputs.holders(leaves)
    if captured.differentiable and is_grad_enabled():
        out = call(*holders, body=captured.graph)
        results: Any = out if isinstance(out, tuple) else (out,)
    else:
        arrays: Any = [x.own.payload for x in holders]
        results = Results(captured.program.run(arrays))

    def fill(leaf: Any) -> Any:
        if isinstance(leaf, FromGraph):
            return finished(results[leaf.index], leaf)
        return holder_of(leaf.source, leaves) if isinstance(leaf, FromOutside) else leaf

    given: list[tuple[Any, int, bool]] = [
        (source.holder if type(source) is Held else holder_of(source, leaves), k, carries)
        for source, k, carries in captured.assigned]
    for source, position in captured.gradients:
        holder_of(source, leaves).own.grad = None if position is None else results[position].detach()
    for holder, k, carries in given:
        own = holder.own
        if carries:
            new = results[k].own
            own.payload, own.node, own.index = new.payload, new.node, new.index
        else:
            own.payload, own.node = results.arrays[k] if type(results) is Results else results[k].own.payload, None
    for source, flag in captured.flags:
        holder_of(source, leaves).own.requires_grad = flag
    if captured.gradients or captured.flags:
        changed()
    for effect, nest in captured.effects:
        effect.make(nest.build(fill))
    return captured.output.build(fill)


@dataclass
class Results:
    """The arrays that a program returned; a tensor is made of one only where somebody asks."""

    arrays: Sequence[np.ndarray]

    def __getitem__(self, k: int) -> Tensor:
        return Tensor(self.arrays[k])


class Inputs:
    """Where the inputs of a program come from, sorted once, so that a call need not look at every one."""

    def __init__(self, sources: Sequence[Source]):
        self.fixed: list[Any] = [None] * len(sources)
        self.moving: list[tuple[int, Source]] = []      # which are gradients
        self.arguments: list[tuple[int, int]] = []
        for k, source in enumerate(sources):
            if isinstance(source, Argument):
                self.arguments.append((k, source.position))
            elif isinstance(source, Held):
                # A tensor around an array shares its memory: what is written there is read.
                self.fixed[k] = source.holder if isinstance(source.holder, Tensor) else Tensor(source.holder)
            else:
                self.moving.append((k, source))

    def holders(self, leaves: Sequence[Any]) -> list[Tensor]:
        """The tensor of every input, in a call with these leaves."""
        holders = self.fixed.copy()
        for k, position in self.arguments:
            holders[k] = leaves[position]
        for k, source in self.moving:
            holders[k] = holder_of(source, leaves)
        return holders


def finished(result: Tensor, leaf: FromGraph) -> Tensor:
    """A result of the graph as the function would have returned it."""
    if leaf.requires_grad and not leaf.released and result.node is not None:
        return result
    tensor = Tensor(result.own.payload, leaf.requires_grad)
    tensor.own.node = RELEASED if leaf.released else None
    return tensor


# ---------------------------------------------------------------- keys, sizes, names

def leaf_key(leaf: Any) -> Any:
    """What makes calls with other values of this leaf different functions."""
    if isinstance(leaf, Tensor):
        own = leaf.own
        return (own.payload.dtype, own.payload.ndim, own.requires_grad, own.grad is None)
    if is_atom(leaf):
        return (type(leaf), repr(leaf) if isinstance(leaf, (float, complex)) else leaf)
    return (type(leaf), id(leaf))


def aliases(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Which tensors among the leaves are the same object."""
    ids = [id(x) for x in leaves if isinstance(x, Tensor)]
    return () if len(set(ids)) == len(ids) else tuple(ids.index(i) for i in ids)


def argument_types(leaves: Sequence[Any], record: Record | None) -> list[TensorType]:
    """The types to capture with: sizes that differ from the first call of this record are symbols.

    Equal sizes that change together share a symbol.
    """
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    shapes = [tuple(x.own.payload.shape) for x in tensors]
    if record is None or not record.captures:
        if record is not None:
            record.sizes = shapes
        return [x.type for x in tensors]
    names: dict[tuple[int, int], SymbolicDim] = {}
    types = []
    for x, shape, first in zip(tensors, shapes, record.sizes, strict=True):
        dims: list[Dim] = []
        for size, old in zip(shape, first, strict=True):
            if size == old or size < SMALLEST_SYMBOLIC_SIZE:
                dims.append(size)
            else:
                dims.append(names.setdefault((size, old), symbol(f"N{len(names)}")))
        types.append(TensorType(x.dtype, tuple(dims)))
    return types


def symbol_sizes(types: Sequence[TensorType], leaves: Sequence[Any]) -> Mapping[str, int]:
    """The size that every symbol has in this call."""
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    return {str(dim): int(size) for type, x in zip(types, tensors, strict=True)
            for dim, size in zip(type.shape, x.own.payload.shape, strict=True) if isinstance(dim, SymbolicDim)}


def argument_names(function: Any, structure: Structure) -> list[str]:
    """A name for every leaf of the arguments: that of its parameter, numbered where it is one of several."""
    positional, keywords = structure.children
    code = getattr(function, "__code__", None)
    known = code.co_varnames[:code.co_argcount] if code else ()
    tops = [known[k] if k < len(known) else f"x{k}" for k in range(len(positional.children))]
    names: list[str] = []
    for name, child in zip([*tops, *keywords.labels], [*positional.children, *keywords.children], strict=True):
        names += [name] if child.kind is None else [f"{name}_{k}" for k in range(child.leaves)]
    return names


def why_not(captured: Captured, leaves: Sequence[Any]) -> str:
    """The first condition of a capture that a call does not meet, in words."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    for x, type in zip(tensors, captured.types, strict=True):
        if not fits(type, x.own.payload.shape, sizes):
            return f"an argument was {type} and is {x.type}"
    if not captured.assumptions.hold(sizes):
        return "a comparison of sizes came out differently"
    return captured.guards.failing() or "a tensor changed its type, or whether it requires a gradient"


# ---------------------------------------------------------------- the public functions

NOT_FUNCTIONS = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)


def jit(function: Any = None, *, fullgraph: bool = False) -> Any:
    """Run a function as one compiled graph: forward, backward and the optimizer's update included.

    Works on functions and methods, with arguments nested in containers; tensors among them are inputs of the graph,
    Python values are part of what it is compiled for.  Whatever the function reads is guarded, whatever it assigns is
    assigned by every call.  `fullgraph=True` raises CaptureError where it would otherwise run eagerly.

    >>> @tn.jit
    ... def f(x):
    ...     return x * 2 + 1
    >>> f(tn.tensor([1.0, 2.0]))
    tensor([3., 5.])
    """
    if function is None:
        return functools.partial(jit, fullgraph=fullgraph)
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(jit(function.__func__, fullgraph=fullgraph))
    if not callable(function):
        raise ArgumentError(f"jit takes a function, not {type(function).__name__}",
                            hint="it decorates functions, methods, and objects that can be called")
    if any(kind(function) for kind in NOT_FUNCTIONS):
        raise ArgumentError(f"jit: {function.__qualname__} is a generator or a coroutine, which has no single result",
                            hint="jit a function that does one step, and call it from there")
    if isinstance(function, types.MethodType):
        return types.MethodType(Jitted(function.__func__, fullgraph), function.__self__)
    return Jitted(function, fullgraph)

