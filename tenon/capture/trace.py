"""A running Python function -> the graph of the operators it calls.

While a function is captured, operator calls append nodes.  `outside_tensors` makes tensors from outside parameters of
the graph, and `captured_gradients` says in it what the tape knows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any

import numpy as np

from tenon.autocast import autocasting
from tenon.capture.captured_gradients import CapturedGradients
from tenon.capture.code_monitor import CodeWatch, UnsafeCall
from tenon.capture.counted_loops import CountedLoops
from tenon.capture.may_raise import unread
from tenon.capture.number_steps import Numbers
from tenon.capture.output_effects import OutputEffect
from tenon.capture.parameter_sources import Argument, Source
from tenon.capture.symbolic_numbers import SymNumber, SymScalar, nest_known, sizes_in
from tenon.context_values import during
from tenon.devices import HOST, PYTHON, on_python, placing
from tenon.dims.symbolic_dim import Dim
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.tape import TapeNode, linked, saved_as
from tenon.errors import TenonError, user_location
from tenon.graph.build import PYTHON_SCALARS, canonical_attrs, literal, separate
from tenon.graph.ir import Graph, Value
from tenon.graph.op import Op, using
from tenon.ops.placing import MOVES, on_device
from tenon.ops.transfer import to_device
from tenon.tensor import Tensor
from tenon.tensor_state import (
    Payload,
    TensorState,
    recorder,
)
from tenon.types import DType

SIZES = frozenset(("shape", "size", "count", "num_classes"))     # attributes that are sizes


class Capture(CapturedGradients):
    """Records the operator calls of a running function as nodes of a graph."""

    records = True
    converting = False          # whether control flow on tensors is captured
    undecided = False           # whether the data decide what containers hold
    output_effects: Sequence[OutputEffect] = ()      # what it prints
    sized = False               # whether the data decide sizes of tensors
    numbers: Numbers | None = None      # those that change from call to call
    by_definition: Callable[[Any, Op, tuple[Any, ...], dict[str, Any]], Any] | None = None      # of one with these
    loops: CountedLoops | None = None   # which run as often as these say
    failed: Any = False         # or the bool of the graph that says that the call has to run eagerly after all

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

    def may_be_another(self, *tensors: Any) -> bool:
        """Whether one of these may be another tensor that the program still has."""
        return False

    def number(self, tensor: Tensor) -> Any:
        """Python numbers are known while the function is captured, or not at all."""
        return None

    def fail_if(self, condition: Any) -> None:
        """A capture that does not convert has no such conditions."""
        raise UnsafeCall("an operation fails for some data", where=user_location(), convertible=True)

    def known(self, tensor: Tensor) -> np.ndarray | None:
        """The elements of a tensor are those of this call alone."""
        return None

    def as_size(self, number: Tensor) -> Any:
        """A Python number that the graph computes, where a size is wanted."""
        raise self.needs_value(number, "a size")

    def seen_by_user(self, size: Dim) -> Any:
        """A size as the program sees it."""
        return size

    def shown(self) -> str:
        """The text of a tensor holds its elements, so a function that asks for it runs with graph breaks."""
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


@contextmanager
def capturing(capture: Capture) -> Iterator[Capture]:
    """Let `capture` record all operator calls of this block, in this thread."""
    with using(capture), during(recorder, capture):
        yield capture


def is_capturing() -> bool:
    """Whether the running code is being captured."""
    return recorder.get() is not None
