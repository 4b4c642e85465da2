"""A dataflow graph and arrays -> results: tokens move along edges, and a vertex fires when its tokens are there.

A token belongs to one iteration of one run of a loop (a frame).  Iterations overlap: as soon as a counter has moved on
to the next one, that one's work starts, up to `parallel_iterations` at a time; what is ready together runs side by side
on `workers` threads.  Operators are computed by their NumPy references, as the interpreter of graphs does.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenon.dataflow.dataflow_ir import Dataflow, Edge, Primitive, Vertex
from tenon.errors import GraphError
from tenon.graph.interpret import concrete, concrete_type, evaluate_op, running
from tenon.graph.ir import Literal
from tenon.graph.op import Op
from tenon.records import dataclass, field
from tenon.types import STACK, TensorType

DEAD = object()         # the token of an output that is not taken
PARALLEL_ITERATIONS = 32

Observer = Callable[[Vertex, str], None]    # a vertex fired, in this iteration ("" outside of loops, else "loop:2/...")


@dataclass(eq=False)
class Arrived:
    """The tokens of one vertex in one iteration."""

    tokens: list[Any]
    missing: int
    dead: bool = False


@dataclass(eq=False)
class Iteration:
    """One pass through a loop's body, or what stands outside of all loops."""

    frame: TokenFrame
    number: int
    arrived: dict[Vertex, Arrived] = field(default_factory=dict)
    running: int = 0                                # vertices ready or running, and loops within
    inner: dict[str, TokenFrame] = field(default_factory=dict)

    def __str__(self) -> str:
        around = self.frame.around
        return "" if around is None else f"{around}/{self.frame.name}:{self.number}".removeprefix("/")


@dataclass(eq=False)
class TokenFrame:
    """One run of a loop."""

    name: str
    around: Iteration | None
    enters: int = 0                                 # that have not come yet
    dead: bool = False                              # the loop stands in a branch not taken
    iterations: dict[int, Iteration] = field(default_factory=dict)
    constants: list[tuple[Vertex, Any]] = field(default_factory=list)
    waiting: deque[tuple[Vertex, Any, int]] = field(default_factory=deque)      # for an iteration without room yet
    last: int = -1

    def start(self, number: int) -> Iteration:
        self.iterations[number] = Iteration(self, number)
        self.last = max(self.last, number)
        return self.iterations[number]


def execute(flow: Dataflow, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None, *, workers: int = 0,
            parallel_iterations: int = PARALLEL_ITERATIONS, observe: Observer | None = None) -> list[np.ndarray]:
    """The results of `flow` on these arrays; `sizes` gives the symbols in its types.

    `workers` threads compute operators (0: the calling thread does).  Raises what an operator raises, and GraphError
    where a result never comes.
    """
    if len(arrays) != len(flow.params):
        raise GraphError(f"{flow.name} takes {len(flow.params)} arrays, not {len(arrays)}")
    with _pool(workers) as pool, running(sizes or {}):
        return Executor(flow, sizes or {}, pool, max(1, parallel_iterations), observe).run(arrays)


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor | None]:
    if not workers:
        yield None
        return
    with ThreadPoolExecutor(workers) as pool:
        yield pool


