"""Methods of PyTorch that change their tensor in place: `x.add_(y, alpha=-0.1)`, `p.data.copy_(w)`, `x.unsqueeze_(0)`.

A method that ends in `_` rebinds its tensor to new elements; tensors are values, so others that were computed from the
old ones, slices too, keep theirs.  On a slice that nobody holds, as in `x[0].fill_(1)`, it would do nothing: an error.
"""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from math import log1p, pi
from sys import getrefcount
from types import CodeType
from typing import Any, TypeVar, cast

from tenon.errors import ArgumentError, ShapeError
from tenon.ops.creation import arange, eye, full, full_like
from tenon.random import bernoulli, exponential, normal, rand, randint, randn
from tenon.slice_stores import STORING, store_slice
from tenon.tensor import Tensor, is_tensor, tensor
from tenon.tensor_state import TensorState
from tenon.types import float32

F = TypeVar("F", bound=Callable[..., Any])

# Operators that may write their result over their first operand.
IN_PLACE = (
    "abs", "absolute", "acos", "acosh", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "baddbmm",
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "clamp", "clamp_max", "clamp_min", "clip", "copysign", "cos", "cosh", "cumprod", "cumsum", "deg2rad", "digamma",
    "div", "divide", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fix", "float_power", "floor", "floor_divide",
    "fmod", "frac", "gcd", "heaviside", "hypot", "i0", "igamma", "igammac", "index_add", "index_copy",
    "index_fill", "index_put",
    "index_reduce", "lcm", "ldexp", "lerp", "lgamma", "log", "log10", "log1p", "log2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logit", "masked_fill", "masked_scatter", "mul", "multiply", "mvlgamma", "nan_to_num",
    "neg", "negative", "nextafter", "polygamma", "pow", "put", "rad2deg", "reciprocal", "relu", "remainder", "renorm",
    "round", "rsqrt", "scatter", "scatter_add", "scatter_reduce", "sgn", "sigmoid", "sign", "sin", "sinc", "sinh",
    "sqrt", "square", "subtract", "tan", "tanh", "tril", "triu", "true_divide", "trunc", "xlogy")
# Those that PyTorch has as functions too: `torch.relu_(x)`.
FUNCTIONS = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_", "asin_",
    "asinh_", "atan_", "atanh_", "ceil_", "clamp_", "clamp_max_", "clamp_min_", "clip_", "conj_physical_", "cos_",
    "cosh_", "deg2rad_", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_", "fill_", "fix_", "floor_", "frac_",
    "gcd_", "i0_", "index_put_", "lcm_", "ldexp_", "log10_", "log1p_", "log2_", "log_", "logit_", "nan_to_num_", "neg_",
    "negative_", "rad2deg_", "reciprocal_", "relu_", "round_", "rsqrt_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_",
    "square_", "tan_", "tanh_", "trunc_", "xlogy_", "zero_")
COMPARISONS = ("eq", "ge", "greater", "greater_equal", "gt", "le", "less", "less_equal", "lt", "ne", "not_equal")
RESHAPING = ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")


