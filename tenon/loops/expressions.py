"""Expressions of the loop IR: what a scalar is.

    Expr  = Const(value, dtype) | Size(dim) | Index(name, extent) | Local(name, dtype)
          | Load(buffer, offset, mask) | Binary(op, left, right) | Call(name, args)
          | Select(condition, then, otherwise) | Cast(x, dtype) | Bits(x, dtype)
          | Reduce(kind, indices, body, extents) | CheckedIndex(x, size, mask, where)

Expressions are interned: equal ones are one object, so `==` is `is`, and a repeated sub-expression is computed once.
A load gives the element at a flat, row-major offset, or zero (and touches no memory) where its mask is false.  Index
expressions are int64.  Floats narrower than 32 bits are float32 until they are stored or cast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim, SymbolicDim, product
from tenon.errors import Location
from tenon.loops.hash_consing import Interned
from tenon.loops.traversal import in_order
from tenon.records import dataclass
from tenon.types import DType, TensorType, bool_, float32, int64

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "min", "max")
OPERATION = {"add": "+", "mul": "*", "min": "min", "max": "max", "any": "|", "all": "&"}     # of each reduction
REDUCTIONS = tuple(OPERATION)
DEFAULT_TYPES = {bool: bool_, int: int64, float: float32}      # of numbers that stand beside nothing else
NUMBER_OF_KIND = {"b": bool, "i": int, "u": int, "f": float}


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory with a type.  `role`: input, output, temporary (shared, between nests), local (private to a thread)."""

    name: str
    type: TensorType
    role: str

    @property
    def elements(self) -> Dim:
        return product(self.type.shape)


