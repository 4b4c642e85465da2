"""What a tensor holds and can be given anew: its payload, gradient and place on the tape.

Assignments are noted where somebody asks (`Changes`), so that a block of code can be run again or taken back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from operator import setitem
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tenon.atomic import Store
from tenon.context_values import during
from tenon.dims.symbolic_dim import Dim, product
from tenon.graph.ir import Value
from tenon.types import DType, Shape

if TYPE_CHECKING:
    from tenon.eager.dispatch import TensorInterpreter
    from tenon.eager.tape import TapeNode
    from tenon.tensor import Tensor


class Examples:
    """The payload of a tensor inside `tn.vmap`: it shows one example, and holds all of them in `inner`."""

    __slots__ = ("inner",)

    def __init__(self, inner: Tensor):
        self.inner = inner          # the batch axis is the first

    @property
    def shape(self) -> Shape:
        """The sizes of the axes of one example."""
        return self.inner.shape[1:]

    @property
    def ndim(self) -> int:
        """The number of axes of one example."""
        return self.inner.ndim - 1

    @property
    def size(self) -> Dim:
        """The number of elements of one example."""
        return product(self.shape)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.inner.dtype

    def detached(self) -> Examples:
        """The same, cut off from what it was computed from."""
        raise NotImplementedError

    def needs_value(self, what: str) -> BaseException:
        """What is raised where Python code needs the elements of one example."""
        raise NotImplementedError

    @property
    def base(self) -> Any:
        """The interpreter around the outermost `tn.vmap` of the code that made the examples."""
        raise NotImplementedError


class Deferred:
    """The payload of a lazy tensor, whose elements are computed when somebody asks: in a function with graph breaks."""

    __slots__ = ("__weakref__", "array", "compute", "holders", "value")

    def __init__(self, value: Value, compute: Callable[[], None]):
        self.value, self.compute = value, compute       # the edge that stands for it, and what fills it
        self.array: np.ndarray | None = None
        self.holders: list[weakref.ref[TensorState]] = []

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.value.ndim

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return self.value.size

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.value.dtype

    def elements(self) -> np.ndarray:
        """The array, computed now if need be."""
        if self.array is None:
            self.compute()
        assert self.array is not None
        return self.array

    def for_state(self, state: TensorState) -> np.ndarray | Deferred:
        """What a state holds that takes this payload: the array, or this until there is one."""
        if self.array is not None:
            return self.array
        self.holders.append(weakref.ref(state))
        return self

    def fill(self, array: np.ndarray) -> Iterator[Store]:
        """The stores that let all tensors that wait for it hold the array."""
        yield setattr, self, "array", array
        for reference in self.holders:
            if (state := reference()) is not None and state.payload is self:
                yield setattr, state, "payload", array
        yield self.holders.clear,


class Elsewhere:
    """The payload of a tensor whose elements are no array of plain memory: they lie on another device, or in parts.

    Its element type is a `DType`, no dtype of NumPy, so that what is made for arrays leaves it alone.
    """

    __slots__ = ()
    shape: Shape
    dtype: DType

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    @property
    def device(self) -> str:
        """Where the elements are."""
        raise NotImplementedError

    @property
    def layout(self) -> Any:
        """How the elements are split over a mesh; None where they lie in one piece."""
        return None

    def with_elements(self, array: np.ndarray) -> Elsewhere:
        """The payload of other elements, split as these are."""
        raise NotImplementedError

    @property
    def is_here(self) -> bool:
        """Whether the elements can be read without asking another process."""
        return True

    @property
    def told(self) -> str:
        """What is written of it beside the elements."""
        return f"device={str(self.device)!r}"

    def elements(self) -> np.ndarray:
        """The elements in plain memory, which nobody changes."""
        raise NotImplementedError

    @property
    def interpreter(self) -> TensorInterpreter:
        """Who evaluates an operator that has such tensors among its inputs, this the first of them."""
        raise NotImplementedError


Payload = np.ndarray | Value | Examples | Deferred | Elsewhere


def in_memory(payload: Any) -> np.ndarray:
    """The elements of what an evaluated tensor holds, in plain memory."""
    return payload.elements() if isinstance(payload, Elsewhere) else payload


_last = object()        # change of a tensor, by other than the run of a compiled program


def last_change() -> object:
    """What tells changes apart: while it is the same object, the types and flags of all tensors are the same."""
    return _last


def changed() -> None:
    """Note a change of some tensor."""
    global _last
    _last = object()


def noted_change() -> Store:
    """The same, as one of several stores."""
    return setitem, globals(), "_last", object()


class TensorState:
    """All that can change about a tensor.  A state itself only gets the elements it waits for: a tensor given new
    elements, or a gradient, holds another one, and who kept the old one, as the tape does, sees what was."""

    __slots__ = ("__weakref__", "grad", "index", "node", "payload", "requires_grad")

    def __init__(self, payload: Payload, requires_grad: bool = False, grad: Tensor | None = None,
                 node: TapeNode | None = None, index: int = 0):
        self.payload = payload if type(payload) is not Deferred else payload.for_state(self)
        self.requires_grad = requires_grad
        self.grad = grad
        self.node = node        # the recorded call that made it
        self.index = index      # which of its outputs it is

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """What a pickle takes along: the elements, and not what they were computed from."""
        payload = self.payload.elements() if type(self.payload) is Deferred else self.payload
        return None, {"payload": payload, "requires_grad": self.requires_grad, "grad": self.grad, "node": None,
                      "index": 0}


Hook = Callable[[Any], Any]


class AfterAccumulation:
    """A hook of a leaf that is called when its gradient has been added to `grad`."""

    def __init__(self, hook: Hook):
        self.hook = hook


LeafHooks = dict[int, Hook | AfterAccumulation]
leaf_hooks: dict[int, LeafHooks] = {}     # by the identity of a leaf: what sees its gradient


def shown_to(hooks: LeafHooks, gradient: Any) -> Any:
    """A gradient as hooks leave it."""
    for hook in list(hooks.values()):
        if not isinstance(hook, AfterAccumulation):
            new = as_called(hook)(gradient)
            gradient = gradient if new is None else new
    return gradient


def accumulated(leaf: Any, there: Any = True) -> None:
    """Call the hooks that wait for the gradient of this leaf; a captured one may be `there` for some data alone."""
    late = [hook for hook in leaf_hooks.get(id(leaf), {}).values() if isinstance(hook, AfterAccumulation)]
    capture = recorder.get()
    if late and there is not True and capture is not None:
        raise capture.needs_value(leaf, "the hook of a gradient")
    for hook in late:
        as_called(hook.hook)(leaf)


def as_called(hook: Hook) -> Hook:
    """A hook as a capture in progress calls it."""
    capture = recorder.get()
    return hook if capture is None else capture.as_called(hook)


class Recorder(Protocol):
    """A capture in progress: tensors from outside show it a state of their own, so that they stay untouched."""

    def as_size(self, number: Any) -> Any:
        """A Python number that the graph computes, where a size is wanted."""

    def state_of(self, tensor: Tensor) -> TensorState:
        """The state of a tensor as the captured program sees it."""

    def hold(self, tensor: Tensor, state: TensorState) -> None:
        """Give a tensor another state, in the captured program."""

    def gradient(self, tensor: Tensor) -> Any:
        """The gradient of a tensor, which the captured program asks for."""

    def renew_gradient(self, tensor: Tensor) -> None:
        """The captured program is about to set the gradient of a tensor."""

    def constant(self, array: np.ndarray) -> Value:
        """The edge of the graph that holds this array."""

    def forked(self, payload: Payload) -> Payload:
        """The same elements for a tensor that takes another place on the tape."""

    def leaf(self, tensor: Tensor) -> Payload:
        """The elements of a tensor of the captured program at which gradients are to end."""

    def refuse_earlier(self, leaf: Tensor) -> None:
        """Stop a gradient that goes on through what was computed outside of the captured program."""

    def absent(self, tape: Any, end: Any) -> Any:
        """The leaves that a gradient of `end` reaches for some data only, and when."""

    def receive(self, leaf: Any, total: Any, there: Any) -> None:
        """Add a gradient to that of a leaf, where it is there."""

    def number(self, tensor: Any) -> Any:
        """The element of a captured tensor as a Python number of the graph; None where there are none."""

    def fail_if(self, condition: Any) -> None:
        """Let calls in which this bool of the graph holds run eagerly."""

    def device_of(self, payload: Any) -> Any:
        """The device where the elements of a tensor of the captured program will be."""

    def known(self, tensor: Any) -> np.ndarray | None:
        """The elements of a tensor that are at hand all the same."""

    def needs_value(self, tensor: Any, what: str) -> BaseException:
        """What is raised where Python code needs the elements of a captured tensor."""

    def place_of_hook(self, tensor: Any) -> Any:
        """Where the hook of a gradient is added, which `backward()` within the program may call."""

    def as_called(self, hook: Hook) -> Hook:
        """A function of the user's, with control flow on tensors where that is captured."""

    def note_hooks(self, leaf: Any, hooks: LeafHooks) -> None:
        """A backward pass within the program calls these hooks of a leaf."""

    def shown(self) -> str:
        """What a captured tensor is, for its text."""

    def differentiating(self, tape: Any) -> AbstractContextManager[None]:
        """The block that goes through a tape."""


recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


# ---------------------------------------------------------------- what a block changed

journal: ContextVar[list[tuple[Any, Any]] | None] = ContextVar("journal", default=None)   # by `Tensor._rebind`


def unnoted() -> AbstractContextManager[Any]:
    """A block that gives tensors new elements in a program, and not outside of it."""
    return during(journal, None)


class Changes:
    """The tensors that a block gave new elements, and what they held before it."""

    def __init__(self) -> None:
        self.before: list[tuple[Tensor, Any]] = []

    @contextmanager
    def noted(self) -> Iterator[Changes]:
        """Take note of what this block rebinds, among the tensors that outlive it."""
        noted: list[tuple[Any, Any]] = []
        outer = journal.get()
        token = journal.set(noted)
        try:
            yield self
        finally:
            journal.reset(token)
            if outer is not None:
                outer.extend(noted)
            self._journal = noted

    def settle(self) -> None:
        """Forget the tensors that are gone."""
        first: dict[int, tuple[Tensor, Any]] = {}
        self._journal = [row for row in self._journal if row[0]() is not None]
        for reference, held in self._journal:
            if (tensor := reference()) is not None:
                first.setdefault(id(tensor), (tensor, held))
        self.before = list(first.values())

    def restore(self) -> None:
        """Give the tensors back what they held."""
        for tensor, held in self.before:
            _hold(tensor, held)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """The state from before, in this block; what the block changes of it is undone too."""
        now = [(tensor.state.payload, tensor.state.node, tensor.state.index) for tensor, _ in self.before]
        try:
            self.restore()
            yield
        finally:
            for (tensor, _), held in zip(self.before, now, strict=True):
                _hold(tensor, held)


def _hold(tensor: Tensor, held: Any) -> None:
    state, (payload, node, index) = tensor.state, held
    tensor.hold(TensorState(payload, state.requires_grad, state.grad, node, index))
