"""A capture, made once more -> where each of its nodes comes from: module path, forward or backward, the user's stack.

A node's `loc` says where it comes from, and every pass hands it on.  Here it gets one that says more, an `Origin`, as
the node is recorded: then the modules and functions that lead to it are still running, and their frames tell which.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tenon import autodiff
from tenon.capture import capture_run
from tenon.capture.capture_run import Attempt
from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.capture.pytree import unfold
from tenon.dims.symbolic_dim import PinnedSize
from tenon.errors import PACKAGE, Location
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.text import print_graph
from tenon.nn.module import Module
from tenon.observe import Event, subscribe
from tenon.optim.optimizer import Optimizer
from tenon.records import dataclass, replace
from tenon.tensor import Tensor

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
Line = tuple[str, int]      # (file, line)


@dataclass(frozen=True)
class Origin(Location):
    """Where a captured node comes from.

    `path` is the module's, from the outermost on, with functions between them as `f()`; `kind` the innermost module's
    class.  `stack` has the user's lines, outermost first; of a backward node those of the forward one that it belongs
    to.  `number` counts the nodes of a capture.
    """

    path: str = ""
    kind: str = ""
    phase: str = FORWARD
    stack: tuple[Line, ...] = ()
    number: int = -1


def captured_with_origins(jitted: Jitted, captured: Captured, args: Any, keywords: Any) -> tuple[Captured, ModuleNames]:
    """The same capture with an `Origin` at each node, and the names of what it met; `captured` itself where the
    function is no longer the same.

    The function is called once more, as every capture calls it: nothing is computed and no effect is made.
    """
    leaves, structure, _ = unfold((args, keywords), classes=captured.opened)
    further = captured.further
    places = () if further is None else (*further.tensors, *(place for place, _ in further.numbers))
    types = captured.types[:len(captured.types) - (0 if further is None else len(further.read))]
    again = Attempt(jitted.function, jitted.__name__, jitted.converting, leaves, structure, types, places,
                    numbers=({}, frozenset()))
    names = ModuleNames()
    with _told_origins(names):
        try:
            found = again.capture()
        except (Exception, PinnedSize):     # it needs what the first capture found out: what is there has to do
            return captured, names
    if print_graph(found.graph, locations=False) != print_graph(captured.graph, locations=False):
        return captured, names
    found.graph.notes, found.constants, found.why = captured.graph.notes, captured.constants, captured.why
    return found, names


def numbered(graph: Graph) -> Graph:
    """The graph with a number of its own in the origin of each node, those of branches and loops too."""
    count = iter(range(sys.maxsize))

    def place(node: Node) -> Origin:
        loc = node.loc
        if isinstance(loc, Origin):
            return replace(loc, number=next(count))
        if loc is None:
            return Origin("", 0, number=next(count))
        return Origin(loc.file, loc.line, loc.column, loc.end_column, loc.function,
                      stack=((loc.file, loc.line),), number=next(count))
    return _with_places(graph, place)


def number_of(node: Node) -> int:
    """The captured node that a node comes from, -1 where that is not known."""
    return node.loc.number if isinstance(node.loc, Origin) else -1


def _with_places(graph: Graph, place: Callable[[Node], Location]) -> Graph:
    params = tuple(Value(p.type, name=p.name) for p in graph.params)
    values: dict[Value, Value] = dict(zip(graph.params, params, strict=True))
    nodes = []
    for node in graph.nodes:
        attrs = {name: _attribute(value, place) for name, value in node.attrs.items()}
        inputs = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
        new = Node(node.op, inputs, attrs, (), place(node), tuple(values[x] for x in node.after))
        new.outputs = tuple(Value(x.type, new, x.index, x.name) for x in node.outputs)
        values.update(zip(node.outputs, new.outputs, strict=True))
        nodes.append(new)
    return Graph(graph.name, params, tuple(nodes), tuple(values[r] for r in graph.results), graph.notes)


def _attribute(value: Any, place: Callable[[Node], Location]) -> Any:
    if isinstance(value, Graph):
        return _with_places(value, place)
    if isinstance(value, tuple) and any(isinstance(x, Graph) for x in value):
        return tuple(_attribute(x, place) for x in value)
    return value


class ModuleNames:
    """What modules and tensors are called in the outermost modules and optimizers that a capture met."""

    def __init__(self) -> None:
        self.tensors: dict[int, str] = {}                   # by identity
        self._inner: dict[int, dict[int, str]] = {}
        self._seen: set[int] = set()

    def within(self, outer: Module | None, inner: Module) -> str:
        """The name of a module in the one that calls it; its class, where it is none of its parts."""
        if outer is None:
            if id(inner) not in self._seen:
                self._seen.add(id(inner))
                self.tensors.update((id(x), name) for name, x in (*inner.named_parameters(), *inner.named_buffers()))
            return type(inner).__name__
        if id(outer) not in self._inner:
            self._inner[id(outer)] = {id(module): name for name, module in outer.named_modules() if name}
        return self._inner[id(outer)].get(id(inner)) or type(inner).__name__

    def meet(self, optimizer: Optimizer) -> str:
        """The class of an optimizer, whose tensors get names."""
        if id(optimizer) not in self._seen:
            self._seen.add(id(optimizer))
            for group in optimizer.param_groups:
                slots = [*group.slots.items(), *((name, [x]) for name, x in group.items() if isinstance(x, Tensor))]
                for slot, tensors in slots:
                    of = group["params"] if len(tensors) == len(group["params"]) else [None] * len(tensors)
                    for x, p in zip(tensors, of, strict=True):
                        self.tensors[id(x)] = f"{slot} of {self.tensors[id(p)]}" if id(p) in self.tensors else slot
        return type(optimizer).__name__


# ---------------------------------------------------------------- while a node is recorded

@contextmanager
def _told_origins(names: ModuleNames) -> Iterator[None]:
    """A block in which each node that is recorded gets an `Origin`."""
    def hear(event: Event) -> None:
        node = event.fields.get("node")
        if event.name == "node" and isinstance(node, Node):
            node.loc = _origin(node, names)
    stop = subscribe(hear)
    try:
        yield
    finally:
        stop()


def _origin(node: Node, names: ModuleNames) -> Location | None:
    if isinstance(node.loc, Origin):       # of the node that it is copied from
        return node.loc
    frames = list(_frames())
    before = _differentiated(frames)
    if before is not None:
        return replace(before, phase=BACKWARD)
    stack = tuple(line for frame in reversed(frames) if (line := _user_line(frame)) is not None)
    path, kind, phase = _scope(frames[::-1], names)
    if any(isinstance(x, Value) and x.node is not None and isinstance(x.node.loc, Origin)
           and x.node.loc.phase != FORWARD for x in node.inputs):
        phase = UPDATE          # what is made of gradients
    here = node.loc or Location("", 0)
    return Origin(here.file, here.line, here.column, here.end_column, here.function, path=path, kind=kind, phase=phase,
                  stack=stack)


def _frames() -> Iterator[FrameType]:
    """The frames of the function that is captured, the innermost first, Tenon's own too."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != capture_run.__file__:
        yield frame
        frame = frame.f_back


