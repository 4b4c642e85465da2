"""Methods of tensors that PyTorch's users write, each in one line of what Tenon has.

    x.size(0), x.new_zeros(2, 3), x.type_as(y), x.unfold(0, 3, 1), x.hsplit(2), x.data

`METHODS`, those in place among them, are given to `Tensor` where the package is put together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tenon.eager.gradient_hooks import register_hook, register_post_accumulate_grad_hook, retain_grad
from tenon.errors import ArgumentError
from tenon.ops.comparison import maximum, minimum
from tenon.ops.comparison import where as select
from tenon.ops.creation import empty, full, ones, zeros
from tenon.ops.getitem import selects_box
from tenon.ops.incomplete_gamma import gammainc, gammaincc
from tenon.ops.index_helpers import sliding_window
from tenon.ops.indexing import take_along_axis
from tenon.ops.joining_and_axes import squeezed, sum_to
from tenon.ops.ordering import sort
from tenon.ops.solving import inv, pinv
from tenon.ops.special_functions import polygamma as polygamma_of
from tenon.ops.vector_products import outer
from tenon.pytorch_in_place import METHODS_IN_PLACE
from tenon.random import bernoulli as drawn_bernoulli
from tenon.random import multinomial
from tenon.tensor import Tensor, tensor
from tenon.tensor_state import TensorState
from tenon.types import DType, complex64, complex128, int8, int16, normalize_axis, uint8

# ---------------------------------------------------------------- like another tensor

def type_as(self: Any, other: Any) -> Any:
    """The elements in the type of another tensor."""
    return self.astype(other.dtype)


def view_as(self: Any, other: Any) -> Any:
    """The same elements in the shape of another tensor."""
    return self.reshape(other.shape)


def expand_as(self: Any, other: Any) -> Any:
    """Repeated to the shape of another tensor."""
    return self.expand(other.shape)


def _new(make: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False,
               **named: Any) -> Any:
        return make(*shape, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad,
                    **named)
    method.__name__ = f"new_{make.__name__}"
    method.__doc__ = f"`tn.{make.__name__}` in the type of this tensor, beside it."
    return method


def new_tensor(self: Any, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor of data in the type of this one, beside it."""
    return tensor(data, dtype=dtype or self.dtype, requires_grad=requires_grad, device=device or self.device)


def new(self: Any, *data: Any) -> Any:
    """A tensor in the type of this one, beside it: of data, or of sizes, whose elements are not defined."""
    if data and type(data[0]) is not int and not (type(data[0]) is tuple and len(data) == 1):
        return new_tensor(self, data[0])
    return empty(*(data or (0,)), dtype=self.dtype, device=self.device)


def sum_to_size(self: Any, *size: Any) -> Any:
    """Summed over the axes in which a tensor of this size would be repeated."""
    return sum_to(self, size[0] if len(size) == 1 and type(size[0]) is tuple else size)


def is_same_size(self: Any, other: Any) -> bool:
    """Whether both have the same shape."""
    return bool(self.shape == other.shape)


def bernoulli(self: Any, p: float | None = None, *, generator: Any = None) -> Any:
    """Ones with the probabilities that the elements are, or with probability p, else zeros."""
    if p is None:
        return drawn_bernoulli(self, generator=generator)
    return drawn_bernoulli(full(self.shape, float(p), dtype=self.dtype), generator=generator)


def igamma(input: Any, other: Any) -> Any:
    """The lower incomplete gamma function, as `tn.special.gammainc`."""
    return gammainc(input, other)


def igammac(input: Any, other: Any) -> Any:
    """The upper incomplete gamma function, as `tn.special.gammaincc`."""
    return gammaincc(input, other)


def polygamma(self: Any, n: int) -> Any:
    """The n-th derivative of digamma."""
    return polygamma_of(n, self)


def ger(self: Any, other: Any) -> Any:
    """The products of all pairs of elements of two vectors."""
    return outer(self, other)


def msort(self: Any) -> Any:
    """The elements in ascending order along the first axis."""
    return sort(self, axis=0)


def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
    """`x.narrow(dim, start, length)`: tensors are values, so that is a copy."""
    return self.narrow(dim, start, length)


def values(self: Any) -> Any:
    """The tensor itself: what `max`, `min`, `sort` and their kin give are the values alone, `x.max(dim=1).values`."""
    return self


def itself(self: Any) -> Any:
    """The tensor: no operator is put off here, so there is nothing to resolve."""
    return self


def get_device(self: Any) -> int:
    """-1, as for PyTorch's tensors that are on no GPU."""
    return -1


def storage_offset(self: Any) -> int:
    """0: a slice is a tensor of its own."""
    return 0


