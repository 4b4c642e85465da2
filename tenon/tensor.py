"""The tensor that users hold: a value with a shape, an element type and, where asked for, a gradient.

Its payload is a NumPy array (eager), or an edge of the graph being captured.  Tensors have value semantics: an
in-place operation rebinds this object's payload, so aliasing is Python's own object identity and nothing else.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from sys import _getframe, getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.array_conversion import array_of, as_numpy, copied, has_tensors, tensor_of_list
from tenon.autodiff import backward
from tenon.buffer_ownership import adopted
from tenon.devices import HOST, among, check_device, placing
from tenon.dims.element_count import size_of
from tenon.dims.symbolic_dim import length_of
from tenon.dlpack import imported
from tenon.eager.grad_mode import differentiating, is_grad_enabled, refusing_nan
from tenon.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from tenon.graph.op import interpreter
from tenon.ops import shape as shape_ops
from tenon.ops.arithmetic import add
from tenon.ops.arithmetic import copy as copy_elements
from tenon.ops.comparison import equal, not_equal
from tenon.ops.creation import ones_like
from tenon.ops.getitem import setitem
from tenon.ops.placing import on_device
from tenon.slice_stores import lost_change, store_slice
from tenon.tensor_state import (
    Elsewhere,
    Examples,
    Payload,
    TensorState,
    accumulated,
    changed,
    in_memory,
    journal,
    leaf_hooks,
    recorder,
    shown_to,
)
from tenon.tensor_views import TensorViews
from tenon.types import DEFAULT_OF_KIND, DTYPE_OF, DType, TensorType, as_dtype
from tenon.unpacked_rows import warn_of_rows

if TYPE_CHECKING:
    from tenon.eager.tape import TapeNode

recording_capture = recorder.get
COPIED = (list, tuple, bool, int, float, complex, np.generic)     # which no array shares memory with


class Tensor(TensorViews):
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
    weak: type | None = None    # the kind of a Python number that the graph computes: it does not decide types

    def __init__(self, payload: Any, requires_grad: bool = False, *sizes: int):
        if isinstance(payload, np.ndarray) and (capture := recorder.get()) is not None:
            payload = capture.constant(payload)
        elif isinstance(payload, (list, tuple, bool, int, float, TensorViews)):
            payload, requires_grad = _payload_of(payload, requires_grad, sizes), requires_grad is True
        self.own = TensorState(payload, requires_grad)

    # ------------------------------------------------------------ what it is

    @property
    def state(self) -> TensorState:
        """What can change about this tensor, as the running code sees it."""
        capture = recording_capture()
        return self.own if capture is None else capture.state_of(self)

    def hold(self, state: TensorState) -> None:
        """Give this tensor another state, as far as the running code sees it."""
        capture = recording_capture()
        if capture is None:
            self.own = state
        else:
            capture.hold(self, state)
        changed()

    @property
    def payload(self) -> Payload:
        """The array, or the edge of the graph being captured."""
        return (self.own if (capture := recording_capture()) is None else capture.state_of(self)).payload

    @property
    def node(self) -> TapeNode | None:
        """The recorded operator call that made this tensor."""
        return (self.own if (capture := recording_capture()) is None else capture.state_of(self)).node

    @property
    def dtype(self) -> DType:
        """The element type."""
        dtype: Any = (self.own if (capture := recording_capture()) is None else capture.state_of(self)).payload.dtype
        return dtype if type(dtype) is DType else DTYPE_OF.get(dtype) or as_dtype(dtype)

    @property
    def shape(self) -> tuple[Any, ...]:     # of type checkers' numbers: only a capture sees symbols among them
        """The sizes of the axes."""
        return (self.own if (capture := recording_capture()) is None else capture.state_of(self)).payload.shape

    @property
    def type(self) -> TensorType:
        """Element type and shape; it may be called, as PyTorch's `x.type(dtype)`."""
        found = TensorType(self.dtype, self.payload.shape)
        if not _getframe(1).f_globals.get("__name__", "").startswith("tenon."):
            found.__dict__["of"] = self         # for the user's code alone: types that Tenon keeps hold no tensors
        return found

    def is_like(self, other: Any) -> bool:
        """Whether the other tensor has the same shape and element type."""
        if recording_capture() is None:
            a, b = self.own.payload, other.own.payload
            if type(a) is type(b) is np.ndarray:
                return a.dtype is b.dtype and a.shape == b.shape
        return super().is_like(other)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return (self.own if (capture := recording_capture()) is None else capture.state_of(self)).payload.ndim

    @property
    def size(self) -> Any:
        """The number of elements; `x.size()` and `x.size(0)` are the shape and the size of an axis, as in PyTorch."""
        return size_of(self.payload.shape)

    @property
    def device(self) -> Any:
        """Where the elements are: the name of a device, as `tn.device` makes it."""
        payload = self.payload
        if type(payload) is np.ndarray:
            return HOST
        if isinstance(payload, Examples):
            return payload.inner.device
        if isinstance(payload, Elsewhere):
            return payload.device
        capture = recording_capture()
        return HOST if capture is None else capture.device_of(payload)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
        """This tensor on a device, by the name that the Array API standard has for it; there are no streams."""
        if stream is not None:
            raise ArgumentError("to_device: the CPU has no streams")
        there: Tensor = on_device(self, device)
        return there

    def to(self, *given: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
           memory_format: Any = None) -> Tensor:
        """This tensor in another element type, on a device, or both, or as another tensor is.

        `non_blocking` and `memory_format` mean nothing here.

        Raises ArgumentError for what is neither a type nor a device.

        >>> tn.ones(2).to("cpu", tn.float16)
        tensor([1., 1.], dtype=float16)
        """
        wanted, where = among(*told(given), dtype, device)
        converted: Tensor = self if wanted is None or wanted is self.dtype else self.astype(wanted)
        converted = copy_elements(self) if copy and converted is self else converted
        return converted if where is None else converted.to_device(where)

    def cpu(self) -> Tensor:
        """This tensor on the first device."""
        return self.to_device(HOST)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module whose functions take this tensor, as the Array API standard asks: tenon."""
        return sys.modules["tenon"]

    @property
    def T(self) -> Tensor:
        """The axes reversed."""
        reversed_axes: Tensor = self.permute(_reversed_axes(self.ndim))
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
        return length_of(self.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        warn_of_rows(sys._getframe(1))
        return (self[k] for k in range(len(self)))

    def __eq__(self, other: object) -> Any:
        return NotImplemented if other is None or type(other) is str else equal(self, other)    # False

    def __ne__(self, other: object) -> Any:
        return NotImplemented if other is None or type(other) is str else not_equal(self, other)    # True

    __hash__ = TensorViews.__hash__

    def __copy__(self) -> Tensor:
        new = _new(type(self))
        new.own = self.state
        if hasattr(self, "__dict__"):       # of a subclass
            new.__dict__.update(vars(self))
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        new = memo[id(self)] = _new(type(self))
        state, payload = self.state, copy_elements(self.detach()).payload
        new.own = TensorState(payload, state.requires_grad, deepcopy(self.grad, memo), state.node, state.index)
        if hasattr(self, "__dict__"):
            new.__dict__.update(deepcopy(vars(self), memo))
        return new

    # ------------------------------------------------------------ gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        return (self.own if (capture := recording_capture()) is None else capture.state_of(self)).requires_grad

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if flag and not self.dtype.is_differentiable:
            raise DTypeError(f"only floating and complex tensors have gradients, this one is {self.dtype.name}")
        state, capture = self.state, recording_capture()
        payload = state.payload if capture is None or state.requires_grad or not flag else capture.leaf(self)
        self.hold(TensorState(payload, flag, state.grad, state.node, state.index))

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad`; returns this tensor."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that `.backward()` accumulated here, or None."""
        return self.own.grad if (capture := recording_capture()) is None else capture.gradient(self)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and value.shape != self.shape:
            raise ShapeError(f"the gradient of a tensor {self.type} was set to {value.type}")
        if value is not None and value.device != self.device:
            raise DeviceError(f"the gradient of a tensor on {self.device} was set to one on {value.device}",
                              hint=f'.to("{self.device}") is the same tensor there')
        if (capture := recording_capture()) is not None:
            capture.renew_gradient(self)
        state = self.state
        self.hold(TensorState(state.payload, state.requires_grad, value, state.node, state.index))

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

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
                 inputs: Any = None) -> None:
        """Add the gradient of this one element to `.grad` of every leaf that requires one, or of `inputs` alone.

        `gradient` seeds a tensor that is no scalar; `create_graph` records the computation, for higher derivatives;
        without `retain_graph` (default: `create_graph`) the tape is released, and a second backward is an error.
        Raises GradientError when nothing requires a gradient, or there are more elements and no seed is given.
        """
        if not self.requires_grad:
            raise GradientError("backward() on a tensor that depends on nothing with requires_grad=True",
                                hint="pass requires_grad=True where the parameters are made")
        if gradient is None and any(n != 1 for n in self.shape):
            raise GradientError(f"backward() needs a scalar, this tensor is {self.type}",
                                hint="reduce it first, as in loss.mean().backward(), or pass gradient=")
        with differentiating(create_graph):
            seed = ones_like(self) if gradient is None else interpreter().lift(gradient)
            if seed.shape != self.shape:
                raise ShapeError(f"backward(): the seed {seed.type} does not have the shape of {self.type}")
            wanted = None if inputs is None else set(map(id, [inputs] if isinstance(inputs, Tensor) else inputs))
            tape = [] if self.node is None else self.node.tape()
            capture = recorder.get()
            with nullcontext() if capture is None else capture.differentiating(tape):
                plainly = None if self.node is None or create_graph else self.node.gradients(tape, self, seed)
                gradients = plainly or backward(tape, {self.slot: seed}, _carries_gradient)
                if refusing_nan.get() and capture is None:
                    _refuse_nan(gradients.values())
                absent = {} if capture is None else capture.absent(tape, self.slot)
                for leaf, total in gradients.items():
                    if isinstance(leaf, Tensor) and leaf.requires_grad and (wanted is None or id(leaf) in wanted):
                        _add_gradient(leaf, total, absent.get(leaf, True))
        if tape and not (create_graph if retain_graph is None else retain_graph):
            tape[0].release_all(tape)

    # ------------------------------------------------------------ in place

    def assign(self, value: Any) -> Tensor:
        """Rebind this tensor to new elements of the same type and shape; returns it.

        Other tensors computed from the old elements keep theirs.
        """
        if type(value) is Tensor and self.is_like(value) and (
                type(self.own.payload) is type(value.own.payload) is np.ndarray or not self._is_apart(value)):
            self._rebind(value)
            return self
        new = interpreter().lift(value)
        new = new if is_tensor(new) else tensor(new, dtype=self.dtype)
        if new.shape != self.shape:
            raise ShapeError(f"assign: a tensor {self.type} was given {new.type}")
        if new.dtype is not self.dtype:
            new = shape_ops.cast(new, dtype=self.dtype)
        self._rebind(self._brought(new))
        return self

    def _is_apart(self, other: Tensor) -> bool:
        """Whether another tensor lies on another device, or is split over a mesh in another way."""
        return bool(self.device is not other.device or self._layout != other._layout)

    @property
    def _layout(self) -> Any:
        """How the elements are split over a mesh; None where they are not, and while a function is captured."""
        payload = self.payload
        return payload.layout if isinstance(payload, Elsewhere) else None

    def _brought(self, new: Tensor) -> Tensor:
        """Another tensor where this one is: on its device, or in parts as it is."""
        if not self._is_apart(new):
            return new
        if self._layout == new._layout or recording_capture() is not None:
            return new.to_device(self.device)
        elements, payload = in_memory(new.payload), self.payload
        return Tensor(payload.with_elements(elements) if isinstance(payload, Elsewhere) else elements)

    def _rebind(self, new: Tensor) -> None:
        capture = recording_capture()
        old, state = (self.own, new.own) if capture is None else (self.state, new.state)
        if (noted := journal.get()) is not None:
            noted.append((weakref.ref(self), (old.payload, old.node, old.index)))
        # What was computed, and is replaced whole by what needs no gradient, is no leaf for that.
        stays = old.requires_grad and (old.node is None or not is_grad_enabled())
        requires_grad = stays or state.requires_grad
        past = old if stays and state.node is None else state       # a change that is not recorded cuts nothing
        held = TensorState(state.payload, requires_grad, old.grad, past.node, past.index)
        if capture is None:
            self.own = held
            self._leave_tape(old, state.node)
            changed()
        else:
            self.hold(held)

    def _written(self, what: str, new: Tensor) -> Tensor:
        """This tensor rebound to new elements; raises ShapeError for another shape, or another kind of numbers."""
        if new.shape != self.shape or (new.dtype is not self.dtype and new.dtype.kind != self.dtype.kind):
            raise ShapeError(f"{what} would change {self.type} to {new.type}", hint="write x = x.add(y), and so on")
        self._rebind(new if new.dtype is self.dtype else new.astype(self.dtype))
        return self

    def _leave_tape(self, old: TensorState, node: TapeNode | None) -> None:
        """Let what computed the new value hold the old one without this tensor: a cycle would keep both."""
        if node is None or old.node is not None or old.requires_grad:
            return
        for x in node.inputs:
            if getattr(x, "leaf", None) is self:
                x.leaf = _new(Tensor)
                x.leaf.own = old

    def __setitem__(self, key: Any, value: Any) -> None:
        """Rebind this tensor to a copy with `self[key]` replaced by `value`, which broadcasts."""
        is_nobodys = getrefcount(self) <= NOBODYS and type(self) is Tensor
        self._refuse_leaf("x[key] = value")
        self._rebind(setitem(self, key, value))
        if is_nobodys and not store_slice(sys._getframe(1), self):
            raise lost_change()

    def _renew(self) -> None:
        """Before a change in place: hold the elements that are to be changed; `x.data` has those that x has by now."""

    def _refuse_leaf(self, what: str) -> None:
        if self.requires_grad and self.node is None and is_grad_enabled():
            raise GradientError(f"a leaf that requires a gradient was changed in place ({what})",
                                hint="do it under tn.no_grad(), or write x = x + y")


