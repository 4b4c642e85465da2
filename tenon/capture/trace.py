"""A running Python function -> the graph of the operators it calls.

While a function is captured, operator calls append nodes; tensors from outside (arguments, parameters, buffers) show
the program a state of their own, so that what it assigns to them becomes a result of the graph and the tensors
themselves stay untouched until the graph has run.  Gradients work as ever: the tape records the captured calls too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MethodType
from typing import Any

import numpy as np

from tenon.autocast import autocasting
from tenon.capture.captured_devices import CapturedDevices
from tenon.capture.code_monitor import CodeWatch, Stack, UnsafeCall, stack_now, unwatched
from tenon.capture.conditional_gradients import reached_by_any, reached_by_data
from tenon.capture.counted_loops import CountedLoops
from tenon.capture.may_raise import unread
from tenon.capture.output_effects import OutputEffect
from tenon.capture.symbolic_numbers import Numbers, SymNumber, SymScalar, nest_known, sizes_in
from tenon.context_values import during
from tenon.devices import HOST, PYTHON, on_python, placing
from tenon.dims import Dim
from tenon.eager.dispatch import TensorInterpreter
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.tape import Saved, TapeNode, linked, saved_as
from tenon.errors import Location, TenonError, user_location
from tenon.graph.build import PYTHON_SCALARS, Builder, canonical_attrs, literal, separate
from tenon.graph.ir import Graph, Node, Value, graphs_in
from tenon.graph.op import Op, using
from tenon.ops.arithmetic import add
from tenon.ops.barrier import as_leaf, stop_gradient
from tenon.ops.placing import MOVES, on_device
from tenon.ops.transfer import to_device
from tenon.records import dataclass, replace
from tenon.tensor import Tensor
from tenon.tensor_state import (
    Elsewhere,
    Hook,
    LeafHooks,
    Payload,
    Recorder,
    TensorState,
    in_memory,
    leaf_hooks,
    recorder,
)
from tenon.types import DType, TensorType, as_dtype

SMALL_CONSTANT = 64     # elements; larger arrays are parameters of the graph


@dataclass(frozen=True)
class Argument:
    """A parameter of the graph that is leaf `position` of the call's arguments."""

    position: int


@dataclass(frozen=True, eq=False)
class Held:
    """A parameter of the graph that is a tensor (or array) found outside the arguments, by identity."""

    holder: Tensor | np.ndarray
    own: bool = False       # an array that only the capture has


@dataclass(frozen=True)
class GradientOf:
    """A parameter of the graph that is the `.grad` of another source."""

    source: Argument | Held


Source = Argument | Held | GradientOf


@dataclass(eq=False)
class Seen:
    """An outside tensor during a capture: where it comes from, how it began, and its state as the program sees it."""

    tensor: Tensor
    source: Source
    start: Value
    start_grad: Tensor | None
    state: TensorState
    asked: bool = False         # whether the program asked for the gradient that it began with
    renewed: bool = False       # whether it has another one in all calls, without that

    @property
    def assigned(self) -> bool:
        """Whether the program gave the tensor new elements."""
        return self.state.payload is not self.start

    @property
    def without_grad(self) -> bool | None:
        """Whether it begins with no gradient; None where that makes no difference."""
        ends_with_one = isinstance(self.state.grad, Tensor)
        return None if self.renewed and ends_with_one and self.start_grad is None else self.tensor.own.grad is None

    @property
    def grad_changed(self) -> bool:
        """Whether the program gave the tensor a new `.grad`, or changed the old one."""
        grad = self.state.grad
        return grad is not self.start_grad or (grad is not None and grad.own.payload is not self._start_grad_payload)

    def __post_init__(self) -> None:
        self._start_grad_payload = None if self.start_grad is None else self.start_grad.own.payload


SIZES = frozenset(("shape", "size", "count", "num_classes"))     # attributes that are sizes


