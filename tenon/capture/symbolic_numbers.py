"""Python numbers and texts that change from call to call -> what the program computes from them, in every call anew.

A `SymNumber` behaves as the int or float that it is in this call, a `SymText` as the text.  Arithmetic on it is
recorded, and done by Python before each run of the graph: exact integers, Python's own errors.  What a program asks for
the number itself (a condition, a size) is answered, and the answer is a condition for the capture to hold.
"""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import tenon.dims.symbolic_dim
import tenon.tensor
from tenon.capture.code_monitor import UnsafeCall, unwatched
from tenon.capture.code_origin import follows
from tenon.capture.counted_loops import asks_how_many, place_of
from tenon.capture.guards import DATES, PATHS, SCALARS
from tenon.dims.element_count import Size
from tenon.dims.symbolic_dim import Dim, PinnedSize, SymbolicDim, number_behind, symbols
from tenon.errors import user_location
from tenon.tensor import Tensor
from tenon.types import DEFAULT_OF_KIND, DType, as_dtype

if TYPE_CHECKING:
    from tenon.capture.number_steps import Numbers

# Of values that may become inputs; a bool is one of two, and guarded.
KINDS = (int, float, str, *DATES, *PATHS, *SCALARS)
PYTHON = (bool, int, float)
COUNTS = (*PYTHON, Size)        # the last is how many elements a tensor has
PLAIN = (type(None), *PYTHON, str)
FIXED = (*PLAIN, *DATES, *PATHS, *SCALARS)
UNEQUAL = (type(None), str, bytes, tuple, list, dict)     # no number equals one of these
OF_SIZES_THEMSELVES = (tenon.dims.symbolic_dim.__file__, tenon.tensor.__file__)     # their methods, and `len`


class Unmoved(UnsafeCall):
    """What stands in these places has to be what it is: begin anew with that."""

    def __init__(self, places: Sequence[Any], what: str = "a number that changes is a key"):
        super().__init__(what, where=user_location())
        self.places = places