class _Counted:
    """Notes how many references an object has where an item of it is assigned."""

    def __setitem__(self, key: Any, counts: list[int]) -> None:
        counts.append(getrefcount(self))


def _references_of_a_temporary() -> int:
    """How many references `x[i][j] = value` shows of `x[i]`, where it can be told from a name's; else 0."""
    counts: list[int] = []
    held = _Counted()
    _Counted()[0] = counts
    held[0] = counts
    return counts[0] if counts[0] < counts[1] else 0


NOBODYS = _references_of_a_temporary()


def _refuse_nan(gradients: Iterable[Any]) -> None:
    wrong = next((g for g in gradients if g.dtype.is_differentiable and np.isnan(g.detach().numpy()).any()), None)
    if wrong is not None:
        raise GradientError(f"backward(): a gradient {wrong.type} has NaN among its elements",
                            hint="with tn.debug.check(step): step(x) names the operator that gave it")


def _payload_of(data: Any, requires_grad: Any, sizes: tuple[int, ...]) -> Payload:
    """Of `Tensor([1.0, 2.0])`, or of `Tensor(2, 3)`, which are sizes: what PyTorch makes of them, in float32."""
    if type(data) is int:
        more = (requires_grad, *sizes) if type(requires_grad) is int else ()
        return tensor(np.zeros((data, *more), np.float32)).payload
    return tensor(data, dtype=DEFAULT_OF_KIND["f"]).payload


