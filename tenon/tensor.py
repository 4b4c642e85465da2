"""The tensor that users hold: a value with a shape, an element type and, where asked for, a gradient.

Its payload is a NumPy array (eager), or an edge of the graph being captured.  Tensors have value semantics: an
in-place operation rebinds this object's payload, so aliasing is Python's own object identity and nothing else.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from tenon.autodiff import Rule, backward, call
from tenon.backends.base import Executable
from tenon.dims import Dim, SymbolicDim, product
from tenon.dlpack import CPU, export, imported
from tenon.errors import (
    ADDRESSABLE,
    ArgumentError,
    CaptureError,
    DTypeError,
    GradientError,
    Location,
    ShapeError,
    TenonError,
    out_of_memory,
    step_error,
)
from tenon.graph.build import agree, canonical_attrs, literal
from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Graph, Literal, Value
from tenon.graph.kernels import kernel_for
from tenon.graph.op import Op, interpreter, set_default_interpreter
from tenon.graph.operators import Operators
from tenon.ops import shape as shape_ops
from tenon.ops.arithmetic import add
from tenon.ops.barrier import barrier
from tenon.ops.comparison import equal, not_equal
from tenon.ops.creation import ones_like
from tenon.ops.getitem import setitem
from tenon.types import DEFAULT_OF_KIND, DType, Shape, TensorType, as_dtype, check_device, float32, int64


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

    def needs_value(self, what: str) -> CaptureError:
        """The error for Python code that needs the elements of one example."""
        raise NotImplementedError


Payload = np.ndarray | Value | Examples
_recording: ContextVar[bool] = ContextVar("recording", default=True)
_journal: ContextVar[list[tuple[Any, Any]] | None] = ContextVar("journal", default=None)
_numbers = itertools.count()


_changes = 0        # how often a tensor has been changed by other than the run of a compiled program


def changes() -> int:
    """How many changes of tensors there have been: while it stays, so do the types and flags of all tensors."""
    return _changes


def changed() -> None:
    """Count a change of some tensor."""
    global _changes
    _changes += 1


class TensorState:
    """All that can change about a tensor."""

    __slots__ = ("grad", "index", "node", "payload", "requires_grad")

    def __init__(self, payload: Payload, requires_grad: bool = False, grad: Tensor | None = None):
        self.payload, self.requires_grad, self.grad = payload, requires_grad, grad
        self.node: TapeNode | None = None       # the recorded call that made it, and which of its outputs it is
        self.index = 0


class Recorder(Protocol):
    """A capture in progress: tensors from outside show it a state of their own, so that they stay untouched."""

    def state_of(self, tensor: Tensor) -> TensorState:
        """The state of an outside tensor as the captured program sees it."""

    def constant(self, array: np.ndarray) -> Value:
        """The edge of the graph that holds this array."""

    def needs_value(self, tensor: Tensor, what: str) -> CaptureError:
        """The error for Python code that needs the elements of a captured tensor."""


recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


class Tensor(Operators):
    """An array of elements of one type.

    Make one with `tn.tensor`, `tn.zeros` and the like.  `requires_grad=True` marks a leaf whose `.grad` is filled by
    `.backward()`.  `numpy()` gives the elements without a copy, and every operator is a method: `x.sum(axis=0)`.

    >>> x = tn.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([[2., 4.],
            [6., 8.]])
    """

    __slots__ = ("__weakref__", "own")

    def __init__(self, payload: Payload, requires_grad: bool = False):
        if isinstance(payload, np.ndarray) and (capture := recorder.get()) is not None:
            payload = capture.constant(payload)
        self.own = TensorState(payload, requires_grad)

    # ------------------------------------------------------------ what it is

    @property
    def state(self) -> TensorState:
        """What can change about this tensor, as the running code sees it."""
        own, capture = self.own, recorder.get()
        return capture.state_of(self) if capture is not None and isinstance(own.payload, np.ndarray) else own

    @property
    def payload(self) -> Payload:
        """The array, or the edge of the graph being captured."""
        return self.state.payload

    @property
    def node(self) -> TapeNode | None:
        """The recorded operator call that made this tensor."""
        return self.state.node

    @property
    def dtype(self) -> DType:
        """The element type."""
        dtype = self.payload.dtype
        return dtype if isinstance(dtype, DType) else as_dtype(dtype)

    @property
    def shape(self) -> Shape:
        """The sizes of the axes."""
        return self.payload.shape

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        return TensorType(self.dtype, self.payload.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.payload.ndim

    @property
    def size(self) -> Dim:
        """The number of elements."""
        return self.payload.size

    @property
    def device(self) -> str:
        """Where the elements are: "cpu"."""
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """This tensor on a device; there is one, and no streams."""
        check_device(device)
        if stream is not None:
            raise ArgumentError("to_device: the CPU has no streams")
        return self

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module whose functions take this tensor, as the Array API standard asks: tenon."""
        return sys.modules["tenon"]

    @property
    def T(self) -> Tensor:
        """The axes reversed."""
        reversed_axes: Tensor = shape_ops.permute(self, axes=tuple(reversed(range(self.ndim))))
        return reversed_axes

    @property
    def mT(self) -> Tensor:
        """The last two axes swapped."""
        if self.ndim < 2:
            raise ShapeError(f"mT needs at least two axes, this tensor is {self.type}")
        swapped: Tensor = shape_ops.permute(self, axes=(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))
        return swapped

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("a scalar tensor has no length")
        return self.shape[0]  # type: ignore[return-value]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    # ------------------------------------------------------------ values

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array, without a copy; read-only, since tensors have value semantics."""
        array = self._concrete("numpy()").view()
        array.flags.writeable = False
        return array

    def item(self) -> Any:
        """The one element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item() needs exactly one element, this tensor is {self.type}")
        return self._concrete("item()").item()

    def tolist(self) -> Any:
        """The elements as nested Python lists."""
        return self._concrete("tolist()").tolist()

    def _concrete(self, what: str) -> np.ndarray:
        payload = self.payload
        if isinstance(payload, np.ndarray):
            return payload
        if isinstance(payload, Examples):
            raise payload.needs_value(what)
        capture = recorder.get()
        if capture is None:
            raise CaptureError(f"{what} of a tensor that belongs to a capture that has ended")
        raise capture.needs_value(self, what)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._concrete("conversion to NumPy")
        converted = array.astype(dtype) if dtype is not None and dtype != array.dtype else array
        return converted.copy() if copy and converted is array else converted

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """The elements as a DLPack capsule, shared where the strides allow it; read-only for those who can be told."""
        if self.requires_grad:
            raise GradientError("DLPack export of a tensor that requires a gradient", hint="x.detach() lets go of it")
        return export(self._concrete("DLPack export"), stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentError(f"the truth of a tensor with shape {list(self.shape)} is ambiguous",
                                hint="use .any() or .all()")
        return bool(self._concrete("a Python condition").item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "bui" or self.ndim:
            raise DTypeError(f"only an integer scalar can be an index, this tensor is {self.type}")
        return int(self.item())

    def __repr__(self) -> str:
        if not isinstance(self.payload, np.ndarray):
            return f"tensor(<{'captured' if isinstance(self.payload, Value) else 'one of a batch'} {self.type}>)"
        body = np.array2string(self.payload, separator=", ", prefix="tensor(", threshold=100, edgeitems=3, precision=4)
        usual = (DEFAULT_OF_KIND[self.dtype.kind], int64)
        notes = [] if self.dtype in usual else [f"dtype={self.dtype.name}"]
        if 0 in self.shape:
            notes.append(f"shape={self.shape}")
        if self.requires_grad:
            notes.append("requires_grad=True")
        return f"tensor({', '.join([body, *notes])})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else str(self)

    def __eq__(self, other: object) -> Any:
        return equal(self, other)

    def __ne__(self, other: object) -> Any:
        return not_equal(self, other)

    __hash__ = Operators.__hash__

    # ------------------------------------------------------------ gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return self.state.requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if flag and not self.dtype.is_differentiable:
            raise DTypeError(f"only floating and complex tensors have gradients, this one is {self.dtype.name}")
        self.state.requires_grad = flag
        changed()

    def requires_grad_(self, flag: bool = True) -> Tensor:
        """Set `requires_grad`; returns this tensor."""
        self.requires_grad = flag
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `.backward()` accumulated here, or None."""
        return self.state.grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and value.shape != self.shape:
            raise ShapeError(f"the gradient of a tensor {self.type} was set to {value.type}")
        self.state.grad = value
        changed()

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was made by the user, not by an operator that recorded itself."""
        return self.node is None

    @property
    def slot(self) -> Any:
        """What a gradient is accumulated under."""
        state = self.state
        return self if state.node is None else (state.node, state.index)

    def detach(self) -> Tensor:
        """The same elements, cut off from what they were computed from."""
        payload = self.payload
        return Tensor(payload.detached() if isinstance(payload, Examples) else payload)

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Add the gradient of this scalar to `.grad` of every leaf that requires one.

        `gradient` seeds a tensor that is no scalar; `create_graph` records the computation, for higher derivatives;
        without `retain_graph` (default: `create_graph`) the tape is released, and a second backward is an error.
        Raises GradientError when nothing requires a gradient, or the shape is not () and no seed is given.
        """
        if not self.requires_grad:
            raise GradientError("backward() on a tensor that depends on nothing with requires_grad=True",
                                hint="pass requires_grad=True where the parameters are made")
        if gradient is None and self.shape != ():
            raise GradientError(f"backward() needs a scalar, this tensor is {self.type}",
                                hint="reduce it first, as in loss.mean().backward(), or pass gradient=")
        with recording_is(create_graph):
            seed = ones_like(self) if gradient is None else interpreter().lift(gradient)
            if seed.shape != self.shape:
                raise ShapeError(f"backward(): the seed {seed.type} does not have the shape of {self.type}")
            tape = tape_of([self])
            gradients = backward(tape, {self.slot: seed}, _carries_gradient)
            for leaf, total in gradients.items():
                if isinstance(leaf, Tensor) and leaf.requires_grad:
                    if isinstance(total.payload, Examples) and not isinstance(leaf.payload, Examples):
                        raise GradientError("backward() inside tn.vmap reaches a tensor that all examples share",
                                            hint="use tn.grad inside tn.vmap, or backward() outside")
                    leaf.grad = total if leaf.grad is None else add(leaf.grad, total)
        if not (create_graph if retain_graph is None else retain_graph):
            for node in tape:
                node.release()

    # ------------------------------------------------------------ in place

    def assign(self, value: Any) -> Tensor:
        """Rebind this tensor to new elements of the same type and shape; returns it.

        Other tensors computed from the old elements keep theirs.
        """
        new = interpreter().lift(value)
        new = new if isinstance(new, Tensor) else tensor(new, dtype=self.dtype)
        if new.shape != self.shape:
            raise ShapeError(f"assign: a tensor {self.type} was given {new.type}")
        if new.dtype is not self.dtype:
            new = shape_ops.cast(new, dtype=self.dtype)
        self._rebind(new)
        return self

    def _rebind(self, new: Tensor) -> None:
        old, state = self.state, new.state
        if (journal := _journal.get()) is not None:
            journal.append((weakref.ref(self), (old.payload, old.node, old.index)))
        old.payload, old.node, old.index = state.payload, state.node, state.index
        changed()
        old.requires_grad = old.requires_grad or state.requires_grad

    def __setitem__(self, key: Any, value: Any) -> None:
        """Rebind this tensor to a copy with `self[key]` replaced by `value`, which broadcasts."""
        self._refuse_leaf("x[key] = value")
        self._rebind(setitem(self, key, value))

    def _refuse_leaf(self, what: str) -> None:
        if self.requires_grad and self.node is None and _recording.get():
            raise GradientError(f"a leaf that requires a gradient was changed in place ({what})",
                                hint="do it under tn.no_grad(), or write x = x + y")


def _in_place(name: str) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        self._refuse_leaf(name)
        new = getattr(self, name.replace("__i", "__", 1))(other)
        if new.shape != self.shape or new.dtype is not self.dtype:
            raise ShapeError(f"in-place operation would change {self.type} to {new.type}")
        self._rebind(new)
        return self
    method.__name__ = name
    return method


for _name in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
              "__imatmul__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"):
    setattr(Tensor, _name, _in_place(_name))


# ---------------------------------------------------------------- the tape

class TapeNode:
    """One recorded operator call.  Holds output payloads, not tensors, so that a tape is free of cycles."""

    __slots__ = ("attrs", "inputs", "loc", "number", "op", "payloads", "released", "root")

    def __init__(self, op: Rule, inputs: tuple[Any, ...], attrs: Mapping[str, Any], payloads: tuple[Payload, ...]):
        self.op, self.inputs, self.attrs, self.payloads = op, inputs, attrs, payloads
        self.number = next(_numbers)
        self.loc: Location | None = None
        self.released = False
        self.root: Any = None       # what `_root` found last

    def release(self) -> None:
        """Let go of inputs and outputs; the node cannot be differentiated any more."""
        self.inputs, self.payloads, self.released, self.root = (), (), True, None

    @property
    def slots(self) -> tuple[Any, ...]:
        """What the gradients of the outputs are accumulated under."""
        return tuple((self, k) for k in range(len(self.payloads)))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The output tensors, linked to this node."""
        return tuple(linked(payload, self, k) for k, payload in enumerate(self.payloads))


def linked(payload: Payload, node: TapeNode, index: int) -> Tensor:
    """Output `index` of a recorded call."""
    out = Tensor(payload, as_dtype(payload.dtype).is_differentiable)
    out.own.node, out.own.index = node, index
    return out


class Saved(Tensor):
    """A tensor as an operator call saw it: in-place operations that follow do not reach the tape."""

    __slots__ = ("_slot",)

    def __init__(self, x: Tensor):
        state = x.state
        self.own = TensorState(state.payload, state.requires_grad)
        self.own.node, self.own.index = state.node, state.index
        self._slot = x.slot

    @property
    def slot(self) -> Any:
        """What a gradient is accumulated under: the tensor that was saved, where it is a leaf."""
        return self._slot


def _saved(x: Any) -> Any:
    return Saved(x) if isinstance(x, Tensor) else x


class Changes:
    """The tensors that a block gave new elements, and what they held before it."""

    def __init__(self) -> None:
        self.before: list[tuple[Tensor, Any]] = []

    @contextmanager
    def noted(self) -> Iterator[Changes]:
        """Take note of what this block rebinds, among the tensors that outlive it."""
        journal: list[tuple[Any, Any]] = []
        outer = _journal.get()
        token = _journal.set(journal)
        try:
            yield self
        finally:
            _journal.reset(token)
            if outer is not None:
                outer.extend(journal)
            self._journal = journal

    def settle(self) -> None:
        """Forget the tensors that are gone."""
        first: dict[int, tuple[Tensor, Any]] = {}
        for reference, held in self._journal:
            if (tensor := reference()) is not None:
                first.setdefault(id(tensor), (tensor, held))
        self.before, self._journal = list(first.values()), []

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
    state = tensor.state
    state.payload, state.node, state.index = held
    changed()


class Fork(TapeNode):
    """Where a tensor gets a place of its own on the tape, so that gradients are accumulated there and not in it."""

    __slots__ = ("active",)

    def __init__(self, x: Tensor):
        super().__init__(barrier, (Saved(x),), {}, (x.payload,))
        self.active = True      # until the function that is differentiated has returned


def fork(x: Tensor) -> Tensor:
    """A tensor of the same elements with its own place on the tape, linked to `x`.

    What is differentiated with respect to the fork can be differentiated again with respect to `x`.
    """
    return linked(x.payload, Fork(x), 0)


def carries(x: Tensor) -> bool:
    """Whether somebody may still want a gradient that flows to this tensor: a leaf, or an active fork."""
    if x.requires_grad:
        return x.node is None or _root(x.node) is not None
    return isinstance(x.payload, Examples) and carries(x.payload.inner)


def _root(start: TapeNode) -> Any:
    """A leaf or active fork that `start` depends on; None if there is none any more.  Remembered along the way."""
    above: dict[TapeNode, TapeNode | None] = {start: None}
    pending, root = [start], None
    while pending and root is None:
        node: TapeNode | None = pending.pop()
        assert node is not None
        known = node.root
        if known is not None and (known is not DEAD) and not (isinstance(known, Fork) and not known.active):
            root = known
        elif isinstance(node, Fork) and node.active:
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


def tape_of(tensors: Sequence[Tensor]) -> list[TapeNode]:
    """The recorded nodes that these tensors were computed by, in the order they ran."""
    found: set[TapeNode] = set()
    pending = [t.node for t in tensors if t.node is not None]
    while pending:
        node = pending.pop()
        if node.released:
            raise GradientError("backward() a second time through a tape that the first one released",
                                hint="pass retain_graph=True to the first backward()")
        if node not in found:
            found.add(node)
            pending.extend(x.node for x in node.inputs if isinstance(x, Tensor) and x.node is not None)
    return sorted(found, key=lambda node: node.number)


def _carries_gradient(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


RELEASED = TapeNode(call, (), {}, ())        # where a tensor comes from whose tape is gone
RELEASED.release()


@contextmanager
def recording_is(flag: bool) -> Iterator[None]:
    token = _recording.set(flag)
    try:
        yield
    finally:
        _recording.reset(token)


def no_grad() -> Any:
    """A context (or decorator) in which operators do not record themselves for `backward`."""
    return recording_is(False)


def enable_grad() -> Any:
    """A context (or decorator) in which operators record themselves again, inside `no_grad`."""
    return recording_is(True)


def is_grad_enabled() -> bool:
    """Whether operators record themselves for `backward` here."""
    return _recording.get()


# ---------------------------------------------------------------- what an operator call means

class TensorInterpreter:
    """An operator call on tensors: evaluate it, and record it on the tape where a gradient may be wanted."""

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """The output payloads of inputs that are Tensors, Literals or None, of agreed types."""
        raise NotImplementedError

    def lift(self, x: Any) -> Any:
        """Arrays become tensors; numbers, literals and None stay."""
        if x is None or isinstance(x, (Tensor, Literal, SymbolicDim, bool, int, float, complex)):
            return x
        if isinstance(x, (np.ndarray, np.generic)):
            return tensor(x)
        raise DTypeError(f"expected a tensor, an array or a number, not {type(x).__name__}")

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The output tensors of `op`."""
        lifted = tuple(map(self.lift, inputs))
        record = _recording.get() and any(isinstance(x, Tensor) and x.requires_grad for x in lifted)
        pairs = agree(op, lifted)
        if op.expand is not None and (op.vjp is None if record else self.opens(op)):
            types = tuple(None if x is None or d is None else TensorType(d, x.shape if isinstance(x, Tensor) else ())
                          for x, d in pairs)
            agreed = tuple(self.cast(x, d) for x, d in pairs) if op.promote else lifted
            return op.expand(*agreed, **canonical_attrs(op, types, attrs))
        agreed = tuple(self.cast(x, d) for x, d in pairs)
        types = tuple(None if x is None else x.type for x in agreed)
        canonical = canonical_attrs(op, types, attrs)
        payloads = self.evaluate(op, agreed, canonical)
        node = TapeNode(op, tuple(map(_saved, agreed)), canonical, payloads) if record else None
        outputs = tuple(linked(p, node, k) if node else Tensor(p) for k, p in enumerate(payloads))
        return outputs if len(outputs) > 1 else outputs[0]

    def opens(self, op: Op) -> bool:
        """Whether a composite is run by its definition where no gradient is recorded."""
        return True

    def cast(self, x: Any, dtype: DType | None) -> Any:
        """`x` as a Tensor or Literal of this type."""
        if x is None or dtype is None:
            return None
        if isinstance(x, Tensor):
            return x if x.dtype is dtype else shape_ops.cast(x, dtype=dtype)
        if isinstance(x, SymbolicDim):
            return shape_ops.dimension(size=x, dtype=dtype)
        return literal(x.value if isinstance(x, Literal) else x, dtype)


class Eager(TensorInterpreter):
    """Evaluate at once on NumPy arrays."""

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        arrays: list[Any] = [None if x is None else np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal)
                  else x._concrete(op.name) for x in inputs]
        if op is call:
            return tuple(program_of(attrs["body"]).run(arrays))
        given = [None if x is None else x.type for x in inputs]
        inferred = op.type(*given, **attrs)
        types = inferred if isinstance(inferred, tuple) else (inferred,)
        try:
            return evaluate_op(op, arrays, attrs, types, kernel_for(op, given, attrs))
        except TenonError:
            raise
        except Exception as error:
            if (too_large := _too_large(op, types, error)) is not None:
                raise too_large from None
            raise step_error(error, op.name) from error


def _too_large(op: Op, types: Sequence[TensorType], error: Exception) -> TenonError | None:
    """The error of an output that does not fit memory, when that is what NumPy says."""
    if not isinstance(error, (MemoryError, ValueError)):
        return None
    largest = max(types, key=lambda type: int(type.size))
    needed = int(largest.size) * largest.dtype.itemsize
    no_memory = isinstance(error, MemoryError) or needed > ADDRESSABLE
    return out_of_memory(op.name, largest, needed) if no_memory else None


@lru_cache(maxsize=1024)
def program_of(graph: Graph) -> Executable:
    """The compiled form of a graph, made once."""
    from tenon.pipeline import compile  # local: the compiler is loaded when something is first compiled

    return compile(graph)


eager = Eager()
set_default_interpreter(eager)


# ---------------------------------------------------------------- making tensors

def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of this data (a number, nested lists, an array, another tensor), copied.

    Python floats become float32 and integers int64 unless `dtype` is given; arrays keep their type.

    >>> tn.tensor([1, 2, 3])
    tensor([1, 2, 3])
    """
    return asarray(data, dtype=dtype, copy=True).requires_grad_(requires_grad)


def asarray(data: Any, dtype: Any = None, copy: bool | None = None, *, device: Any = None) -> Tensor:
    """A tensor that shares the array's memory where it can (`copy=False` insists on it).

    >>> tn.asarray(np.ones(2, np.float32))
    tensor([1., 1.])
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, Tensor) and not isinstance(data.payload, np.ndarray):
        return data if wanted is None or wanted is data.dtype else shape_ops.cast(data, dtype=wanted)
    array = _as_array(data, wanted)
    shares = isinstance(data, (np.ndarray, Tensor)) and np.shares_memory(array, np.asarray(data))
    if copy is False and not shares and array.size:
        raise ArgumentError("asarray(copy=False): this data cannot be shared without a copy")
    return Tensor(array.copy() if copy and shares else array)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of an array of another library that speaks DLPack, without a copy where that is possible.

    Later changes of a shared array are seen by the tensor; `copy=True` avoids that.

    >>> tn.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    check_device(device)
    return Tensor(imported(x, copy))


def _as_array(data: Any, dtype: DType | None) -> np.ndarray:
    if isinstance(data, Tensor):
        data = data._concrete("asarray")
    if isinstance(data, (list, tuple)):
        data = _nested(data)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeError(f"the nested lists are ragged: {error}") from None
    if array.dtype == object or array.dtype.kind in "USMmO":
        large = next((x for x in array.flat if isinstance(x, int)), None) if array.dtype == object else None
        raise DTypeError(f"tensor: the integer {large} does not fit 64 bits" if large is not None else
                         f"tensor: {type(data).__name__} with elements of type {array.dtype} makes no tensor",
                         hint="tensors are made of numbers, of nested lists of numbers, and of arrays")
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        dtype = {"f": float32, "c": as_dtype("complex64")}.get(array.dtype.kind)
    array = array if dtype is None or array.dtype == dtype.numpy else array.astype(dtype.numpy)
    as_dtype(array.dtype)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _nested(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_nested(x) for x in data]
    return data._concrete("tensor()") if isinstance(data, Tensor) else data


