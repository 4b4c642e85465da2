"""Methods of tensors that PyTorch's users write, each in one line of what Tenon has.

    x.size(0), x.add_(y, alpha=-0.1), p.data.copy_(w), x.new_zeros(2, 3), x.type_as(y)

`METHODS` are given to `Tensor` where the package is put together.  A method that ends in `_` rebinds its tensor to new
elements; tensors are values, so others that were computed from the old ones, slices too, keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tenon.eager.gradient_hooks import register_hook, retain_grad
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.comparison import maximum, minimum
from tenon.ops.comparison import where as select
from tenon.ops.creation import empty, eye, full, full_like, ones, zeros
from tenon.ops.index_helpers import sliding_window
from tenon.ops.indexing import take_along_axis
from tenon.ops.solving import inv, pinv
from tenon.random import bernoulli, exponential, multinomial, normal, rand, randint
from tenon.tensor import Tensor, tensor
from tenon.tensor_state import TensorState
from tenon.types import DType, complex64, complex128, int8, int16, normalize_axis, uint8

# Operators that may write their result over their first operand.
IN_PLACE = (
    "abs", "absolute", "acos", "acosh", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm",
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "clamp", "clamp_max", "clamp_min", "clip", "copysign", "cos", "cosh", "cumprod", "cumsum", "deg2rad", "digamma",
    "div", "divide", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "float_power", "floor", "floor_divide",
    "fmod", "frac", "gcd", "heaviside", "hypot", "i0", "index_add", "index_copy", "index_fill", "index_put",
    "index_reduce", "lcm", "ldexp", "lerp", "lgamma", "log", "log10", "log1p", "log2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logit", "masked_fill", "masked_scatter", "mul", "multiply", "mvlgamma", "nan_to_num",
    "neg", "negative", "nextafter", "pow", "rad2deg", "reciprocal", "relu", "remainder", "renorm",
    "round", "rsqrt", "scatter", "scatter_add", "scatter_reduce", "sgn", "sigmoid", "sign", "sin", "sinc", "sinh",
    "sqrt", "square", "subtract", "tan", "tanh", "tril", "triu", "true_divide", "trunc", "xlogy")


def _in_place(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        return _written(self, f"x.{name}_(...)", getattr(self, name)(*args, **named))
    method.__name__, method.__doc__ = f"{name}_", f"The tensor rebound to `x.{name}(...)`, in its own type; returns it."
    return method


def _written(self: Tensor, what: str, new: Tensor) -> Tensor:
    """The tensor rebound to new elements; raises ShapeError for another shape, or another kind of numbers."""
    self._refuse_leaf(what)
    if new.shape != self.shape or (new.dtype is not self.dtype and new.dtype.kind != self.dtype.kind):
        raise ShapeError(f"{what} would change {self.type} to {new.type}", hint="write x = x.add(y), and so on")
    self._rebind(new if new.dtype is self.dtype else new.astype(self.dtype))
    return self


def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """The tensor rebound to `x + alpha * other`; returns it.

    >>> tn.ones(2).add_(tn.ones(2), alpha=-0.5)
    tensor([0.5, 0.5])
    """
    return _written(self, "x.add_(...)", self + (other if alpha == 1 else other * alpha))


def sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """The tensor rebound to `x - alpha * other`; returns it."""
    return _written(self, "x.sub_(...)", self - (other if alpha == 1 else other * alpha))


def copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """The tensor rebound to other elements, which are broadcast and cast; returns it."""
    new = source if isinstance(source, Tensor) else tensor(source, dtype=self.dtype)
    new = new if new.shape == self.shape else new.expand(self.shape)
    self._refuse_leaf("x.copy_(y)")
    self._rebind(new.astype(self.dtype))
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """The tensor rebound to `value` everywhere; returns it."""
    return copy_(self, full_like(self, value) if not isinstance(value, Tensor) else value)


def zero_(self: Tensor) -> Tensor:
    """The tensor rebound to zeros; returns it."""
    return fill_(self, 0)


def fill_diagonal_(self: Tensor, fill_value: Any) -> Tensor:
    """A matrix rebound to itself with `fill_value` on the diagonal; returns it."""
    if self.ndim != 2:
        raise ShapeError(f"fill_diagonal_: a matrix was expected, this tensor is {self.type}")
    return _written(self, "x.fill_diagonal_(...)", self.masked_fill(eye(*self.shape, dtype="bool"), fill_value))


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers of a normal distribution; returns it."""
    return copy_(self, normal(mean, std, self.shape, generator=generator))