@cache
def _reversed_axes(ndim: int) -> tuple[int, ...]:
    return tuple(reversed(range(ndim)))


def fresh(array: np.ndarray) -> Tensor:
    """A tensor of an array, outside of any capture: what `Tensor(array)` is there, in half the time."""
    tensor = _new(Tensor)
    tensor.own = TensorState(array)
    return tensor


_new: Callable[[type[Tensor]], Tensor] = object.__new__


def _in_place(name: str) -> Callable[[Tensor, Any], Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        self._refuse_leaf(name)
        self._renew()
        return self._written("an operation in place", getattr(self, name.replace("__i", "__", 1))(other))
    method.__name__ = name
    return method


for _name in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__",
              "__imatmul__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"):
    setattr(Tensor, _name, _in_place(_name))


def _add_gradient(leaf: Tensor, total: Tensor, there: Any) -> None:
    if isinstance(total.payload, Examples) and not isinstance(leaf.payload, Examples):
        raise GradientError("backward() inside tn.vmap reaches a tensor that all examples share",
                            hint="use tn.grad inside tn.vmap, or backward() outside")
    capture, total = recording_capture(), shown(leaf, total)
    if capture is not None:
        capture.receive(leaf, total, there)
    else:
        leaf.grad = total if leaf.grad is None else add(leaf.grad, total)
    if leaf_hooks:
        accumulated(leaf, there)