class Expr(metaclass=Interned):
    """A scalar.  Python operators make expressions; `==` compares structure, not value."""

    dtype: DType
    _free: frozenset[Index]     # found when asked for, and kept
    _below: tuple[Expr, ...]
    _simple: Expr | None        # None where it is in simplest form itself: not a cycle, so that it goes when unused
    _kinds: frozenset[type]
    _parts: dict[type, tuple[Any, ...]]     # those of a kind, of `_below`
    _affine: Any = None         # notes of tenon.loops.simplify_expressions
    _bounds: Any = None
    _text: str

    def children(self) -> tuple[Expr, ...]:
        """The expressions that this one is made of."""
        return ()

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        """The same expression made of other parts."""
        return self

    @property
    def free(self) -> frozenset[Index]:
        """The indices that it depends on."""
        try:
            return self._free
        except AttributeError:
            self._free = self._find_free()
            return self._free

    def _find_free(self) -> frozenset[Index]:
        parts = [x.free for x in self.children()]
        return parts[0].union(*parts[1:]) if parts else frozenset()

    @property
    def kinds(self) -> frozenset[type]:
        """The kinds of expression that it is made of, its own among them."""
        try:
            return self._kinds
        except AttributeError:
            self._kinds = _KINDS.setdefault(found := frozenset((type(self),)).union(
                *[x.kinds for x in self.children()]), found)
            return self._kinds

    @property
    def below(self) -> tuple[Expr, ...]:
        """Every distinct expression that this one is made of, parts before the whole."""
        try:
            return self._below
        except AttributeError:
            self._below = tuple(in_order(self.children()))
            return self._below

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            self._text = self.text()
            return self._text

    __repr__ = __str__

    def text(self) -> str:
        """How the expression is written."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Expr: return binary("+", self, other)
    def __radd__(self, other: Any) -> Expr: return binary("+", other, self)
    def __sub__(self, other: Any) -> Expr: return binary("-", self, other)
    def __rsub__(self, other: Any) -> Expr: return binary("-", other, self)
    def __mul__(self, other: Any) -> Expr: return binary("*", self, other)
    def __rmul__(self, other: Any) -> Expr: return binary("*", other, self)
    def __truediv__(self, other: Any) -> Expr: return binary("/", self, other)
    def __rtruediv__(self, other: Any) -> Expr: return binary("/", other, self)
    def __floordiv__(self, other: Any) -> Expr: return binary("//", self, other)
    def __rfloordiv__(self, other: Any) -> Expr: return binary("//", other, self)
    def __mod__(self, other: Any) -> Expr: return binary("%", self, other)
    def __rmod__(self, other: Any) -> Expr: return binary("%", other, self)
    def __and__(self, other: Any) -> Expr: return binary("&", self, other)
    def __rand__(self, other: Any) -> Expr: return binary("&", other, self)
    def __or__(self, other: Any) -> Expr: return binary("|", self, other)
    def __ror__(self, other: Any) -> Expr: return binary("|", other, self)
    def __xor__(self, other: Any) -> Expr: return binary("^", self, other)
    def __rxor__(self, other: Any) -> Expr: return binary("^", other, self)
    def __lshift__(self, other: Any) -> Expr: return binary("<<", self, other)
    def __rlshift__(self, other: Any) -> Expr: return binary("<<", other, self)
    def __rshift__(self, other: Any) -> Expr: return binary(">>", self, other)
    def __rrshift__(self, other: Any) -> Expr: return binary(">>", other, self)
    def __lt__(self, other: Any) -> Expr: return binary("<", self, other)
    def __le__(self, other: Any) -> Expr: return binary("<=", self, other)
    def __gt__(self, other: Any) -> Expr: return binary(">", self, other)
    def __ge__(self, other: Any) -> Expr: return binary(">=", self, other)
    def __neg__(self) -> Expr: return Call("neg", (self,))
    def __invert__(self) -> Expr: return Call("not", (self,))

    def __bool__(self) -> bool:
        raise TypeError("a value that is known only when the kernel runs has no truth; use s.select or s.when")


@dataclass(eq=False, repr=False)
class Const(Expr):
    """A number."""

    value: bool | int | float
    dtype: DType

    @staticmethod
    def key(value: Any, dtype: DType) -> tuple[Any, ...]:
        """What makes two of them equal: 0.0 and -0.0 differ, a NaN equals itself."""
        return repr(value), dtype

    def text(self) -> str:
        return repr(self.value) if DEFAULT_TYPES.get(type(self.value)) is self.dtype else self.in_full()

    def in_full(self) -> str:
        """With its type, which nothing beside it tells."""
        return f"const({self.value!r}, {self.dtype.short})"


@dataclass(eq=False, repr=False)
class SizeOf(Expr):
    """A symbolic size, known when the kernel runs."""

    dim: SymbolicDim

    def __post_init__(self) -> None:
        self.dtype = int64

    def text(self) -> str:
        return said if (said := str(self.dim)).isidentifier() else f"size({said})"


@dataclass(eq=False, repr=False)
class Index(Expr):
    """A loop variable: 0 .. extent - 1."""

    name: str
    extent: Dim

    def __post_init__(self) -> None:
        self.dtype = int64

    def _find_free(self) -> frozenset[Index]:
        return frozenset((self,))

    def text(self) -> str:
        return self.name


@dataclass(eq=False, repr=False)
class Local(Expr):
    """A scalar that a statement made."""

    name: str
    dtype: DType

    def text(self) -> str:
        return self.name


@dataclass(eq=False, repr=False)
class Load(Expr):
    """The element of `buffer` at a flat offset; zero, without touching memory, where the mask is false."""

    buffer: Buffer
    offset: Expr
    mask: Expr | None

    def __post_init__(self) -> None:
        self.dtype = self.buffer.type.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.offset,) if self.mask is None else (self.offset, self.mask)

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return Load(self.buffer, children[0], children[1] if self.mask is not None else None)

    def text(self) -> str:
        element = f"{self.buffer.name}[{self.offset}]"
        return element if self.mask is None else f"({element} if {self.mask} else 0)"


@dataclass(eq=False, repr=False)
class Binary(Expr):
    """`left op right`, both of one type; a comparison gives bool."""

    op: str
    left: Expr
    right: Expr

    def __post_init__(self) -> None:
        assert self.left.dtype is self.right.dtype, f"{self.left} {self.op} {self.right}: types differ"
        self.dtype = bool_ if self.op in COMPARISONS else self.left.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.left, self.right

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return Binary(self.op, *children)

    def text(self) -> str:
        left, right = beside(self.left, self.right), beside(self.right, self.left)
        if self.op in ("min", "max"):
            return f"{self.op}({left}, {right})"
        return f"{_operand(self.left, left, self.op, False)} {self.op} {_operand(self.right, right, self.op, True)}"


@dataclass(eq=False, repr=False)
class Call(Expr):
    """A function of the backend's mathematics, or one of neg, not, isnan, product (which no sum is fused with)."""

    name: str
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self.dtype = bool_ if self.name == "isnan" else self.args[0].dtype

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return Call(self.name, children)

    def text(self) -> str:
        first = next((x for x in self.args if not isinstance(x, Const)), None)
        args = [str(x) if first is None else beside(x, first) for x in self.args]
        return f"{'not_' if self.name == 'not' else self.name}({', '.join(args)})"