def _user_line(frame: FrameType) -> Line | None:
    file = frame.f_code.co_filename
    return None if file.startswith((PACKAGE, "<")) else (file, frame.f_lineno)


def _differentiated(frames: list[FrameType]) -> Origin | None:
    """The origin of the node whose gradient is being taken."""
    for frame in frames:
        if frame.f_code is autodiff.backward.__code__:
            node = frame.f_locals.get("node")
            values: Any = getattr(node, "payloads", None) or getattr(node, "outputs", ())
            for x in values:
                if isinstance(x, Value) and x.node is not None and isinstance(x.node.loc, Origin):
                    return x.node.loc
    return None


def _scope(frames: list[FrameType], names: ModuleNames) -> tuple[str, str, str]:
    """(module path, class of the innermost module, phase) of these frames, outermost first."""
    path: list[str] = []
    inner: Module | None = None
    optimizer = outside = ""
    for frame in frames:
        owner = _owner(frame)
        if isinstance(owner, Optimizer):
            optimizer = names.meet(owner)
            if frame.f_code.co_name == "update" and (name := names.tensors.get(id(frame.f_locals.get("p")))):
                return f"{optimizer}.{name}", optimizer, UPDATE
        elif isinstance(owner, Module):
            if owner is not inner:
                path.append(names.within(inner, owner))
                inner = owner
        elif _user_line(frame) is not None and frame.f_code.co_name.isidentifier():
            path += [f"{frame.f_code.co_name}()"] if outside else []
            outside = frame.f_code.co_name
    if optimizer:
        return optimizer, optimizer, UPDATE
    return ".".join(path), type(inner).__name__ if inner is not None else "", FORWARD


def _owner(frame: FrameType) -> Any:
    """The first argument of a method, in its frame."""
    code = frame.f_code
    named_self = code.co_argcount and code.co_varnames[0] == "self"
    return frame.f_locals.get("self") if named_self else None