def shown(x: Tensor, gradient: Any) -> Any:
    """The gradient of a tensor, or None, as the hooks leave it that it has as a leaf."""
    if not leaf_hooks or gradient is None or not (hooks := leaf_hooks.get(id(x))):
        return gradient
    if (capture := recording_capture()) is not None:
        capture.note_hooks(x, hooks)
    return shown_to(hooks, gradient)


def is_tensor(obj: Any) -> Any:
    """Whether this is a tensor; a number of a graph is none."""
    return isinstance(obj, Tensor) and obj.weak is None


def _carries_gradient(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


# ---------------------------------------------------------------- making tensors

def tensor(data: Any, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """A tensor of this data (a number, nested lists, an array, another tensor), copied.

    Python floats become float32 and integers int64 unless `dtype` is given; arrays keep their type.

    >>> tn.tensor([1, 2, 3])
    tensor([1, 2, 3])
    """
    given = data.detach() if is_tensor(data) else data
    made = asarray(given, dtype=dtype, copy=True, device=device)
    return made.requires_grad_() if requires_grad else made


def asarray(data: Any, dtype: Any = None, copy: bool | None = None, *, device: Any = None) -> Tensor:
    """A tensor that shares the array's memory where it can (`copy=False` insists on it).

    A tensor is the result itself, unless another type or a copy is asked for; gradients flow through these.  It stays
    on its device, and all else comes to that of the `with tn.device(...)` around, if `device` names none.

    >>> tn.asarray(np.ones(2, np.float32))
    tensor([1., 1.])
    """
    made, wanted = _as_array(data, dtype, copy), check_device(device)
    if wanted is None and not is_tensor(data):
        wanted = placing()
    placed: Tensor = made if wanted is None else on_device(made, wanted)
    return placed


def _as_array(data: Any, dtype: Any, copy: bool | None) -> Tensor:
    """The tensor where the data are."""
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, Tensor):
        return _as_wanted(data, wanted, copy)
    if recorder.get() is not None and hasattr(type(data), "in_graph"):      # a number that changes from call to call
        made: Tensor = data.in_graph(wanted)
        return made
    if recorder.get() is not None and isinstance(data, (list, tuple)) and has_tensors(data):
        joined: Tensor = tensor_of_list(data, wanted)
        return joined
    array = array_of(data, wanted)
    shares = not isinstance(data, COPIED) and np.shares_memory(array, as_numpy(data))
    if copy is False and not shares and array.size:
        raise _not_shared()
    if copy and shares:
        return Tensor(copied(array))
    return Tensor(adopted(array) if shares else array)


def _as_wanted(x: Tensor, dtype: DType | None, copy: bool | None) -> Tensor:
    """A tensor in this type, and apart from x where a copy is asked for."""
    if x.weak is not None:
        x, dtype = x.detach(), dtype or DEFAULT_OF_KIND[x.dtype.kind]
    if dtype is None or dtype is x.dtype:
        return x.clone() if copy else x
    if copy is False:
        raise _not_shared()
    converted: Tensor = shape_ops.cast(x, dtype=dtype)
    return converted


def _not_shared() -> ArgumentError:
    return ArgumentError("asarray(copy=False): this data cannot be shared without a copy")


def told(given: Iterable[Any]) -> Iterator[Any]:
    """What the arguments of `to` say of types and devices: a tensor its own, a bool nothing."""
    for x in given:
        if isinstance(x, Tensor):
            yield from (x.dtype, x.device)
        elif type(x) is not bool:
            yield x


def stop_gradient(x: Any) -> Tensor:
    """The elements of x, through which no gradient flows: `x.detach()`, under the name it has in JAX.

    >>> x = tn.tensor([1.0, 2.0])
    >>> tn.grad(lambda x: (tn.stop_gradient(x) * x).sum())(x)
    tensor([1., 2.])
    """
    return asarray(x).detach()


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of an array of another library that speaks DLPack, without a copy where that is possible.

    Later changes of a shared array are seen by the tensor; `copy=True` avoids that.

    >>> tn.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    made, wanted = Tensor(imported(x, copy)), check_device(device) or placing()
    placed: Tensor = made if wanted is None else on_device(made, wanted)
    return placed