@dataclass(eq=False, repr=False)
class Select(Expr):
    """`then` where the condition holds, else `otherwise`; both are computed."""

    condition: Expr
    then: Expr
    otherwise: Expr

    def __post_init__(self) -> None:
        assert self.condition.dtype is bool_ and self.then.dtype is self.otherwise.dtype, f"select: {self}"
        self.dtype = self.then.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.condition, self.then, self.otherwise

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return Select(*children)

    def text(self) -> str:
        then, otherwise = beside(self.then, self.otherwise), beside(self.otherwise, self.then)
        if isinstance(self.otherwise, Const) and otherwise == "0" and isinstance(self.then, Load):
            otherwise = self.otherwise.in_full()        # else it would read as a load with a mask
        return f"({then} if {self.condition} else {otherwise})"


@dataclass(eq=False, repr=False)
class Cast(Expr):
    """The value as another type, as NumPy's astype."""

    x: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return Cast(children[0], self.dtype)

    def text(self) -> str:
        return f"{self.dtype.short}({self.x})"


@dataclass(eq=False, repr=False)
class BitsOf(Expr):
    """The bits as another type of the same width."""

    x: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.x,)

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return BitsOf(children[0], self.dtype)

    def text(self) -> str:
        return f"bits_{self.dtype.short}({self.x})"


@dataclass(eq=False, repr=False)
class Reduce(Expr):
    """`body` combined over all values of the indices; each runs to its extent, which may be less than the index's."""

    kind: str
    indices: tuple[Index, ...]
    body: Expr
    extents: tuple[Expr, ...]

    def __post_init__(self) -> None:
        assert self.kind in REDUCTIONS, self.kind
        self.dtype = self.body.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.body, *self.extents)

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        return Reduce(self.kind, self.indices, children[0], children[1:])

    def _find_free(self) -> frozenset[Index]:
        return (self.body.free - frozenset(self.indices)).union(*(x.free for x in self.extents))

    def text(self) -> str:
        ranges = " ".join(f"for {i} in range({iterations_text(i, n)})"
                          for i, n in zip(self.indices, self.extents, strict=True))
        return f"{self.kind}({self.body} {ranges})"


