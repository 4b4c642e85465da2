"""Gradients within a captured function: the nodes that carry them, and what a graph must say that the tape knows.

The tape records captured calls as it records eager ones, so `backward()` works as ever.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from tenon.capture.code_monitor import Stack, UnsafeCall, stack_now, unwatched
from tenon.capture.conditional_gradients import reached_by_any, reached_by_data
from tenon.capture.outside_tensors import OutsideTensors
from tenon.capture.parameter_sources import Held, OutsideTensor
from tenon.eager.tape import Saved, TapeNode, saved_as
from tenon.errors import Location, user_location
from tenon.graph.ir import Node, Value, graphs_in
from tenon.graph.op import Op
from tenon.ops.arithmetic import add
from tenon.ops.barrier import as_leaf, stop_gradient
from tenon.ops.transfer import to_device
from tenon.records import replace
from tenon.tensor import Tensor
from tenon.tensor_state import Hook, LeafHooks, Payload, TensorState, leaf_hooks


class CapturedGradients(OutsideTensors):
    """Appends nodes, and follows through them what a gradient can flow to."""

    recorded = False            # whether a call was recorded on the tape
    reached: Container[int] = ()        # the identities of tensors from outside whose hooks may be called

    def __init__(self, name: str):
        super().__init__(name)
        self.as_leaves: set[tuple[Value, Any]] = set()      # leaves from outside, and elements that were assigned
        self.gradients: dict[Value, Value] = {}         # of values that a backward pass came by
        self.called_hooks: list[LeafHooks] = []         # of leaves from outside
        self._derives: Location | None = None           # where that was computed whose gradient is recorded now

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

    def changed_leaf(self, x: Tensor, state: TensorState) -> OutsideTensor | None:
        """A leaf from outside whose elements are others by now: its gradient is not that of what they were computed of.
        """
        if state.node is not None:
            return None
        seen = self.seen.get(id(x.leaf if type(x) is Saved else x))
        return None if seen is None or state.payload is seen.start else seen

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

    def receive(self, leaf: Tensor, total: Tensor, there: Any) -> None:
        """As in eager code."""
        self.refuse_earlier(leaf)
        leaf.grad = total if leaf.grad is None else add(leaf.grad, total)

    def refuse_earlier(self, leaf: Tensor) -> None:
        """A gradient goes on through what was computed outside of the function, on the tape that is there."""
        if not self.owns(leaf.own.payload) and leaf.own.node is not None:
            raise UnsafeCall("backward() goes on through what was computed outside of the function",
                             where=user_location(), hint="compute it in the function too, or call backward() outside")

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


def _is_own(node: TapeNode | Node) -> bool:
    """Whether no code but Tenon's differentiates this call."""
    return getattr(node.op, "differentiates_itself", False) and all(
        _is_own(inner) for value in node.attrs.values() for graph in graphs_in(value) for inner in graph.nodes)


def _holds_a_tensor(attribute: Any) -> bool:
    """Whether an attribute is a number that the graph computes, or has one among its parts."""
    if type(attribute) is tuple:
        return any(map(_holds_a_tensor, attribute))
    return isinstance(attribute, Tensor)


def tapes_of(ends: Sequence[Tensor]) -> list[tuple[Sequence[TapeNode], Any]]:
    """The tapes that these tensors end, and where on them each is."""
    return [(node.tape(), x.slot) for x in ends if (node := x.node) is not None]


def _none_of(by_data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """That no leaf has a gradient for some data only."""
    if by_data:
        raise UnsafeCall("whether a tensor gets a gradient depends on the data", where=user_location(),
                         convertible=True)
    return by_data