class Executor:
    """One run."""

    def __init__(self, flow: Dataflow, sizes: Mapping[str, int], pool: ThreadPoolExecutor | None,
                 parallel_iterations: int, observe: Observer | None):
        self.flow, self.sizes, self.pool = flow, sizes, pool
        self.parallel_iterations, self.observe = parallel_iterations, observe
        self.readers: dict[Vertex, list[tuple[Vertex, int, int]]] = {v: [] for v in flow.vertices}
        self.needs: dict[Vertex, int] = {}
        for vertex in flow.vertices:
            edges = [(k, x) for k, x in enumerate(vertex.inputs) if isinstance(x, Edge)]
            edges += [(len(vertex.inputs) + k, x) for k, x in enumerate(vertex.after)]
            for position, edge in edges:
                self.readers[edge.vertex].append((vertex, position, edge.output))
            loops_back = any(edge.vertex.does is Primitive.NEXT_ITERATION for _, edge in edges)
            self.needs[vertex] = len(edges) - loops_back        # of a loop's Merge, one comes in each iteration
        self.enters = Counter(v.attrs["frame"] for v in flow.vertices if v.does is Primitive.ENTER)
        self.ready: deque[tuple[Vertex, Iteration, list[Any] | None]] = deque()
        self.results: dict[Edge, Any] = {}

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        top = TokenFrame("", None).start(0)
        top.running = 1                                         # never done
        for vertex, array in zip(self.flow.params, arrays, strict=True):
            self.send(vertex, [np.asarray(array)], top)
        for vertex in self.flow.vertices:
            if not self.needs[vertex] and vertex.does is not Primitive.PARAMETER:
                self.fire_when_ready(vertex, top, [None] * len(vertex.inputs))
        self.drain()
        if missing := [e for e in self.flow.results if self.results.get(e, DEAD) is DEAD]:
            raise GraphError(f"{self.flow.name}: the result of {missing[0].vertex.name} never came")
        return [self.results[e] for e in self.flow.results]

    def drain(self) -> None:
        """Fire what is ready until nothing is left."""
        flying: dict[Future[list[Any]], tuple[Vertex, Iteration]] = {}
        while self.ready or flying:
            while self.ready:
                vertex, iteration, tokens = self.ready.popleft()
                if self.observe and tokens is not None:
                    self.observe(vertex, str(iteration))
                if tokens is None:
                    self.pass_dead(vertex, iteration)
                    self.finished(iteration)
                elif self.pool is not None and may_fly(vertex):
                    flying[self.pool.submit(self.compute, vertex, tokens)] = vertex, iteration
                else:
                    self.fire(vertex, iteration, tokens)
            for future in wait(flying, return_when=FIRST_COMPLETED).done if flying else ():
                vertex, iteration = flying.pop(future)
                self.send(vertex, future.result(), iteration)
                self.finished(iteration)

    # ------------------------------------------------------------ tokens

    def arrive(self, vertex: Vertex, position: int, token: Any, iteration: Iteration) -> None:
        """A token comes to a vertex."""
        arrived = iteration.arrived.get(vertex)
        if arrived is None:
            width = len(vertex.inputs) + len(vertex.after)
            arrived = iteration.arrived[vertex] = Arrived([None] * width, self.needs[vertex])
        arrived.missing -= 1
        if vertex.does is Primitive.MERGE:
            self.merge(vertex, token, iteration, arrived)
            return
        arrived.tokens[position] = token
        arrived.dead |= token is DEAD
        if arrived.missing:
            return
        del iteration.arrived[vertex]
        self.fire_when_ready(vertex, iteration, None if arrived.dead else arrived.tokens)

    def merge(self, vertex: Vertex, token: Any, iteration: Iteration, arrived: Arrived) -> None:
        """The first live token goes through; a dead one only when no other can come."""
        if token is not DEAD:
            self.fire_when_ready(vertex, iteration, [token])
            arrived.dead = True                                 # the others are, in a graph that is well formed
        elif not arrived.missing and not arrived.dead:
            self.fire_when_ready(vertex, iteration, None)
        if not arrived.missing:
            del iteration.arrived[vertex]

    def fire_when_ready(self, vertex: Vertex, iteration: Iteration, tokens: list[Any] | None) -> None:
        """Soon, and not at once, since a long chain would be a deep recursion; without tokens: one of them is dead."""
        iteration.running += 1
        self.ready.append((vertex, iteration, tokens))

    def send(self, vertex: Vertex, tokens: list[Any], iteration: Iteration) -> None:
        """The outputs of a vertex go to all that read them."""
        for reader, position, output in self.readers[vertex]:
            self.arrive(reader, position, tokens[output], iteration)
        if iteration.frame.around is None:
            self.results.update((e, tokens[e.output]) for e in self.flow.results if e.vertex is vertex)

    def pass_dead(self, vertex: Vertex, iteration: Iteration) -> None:
        """What a vertex does that has read a dead token."""
        match vertex.does:
            case Primitive.ENTER:
                self.enter(vertex, DEAD, iteration)
            case Primitive.NEXT_ITERATION:
                pass                                            # the loop is over
            case Primitive.EXIT:
                frame = iteration.frame
                if frame.dead and frame.around is not None:     # a live loop sends a live token when it ends
                    self.send(vertex, [DEAD], frame.around)
            case _:
                self.send(vertex, [DEAD] * len(vertex.types), iteration)

    # ------------------------------------------------------------ firing

    def fire(self, vertex: Vertex, iteration: Iteration, tokens: list[Any]) -> None:
        """Do what the vertex does, here and now."""
        match vertex.does:
            case Primitive.SWITCH:
                value, taken = tokens[0], bool(tokens[1])
                self.send(vertex, [DEAD, value] if taken else [value, DEAD], iteration)
            case Primitive.MERGE:
                self.send(vertex, tokens, iteration)
            case Primitive.LITERAL:
                self.send(vertex, [_array(vertex.inputs[0])], iteration)
            case Primitive.ENTER:
                self.enter(vertex, tokens[0], iteration)
            case Primitive.EXIT:
                assert iteration.frame.around is not None
                self.send(vertex, [tokens[0]], iteration.frame.around)
            case Primitive.NEXT_ITERATION:
                self.next(vertex, tokens[0], iteration)
            case _:
                self.send(vertex, self.compute(vertex, tokens), iteration)
        self.finished(iteration)

    def compute(self, vertex: Vertex, tokens: list[Any]) -> list[Any]:
        """The outputs of an operator."""
        assert isinstance(vertex.does, Op)
        inputs = [_array(x) if isinstance(x, Literal) else token
                  for x, token in zip(vertex.inputs, tokens, strict=False)]
        attrs = concrete(vertex.attrs, self.sizes) if self.sizes else vertex.attrs
        types: list[TensorType] = [concrete_type(t, self.sizes) for t in vertex.types]
        try:
            return list(evaluate_op(vertex.does, inputs, attrs, types))
        except Exception as error:
            error.add_note(f"in {vertex.name} of the dataflow graph {self.flow.name}")
            raise

    # ------------------------------------------------------------ loops

    def enter(self, vertex: Vertex, token: Any, iteration: Iteration) -> None:
        name = vertex.attrs["frame"]
        frame = iteration.inner.get(name)
        if frame is None:
            frame = iteration.inner[name] = TokenFrame(name, iteration, self.enters[name], token is DEAD)
            iteration.running += 1
            frame.start(0)
        frame.enters -= 1
        if vertex.attrs.get("constant"):
            frame.constants.append((vertex, token))
            for started in list(frame.iterations.values()):
                self.send(vertex, [token], started)
        else:
            self.send(vertex, [token], frame.iterations[0])
        self.settle(frame)

    def next(self, vertex: Vertex, token: Any, iteration: Iteration) -> None:
        """The token in the iteration after this one, which starts with it, now or when there is room."""
        frame, number = iteration.frame, iteration.number + 1
        if number not in frame.iterations:
            if number - min(frame.iterations) >= self.parallel_iterations:
                frame.waiting.append((vertex, token, number))
                return
            started = frame.start(number)
            for constant, value in frame.constants:
                self.send(constant, [value], started)
        self.send(vertex, [token], frame.iterations[number])

    def finished(self, iteration: Iteration) -> None:
        """One thing less that runs in the iteration."""
        iteration.running -= 1
        self.settle(iteration.frame)

    def settle(self, frame: TokenFrame) -> None:
        """Forget iterations that are over, start those that waited for that, and end the loop after the last."""
        while frame.around is not None and not frame.enters and frame.iterations:
            first = min(frame.iterations)
            if frame.iterations[first].running:
                return
            if frame.waiting:
                del frame.iterations[first]
                self.admit(frame, first)
            elif first < frame.last:
                del frame.iterations[first]
            else:
                frame.iterations.clear()
                del frame.around.inner[frame.name]
                self.finished(frame.around)

    def admit(self, frame: TokenFrame, over: int) -> None:
        """Let in the tokens of iterations that there is room for now."""
        waiting, frame.waiting = frame.waiting, deque()
        if not frame.iterations:
            frame.start(over + 1)
            for constant, value in frame.constants:
                self.send(constant, [value], frame.iterations[over + 1])
        for vertex, token, number in waiting:
            before = frame.iterations.get(number - 1) or Iteration(frame, number - 1)
            self.next(vertex, token, before)


def may_fly(vertex: Vertex) -> bool:
    """Whether another thread may compute it: operators on numbers, not those on the stacks of the run."""
    return isinstance(vertex.does, Op) and not any(e.type == STACK for e in vertex.edges()) \
        and STACK not in vertex.types


def _array(x: Any) -> np.ndarray:
    assert isinstance(x, Literal)
    return np.asarray(x.value, x.dtype.numpy)
