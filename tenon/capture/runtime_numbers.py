"""Python numbers that are known only when the graph runs: `k = 1` in one branch and `k = 2` in the other.

A `RuntimeNumber` is a scalar of the graph that behaves as Python's own: it does not decide the type of a tensor that it
meets, and arithmetic among numbers is Python's; where an integer grows beyond 64 bits, the call runs eagerly.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.decimal_rounding import MAX_DIGITS, rounded
from tenon.capture.symbolic_numbers import SymNumber, value_of
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.errors import PACKAGE, user_location
from tenon.graph.build import literal
from tenon.ops.arithmetic import divide, floor_divide, negative, remainder, subtract
from tenon.ops.comparison import (
    equal,
    isfinite,
    isinf,
    isnan,
    less,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from tenon.ops.creation import full
from tenon.ops.numpy_calls import array_function, array_ufunc
from tenon.ops.shape import cast, dimension
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState, recorder
from tenon.types import DType, bool_, complex128, float64, int64

KIND_OF = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
DTYPE_OF: dict[type, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}
ORDER = (bool, int, float, complex)
OF_NUMPY = (np.ndarray, np.generic)     # with which a number gives one of NumPy's
OF_TENSORS = frozenset(name for name in dir(Tensor) if not name.startswith("_") and not hasattr(complex, name))
MAX_INTEGER = 2.0**62   # of an integer in the graph, beyond which float64 does not tell what fits 64 bits


class RuntimeNumber(Tensor):
    """A Python bool, int, float or complex that the graph computes."""

    __slots__ = ("kinds", "weak")

    def __init__(self, of: Tensor, kind: type | None = None, kinds: frozenset[type] = frozenset()):
        self.weak: type = kind or KIND_OF[of.dtype.kind]
        self.kinds = kinds      # where the data decide which kind of number it is, all of them
        wanted = DTYPE_OF[self.weak]
        own = (of if of.dtype is wanted else cast(strong(of), dtype=wanted)).state
        # A number carries no gradient, whatever becomes of the tape of the tensor.
        self.own = TensorState(own.payload) if own.requires_grad else own

    def __getattribute__(self, name: str) -> Any:
        """What a tensor has and Python's number has not, is not there for the users' code."""
        if name in OF_TENSORS and not sys._getframe(1).f_code.co_filename.startswith(PACKAGE):
            raise AttributeError(f"{object.__getattribute__(self, 'weak').__name__!r} object has no attribute {name!r}")
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        """What no tensor has, and Python's number does."""
        if name.startswith("__") or not hasattr(self.weak, name):
            raise AttributeError(f"{self.weak.__name__!r} object has no attribute {name!r}")
        return attribute_of(self, name)

    def __bool__(self) -> bool:
        return bool(strong(self))

    def __float__(self) -> float:
        return float(self._concrete("float()").item())

    def __int__(self) -> int:
        return int(self._concrete("int()").item())

    def __complex__(self) -> complex:
        return complex(self._concrete("complex()").item())

    def __index__(self) -> int:
        return int(self._concrete("an index").item())

    def as_size(self) -> Any:
        """The symbolic size that it is."""
        capture = recorder.get()
        return self.__index__() if capture is None else capture.as_size(self)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is not None and self.weak is float and 0 <= digits <= MAX_DIGITS:
            return RuntimeNumber(rounded(strong(self), digits))
        if digits is not None:
            return self if self.weak is int and digits >= 0 else round(self._concrete("round()").item(), digits)
        return number_of(strong(self).round(), int)

    def __floor__(self) -> RuntimeNumber:
        return number_of(strong(self).floor(), int)

    def __ceil__(self) -> RuntimeNumber:
        return number_of(strong(self).ceil(), int)

    def __trunc__(self) -> RuntimeNumber:
        return number_of(strong(self).trunc(), int)

    def __invert__(self) -> RuntimeNumber:
        if self.weak not in (bool, int):
            raise TypeError(f"bad operand type for unary ~: {self.weak.__name__!r}")
        if np.bool_ in self.kinds:
            return RuntimeNumber(logical_not(strong(self)), kinds=self.kinds)
        return RuntimeNumber(subtract(-1, _as(self, int)))

    def __neg__(self) -> RuntimeNumber:
        return RuntimeNumber(negative(_as(self, int if self.weak is bool else self.weak)), kinds=_signed(self))

    def __pos__(self) -> RuntimeNumber:
        return RuntimeNumber(_as(self, int)) if self.weak is bool else self

    def conjugate(self) -> RuntimeNumber:
        """The number itself, but for complex ones."""
        return RuntimeNumber(strong(self).conj()) if self.weak is complex else +self

    def __abs__(self) -> RuntimeNumber:
        return RuntimeNumber(abs(_as(self, int if self.weak is bool else self.weak)), kinds=_signed(self))

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other) if _operand(other) is not None else NotImplemented

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self) if _operand(other) is not None else NotImplemented

    def __array_ufunc__(self, function: np.ufunc, method: str, *given: Any, **named: Any) -> Any:
        """Beside tensors an operator; else NumPy gives a number of its own, which is no more here than a condition."""
        if _has_tensor((given, named.get("out") or ())):
            return array_ufunc(self, function, method, *given, **named)
        test = TESTS.get(function) if method == "__call__" and not named else None
        if test is None:
            return self._concrete(f"np.{function.__name__}")
        return RuntimeNumber(test(as_tensor(self)), kinds=frozenset((bool, np.bool_)))

    def __array_function__(self, function: Any, types: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if not _has_tensor((*given, *named.values())):
            self._concrete(f"np.{function.__name__}")
        return array_function(self, function, types, given, named)

    def __copy__(self) -> RuntimeNumber:
        return self

    def __deepcopy__(self, memo: Any) -> RuntimeNumber:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._concrete("a pickle").item().__reduce_ex__(protocol)

    def __hash__(self) -> int:
        return hash(self._concrete("a hash").item())

    def __format__(self, spec: str) -> str:
        return format(self._concrete("the text of a number").item(), spec)


TESTS: dict[Any, Callable[[Any], Any]] = {np.isnan: isnan, np.isfinite: isfinite, np.isinf: isinf}


def _has_tensor(x: Any) -> bool:
    """Whether a nest of arguments has tensors in it, that are no numbers."""
    return any(map(_has_tensor, x)) if isinstance(x, (list, tuple)) else isinstance(x, Tensor) and x.weak is None


def strong(x: Tensor) -> Tensor:
    """The same scalar as an ordinary tensor of its type."""
    if type(x) is not RuntimeNumber:
        return x
    tensor = Tensor.__new__(Tensor)
    tensor.own = x.own
    return tensor


def attribute_of(x: RuntimeNumber, name: str) -> Any:
    """`x.name`, as a number of Python has it."""
    kind = one_kind(x).weak
    if name == "is_integer" and kind is float:
        return lambda: RuntimeNumber(logical_and(isfinite(strong(x)), equal(strong(x).floor(), strong(x))))
    if kind in (bool, int) and name in ("real", "numerator"):
        return RuntimeNumber(_as(x, int))
    raise UnsafeCall(f"{name!r} is asked of a number, {kind.__name__}", where=user_location())


def is_number(x: Any) -> bool:
    """Whether this is a Python number, known now or when the graph runs."""
    return type(x) in ORDER or type(x) in (RuntimeNumber, SymNumber)


def is_size(x: Any) -> bool:
    """Whether this is a size that may be another in other calls."""
    return issubclass(type(x), SymbolicDim)


def kind_of(x: Any) -> type:
    """Which of Python's numbers it is."""
    return x.weak if type(x) is RuntimeNumber else x.kind if type(x) is SymNumber else type(x)


def as_tensor(x: Any, kind: type | None = None) -> Tensor:
    """A number as a tensor of 64 bits."""
    kind = kind or kind_of(x)
    if type(x) is SymNumber:
        return _as(in_graph(x), kind)
    if type(x) is RuntimeNumber:
        return _as(x, kind)
    tensor: Tensor = full((), kind(x), dtype=DTYPE_OF[kind])
    return tensor


def in_graph(x: Any) -> Any:
    """A size, or a number that changes from call to call, as one that the graph reads; any other value itself."""
    if is_size(x):
        return RuntimeNumber(dimension(size=x, dtype=int64))
    return RuntimeNumber(x.numbers.scalar(x, DTYPE_OF[x.kind])) if type(x) is SymNumber else x


def _as(x: RuntimeNumber, kind: type) -> Tensor:
    found: Tensor = strong(x) if x.weak is kind else cast(strong(x), dtype=DTYPE_OF[kind])
    return found


def misfit(x: RuntimeNumber, dtype: DType) -> Tensor | None:
    """Whether an element type of whole numbers cannot hold this one, which raises; None where each can be held."""
    if x.weak not in (int, float) or dtype.kind not in "ui" or (x.weak is int and dtype is int64):
        return None
    info, number, kind = np.iinfo(dtype.numpy), strong(x), x.weak
    fits: Any = logical_not(less(number, kind(info.min)))
    if kind is float:
        fits = logical_and(fits, equal(number.floor(), number))
    if kind is float or info.bits < 64:
        fits = logical_and(fits, less(number, kind(info.max + 1)))
    failed: Tensor = logical_not(fits)
    return failed


def truth(x: Tensor) -> Tensor:
    """Whether a tensor of one element counts as true, as a bool without axes."""
    x = strong(x)
    if x.ndim:
        x = x.reshape(())
    found: Tensor = x if x.dtype is bool_ else not_equal(x, 0)
    return found


# ---------------------------------------------------------------- arithmetic

def _power(x: Any, y: Any) -> Any:
    """A power; where Python's is complex, is too large or divides by zero, the call runs eagerly."""
    found = x ** y
    if found.dtype.kind in "fc":
        _fail_where_new(found, x, y)
    return found


def _fail_where_new(found: Tensor, *given: Any) -> None:
    """Let calls run eagerly in which finite numbers give an infinite one, or none: Python raises, or it is complex."""
    if (capture := recorder.get()) is not None:
        failed = logical_not(isfinite(found))
        for x in given:
            if isinstance(x, Tensor):
                failed = logical_and(failed, isfinite(x))
        capture.fail_if(failed)


def function_of(name: str, x: RuntimeNumber) -> RuntimeNumber:
    """A function of `math`, which raises where the result is infinite or none and the number is not."""
    given = as_tensor(x)
    found = getattr(given, name)()
    if found.dtype.kind == "f" and (capture := recorder.get()) is not None:
        capture.fail_if(logical_or(logical_and(isnan(found), logical_not(isnan(given))),
                                   logical_and(logical_not(isfinite(found)), isfinite(given))))
    return RuntimeNumber(found)


def _shifted(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A shift, which Python refuses by a negative number."""
    def shift(x: Any, y: Any) -> Any:
        if not isinstance(y, Tensor) and y.value < 0:
            raise ValueError("negative shift count")
        if isinstance(y, Tensor) and (capture := recorder.get()) is not None:
            capture.fail_if(less(y, 0))
        return of(x, y)
    return shift


def _checked(of: Callable[[Any, Any], Any], words: str) -> Callable[[Any, Any], Any]:
    """A division, which raises what Python raises where the divisor is zero."""
    def divided(x: Any, y: Any) -> Any:
        zero = not_equal(y, 0) if isinstance(y, Tensor) else None
        if zero is None and y.value == 0:
            raise ZeroDivisionError(words)
        if zero is not None and (capture := recorder.get()) is not None:
            capture.fail_if(logical_not(zero))
            y = where(zero, y, 1)
        return of(x, y)
    return divided


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "pow": _power,
    "truediv": _checked(divide, "division by zero"), "floordiv": _checked(floor_divide, "division by zero"),
    "mod": _checked(remainder, "modulo by zero"),
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": _shifted(operator.lshift),
    "rshift": _shifted(operator.rshift),
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}


def _kind(name: str, kinds: tuple[type, type], right: Any) -> type:
    """The Python number that two others are turned into before the operation."""
    kind = max(kinds, key=ORDER.index)
    if name in COMPARISONS:
        return kind
    if name == "truediv":
        return complex if kind is complex else float
    if name in ("and", "or", "xor"):
        return kind
    if name == "pow" and kind is int:
        if type(right) is RuntimeNumber:
            raise UnsafeCall("an integer to the power of an integer that is only known when the graph runs",
                             where=user_location(), hint="a float to that power stays in the graph")
        return int if right >= 0 else float
    return int if kind is bool else kind


def _kinds(name: str, left: Any, right: Any) -> frozenset[type]:
    """The kinds of number that the result may be, where the data decide that."""
    for x in (left, right):
        if type(x) is RuntimeNumber and np.bool_ in x.kinds:
            one_kind(x)
    sides = [getattr(x, "kinds", None) or {kind_of(x)} for x in (left, right)]
    if name in COMPARISONS or all(len(side) == 1 for side in sides):
        return frozenset()
    found = frozenset(_kind(name, (a, b), right) for a in sides[0] for b in sides[1])
    return found if len(found) > 1 else frozenset()


def _signed(x: RuntimeNumber) -> frozenset[type]:
    """The kinds of a number with another sign; a bool becomes an int."""
    found = frozenset(int if kind is bool else kind for kind in x.kinds)
    return found if len(found) > 1 else frozenset()


def one_kind(x: Any) -> Any:
    """A number that is of one kind whatever the data are; where the program would notice that, others are refused."""
    if type(x) is RuntimeNumber and np.bool_ in x.kinds:
        raise UnsafeCall("what a test of NumPy's gives is more than a condition", where=user_location(),
                         hint="math.isnan(x) and its like give a bool of Python")
    if type(x) is RuntimeNumber and x.kinds:
        words = " or ".join(sorted(kind.__name__ for kind in x.kinds))
        raise UnsafeCall(f"a number is {words}, as the data decide", where=user_location(),
                         hint="give it the same type in all branches")
    return x


def joined_kinds(left: Any, right: Any) -> frozenset[type]:
    """The kinds of what is one of two numbers of one kind: of truths, one may be NumPy's; else neither may be several.
    """
    found: frozenset[type] = frozenset().union(*(getattr(x, "kinds", None) or {kind_of(x)} for x in (left, right)))
    if np.bool_ not in found:
        one_kind(left)
        one_kind(right)
    return found if len(found) > 1 else frozenset()


def is_one_number(left: Any, right: Any) -> Any:
    """`left is right` of numbers, one of which the graph computes: True and False are two objects, others any."""
    if left is right:
        return True
    kinds = [kind_of(one_kind(x)) for x in (left, right)]
    if kinds == [bool, bool]:
        return left == right
    if kinds[0] is not kinds[1]:
        return False
    raise UnsafeCall("whether two numbers are one object is asked", where=user_location(), hint="compare them by ==")


def may_grow(name: str, left: Any, right: Any) -> bool:
    """Whether a few repetitions may leave 64 bits: counting does not."""
    steps = [abs(x) for x in (left, right) if type(x) is not RuntimeNumber]
    return name in ("mul", "pow", "lshift") or (name in ("add", "sub") and not any(x < 2**31 for x in steps))


def refuse_past_64_bits(name: str, left: Any, right: Any) -> None:
    """Let the call run eagerly where an integer would need more than 64 bits, which Python's have."""
    if (capture := recorder.get()) is not None:
        x, y = (as_tensor(x, float) if type(x) is RuntimeNumber else literal(float(x), float64) for x in (left, right))
        size: Any = abs(x * (literal(2.0, float64)**y) if name == "lshift" else ARITHMETIC[name](x, y))
        capture.fail_if(logical_not(size < MAX_INTEGER))


def _refuse_to_repeat(other: Any) -> None:
    """Text, or a list, whose length the data would decide."""
    if isinstance(other, (str, bytes, list, tuple)):
        raise UnsafeCall(f"the data decide how often a {type(other).__name__} is repeated", where=user_location())


def _operand(x: Any) -> Any:
    """A number beside one of the graph; None for anything else."""
    if isinstance(number := value_of(x), int) and abs(number) >= 2**63:
        raise UnsafeCall("an integer beyond 64 bits meets a number of the graph", where=user_location())
    if is_number(x) or is_size(x):
        return in_graph(x)
    return int(x) if isinstance(x, int) else None       # such as a member of an IntEnum


def _beside(method: str, number: RuntimeNumber, other: Any) -> Any:
    """What a method of tensors makes of a number and what is none."""
    if isinstance(other, OF_NUMPY):
        number._concrete("a number of NumPy's")
    return getattr(Tensor, method)(number, other) if isinstance(other, Tensor) else NotImplemented


def _install(name: str, compute: Callable[[Any, Any], Any]) -> None:
    def plain(left: Any, right: Any) -> Any:
        kind = _kind(name, (kind_of(left), kind_of(right)), right)
        if kind is int and may_grow(name, left, right):
            refuse_past_64_bits(name, left, right)
        pair = [as_tensor(x, kind) if type(x) is RuntimeNumber else literal(kind(x), DTYPE_OF[kind])
                for x in (left, right)]
        return RuntimeNumber(compute(*pair), kinds=_kinds(name, left, right))

    def forward(self: RuntimeNumber, other: Any, *modulus: Any) -> Any:
        if modulus:
            return pow(self._concrete("pow() of three numbers").item(), other, *modulus)
        if (number := _operand(other)) is not None:
            return plain(self, number)
        _refuse_to_repeat(other)
        return _beside(f"__{name}__", self, other)

    def backward(self: RuntimeNumber, other: Any) -> Any:
        if (number := _operand(other)) is not None:
            return plain(number, self)
        _refuse_to_repeat(other)
        return _beside(f"__r{name}__", self, other)
    setattr(RuntimeNumber, f"__{name}__", forward)
    if name not in COMPARISONS:
        setattr(RuntimeNumber, f"__i{name}__", forward)        # a number does not change, unlike a tensor
        setattr(RuntimeNumber, f"__r{name}__", backward)


for _name, _compute in (ARITHMETIC | COMPARISONS).items():
    _install(_name, _compute)


def number_of(x: Tensor, kind: type | None = None) -> RuntimeNumber:
    """The one element of a captured tensor as the Python number that `.item()` gives."""
    if kind is not None:
        one_kind(x)
    x = strong(x)
    x = x.reshape(()) if x.ndim else x
    if (kind or KIND_OF[x.dtype.kind]) is int and (capture := recorder.get()) is not None and not is_small(x):
        size: Any = abs(cast(x, dtype=float64))
        capture.fail_if(logical_not(size < MAX_INTEGER))    # which nan is not
    return RuntimeNumber(x, kind)


def is_small(x: Tensor) -> bool:
    """Whether the type of a tensor, or how it was computed, says that its integers are far from 64 bits."""
    if x.dtype.kind == "b" or (x.dtype.kind in "iu" and x.dtype.bits < 64):
        return True
    node = getattr(x.payload, "node", None)
    while node is not None and node.op.name in ("reshape", "sum", "max", "min", "squeeze"):
        node = getattr(node.inputs[0], "node", None)
    return node is not None and (node.op.name in ("argmax", "argmin") or (
        node.op.name == "cast" and (node.inputs[0].dtype.kind == "b" or node.inputs[0].dtype.bits < 64)
        and node.inputs[0].dtype.kind in "biu"))


__all__ = ["RuntimeNumber", "TensorState", "as_tensor", "is_number", "kind_of", "number_of", "strong", "truth"]