def unfold(self: Any, dimension: int, size: int, step: int = 1) -> Any:
    """The windows of `size` elements, `step` apart, along an axis; their elements are a new last axis.

    >>> tn.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    return sliding_window(self, size, step, dimension)


def where(self: Any, condition: Any, other: Any) -> Any:
    """The elements where the condition holds, those of `other` elsewhere."""
    return select(condition, self, other)


def adjoint(self: Any) -> Any:
    """The last two axes swapped, the elements conjugated."""
    return self.mT.conj()


def clamp_min(x: Any, min: Any) -> Any:
    """The elements, none below `min`."""
    return maximum(x, min)


def clamp_max(x: Any, max: Any) -> Any:
    """The elements, none above `max`."""
    return minimum(x, max)


# ---------------------------------------------------------------- questions

def element_size(self: Any) -> int:
    """The bytes of an element."""
    return int(self.dtype.itemsize)


def itemsize(self: Any) -> Any:
    """The bytes of an element."""
    return self.dtype.itemsize


def nbytes(self: Any) -> Any:
    """The bytes of all elements."""
    return self.size * self.dtype.itemsize


def _answer(name: str, value: bool, doc: str) -> property:
    """A question that has one answer here."""
    def ask(self: Any) -> bool:
        return value
    ask.__name__ = name
    return property(ask, doc=doc)


def nelement(self: Any) -> Any:
    """The number of elements."""
    return self.size


def is_floating_point(self: Any) -> bool:
    """Whether the elements are floating point numbers."""
    return bool(self.dtype.is_floating)


def is_complex(self: Any) -> bool:
    """Whether the elements are complex numbers."""
    return bool(self.dtype.kind == "c")


def is_signed(self: Any) -> bool:
    """Whether the elements may be negative."""
    return bool(self.dtype.kind in "ifc")


def is_nonzero(self: Any) -> bool:
    """Whether the one element is not 0."""
    return bool(self.item())


def stride(self: Any, dim: int | None = None) -> Any:
    """How many elements lie from one place of an axis to the next, in the order that all tensors count in."""
    found = tuple(prod(self.shape[k + 1:]) for k in range(self.ndim))
    return found if dim is None else found[normalize_axis(dim, self.ndim)]


def is_contiguous(self: Any, *, memory_format: Any = None) -> bool:
    """True: tensors are values, and which order their elements have in memory is not part of them."""
    return True


# ---------------------------------------------------------------- the elements behind autograd's back

class Data(Tensor):
    """What `x.data` is: the elements of `x` without a gradient; changed in place, it changes `x`."""

    __slots__ = ("owner",)

    def __init__(self, owner: Tensor):
        super().__init__(owner.detach().payload)
        self.owner = owner

    def _rebind(self, new: Tensor) -> None:
        super()._rebind(new.detach())
        _set_data(self.owner, self)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return DataPart(self, found, key) if selects_box(self, key) else found

    def _renew(self) -> None:
        Tensor._rebind(self, self.owner.detach())       # which may have changed since

    def __setitem__(self, key: Any, value: Any) -> None:
        self._renew()
        super().__setitem__(key, value)

    def __copy__(self) -> Tensor:
        """The elements, which belong to nobody else."""
        return self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        found = memo[id(self)] = self.detach().clone()
        return found


class DataPart(Tensor):
    """What `x.data[key]` is: a slice of the elements of `x`; changed in place, it changes those of `x`."""

    __slots__ = ("key", "whole")

    def __init__(self, whole: Data, part: Tensor, key: Any):
        super().__init__(part.payload)
        self.whole, self.key = whole, key

    def _rebind(self, new: Tensor) -> None:
        super()._rebind(new.detach())
        self.whole[self.key] = self

    def _renew(self) -> None:
        self.whole._renew()
        Tensor._rebind(self, Tensor.__getitem__(self.whole, self.key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._renew()
        super().__setitem__(key, value)

    __copy__, __deepcopy__ = Data.__copy__, Data.__deepcopy__


def _set_data(self: Tensor, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise ArgumentError(f"x.data = ...: a tensor was expected, not {type(value).__name__}")
    state = self.state
    payload = value.detach().astype(self.dtype).payload
    self.hold(TensorState(payload, state.requires_grad, state.grad, state.node, state.index))


def _to(dtype: DType) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return self.astype(dtype)
    method.__doc__ = f"The elements converted to {dtype.name}."
    return method


METHODS: dict[str, Any] = METHODS_IN_PLACE | {
    make.__name__: make for make in (
        type_as, view_as, expand_as, unfold, where, adjoint, clamp_min, clamp_max, multinomial,
        new_tensor, element_size, nelement, is_floating_point, is_complex, is_signed, is_nonzero, stride, is_contiguous,
        register_hook, register_post_accumulate_grad_hook,
        retain_grad, new, sum_to_size, is_same_size, bernoulli, igamma, igammac, polygamma, ger, msort,
        narrow_copy, get_device, storage_offset)} | {
    f"new_{make.__name__}": _new(make) for make in (zeros, ones, full, empty)} | {
    "reshape_as": view_as, "take_along_dim": take_along_axis, "mH": property(adjoint), "H": property(adjoint),
    "inverse": inv, "pinverse": pinv, "ndimension": Tensor.dim, "squeeze": squeezed,
    "values": property(values), "data": property(Data, _set_data, doc=Data.__doc__)}
METHODS |= {"is_sparse": _answer("is_sparse", False, "False: there are no sparse tensors."),
            "is_cuda": _answer("is_cuda", False, "False: there are no GPUs."),
            "is_cpu": _answer("is_cpu", True, "True: all devices are the CPU's.")}
METHODS |= {f"is_{name}": _answer(f"is_{name}", False, "False.") for name in (
    "mps", "meta", "nested", "quantized", "xla", "mkldnn", "xpu")}
METHODS |= {"resolve_conj": itself, "resolve_neg": itself, "nbytes": property(nbytes), "itemsize": property(itemsize)}
METHODS |= {name: _to(dtype) for name, dtype in {
    "short": int16, "char": int8, "byte": uint8, "cfloat": complex64, "cdouble": complex128}.items()}