class SymNumber:
    """The `index`-th number of a capture, `value` in this call; `roots` are the inputs that it depends on."""

    __slots__ = ("index", "numbers", "roots", "value")

    def __init__(self, numbers: Numbers, index: int, value: Any, roots: frozenset[int]):
        self.numbers, self.index, self.value, self.roots = numbers, index, value, roots

    @property
    def kind(self) -> type:
        """int or float."""
        return type(self.value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(type(self.value), name):
            raise AttributeError(f"{type(self.value).__name__!r} object has no attribute {name!r}")
        return getattr(known(self), name)

    def __bool__(self) -> bool:
        self.numbers.counts_iterations(sys._getframe(1), self)
        return bool(self.numbers.ask(operator.truth, self))

    def __index__(self) -> int:
        if self.kind is not int:
            raise TypeError("'float' object cannot be interpreted as an integer")
        frame = sys._getframe(1)
        numbers = self.numbers
        if not numbers.converting and numbers.loops is not None and not numbers.is_specialized(self) and \
                asks_how_many(frame.f_code, frame.f_lasti) and numbers.loops.tries(place_of(frame)):
            raise UnsafeCall("a loop runs as often as a number says that changes", where=user_location(),
                             convertible=True)
        return int(known(self))

    def __int__(self) -> int:
        self._convert("int()")
        return int(known(self))

    def __float__(self) -> float:
        self._convert("float()")
        return float(known(self))

    def in_graph(self, dtype: DType | None = None) -> Tensor:
        """A tensor of this number, new in every call."""
        wanted = dtype or DEFAULT_OF_KIND["i" if self.kind is int else "f"]
        return Tensor(self.numbers.scalar(self, wanted).payload)

    def as_index(self, size: Any) -> Any:
        """The number as an index into an axis: within the graph, where it is one in this call."""
        if self.kind is not int or type(size) is not int or not self.numbers.ask(is_index, self, size):
            return known(self) if self.kind is int else operator.index(self)
        found = self.numbers.compute(operator.add, self, size) if self.numbers.ask(operator.lt, self, 0) else self
        return found.in_graph()

    def as_dim(self) -> Dim:
        """The number as a size: a symbol, or itself where it has to be known."""
        return self.numbers.dim(self) if self.kind is int else self  # type: ignore[return-value]

    def _convert(self, what: str) -> None:
        """A capture that converts has other functions in the place of those that need a number of Python's."""
        frame = sys._getframe(2)
        while frame.f_code.co_filename in OF_SIZES_THEMSELVES and frame.f_back is not None:
            frame = frame.f_back
        if not self.numbers.converting and follows(frame.f_code):
            unsafe = UnsafeCall(f"{what} of a number that changes", where=user_location(), convertible=True)
            unsafe.sizes = symbols(self.numbers.sizes.under(self))
            raise unsafe

    def __complex__(self) -> complex:
        return complex(known(self))

    def __hash__(self) -> int:
        """Refused: what keeps this key, such as `lru_cache`, would keep a number that is none."""
        if self.numbers.ended:
            return hash(self.value)
        if not isinstance(size := self.numbers.sizes.under(self), int):
            raise PinnedSize(size)
        raise Unmoved([self.numbers.places[k] for k in self.roots])

    def __repr__(self) -> str:
        self._convert("repr()")
        return repr(known(self))

    def __str__(self) -> str:
        self._convert("str()")
        return str(known(self))

    def __format__(self, spec: str) -> str:
        self._convert("format()")
        return format(known(self), spec)

    def __array_ufunc__(self, function: np.ufunc, method: str, *args: Any, **keywords: Any) -> Any:
        """What a function of NumPy's gives, such as that of a schedule; its number is one of NumPy's."""
        if method == "__call__" and not keywords and all(map(_is_fixed, args)):
            return self.numbers.compute(function, *args)
        return getattr(function, method)(*map(known, args), **keywords)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(known(self), dtype)

    def __copy__(self) -> SymNumber:
        return self

    def __deepcopy__(self, memo: Any) -> SymNumber:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return known(self).__reduce_ex__(protocol)

    def __round__(self, digits: Any = None) -> Any:
        return self.numbers.compute(round, self) if digits is None else self.numbers.compute(round, self, digits)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self


class SymObject(SymNumber):
    """The same of a text, a date or a path, which cannot be changed: what is asked of it becomes a condition, what is
    made of it is made anew in every call."""

    __slots__ = ()
    __hash__ = SymNumber.__hash__

    def __getattr__(self, name: str) -> Any:
        kind = type(self.value)
        if name.startswith("__") or not hasattr(kind, name) or not is_computed(kind, name):
            return super().__getattr__(name)
        found = getattr(kind, name)
        return partial(self._method, found) if callable(found) else self._compute(operator.attrgetter(name), self)

    def _method(self, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """What a method gives; it may be handed anything, and keeps only what cannot change."""
        if not all(map(_is_fixed, args)) or not all(type(x) in PLAIN for x in keywords.values()):
            return method(known(self), *args, **keywords)
        return self._compute(partial(method, **keywords) if keywords else method, self, *args)

    def _compute(self, function: Callable[..., Any], *args: Any) -> Any:
        with unwatched():       # Python's library, which paths are written in
            return self.numbers.compute(function, *args)

    def __fspath__(self) -> str:
        return str(os.fspath(known(self)))


class SymScalar(SymObject):
    """The same of a number of NumPy's, which is a tensor to an operator, but for a `np.float64`."""

    __slots__ = ()
    __hash__ = SymNumber.__hash__

    def in_graph(self, dtype: DType | None = None) -> Tensor:
        """A tensor of its type."""
        return Tensor(self.numbers.scalar(self, dtype or as_dtype(self.kind)).payload)

    def as_dim(self) -> Dim:
        """The number as a size."""
        return int(self) if not issubclass(self.kind, np.integer) else self.numbers.dim(self.numbers.compute(int, self))

    def __index__(self) -> int:
        return operator.index(known(self))


class SymText(SymObject):
    """The same of a text."""

    __slots__ = ()
    __hash__ = SymNumber.__hash__

    def __len__(self) -> int:
        self._convert("len()")
        return int(self.numbers.ask(len, self))

    def __iter__(self) -> Iterator[str]:
        return iter(known(self))

    def __contains__(self, part: Any) -> bool:
        return bool(self.numbers.ask(operator.contains, self, part))

    def __getitem__(self, key: Any) -> Any:
        return self.numbers.compute(operator.getitem, self, key) if _is_fixed(key) else known(self)[key]

    def __mod__(self, values: Any) -> Any:
        return known(self) % values


SYMBOLIC = (SymNumber, SymObject, SymScalar, SymText)
OF_THE_MACHINE = ("astimezone", "timestamp")    # whose clock is set to some zone
OF_PATHS = frozenset(("name", "stem", "suffix", "suffixes", "parent", "parts", "root", "anchor", "drive", "with_name",
                      "with_stem", "with_suffix", "joinpath", "as_posix", "relative_to", "is_relative_to",
                      "is_absolute", "match"))    # which look at no file


def is_computed(kind: type, name: str) -> bool:
    """Whether an attribute of such a value follows from it, as most do."""
    if kind in PATHS:
        return name in OF_PATHS
    return name not in OF_THE_MACHINE and not isinstance(vars_of(kind, name), (classmethod, staticmethod))


def vars_of(kind: type, name: str) -> Any:
    """What a class has under a name, as it is."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _is_fixed(x: Any) -> bool:
    """Whether an argument is a plain value, or given to every call."""
    parts = x if type(x) is tuple else (x.start, x.stop, x.step) if type(x) is slice else None
    if parts is None:
        return type(x) in FIXED or type(x) in SYMBOLIC or (isinstance(x, type) and x in SCALARS)
    return all(type(part) in PLAIN for part in parts)


def is_index(x: int, size: int) -> bool:
    """Whether an axis of this size has such an index."""
    return -size <= x < size


def known(x: Any) -> Any:
    """A value as an ordinary one: of a number that changes, what it is in this call."""
    return x.numbers.know(x) if type(x) in SYMBOLIC else x


def as_dim(x: Any) -> Any:
    """A value as a size, where it is a number that changes."""
    return x.as_dim() if type(x) in (SymNumber, SymScalar) else x


def value_of(x: Any) -> Any:
    """The same, unnoticed."""
    return x.value if type(x) in SYMBOLIC else x


def nest_known(x: Any) -> Any:
    """A value that may be a tuple, list or dictionary of such values, with ordinary numbers."""
    if type(x) in (tuple, list):
        return type(x)(map(nest_known, x))
    return {k: nest_known(v) for k, v in x.items()} if type(x) is dict else known(x)


def sizes_in(value: Any) -> Any:
    """A size, or a tuple or list of sizes, with those that change as symbols."""
    return type(value)(map(as_dim, value)) if type(value) in (tuple, list) else as_dim(value)


def on_number(function: Callable[..., Any], numbers: Sequence[Any]) -> Any:
    """A pure function of Python numbers, recorded where one of them changes from call to call."""
    numbers = [number_behind(x) if issubclass(type(x), SymbolicDim) else x for x in numbers]
    first = next((x for x in numbers if type(x) in SYMBOLIC), None)
    if first is None or not all(type(x) in PYTHON or type(x) in SYMBOLIC for x in numbers):
        return function(*numbers)
    return first.numbers.compute(function, *numbers)


# ---------------------------------------------------------------- operators

def _install(name: str, of: Callable[[Any, Any], Any], asks: bool) -> None:
    def on(left: Any, right: Any, other: Any) -> Any:
        if isinstance(other, (Tensor, SymObject)) or (asks and type(other) in UNEQUAL):
            return NotImplemented
        if not (type(other) in COUNTS or type(other) is SymNumber):
            sized = issubclass(type(other), SymbolicDim)
            return of(*(as_dim(x) if sized else known(x) for x in (left, right)))
        numbers = (left if type(left) is SymNumber else right).numbers
        if asks and numbers.counts_iterations(sys._getframe(2), left, right):
            return of(*map(numbers.in_graph, (left, right)))
        return (numbers.ask if asks else numbers.compute)(of, left, right)

    def forward(self: SymNumber, other: Any, *modulus: Any) -> Any:
        return pow(known(self), known(other), *map(known, modulus)) if modulus else on(self, other, other)

    def backward(self: SymNumber, other: Any) -> Any:
        return on(other, self, other)
    setattr(SymNumber, f"__{name}__", forward)
    if not asks:
        setattr(SymNumber, f"__r{name}__", backward)


def _install_on_object(kind: type[SymObject], name: str, of: Callable[[Any, Any], Any], asks: bool) -> None:
    def on(self: SymObject, left: Any, right: Any, other: Any) -> Any:
        text = kind is SymText
        if isinstance(other, Tensor):
            return NotImplemented
        if type(other) not in (str, SymText) if text else asks and type(other) in UNEQUAL and type(other) is not str:
            return NotImplemented
        if type(other) not in FIXED and type(other) not in SYMBOLIC:
            return of(known(left), known(right))
        return self.numbers.ask(of, left, right) if asks else self._compute(of, left, right)

    setattr(kind, f"__{name}__", lambda self, other: on(self, self, other, other))
    if not asks:
        setattr(kind, f"__r{name}__", lambda self, other: on(self, other, self, other))


def _install_unary(name: str, of: Callable[[Any], Any]) -> None:
    def method(self: SymNumber) -> Any:
        return self.numbers.compute(of, self)
    setattr(SymNumber, f"__{name}__", method)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift"):
    _install(_name, getattr(operator, _name), asks=False)
for _name, _of in {"and": operator.and_, "or": operator.or_, "xor": operator.xor}.items():
    _install(_name, _of, asks=False)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _install(_name, getattr(operator, _name), asks=True)
    for _kind in (SymObject, SymText):
        _install_on_object(_kind, _name, getattr(operator, _name), asks=True)
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    _install_on_object(SymObject, _name, getattr(operator, _name), asks=False)
for _name in ("pow", "lshift", "rshift"):
    _install_on_object(SymScalar, _name, getattr(operator, _name), asks=False)
for _name, _of in {"and": operator.and_, "or": operator.or_, "xor": operator.xor}.items():
    _install_on_object(SymScalar, _name, _of, asks=False)
_install_on_object(SymText, "add", operator.add, asks=False)
for _name in ("neg", "pos", "abs", "invert"):
    _install_unary(_name, getattr(operator, _name))
for _name in ("floor", "ceil", "trunc"):
    _install_unary(_name, getattr(math, _name))