@dataclass(eq=False, repr=False)
class CheckedIndex(Expr):
    """A data-dependent index: negative counts from the end; outside of `size` is the user's error at `where`.

    One that does not wrap is a position in memory, of which a negative one is outside.
    """

    x: Expr
    size: Dim
    mask: Expr | None
    where: Location | None
    operator: str = ""
    wraps: bool = True

    def __post_init__(self) -> None:
        self.dtype = int64

    def children(self) -> tuple[Expr, ...]:
        return (self.x,) if self.mask is None else (self.x, self.mask)

    def rebuilt(self, children: tuple[Expr, ...]) -> Expr:
        mask = children[1] if self.mask is not None else None
        return CheckedIndex(children[0], self.size, mask, self.where, self.operator, self.wraps)

    def text(self) -> str:
        more = ("" if self.mask is None else f", mask={self.mask}") + ("" if self.wraps else ", wraps=False")
        return f"checked({self.x}, {self.size}{more}{f', operator={self.operator!r}' if self.operator else ''})"


_KINDS: dict[frozenset[type], frozenset[type]] = {}      # so that equal sets, of which there are few, are one


def constant(value: Any, dtype: DType) -> Const:
    """A number of this type, rounded or wrapped to it."""
    if dtype.kind == "b":
        return Const(bool(value), dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return Const(float(np.asarray(float(value)).astype(dtype.numpy)), dtype)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return Const(wrapped - (1 << dtype.bits) if dtype.kind == "i" and wrapped >> (dtype.bits - 1) else wrapped, dtype)


def size(dim: Dim) -> Expr:
    """A size as an index expression."""
    return _number(dim) if isinstance(dim, int) else SizeOf(dim)


@lru_cache(maxsize=4096)
def _number(value: int) -> Expr:
    return Const(int(value), int64)         # True == 1 finds what it left


def lift(value: Any, dtype: DType) -> Expr:
    """An operand of an expression of this type: expressions as they are, numbers and sizes converted."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, SymbolicDim):
        return SizeOf(value) if dtype is int64 else Cast(SizeOf(value), dtype)
    return constant(value, dtype)


def binary(op: str, left: Any, right: Any) -> Expr:
    """`left op right`, where either may be a number or a size."""
    dtype = left.dtype if isinstance(left, Expr) else right.dtype
    return Binary(op, lift(left, dtype), lift(right, dtype))


_PRECEDENCE = {"*": 5, "/": 5, "//": 5, "%": 5, "+": 4, "-": 4, "<<": 3, ">>": 3, "&": 2, "^": 1, "|": 0,
               "<": -1, "<=": -1, ">": -1, ">=": -1, "==": -1, "!=": -1}


def _operand(x: Expr, text: str, op: str, right: bool) -> str:
    """An operand, in parentheses where it binds less tightly."""
    if isinstance(x, Binary) and x.op in _PRECEDENCE:
        inner, outer = _PRECEDENCE[x.op], _PRECEDENCE[op]
        if inner < outer or (inner == outer and (right or inner < 0)):
            return f"({text})"
    return text


def factor_text(x: Expr) -> str:
    """A factor, in parentheses where it is an operation."""
    return f"({x})" if isinstance(x, Binary) and x.op in _PRECEDENCE else str(x)


def beside(x: Expr, other: Expr | DType) -> str:
    """How an expression is written beside another one, or where one of a type stands, which tells the type of a number.
    """
    if not isinstance(x, Const) or isinstance(other, Const):
        return str(x)
    told = other.dtype if isinstance(other, Expr) else other
    return repr(x.value) if told is x.dtype and type(x.value) is NUMBER_OF_KIND[told.kind] else x.in_full()


def iterations_text(index: Index, extent: Expr) -> str:
    """How often a loop runs, and at most where that is more: `12`, or `min(4, n), most=4`."""
    return str(extent) if extent is size(index.extent) else f"{extent}, most={index.extent}"


def identity(kind: str, dtype: DType) -> Const:
    """What a reduction over nothing gives."""
    if kind in ("min", "max") and dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return constant(info.max if kind == "min" else info.min, dtype)
    value = {"add": 0, "mul": 1, "min": float("inf"), "max": -float("inf"), "any": 0, "all": 1}[kind]
    return constant(kind == "min" if dtype.kind == "b" and kind in ("min", "max") else value, dtype)