def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers uniform in [a, b); returns it."""
    return copy_(self, rand(*self.shape, generator=generator) * (b - a) + a)


def random_(self: Tensor, low: int = 0, high: int | None = None, *, generator: Any = None) -> Tensor:
    """The tensor rebound to whole numbers from low to high - 1; one number is high; returns it."""
    low, high = (0, low) if low and high is None else (low, high)
    bits, kind = self.dtype.bits, self.dtype.kind       # all whole numbers that the type holds
    exact = {"b": 1, "f": {16: 8, 32: 24}.get(bits, 53), "i": bits - 1}.get(kind, bits)
    largest = min(2 ** exact, 2 ** 63 - 1)
    return copy_(self, randint(low, largest if high is None else high, self.shape, generator=generator))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers of an exponential distribution; returns it."""
    return copy_(self, exponential(lambd, self.shape, dtype=self.dtype, generator=generator))


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to exp of random numbers of a normal distribution; returns it."""
    return copy_(self, normal(mean, std, self.shape, dtype=self.dtype, generator=generator).exp())


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """The tensor rebound to ones with probability p, else zeros; returns it."""
    return copy_(self, bernoulli(p if isinstance(p, Tensor) else full(self.shape, float(p)), generator=generator))


def detach_(self: Tensor) -> Tensor:
    """The tensor, cut off from what it was computed from; returns it."""
    self.hold(TensorState(self.payload, False, self.grad))
    return self


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
    def method(self: Any, *shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
        return make(*shape, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)
    method.__name__ = f"new_{make.__name__}"
    method.__doc__ = f"`tn.{make.__name__}` in the type of this tensor, beside it."
    return method


def new_tensor(self: Any, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """A tensor of data in the type of this one, beside it."""
    return tensor(data, dtype=dtype or self.dtype, requires_grad=requires_grad, device=device or self.device)


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

    def __copy__(self) -> Tensor:
        """The elements, which belong to nobody else."""
        return self.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        found = memo[id(self)] = self.detach().clone()
        return found


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


METHODS: dict[str, Any] = {f"{name}_": _in_place(name) for name in IN_PLACE} | {
    make.__name__: make for make in (
        add_, sub_, copy_, fill_, fill_diagonal_, zero_, normal_, uniform_, bernoulli_, random_, exponential_,
        log_normal_, detach_, type_as, view_as, expand_as, unfold, where, adjoint, clamp_min, clamp_max, multinomial,
        new_tensor, element_size, nelement, is_floating_point, is_complex, is_signed, is_nonzero, stride, is_contiguous,
        register_hook, retain_grad)} | {
    f"new_{make.__name__}": _new(make) for make in (zeros, ones, full, empty)} | {
    "reshape_as": view_as, "take_along_dim": take_along_axis, "mH": property(adjoint), "H": property(adjoint),
    "inverse": inv, "pinverse": pinv, "ndimension": Tensor.dim, "data": property(Data, _set_data, doc=Data.__doc__)}
METHODS |= {"is_sparse": _answer("is_sparse", False, "False: there are no sparse tensors."),
            "is_cuda": _answer("is_cuda", False, "False: there are no GPUs."),
            "is_cpu": _answer("is_cpu", True, "True: all devices are the CPU's.")}
METHODS |= {name: _to(dtype) for name, dtype in {
    "short": int16, "char": int8, "byte": uint8, "cfloat": complex64, "cdouble": complex128}.items()}
