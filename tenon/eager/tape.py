"""The tape: what eager operator calls with gradients leave behind, for `backward` to go through in reverse."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

import numpy as np

from tenon.autodiff import Rule, call
from tenon.devices import HOST, placing
from tenon.eager.backward_arrays import descend, is_plain, ways
from tenon.errors import GradientError, Location
from tenon.ops.barrier import barrier
from tenon.tensor import Tensor
from tenon.tensor_state import Elsewhere, Examples, Payload, TensorState, recorder
from tenon.types import DTYPE_OF, DType, as_dtype

_release = methodcaller("release")
T = TypeVar("T", bound=Tensor)
NO_ATTRS: Mapping[str, Any] = {}
NUMBERS = itertools.count()
_next_number = NUMBERS.__next__


class TapeNode:
    """One recorded operator call.  Holds output payloads, not tensors, so that a tape is free of cycles."""

    __slots__ = ("attrs", "inputs", "number", "op", "payloads", "root")
    loc: Location | None = None

    def __init__(self, op: Rule, inputs: tuple[Any, ...], attrs: Mapping[str, Any], payloads: tuple[Payload, ...]):
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.payloads = payloads
        self.number: float = _next_number()
        self.root: Any = None       # what `_root` found last

    def release(self) -> None:
        """Let go of inputs and outputs; the node cannot be differentiated any more."""
        self.inputs, self.payloads, self.attrs, self.root = (), (), NO_ATTRS, None

    @staticmethod
    def release_all(tape: Sequence[TapeNode]) -> None:
        """Release the nodes of a tape."""
        ways.release(tape, _release)

    @property
    def released(self) -> bool:
        """Whether `release` was called."""
        return not self.payloads

    @property
    def device(self) -> Any:
        """Where the call was computed, or a capture says that it will be; None where tensors are made there anyway."""
        payload, capture = self.payloads[0], recorder.get()
        found = payload.device if isinstance(payload, Elsewhere) else HOST if capture is None else \
            capture.device_of(payload)
        return None if found is HOST and placing() is None else found

    @property
    def slots(self) -> tuple[Any, ...]:
        """What the gradients of the outputs are accumulated under."""
        return ((self, 0),) if len(self.payloads) == 1 else tuple([(self, k) for k in range(len(self.payloads))])

    def pulled(self, seeds: Sequence[Any]) -> list[tuple[Any, Any]] | None:
        """(an input, its gradient) for all that want one, given those of the outputs; None where it is not known here.
        """
        return None

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The output tensors, linked to this node."""
        return tuple([linked(payload, self, k) for k, payload in enumerate(self.payloads)])

    def gradients(self, tape: list[TapeNode], end: Tensor, seed: Tensor) -> dict[Any, Any] | None:
        """The gradients that flow from `end`, which this call made, through its tape on arrays; None where that is not
        what operators mean."""
        return descend(tape, [end], [seed.own.payload]) if is_plain(tape) else None    # type: ignore[list-item]

    def tape(self) -> list[TapeNode]:
        """This call and the recorded ones that it depends on, in the order they ran."""
        return _above([self])


def linked(payload: Payload, node: TapeNode, index: int) -> Tensor:
    """Output `index` of a recorded call."""
    out = _new(Tensor)
    dtype: Any = payload.dtype
    known = dtype if type(dtype) is DType else DTYPE_OF.get(dtype) or as_dtype(dtype)
    out.own = TensorState(payload, known.is_differentiable, None, node, index)
    return out


class Saved(Tensor):
    """A tensor as an operator call saw it: it keeps the state of then, and in-place operations make a new one."""

    __slots__ = ("leaf",)
    leaf: Tensor        # the tensor that was saved, if a leaf

    @property
    def slot(self) -> Any:
        """What a gradient is accumulated under."""
        node = self.own.node
        return self.leaf if node is None else (node, self.own.index)


def saved(x: Any) -> Any:
    """An input of a recorded call."""
    return saved_as(x, x.state) if isinstance(x, Tensor) else x


def recorded(op: Rule, inputs: tuple[Any, ...], array: np.ndarray) -> Tensor:
    """The one output, with a gradient, of an operator call without attributes; outside of any capture."""
    kept = []
    for x in inputs:
        if isinstance(x, Tensor):           # as `saved_as` has it, which would be a call more
            state, leaf = x.own, x
            x = _new(Saved)
            x.own = state
            if state.node is None:
                x.leaf = leaf.leaf if type(leaf) is Saved else leaf
        kept.append(x)
    out = _new(Tensor)
    out.own = TensorState(array, array.dtype.kind in "fc", None, TapeNode(op, tuple(kept), NO_ATTRS, (array,)))
    return out


def saved_as(x: Tensor, state: TensorState) -> Saved:
    """A tensor in this state, as an input of a recorded call."""
    kept = _new(Saved)
    kept.own = state
    if state.node is None:
        kept.leaf = x.leaf if type(x) is Saved else x
    return kept


_new: Callable[[type[T]], T] = object.__new__       # without `Tensor.__init__`, which looks for a capture