class Capture(TensorInterpreter):
    """Records operator calls as nodes, and reads and writes of outside tensors as parameters and results."""

    records = True
    first = -1                  # the number of the last value that was there before
    converting = False          # whether control flow on tensors is captured
    undecided = False           # whether the data decide what containers hold
    output_effects: Sequence[OutputEffect] = ()      # what it prints
    sized = False               # whether the data decide sizes of tensors
    numbers: Numbers | None = None      # those that change from call to call
    by_definition: Callable[[Any, Op, tuple[Any, ...], dict[str, Any]], Any] | None = None      # of one with these
    loops: CountedLoops | None = None   # which run as often as these say
    recorded = False            # whether a call was recorded on the tape
    around: Recorder | None = None      # the capture within which this is one
    reached: Container[int] = ()        # the identities of tensors from outside whose hooks may be called
    failed: Any = False         # or the bool of the graph that says that the call has to run eagerly after all

    def __init__(self, name: str):
        self.builder = self.whole = Builder(name)
        self.sources: list[Source] = []
        self.seen: dict[int, Seen] = {}
        self._arrays: dict[int, Value] = {}
        self.released: set[Value] = set()   # tensors from outside whose tapes backward() has been through
        self.flows: set[Value] = set()      # what a gradient can flow to, as far as the graph tells
        self.as_leaves: set[tuple[Value, Any]] = set()      # leaves from outside, and elements that were assigned
        self.gradients: dict[Value, Value] = {}         # of values that a backward pass came by
        self.called_hooks: list[LeafHooks] = []         # of leaves from outside
        self._derives: Location | None = None           # where that was computed whose gradient is recorded now
        self.devices = CapturedDevices(self._builders)

    # ------------------------------------------------------------ an operator call

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Record the call; there is nothing to watch in how Tenon's own operators are recorded."""
        if self.numbers is not None and attrs:
            if op.expand is not None and self.by_definition is not None and \
                    any(type(x) is SymNumber for x in attrs.values()) and \
                    (made := self.by_definition(self, op, inputs, attrs)) is not None:
                return made
            attrs = {name: sizes_in(x) if name in SIZES else nest_known(x) for name, x in attrs.items()}
        watching: Any = sys.getprofile() if op.is_own else None
        if type(watching) is not MethodType or watching.__func__ is not CodeWatch._event:
            return self._apply(op, inputs, attrs)
        sys.setprofile(None)
        try:
            return self._apply(op, inputs, attrs)
        finally:
            sys.setprofile(watching)

    def _apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The call as nodes; what is made from no tensor goes to the device of the block around it."""
        if on_python() and op.is_host and op not in MOVES:
            return self._by_python(op, inputs, attrs)
        if (place := placing()) is None or op is to_device or any(isinstance(x, Tensor) for x in inputs):
            return self._as_nodes(op, inputs, attrs)
        made = self._as_nodes(op, inputs, attrs)
        return on_device(made, place) if isinstance(made, Tensor) else tuple([on_device(x, place) for x in made])

    def _by_python(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The call on the device of Python's functions; its results lie where its inputs did."""
        lifted = tuple(map(self.lift, inputs))
        place = next((x.device for x in lifted if isinstance(x, Tensor)), placing() or HOST)
        there = tuple([to_device(x, device=str(PYTHON)) if isinstance(x, Tensor) else x for x in lifted])
        made = self._as_nodes(op, there, attrs)
        return to_device(made, device=str(place)) if isinstance(made, Tensor) else tuple(
            [to_device(x, device=str(place)) for x in made])

    def _as_nodes(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """What `TensorInterpreter.apply` does, in a few steps where no input is cast, which is the usual case."""
        if autocasting() is not None:
            return super().apply(op, inputs, attrs)
        states: list[TensorState | None] = []
        kinds: list[Any] = []
        for x in inputs:
            if isinstance(x, Tensor) and x.weak is None and type((state := self.state_of(x)).payload) is Value:
                states.append(state)
                kinds.append(state.payload.dtype)
            elif type(x) in PYTHON_SCALARS:
                states.append(None)
                kinds.append(type(x))
            else:
                return super().apply(op, inputs, attrs)
        record = is_grad_enabled() and any(s is not None and s.requires_grad for s in states)
        edges = self._edges(op, inputs, states, tuple(kinds), record)
        if edges is None:
            return super().apply(op, inputs, attrs)
        canonical = canonical_attrs(op, [x.type for x in edges], attrs)
        outputs = self.emit(op, edges, canonical)
        if not record:
            return Tensor(outputs[0]) if len(outputs) == 1 else tuple(map(Tensor, outputs))
        self.recorded = True
        kept = tuple([x if s is None else saved_as(x, s) for x, s in zip(inputs, states, strict=True)])
        for k, s in enumerate(states):
            if s is not None and s.requires_grad:
                self.carry(edges[k], kept[k])
        kept = tuple([e if s is None else x for x, e, s in zip(kept, edges, states, strict=True)])
        node = TapeNode(op, kept, canonical, outputs)
        return linked(outputs[0], node, 0) if len(outputs) == 1 else node.outputs

    def _edges(self, op: Op, inputs: tuple[Any, ...], states: Sequence[TensorState | None], kinds: tuple[Any, ...],
               record: bool) -> tuple[Any, ...] | None:
        """The inputs as a node has them; None where one is cast or cut off from the tape, or the operator opened."""
        if op.expand is not None and record and op.vjp is None:
            return None
        try:
            agreed = (op.promote or separate)(kinds)
        except TenonError:
            return None
        edges: list[Any] = []
        for x, state, kind, dtype in zip(inputs, states, kinds, agreed, strict=True):
            if dtype is None or (state is not None and dtype is not kind):
                return None
            edges.append(literal(x, dtype) if state is None else state.payload)
            if record and state is not None and (
                    self.changed_leaf(x, state) if state.requires_grad else state.payload in self.flows):
                return None
        return tuple(edges)

    def cast(self, x: Any, dtype: DType | None) -> Any:
        """A Python number that changes from call to call is an argument of the graph."""
        is_symbolic = type(x) in (SymNumber, SymScalar) and dtype is not None
        return super().cast(x.numbers.scalar(x, dtype) if is_symbolic else x, dtype)

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """Append the node; the payloads are its output values."""
        for x in inputs:
            if isinstance(x, Tensor) and x.requires_grad:
                self.carry(x.payload, x)
        return self.emit(op, tuple([x.payload if isinstance(x, Tensor) else x for x in inputs]), attrs)

    def emit(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """Append the node of these edges; its outputs."""
        if op.data_dependent and attrs["size"] is None:
            raise UnsafeCall(f"the shape of {op.name} depends on the data", where=user_location(), convertible=True,
                             hint="keep the shape: tn.where(mask, x, other)")
        if any(map(_holds_a_tensor, attrs.values())):
            raise UnsafeCall(f"a size or setting of {op.name} is only known when the graph runs", where=user_location(),
                             hint="a size that does not depend on the data can be in the graph")
        out = self.builder.emit(op, self.builder.broadcast(inputs) if op.elementwise else inputs, attrs, self._place())
        outputs: tuple[Value, ...] = out if isinstance(out, tuple) else (out,)
        if self.devices.several or op is to_device:
            self.devices.follow()
        if not self.flows.isdisjoint(inputs) and op is not stop_gradient:
            self.flows.update([x for x in outputs if x.dtype.is_differentiable])
        return outputs

    def _place(self) -> Location | None:
        """Where a node of a gradient comes from: the line that asks for it, and the one that it is the gradient of."""
        here = None if self._derives is None else user_location()
        return None if here is None else replace(here, derives=self._derives)

    def follow_gradient(self, node: TapeNode | None, seeds: Sequence[Any]) -> None:
        """A backward pass comes by a node, with the gradients of its outputs; None where it is over."""
        payloads = () if node is None else node.payloads
        for payload, seed in zip(payloads, seeds, strict=False):
            if isinstance(payload, Value) and isinstance(seed, Tensor) and isinstance(seed.own.payload, Value):
                self.gradients[payload] = seed.own.payload
        maker = payloads[0].node if payloads and isinstance(payloads[0], Value) else None
        self._derives = None if maker is None else maker.loc

    @contextmanager
    def differentiating(self, tape: Sequence[TapeNode]) -> Iterator[None]:
        """A block that goes through a tape; there is nothing to watch in Tenon's own rules."""
        with unwatched() if all(map(_is_own, tape)) and not leaf_hooks else nullcontext():
            yield

    def carry(self, edge: Any, tensor: Tensor) -> None:
        """A recorded call reads a tensor that carries a gradient."""

    def without_gradient(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """A graph must say what the tape knows: `x.detach()` is the same edge as `x`."""
        self.recorded = True
        return tuple([self._edge(x, self.state_of(x)) if isinstance(x, Tensor) else x for x in inputs])

    def _edge(self, x: Tensor, state: TensorState) -> Tensor:
        if not state.requires_grad:
            return stop_gradient(x) if state.payload in self.flows else x
        seen = self.changed_leaf(x, state)
        if seen is None:
            return x
        self.as_leaves.add((seen.start, state.payload))
        self.carry(seen.start, saved_as(x, TensorState(seen.start, True)))
        (elements,) = self.emit(stop_gradient, (state.payload,), {})
        (given,) = self.emit(as_leaf, (elements, seen.start), {})
        return saved_as(x, TensorState(given, True))

    def changed_leaf(self, x: Tensor, state: TensorState) -> Seen | None:
        """A leaf from outside whose elements are others by now: its gradient is not that of what they were computed of.
        """
        if state.node is not None:
            return None
        seen = self.seen.get(id(x.leaf if type(x) is Saved else x))
        return None if seen is None or state.payload is seen.start else seen

    def opens(self, op: Op) -> bool:
        """Composites stay whole in the graph; `expand` opens them."""
        return False

    def lift(self, x: Any) -> Any:
        """NumPy arrays are read again on every call, since their elements may change."""
        if type(x) is SymScalar and x.kind is not np.float64:       # which is a float of Python's
            return x.in_graph()
        if isinstance(x, np.ndarray):
            return Tensor(self.array(x))
        return super().lift(x)

    # ------------------------------------------------------------ outside tensors

    def argument(self, tensor: Tensor, position: int, type: TensorType, name: str) -> None:
        """Declare a tensor among the arguments of the call, of this type (sizes may be symbols)."""
        if id(tensor) not in self.seen:
            self._see(tensor, tensor.own, Argument(position), type, name)

    def state_of(self, tensor: Tensor) -> TensorState:
        """The state of a tensor; the first look at one from outside makes it a parameter of the graph."""
        own = tensor.own
        payload = own.payload
        if type(payload) is Value:          # what `owns` finds, in few steps
            if payload.number > self.first:
                return own
        elif type(payload) is not np.ndarray and self.owns(payload):
            return own
        seen = self.seen.get(id(tensor))
        if seen is None:
            own = self.outside(tensor)
            seen = self._see(tensor, own, Held(tensor), _type_of(own), "")
        return seen.state

    def hold(self, tensor: Tensor, state: TensorState) -> None:
        """Give a tensor another state, in the captured program."""
        if self.owns(tensor.own.payload):
            tensor.own = state
        else:
            self.state_of(tensor)
            self.seen[id(tensor)].state = state

    def gradient(self, tensor: Tensor) -> Any:
        """The gradient of a tensor; the program depends on whether one from outside began with it."""
        state = self.state_of(tensor)
        if (seen := self.seen.get(id(tensor))) is not None and not seen.renewed:
            seen.asked = True
            if self.around is not None:
                self.around.gradient(tensor)
        return state.grad

    def renew_gradient(self, tensor: Tensor) -> None:
        """From here on it makes no difference which gradient a tensor had; under a condition it does."""
        self.state_of(tensor)
        seen = self.seen.get(id(tensor))
        if seen is None or seen.asked:
            return
        if self.around is None and self.builder is self.whole:
            seen.renewed = True
        else:
            self.gradient(tensor)

    def owns(self, payload: Payload) -> bool:
        """Whether a payload came into being in this capture."""
        return not isinstance(payload, (np.ndarray, Elsewhere))

    def outside(self, tensor: Tensor) -> TensorState:
        """The state of an outside tensor, as it is around the capture."""
        return tensor.own

    def _see(self, tensor: Tensor, own: TensorState, source: Argument | Held, type: TensorType, name: str) -> Seen:
        start = self._parameter(source, type, name)
        self.devices.enter(start, own.payload, self.around)
        if own.requires_grad:
            self.flows.add(start)
            if own.node is not None and own.node.released:
                self.released.add(start)
        grad = None
        if own.grad is not None:
            grad = Tensor(self._parameter(GradientOf(source), type, f"{start.name}_grad"))
            self.devices.enter(grad.own.payload, own.payload, self.around)
        state = TensorState(start, own.requires_grad, grad)
        self.seen[id(tensor)] = Seen(tensor, source, start, grad, state)
        return self.seen[id(tensor)]

    def array_of(self, param: Value, leaves: Sequence[Any]) -> Any:
        """What a parameter of the graph is in a call with these leaves."""
        return _array(self.sources[self.builder.params.index(param)], leaves)

    def array(self, array: np.ndarray, own: bool = False) -> Value:
        """The parameter that is this NumPy array, whatever it holds at each call."""
        if id(array) not in self._arrays:
            made = self._arrays[id(array)] = self._parameter(Held(array, own), _type_of(TensorState(array)), "")
            self.devices.enter_array(made)
        return self._arrays[id(array)]

    def constant(self, array: np.ndarray) -> Value:
        """A tensor made from data inside the function: a constant of the graph."""
        if array.size <= SMALL_CONSTANT:
            return self.builder.constant(array)
        return self.array(array.copy(), own=True)

    def _parameter(self, source: Source, type: TensorType, name: str) -> Value:
        self.sources.append(source)
        return self.builder.parameter(type, name or f"s{len(self.sources) - 1}")

    def forked(self, payload: Payload) -> Payload:
        """The tape knows tensors apart that are one edge."""
        return payload

    def leaf(self, tensor: Tensor) -> Payload:
        """A graph must say that no gradient goes past it."""
        payload = self.state_of(tensor).payload
        return stop_gradient(Tensor(payload)).payload if payload in self.flows and self.owns(tensor.own.payload) \
            else payload

    def absent(self, tape: Sequence[TapeNode], end: Any) -> Mapping[Any, Any]:
        """Which leaves get a gradient for some data only is known where control flow is captured."""
        return _none_of(reached_by_data(tape, end))

    def gradients_by_data(self, ends: Sequence[Tensor]) -> Mapping[int, Tensor]:
        """The sources of leaves from outside that gradients of these tensors reach for some data, and when."""
        return _none_of(reached_by_any(tapes_of(ends)))

    def may_be_another(self, *tensors: Any) -> bool:
        """Whether one of these may be another tensor that the program still has."""
        return False

    def receive(self, leaf: Tensor, total: Tensor, there: Any) -> None:
        """As in eager code."""
        self.refuse_earlier(leaf)
        leaf.grad = total if leaf.grad is None else add(leaf.grad, total)

    def refuse_earlier(self, leaf: Tensor) -> None:
        """A gradient goes on through what was computed outside of the function, on the tape that is there."""
        if not self.owns(leaf.own.payload) and leaf.own.node is not None:
            raise UnsafeCall("backward() goes on through what was computed outside of the function",
                             where=user_location(), hint="compute it in the function too, or call backward() outside")

    def number(self, tensor: Tensor) -> Any:
        """Python numbers are known while the function is captured, or not at all."""
        return None

    def fail_if(self, condition: Any) -> None:
        """A capture that does not convert has no such conditions."""
        raise UnsafeCall("an operation fails for some data", where=user_location(), convertible=True)

    def _builders(self) -> list[Builder]:
        """Those that record now, the innermost first."""
        found: list[Builder] = [self.builder]
        while (outer := found[-1].outer) is not None:
            found.append(outer)
        return found

    def device_of(self, payload: Payload) -> Any:
        """Where the elements of a captured tensor will be."""
        return self.devices.of(payload)

    def known(self, tensor: Tensor) -> np.ndarray | None:
        """The elements of a tensor are those of this call alone."""
        return None

    def needs_value(self, tensor: Tensor, what: str) -> UnsafeCall:
        """Python asked for the elements of a tensor that will only be known when the graph runs."""
        return UnsafeCall(
            f"{what} needs the value of a tensor, {tensor.type}, that is only known when the graph runs",
            where=user_location(), hint="tn.where(condition, a, b) chooses between values within the graph",
            convertible=True)

    def place_of_hook(self, tensor: Tensor) -> tuple[Location | None, Stack]:
        """Where the hook of a gradient is added: the line, and what runs.  Raises UnsafeCall in a graph of its own, and
        for leaves and others from outside."""
        own = tensor.own
        if self.builder is not self.whole or own.node is None or not isinstance(own.payload, Value) or \
                not self.owns(own.payload):
            raise self.needs_value(tensor, "the hook of a gradient")
        return user_location(), stack_now()

    def as_called(self, hook: Hook) -> Hook:
        """The function as it is."""
        return hook

    def note_hooks(self, leaf: Tensor, hooks: LeafHooks) -> None:
        """A backward pass calls the hooks of a leaf.  Raises UnsafeCall for one that is another in every call."""
        seen = self.seen.get(id(leaf))
        if self.builder is not self.whole or id(leaf) not in self.reached or seen is None or \
                not isinstance(seen.source, Held):
            raise self.needs_value(leaf, "the hook of a gradient")
        self.called_hooks.append(hooks)

    def as_size(self, number: Tensor) -> Any:
        """A Python number that the graph computes, where a size is wanted."""
        raise self.needs_value(number, "a size")

    def seen_by_user(self, size: Dim) -> Any:
        """A size as the program sees it."""
        return size

    def shown(self) -> str:
        """The text of a tensor holds its elements, so a function that asks for it runs by part."""
        raise UnsafeCall("the text of a tensor shows its elements", where=user_location(), convertible=True,
                         hint="print and format outside of the jitted function")

    # ------------------------------------------------------------ the result

    def finish(self, results: Sequence[Value]) -> tuple[Graph, list[Source]]:
        """The graph returning `results`, without the parameters that nothing reads, and where those left come from."""
        graph = self.builder.finish(results)
        made = {x for node in graph.nodes for x in node.outputs}.union(graph.params)
        lost = "a tensor that was made in a branch or loop and left it by other ways than its result"
        for node in graph.nodes:
            if any(x not in made for x in node.uses()):
                raise UnsafeCall(f"{node.op.name} uses {lost}", where=node.loc)
        if any(x not in made for x in results):
            raise UnsafeCall(f"the function leaves {lost}")
        graph.results = results = (*graph.results, *unread(graph))
        used = {value for node in graph.nodes for value in node.uses()}.union(results)
        kept = [(p, s) for p, s in zip(graph.params, self.sources, strict=True)
                if p in used or isinstance(s, Argument)]
        graph.params = tuple(p for p, _ in kept)
        self.devices.note(graph)
        return graph, [s for _, s in kept]


def _is_own(node: TapeNode | Node) -> bool:
    """Whether no code but Tenon's differentiates this call."""
    return getattr(node.op, "differentiates_itself", False) and all(
        _is_own(inner) for value in node.attrs.values() for graph in graphs_in(value) for inner in graph.nodes)


def _holds_a_tensor(attribute: Any) -> bool:
    """Whether an attribute is a number that the graph computes, or has one among its parts."""
    if type(attribute) is tuple:
        return any(map(_holds_a_tensor, attribute))
    return isinstance(attribute, Tensor)


def _array(source: Source, leaves: Sequence[Any]) -> Any:
    holder: Any = source.source if isinstance(source, GradientOf) else source
    holder = leaves[holder.position] if isinstance(holder, Argument) else holder.holder
    holder = holder.own.grad if isinstance(source, GradientOf) else holder
    return np.asarray(in_memory(holder.own.payload) if isinstance(holder, Tensor) else getattr(holder, "value", holder))


def _type_of(state: TensorState) -> TensorType:
    dtype = state.payload.dtype
    return TensorType(dtype if isinstance(dtype, DType) else as_dtype(dtype), state.payload.shape)


def tapes_of(ends: Sequence[Tensor]) -> list[tuple[Sequence[TapeNode], Any]]:
    """The tapes that these tensors end, and where on them each is."""
    return [(node.tape(), x.slot) for x in ends if (node := x.node) is not None]


def _none_of(by_data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """That no leaf has a gradient for some data only."""
    if by_data:
        raise UnsafeCall("whether a tensor gets a gradient depends on the data", where=user_location(),
                         convertible=True)
    return by_data


@contextmanager
def capturing(capture: Capture) -> Iterator[Capture]:
    """Let `capture` record all operator calls of this block, in this thread."""
    with using(capture), during(recorder, capture):
        yield capture


def is_capturing() -> bool:
    """Whether the running code is being captured."""
    return recorder.get() is not None