def _in_place(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        return _written(self, f"x.{name}_(...)", getattr(self, name)(*args, **named))
    method.__name__, method.__doc__ = f"{name}_", f"The tensor rebound to `x.{name}(...)`, in its own type; returns it."
    return method


def _compared_in_place(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, other: Any) -> Tensor:
        return _written(self, f"x.{name}_(...)", getattr(self, name)(other).astype(self.dtype))
    method.__name__, method.__doc__ = f"{name}_", f"The tensor rebound to `x.{name}(y)`, as ones and zeros; returns it."
    return method


def _reshaped_in_place(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        self._refuse_leaf(f"x.{name}_(...)")
        self._rebind(getattr(self, name)(*args, **named))
        return self
    method.__name__, method.__doc__ = f"{name}_", f"The tensor rebound to `x.{name}(...)`; returns it."
    return method


def _written(self: Tensor, what: str, new: Tensor) -> Tensor:
    """The tensor rebound to new elements; raises ShapeError for another shape, or another kind of numbers."""
    self._refuse_leaf(what)
    return self._written(what, new)


def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """The tensor rebound to `x + alpha * other`; returns it.

    >>> tn.ones(2).add_(tn.ones(2), alpha=-0.5)
    tensor([0.5, 0.5])
    """
    return _written(self, "x.add_(...)", self + (other if alpha == 1 else other * alpha))


def sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """The tensor rebound to `x - alpha * other`; returns it."""
    return _written(self, "x.sub_(...)", self - (other if alpha == 1 else other * alpha))


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """The tensor rebound to other elements, which are broadcast, cast, and brought to its device; returns it."""
    new = src if is_tensor(src) else tensor(src, dtype=self.dtype)
    new = new if new.shape == self.shape else new.expand(self.shape)
    self._refuse_leaf("x.copy_(y)")
    new = self._brought(new.astype(self.dtype))
    self._rebind(new.view(new.shape) if new is src else new)     # read: what is computed of it is for its gradient
    return self


def rebound(x: Any, new: Any, inplace: bool = True) -> Any:
    """What a function gives that may be told `inplace=True`: then x itself, rebound to the result."""
    return copy_(x, new) if inplace and isinstance(x, Tensor) and new is not x else new


def fill_(self: Tensor, value: Any) -> Tensor:
    """The tensor rebound to `value` everywhere; returns it."""
    return copy_(self, value if is_tensor(value) else full_like(self, value))


def zero_(self: Tensor) -> Tensor:
    """The tensor rebound to zeros; returns it."""
    return fill_(self, 0)


def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """A matrix rebound to itself with `fill_value` on the diagonal, which begins anew below with `wrap`; returns it."""
    if self.ndim != 2:
        raise ShapeError(f"fill_diagonal_: a matrix was expected, this tensor is {self.type}")
    rows, columns = self.shape
    there = eye(rows, columns, dtype="bool")
    if wrap:
        there = (arange(rows * columns) % (columns + 1) == 0).reshape(rows, columns)
    return _written(self, "x.fill_diagonal_(...)", self.masked_fill(there, fill_value))


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers of a normal distribution, which may be complex; returns it."""
    if self.dtype.kind == "c":
        return copy_(self, randn(*self.shape, dtype=self.dtype, generator=generator) * std + mean)
    return copy_(self, normal(mean, std, self.shape, generator=generator))


def uniform_(self: Tensor, low: float = 0.0, to: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers uniform in [low, to); returns it."""
    return copy_(self, rand(*self.shape, generator=generator) * (to - low) + low)


def random_(self: Tensor, low: int = 0, to: int | None = None, *, generator: Any = None) -> Tensor:
    """The tensor rebound to whole numbers from low to to - 1; one number is `to`; returns it."""
    low, to = (0, low) if low and to is None else (low, to)
    bits, kind = self.dtype.bits, self.dtype.kind       # all whole numbers that the type holds
    exact = {"b": 1, "f": {16: 8, 32: 24}.get(bits, 53), "i": bits - 1}.get(kind, bits)
    largest = min(2 ** exact, 2 ** 63 - 1)
    return copy_(self, randint(low, largest if to is None else to, self.shape, generator=generator))


def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers of an exponential distribution; returns it."""
    return copy_(self, exponential(lambd, self.shape, dtype=self.dtype, generator=generator))


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to exp of random numbers of a normal distribution; returns it."""
    return copy_(self, normal(mean, std, self.shape, dtype=self.dtype, generator=generator).exp())


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """The tensor rebound to ones with probability p, else zeros; returns it."""
    return copy_(self, bernoulli(p if is_tensor(p) else full(self.shape, p, dtype=float32), generator=generator))


def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Tensor:
    """The tensor rebound to random numbers of a Cauchy distribution; returns it."""
    uniform = rand(*self.shape, dtype="float64", generator=generator)
    return copy_(self, ((uniform - 0.5) * pi).tan() * sigma + median)


def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """The tensor rebound to how many trials the first success takes, of probability p each; returns it."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_: p between 0 and 1 was expected, not {p}")
    uniform = 1 - rand(*self.shape, dtype="float64", generator=generator)       # in (0, 1]
    return copy_(self, (uniform.log() / log1p(-p)).ceil().clamp_min(1))


def conj_physical_(self: Tensor) -> Tensor:
    """The tensor rebound to its conjugate; returns it."""
    return _written(self, "x.conj_physical_()", self.conj())


def apply_(self: Tensor, function: Any) -> Tensor:
    """The tensor rebound to what a Python function gives for each of its elements; returns it."""
    values = [function(value) for value in self.detach().reshape(-1).tolist()]
    return copy_(self, tensor(values, dtype=self.dtype).reshape(self.shape))


def map_(self: Tensor, other: Any, function: Any) -> Tensor:
    """The tensor rebound to what a Python function gives for its elements and those of another; returns it."""
    pairs = zip(self.detach().reshape(-1).tolist(), other.expand(self.shape).reshape(-1).tolist(), strict=True)
    return copy_(self, tensor([function(*pair) for pair in pairs], dtype=self.dtype).reshape(self.shape))


def detach_(self: Tensor) -> Tensor:
    """The tensor, cut off from what it was computed from; returns it."""
    self.hold(TensorState(self.payload, False, self.grad))
    return self


# ---------------------------------------------------------------- what nobody holds

class _Temporary:
    """Tells how many references an object has where a method of it is called."""

    def references(self) -> int:
        return getrefcount(self)


def _most_of_a_temporary() -> int:
    """How many references a method may see of an object that nobody holds, where it can be told from a name's; else 0.

    There is one more where something looks at every frame (PEP 523), as debuggers and `torch.compile` do.
    """
    held = _Temporary()
    count = _Temporary().references()
    return count + 1 if count < held.references() else 0


MAX_NOBODYS = _most_of_a_temporary()


def for_somebody(method: F) -> F:
    """A function that changes its tensor in place, which refuses one that nobody holds where its result is dropped."""
    @wraps(method)
    def checked(tensor: Any, *args: Any, **named: Any) -> Any:      # as PyTorch calls it in nn.init
        count = getrefcount(tensor)
        if type(tensor) is not Tensor and isinstance(tensor, Tensor):
            tensor._renew()
        changed = method(tensor, *args, **named)
        if count <= MAX_NOBODYS and type(tensor) is Tensor and count <= _Temporary().references() and \
                _drops(frame := sys._getframe(1)) and not store_slice(frame, tensor):
            raise ArgumentError(f"{method.__name__} changed a copy that nobody holds: "
                                "a slice, or a view, is a tensor of its own", hint="x[i] = value")
        return changed
    STORING.add(checked)
    return cast(F, checked)


def _drops(frame: Any) -> bool:
    return frame.f_lasti in _dropping_calls(frame.f_code)


@lru_cache(1024)
def _dropping_calls(code: CodeType) -> frozenset[int]:
    """Where a code's calls are whose results are dropped."""
    found = list(dis.get_instructions(code))
    pairs = [(a, b) for a, b in itertools.pairwise(found) if a.opname.startswith("CALL") and b.opname == "POP_TOP"]
    return frozenset(at for a, b in pairs for at in range(a.offset, b.offset))      # its caches count as it


METHODS_IN_PLACE: dict[str, Callable[..., Tensor]] = {name: for_somebody(method) for name, method in (
    {f"{name}_": _in_place(name) for name in IN_PLACE} | {f"{name}_": _compared_in_place(name) for name in COMPARISONS}
    | {f"{name}_": _reshaped_in_place(name) for name in RESHAPING} | {make.__name__: make for make in (
        add_, apply_, bernoulli_, cauchy_, conj_physical_, copy_, detach_, exponential_, fill_, fill_diagonal_,
        geometric_, log_normal_, map_, normal_, random_, sub_, uniform_, zero_)}).items()}
