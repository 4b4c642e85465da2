"""A function run within a program -> a graph of its own, and the tensors that it reads and assigns around it.

    branch = Branch("body")
    x = branch.parameter(type)
    with branch.tracing(body):              # refuses what the function changes in Python
        result = body(x)

What a branch or the body of a loop does is not part of the program around it.  A tensor from outside, whatever holds
its elements (an array, an edge of the program, the examples of a batch), shows the branch a state of its own, as in
any capture: reading makes a parameter (`outside` says of which tensor), assigning leaves the tensor as it is and is
found in `assigned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.convert.converting_capture import ConvertingCapture
from tenon.capture.convert.state_snapshot import World
from tenon.capture.effects import Snapshot
from tenon.capture.parameter_sources import GradientOf, Held, OutsideTensor, Source
from tenon.capture.python_state import described, python_state_of
from tenon.capture.trace import Capture, capturing
from tenon.eager.grad_mode import is_grad_enabled
from tenon.eager.tape import TapeNode
from tenon.errors import CaptureError
from tenon.graph.ir import NUMBERS, Graph, Value
from tenon.ops.barrier import stop_gradient
from tenon.tensor import Tensor
from tenon.tensor_state import Examples, Payload, TensorState, recorder
from tenon.types import TensorType


class Branch(ConvertingCapture):
    """The capture of a function that becomes one graph of a control-flow operator."""

    says = False

    def __init__(self, name: str):
        around = recorder.get()
        super().__init__(name, around.world if isinstance(around, ConvertingCapture)
                         else World([], [], Snapshot([], [])))
        self.around, self.first = around, next(NUMBERS)
        self.numbers = around.numbers if isinstance(around, Capture) else None
        self.converting = isinstance(around, ConvertingCapture) and around.converting
        self.sized = isinstance(around, Capture) and around.sized
        self.python_state = python_state_of(self, *[] if around is None else [around])
        self.given: list[Value] = []            # parameters for what the function is called with
        self.returned: list[Value] = []         # what is to be a result of the graph

    # ------------------------------------------------------------ tensors of its own and from outside

    def parameter(self, type: TensorType, name: str = "") -> Tensor:
        """A tensor that is given to the function: a parameter of the graph, before those read from outside."""
        value = self.builder.parameter(type, name)
        self.given.append(value)
        tensor = Tensor.__new__(Tensor)
        flag = type.dtype.is_differentiable and is_grad_enabled()
        if flag:
            self.flows.add(value)
        tensor.own = TensorState(value, flag, None, TapeNode(ENTRY, (), {}, (value,)) if flag else None)
        return tensor

    def owns(self, payload: Payload) -> bool:
        """Whether a payload came into being in this branch."""
        if isinstance(payload, Examples):
            return payload.base is self
        return isinstance(payload, Value) and payload.number > self.first

    def place_of_hook(self, tensor: Tensor) -> Any:
        """Raises UnsafeCall: gradients flow back through a branch without its tape."""
        raise self.needs_value(tensor, "the hook of a gradient")

    def outside(self, tensor: Tensor) -> TensorState:
        """The state of a tensor from outside, as the program around the branch sees it.

        Examples require a gradient where the tensor that holds them does.
        """
        own = tensor.own if self.around is None else self.around.state_of(tensor)
        payload = own.payload
        if own.requires_grad or not (isinstance(payload, Examples) and self.outside(payload.inner).requires_grad):
            return own
        return TensorState(payload, True, own.grad, TapeNode(ENTRY, (), {}, (payload,)))

    def _see(self, tensor: Tensor, own: TensorState, source: Any, type: TensorType, name: str) -> OutsideTensor:
        seen = super()._see(tensor, own, source, type, name)
        if own.node is not None:
            seen.state.node = TapeNode(ENTRY, (), {}, (seen.start,))
        return seen

    # ------------------------------------------------------------ running the function

    @contextmanager
    def tracing(self, *functions: Callable[..., Any]) -> Iterator[None]:
        """Record what the functions do in this block.

        Raises UnsafeCall when they change anything in Python: it would happen once, however often the branch runs.
        """
        with unwatched():
            snapshot = self.python_state.before(functions)
        try:
            with capturing(self):
                yield
            with unwatched():
                changes = snapshot.changes()
            if self.failed is not False:
                raise UnsafeCall(f"{self.builder.name}: the function may end in an error, as the data decide")
        except UnsafeCall as unsafe:
            raise self.refusal(unsafe) from None
        finally:
            with unwatched():
                snapshot.restore()
        if changes:
            raise self.refusal(UnsafeCall(f"{self.builder.name}: the function changes {described(changes[0])} in "
                                          "Python"))

    def refusal(self, unsafe: UnsafeCall) -> BaseException:
        """What stops a capture; an error where there is none around, nor examples whose function can be rewritten."""
        if self.around is not None or (unsafe.convertible and not self.converting):
            return unsafe
        return CaptureError(unsafe.what, where=unsafe.where, hint=unsafe.hint)

    def value(self, tensor: Tensor) -> Value:
        """The edge that holds a tensor's elements, to be a result of the graph: its gradient is that of the tensor."""
        with capturing(self):
            payload = tensor.payload
            if payload in self.flows and not tensor.requires_grad:      # as `x.detach()` is, the same edge as `x`
                payload = stop_gradient(tensor).payload
        assert isinstance(payload, Value)
        self.returned.append(payload)
        return payload

    # ------------------------------------------------------------ what it read and assigned

    @property
    def read(self) -> list[tuple[Value, Any]]:
        """The parameters that stand for something outside, and what that is: a tensor or an array."""
        used = {x for node in self.builder.nodes for x in node.uses()}.union(self.returned)
        pairs = zip(self.builder.params[len(self.given):], self.sources, strict=True)
        return [(p, self._holder(source)) for p, source in pairs if p in used]

    def _holder(self, source: Source) -> Any:
        if isinstance(source, GradientOf):
            assert isinstance(source.source, Held) and isinstance(source.source.holder, Tensor)
            return self.outside(source.source.holder).grad
        assert isinstance(source, Held)
        return source.holder

    @property
    def assigned(self) -> list[OutsideTensor]:
        """The outside tensors that the function gave new elements.

        Raises UnsafeCall where it also gave one a gradient, or took it away.
        """
        for seen in self.seen.values():
            flag = self.outside(seen.tensor).requires_grad
            if seen.grad_changed or (seen.state.requires_grad is not flag and not seen.assigned):
                raise self.refusal(UnsafeCall(f"{self.builder.name}: the function changes .grad or .requires_grad of "
                                              "a tensor"))
        return [seen for seen in self.seen.values() if seen.assigned]

    def graph(self, params: Sequence[Value], results: Sequence[Value]) -> Graph:
        """The graph with these parameters, which must be all that is used."""
        return Graph(self.builder.name, tuple(params), tuple(self.builder.nodes), tuple(results))


class _Entry:
    """The rule of the tape at the edge of a branch: gradients inside do not flow across it."""

    name = "the body of a branch or loop"
    is_edge = True          # somebody beyond it may want the gradient of a gradient

    def vjp(self, g: Any, y: Any) -> Any:
        """Let the whole function run eagerly, where they do."""
        raise UnsafeCall("backward() inside a branch or loop reaches what was computed outside")


ENTRY: Any = _Entry()
