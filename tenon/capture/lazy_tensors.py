"""A function that cannot be one graph -> lazy tensors (Suhan 2021): graphs of its parts, with Python in between.

Operator calls are recorded and not run.  Where Python needs elements (a condition, `.item()`, NumPy, print), what was
recorded so far is compiled and run, Python goes on with the real values, and recording begins anew.  Python itself runs
in every call, so its effects are right without any guard; the same parts give the same programs, which are kept.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, starmap
from operator import call, is_not, ne
from typing import Any

import numpy as np

from tenon.atomic import at_once as done_at_once
from tenon.atomic import later
from tenon.devices import HOST, placing
from tenon.eager.dispatch import TensorInterpreter, eager, elsewhere, program_of
from tenon.eager.on_device import placed
from tenon.gc_control import COLLECTOR
from tenon.graph.build import Builder
from tenon.graph.interpret import interpret
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.kernels import KERNELS
from tenon.graph.op import Op, using
from tenon.graph.structural_key import structure
from tenon.locks import Lock
from tenon.observe import emit
from tenon.ops.placing import MOVES
from tenon.records import replace
from tenon.tensor import Tensor
from tenon.tensor_state import Deferred, Payload, TensorState
from tenon.types import TensorType, as_dtype

MIN_LAZY_ELEMENTS = 100_000     # of a call in the mean; with fewer, recording costs more than machine code saves
MAX_LAZY_PROGRAMS = 32          # of one function; beyond them its parts differ from call to call, and it runs eagerly


class FunctionParts:
    """What is known of one function that runs with graph breaks: its programs, and whether they are worth it."""

    def __init__(self, name: str):
        self.name = name
        self.graphs: dict[Any, Graph] = {}
        self.calls = 0
        self.eager = False

    def run(self, function: Callable[[], Any]) -> Any:
        """Call the function: the first time eagerly, since many functions are called once."""
        self.calls += 1
        if self.eager or self.calls == 1:
            return function()
        run = LazyInterpreter(self)
        try:
            with using(run):
                return function()
        finally:
            run.finish()

    def graph(self, graph: Graph) -> Graph | None:
        """The graph whose program does what this one says; None where it is too small to be worth it."""
        if sum(map(_work, graph.nodes)) < MIN_LAZY_ELEMENTS * len(graph.nodes):
            return None
        key = structure(graph)
        if key not in self.graphs and len(self.graphs) >= MAX_LAZY_PROGRAMS:
            self.eager = True
            emit("fallback", function=self.name, reason=f"more than {MAX_LAZY_PROGRAMS} different parts")
            return None
        return self.graphs.setdefault(key, graph)


class RecordedProgram:
    """What is being recorded: the graph, the arrays of its parameters, and the payloads that wait for it."""

    def __init__(self, name: str):
        self.builder = Builder(name)
        self.arrays: dict[Value, np.ndarray] = {}
        self.known: dict[int, tuple[Any, Value]] = {}       # by identity, which holding it keeps from being reused
        self.waiting: list[weakref.ref[Deferred]] = []

    def finish(self, results: list[Value]) -> tuple[Graph, list[np.ndarray]]:
        """The graph so far, and its arguments; a parameter whose array an interrupt left out is one that nobody reads.
        """
        graph = self.builder.finish(results)
        params = tuple(p for p in graph.params if p in self.arrays)
        return replace(graph, params=params), [self.arrays[p] for p in params]


class LazyInterpreter(TensorInterpreter):
    """One call, and the part being recorded.

    A part is left when all that wait for it have their elements, at once: an interrupt before that leaves it as it is,
    to be run where somebody asks again.  So may a handler of signals, which may also record more.
    """

    def __init__(self, parts: FunctionParts):
        self.parts, self.worthwhile = parts, False
        self.lock = Lock()       # a tensor may be asked for its elements in another thread
        self.part = RecordedProgram(parts.name)

    def opens(self, op: Op) -> bool:
        """Composites stay whole in the graph."""
        return False

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """What lies on another device is computed there at once."""
        away, place = elsewhere(inputs), placing()
        if away is None and place is None and op not in MOVES:
            return super().apply(op, inputs, attrs)
        return (placed(place or HOST) if away is None else away.interpreter).apply(op, inputs, attrs)

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """Record the call; what may fail, or is no kernel, happens at once, where eager code would do it."""
        if at_once(op, inputs):
            return eager.evaluate(op, inputs, attrs)
        with COLLECTOR, self.lock:      # no finalizer's call, which may run the part
            while True:
                part = self.part
                made = self.record(part, op, inputs, attrs)
                if part is self.part or all(payload.array is not None for payload in made):
                    return made         # else a handler of signals ran the part, before this was in it

    def record(self, part: RecordedProgram, op: Op, inputs: tuple[Any, ...],
               attrs: Mapping[str, Any]) -> tuple[Deferred, ...]:
        """Put a call into the part; what waits for it."""
        values = tuple(self.value(part, x.payload) if isinstance(x, Tensor) else x for x in inputs)
        if op.elementwise:
            values = part.builder.broadcast(values)
        out = part.builder.emit(op, values, attrs)
        return tuple([self.defer(part, x) for x in (out if isinstance(out, tuple) else (out,))])

    def defer(self, part: RecordedProgram, value: Value) -> Deferred:
        payload = Deferred(value, self.flush)
        part.waiting.append(weakref.ref(payload))
        return payload

    def value(self, part: RecordedProgram, payload: Any) -> Value:
        """The edge of the part being recorded that holds this payload."""
        if isinstance(payload, Deferred):
            if payload.array is None:
                return payload.value
            payload = payload.array
        known = part.known.get(id(payload))
        if known is not None:
            return known[1]
        visible = payload.base is not None or references(payload) > ONE_HOLDER
        array = payload.copy() if visible else payload      # somebody may write to it before the part runs
        name = f"x{len(part.builder.params)}"
        parameter = part.builder.parameter(TensorType(as_dtype(array.dtype), array.shape), name)
        part.arrays[parameter] = array
        if not visible:
            part.known[id(payload)] = payload, parameter
        return parameter

    def flush(self) -> None:
        """Run what was recorded; every payload that is still held gets its elements."""
        with COLLECTOR, self.lock:
            part = self.part
            count = len(part.waiting)
            alive = [d for reference in part.waiting if (d := reference()) is not None and d.array is None]
            graph, arrays = part.finish([d.value for d in alive])
            results: Sequence[np.ndarray] = []
            if alive:
                compiled = self.parts.graph(graph)
                self.worthwhile |= compiled is not None
                results = interpret(graph, arrays) if compiled is None else program_of(compiled).run(arrays)
            stores = [store for payload, array in zip(alive, results, strict=True) for store in payload.fill(array)]
            done_at_once(starmap(call, stores))
            # unless a handler of signals has recorded more, or run the part
            done_at_once(later(setattr, self, "part", RecordedProgram(self.parts.name)),
                         unless=chain(map(ne, later(len, part.waiting), (count,)),
                                      map(is_not, later(getattr, self, "part"), (part,))))

    def finish(self) -> None:
        """The call is over: nothing waits any more."""
        self.flush()
        if not self.worthwhile:
            self.parts.eager = True


def references(array: Any) -> int:
    """How many there are, those of the functions that ask included."""
    return sys.getrefcount(array)


# What `references` says to a function that was given the array of a tensor that alone holds it.
_alone = TensorState(np.empty(0))
ONE_HOLDER = (lambda array: references(array))(_alone.payload)


def at_once(op: Op, inputs: tuple[Any, ...]) -> bool:
    """Whether a call must not be put off: NumPy does it, or indices in it may be out of range."""
    if op.is_host or op.effect or op.data_dependent or any(op is known for known, _ in KERNELS):
        return True
    return not op.elementwise and any(isinstance(x, Tensor) and x.dtype.kind in "ui" for x in inputs)


def _work(node: Node) -> int:
    """The elements of the largest input or output."""
    return max(int(x.type.size) for x in (*node.inputs, *node.outputs) if x is not None)