def tape_of(tensors: Sequence[Tensor]) -> list[TapeNode]:
    """The recorded nodes that these tensors were computed by, in the order they ran."""
    return _above([t.node for t in tensors if t.node is not None])


def _above(pending: list[TapeNode]) -> list[TapeNode]:
    if recorder.get() is None and ways.above is not None and (known := ways.above(pending)) is not None:
        return sorted(known, key=_number)
    found: dict[TapeNode, None] = {}
    made_by = attrgetter("own.node" if recorder.get() is None else "node")
    while pending:
        node = pending.pop()
        if not node.payloads:
            raise GradientError("backward() a second time through a tape that the first one released",
                                hint="pass retain_graph=True to the first backward()")
        if node not in found:
            found[node] = None
            pending += [above for x in node.inputs if isinstance(x, Tensor) and (above := made_by(x)) is not None
                        and above not in found]
    return sorted(found, key=_number)


_number = attrgetter("number")


class _Ended:
    """The rule of what was computed from leaves alone that are gone: nobody sees their gradients."""

    name = "ended"
    takes_none = True

    def vjp(self, g: Any, y: Any) -> list[Any]:
        """Of no inputs."""
        return []


def ended(payload: Payload) -> TapeNode:
    """Where a tensor comes from that was computed from such leaves."""
    return TapeNode(_ENDED, (), NO_ATTRS, (payload,))


_ENDED: Any = _Ended()
RELEASED = TapeNode(call, (), {}, ())        # where a tensor comes from whose tape is gone
RELEASED.release()


# ---------------------------------------------------------------- who still wants a gradient

class TapeFork(TapeNode):
    """Where a tensor gets a place of its own on the tape, so that gradients are accumulated there and not in it."""

    __slots__ = ("active",)

    def __init__(self, x: Tensor, payload: Payload):
        super().__init__(barrier, (saved(x),), {}, (payload,))
        self.active = True      # until the function that is differentiated has returned


def fork(x: Tensor) -> Tensor:
    """A tensor of the same elements with its own place on the tape, linked to `x`.

    What is differentiated with respect to the fork can be differentiated again with respect to `x`.
    """
    capture = recorder.get()
    payload = x.payload if capture is None else capture.forked(x.payload)
    return linked(payload, TapeFork(x, payload), 0)


def recorded_since(number: int, results: Iterable[Any]) -> list[TapeNode]:
    """The calls recorded after that of this number on which results depend."""
    found: set[TapeNode] = set()
    pending = [x.own.node for x in results if isinstance(x, Tensor)]
    while pending:
        node = pending.pop()
        if node is not None and node.number > number and node not in found:
            found.add(node)
            pending += [x.own.node for x in node.inputs if isinstance(x, Tensor)]
    return list(found)


def put_apart(x: Tensor, number: int, places: Sequence[tuple[TapeNode, int]]) -> None:
    """Let these inputs of calls, all of which are `x`, have a place of their own on the tape, as of this number."""
    apart = TapeFork(x, x.own.payload)
    apart.active, apart.number = False, number
    for node, k in places:
        node.inputs = (*node.inputs[:k], saved(linked(x.own.payload, apart, 0)), *node.inputs[k + 1:])


def places_apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, those with a gradient in places of their own on the tape: what flows there is added in this order.
    """
    numbers = sorted((next(NUMBERS) for _ in tensors), reverse=True)        # gradients of late nodes come first
    found = []
    for x, number in zip(tensors, numbers, strict=True):
        if x.own.requires_grad:
            apart = TapeFork(x, x.own.payload)
            apart.active, apart.number = False, number
            x = linked(x.own.payload, apart, 0)
        found.append(x)
    return found


def carries(x: Tensor) -> bool:
    """Whether somebody may still want a gradient that flows to this tensor: a leaf, or an active fork."""
    if x.requires_grad:
        return x.node is None or _root(x.node) is not None
    return isinstance(x.payload, Examples) and carries(x.payload.inner)


def _root(start: TapeNode) -> Any:
    """A leaf, active fork, or edge of the graph being captured that `start` depends on; None if there is none any more.

    Remembered along the way.
    """
    above: dict[TapeNode, TapeNode | None] = {start: None}
    pending, root = [start], None
    while pending and root is None:
        node: TapeNode | None = pending.pop()
        assert node is not None
        known = node.root
        if known is not None and (known is not DEAD) and not (isinstance(known, TapeFork) and not known.active):
            root = known
        elif (isinstance(node, TapeFork) and node.active) or getattr(node.op, "is_edge", False):
            root = node
        elif known is not DEAD:
            for x in node.inputs:
                if not isinstance(x, Tensor):
                    continue
                if x.node is None and carries(x):
                    root = x
                elif x.node is not None and x.node not in above:
                    above[x.node] = node
                    pending.append(x.node)
        while root is not None and node is not None:
            node.root, node = root, above[node]
    if root is None:
        for node in above:
            node.root = DEAD
    return root


DEAD = object()
