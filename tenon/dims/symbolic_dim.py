"""Sizes that may be unknown: a dimension is an int or a symbolic expression such as `B`, `2*B + 1`, `((B + 2)//(3))`.

A symbol stands for a size of at least 2 (sizes 0 and 1 broadcast, so captures specialise on them).  An expression is a
polynomial over atoms in normal form, so equal sizes compare equal.  A question that the form cannot answer
(`B == 32`, `B > C`) is put to the innermost `assuming(...)`, which answers from the sizes at hand and records the
answer as a guard.

Users take sizes for integers: what a polynomial cannot be (a float, a key of a dictionary, text) needs the number, and
`PinnedSize` asks for a capture in which the size is one.  What numbers say of dimensions is `size_assumptions`.

A symbol such as `data_0` is a size that the data decide while the graph runs (`x[mask]` has one); it may be 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Number
from operator import index
from typing import Any, TypeAlias

from tenon.dims.undecided_sizes import UndecidedSize, asked_by_user, innermost
from tenon.records import dataclass

SMALLEST_SYMBOLIC_SIZE = 2
BY_DATA = "data_"       # begins the names of sizes that the data decide
BY_NUMBER = "number_"   # begins the names of sizes that are Python numbers, others in other calls
MAX_ATOMS = 256         # in a dimension that is read, those within atoms too; steps of a division


class PinnedSize(BaseException):
    """The program needs the numbers behind these symbols, or something for one of them: begin anew with that.

    `agreed`: a size was compared with a number and is that number in this call, which says nothing of other calls.
    Not an Exception, since user code that catches those must not see it; where it catches everything, whoever answers
    has noted it.
    """

    def __init__(self, left: Dim, right: Dim = 0, solution: tuple[str, Dim] | None = None, agreed: bool = False):
        super().__init__(f"{left} must be {right}")
        self.names = symbols(left) | symbols(right)
        self.solution, self.agreed = solution, agreed
        if (asked := innermost.get()) is not None:
            asked.note(self)


class _Compound:
    """What an atom has that is made of sizes: it is another one where these are written otherwise."""

    def parts(self) -> tuple[Dim, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compound) and type(self) is type(other) and self._terms == other._terms

    def __hash__(self) -> int:
        return hash(self._terms)

    @property
    def _terms(self) -> tuple[Any, ...]:
        return tuple(map(terms_of, self.parts()))


@dataclass(frozen=True, eq=False)
class Quotient(_Compound):
    """`numerator // denominator`, an atom of the polynomial."""

    numerator: Dim
    denominator: Dim

    def __str__(self) -> str:
        return f"(({self.numerator})//({self.denominator}))"

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        return evaluate(self.numerator, sizes) // evaluate(self.denominator, sizes)

    def parts(self) -> tuple[Dim, ...]:
        return (self.numerator, self.denominator)


@dataclass(frozen=True, eq=False)
class Maximum(_Compound):
    """`max(left, right)`, an atom of the polynomial."""

    left: Dim
    right: Dim

    def __str__(self) -> str:
        return f"max({self.left}, {self.right})"

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        return max(evaluate(self.left, sizes), evaluate(self.right, sizes))

    def parts(self) -> tuple[Dim, ...]:
        return (self.left, self.right)


Atom: TypeAlias = "str | Quotient | Maximum"
Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclass(frozen=True, eq=False)
class SymbolicDim:
    """A polynomial with integer coefficients over atoms; `terms` is sorted, without zeros, never a lone constant."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        if asked_by_user():
            return str(index(self))
        rows = [("*".join(([] if c == 1 and m else [str(c)]) + [str(a) for a in m])) for m, c in reversed(self.terms)]
        return " + ".join(rows).replace("+ -", "- ")

    def __repr__(self) -> str:
        return str(index(self)) if asked_by_user() else str(self)

    def __format__(self, spec: str) -> str:
        return format(index(self) if asked_by_user() else str(self), spec)

    def __hash__(self) -> int:
        return hash(index(self) if asked_by_user() else self.terms)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int if asked_by_user() else SymbolicDim

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(int, name) or innermost.get() is None:
            raise AttributeError(f"a symbolic size has no attribute {name!r}")
        return getattr(index(self), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np  # local: sizes do without
        return np.asarray(index(self), dtype)

    def __add__(self, other: Dim) -> Dim:
        return _collect([*self.terms, *terms_of(other)])

    def __sub__(self, other: Dim) -> Dim:
        return _collect([*self.terms, *((m, -c) for m, c in terms_of(other))])

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __neg__(self) -> Dim:
        return _collect((m, -c) for m, c in self.terms)

    def __mul__(self, other: Dim) -> Dim:
        return _collect((tuple(sorted(m + n, key=str)), c * d) for m, c in self.terms for n, d in terms_of(other))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        if other == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        found = divide_exactly(self, other)
        found = _divide_by_term(self, other) if found is None else found
        return _collect([((Quotient(self, other),), 1)]) if found is None else found

    def __rfloordiv__(self, other: Dim) -> Dim:
        if self == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        return _collect([((Quotient(other, self),), 1)]) if other != 0 else 0

    def __mod__(self, other: Dim) -> Dim:
        return self - (self // other) * other

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            return other.is_integer() and self == int(other)
        if not isinstance(other, (int, SymbolicDim)):
            return NotImplemented
        return (isinstance(other, SymbolicDim) and self.terms == other.terms) or _ask(self, "==", other)

    def __lt__(self, other: Dim) -> bool:
        return _ask(self, "<", other)

    def __le__(self, other: Dim) -> bool:
        return not _ask(other, "<", self)

    def __gt__(self, other: Dim) -> bool:
        return _ask(other, "<", self)

    def __ge__(self, other: Dim) -> bool:
        return not _ask(self, "<", other)

    def __bool__(self) -> bool:
        return not _ask(self, "==", 0)

    def __index__(self) -> int:
        if (asked := innermost.get()) is None:
            raise UndecidedSize(f"the size {self} is symbolic, and an exact number is needed here")
        raise asked.needed(self)


Dim: TypeAlias = int | SymbolicDim


def _polynomial(operation: Callable[..., Dim]) -> Callable[..., Any]:
    """The operation on sizes; on the number where the other operand is of another kind of number."""
    def method(self: SymbolicDim, other: Any) -> Any:
        other = other.as_dim() if hasattr(type(other), "as_dim") else other     # a number that changes, in a capture
        if isinstance(other, (Integral, SymbolicDim)):
            return operation(self, other)
        return getattr(number_behind(self), operation.__name__)(other) if isinstance(other, Number) else NotImplemented
    return method


def _on_number(name: str) -> Callable[..., Any]:
    """A method of integers, which needs the number."""
    def method(self: SymbolicDim, *others: Any) -> Any:
        if all(isinstance(other, (Number, SymbolicDim)) for other in others):
            others = tuple([number_behind(other) if isinstance(other, SymbolicDim) else other for other in others])
            return getattr(number_behind(self), name)(*others)
        return NotImplemented
    return method


def number_behind(dim: SymbolicDim) -> Any:
    """The number behind a size: in a capture what stands for it in every call, where that can be."""
    asked = innermost.get()
    return index(dim) if asked is None or is_by_data(dim) else asked.number(dim)


def length_of(dim: Dim) -> int:
    """A size for Python's `len`, which takes nothing but an int."""
    return dim if isinstance(dim, int) else int(number_behind(dim))


for _name in ("add", "sub", "rsub", "mul", "floordiv", "rfloordiv", "mod", "radd", "rmul", "lt", "le", "gt", "ge"):
    setattr(SymbolicDim, f"__{_name}__", _polynomial(getattr(SymbolicDim, f"__{_name}__")))
for _name in ("truediv", "rtruediv", "pow", "rpow", "rmod", "divmod", "rdivmod", "float", "complex", "round", "trunc",
              "floor", "ceil", "int", "pos", "abs", "invert", "lshift", "rlshift", "rshift", "rrshift", "and", "rand",
              "or", "ror", "xor", "rxor"):
    setattr(SymbolicDim, f"__{_name}__", _on_number(f"__{_name}__"))


def symbol(name: str) -> SymbolicDim:
    """The size called `name`.

    >>> B = symbol("B")
    >>> print((B + 2) * 3, (4 * B + 1) // 2, B // 3)
    3*B + 6 2*B ((B)//(3))
    """
    return SymbolicDim((((name,), 1),))


def evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The number that `dim` is when its symbols have these sizes."""
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        for atom in monomial:
            coefficient *= sizes[atom] if isinstance(atom, str) else atom.evaluate(sizes)
        total += coefficient
    return total


def symbols(dim: Dim) -> set[str]:
    """The names of the symbols in `dim`."""
    if isinstance(dim, int):
        return set()
    atoms = [atom for monomial, _ in dim.terms for atom in monomial]
    nested = (symbols(part) for atom in atoms if not isinstance(atom, str) for part in atom.parts())
    return {atom for atom in atoms if isinstance(atom, str)}.union(*nested)


def is_by_data(dim: Dim) -> bool:
    """Whether the data decide a size.

    >>> is_by_data(symbol("data_0") + 1), is_by_data(symbol("B")), is_by_data(3)
    (True, False, False)
    """
    return not isinstance(dim, int) and any(name.startswith(BY_DATA) for name in symbols(dim))


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dimension with these expressions in the place of symbols.

    >>> B, C = symbol("B"), symbol("C")
    >>> print(substitute(B * 2 + B // 3, {"B": C * 3}))
    7*C
    """
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        total = total + product([_substitute_atom(atom, values) for atom in monomial]) * coefficient
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, str):
        return values.get(atom, symbol(atom))
    left, right = (substitute(part, values) for part in atom.parts())
    return left // right if isinstance(atom, Quotient) else maximum(left, right)


def maximum(left: Dim, right: Dim) -> Dim:
    """The larger of two sizes."""
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    low = bounds(left - right)
    if low[0] is not None and low[0] >= 0:
        return left
    if low[1] is not None and low[1] <= 0:
        return right
    return _collect([((Maximum(left, right),), 1)])


def product(dims: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _ask(left: Dim, relation: str, right: Dim) -> bool:
    low, high = bounds(left - right)
    if relation == "<" and low is not None and low >= 0:
        return False
    if relation == "<" and high is not None and high < 0:
        return True
    if relation == "==" and ((low is not None and low > 0) or (high is not None and high < 0)):
        return False
    if low is not None and low == high:
        return compare(low, relation, 0)
    if (asked := innermost.get()) is not None:
        return asked.answer(left, relation, right)
    if relation == "==":
        return False
    raise UndecidedSize(f"whether {left} {relation} {right} depends on the sizes at run time")


def compare(left: int, relation: str, right: int) -> bool:
    """What "<" or "==" says of two numbers."""
    return left == right if relation == "==" else left < right


def bounds(dim: Dim) -> tuple[int | None, int | None]:
    """A lower and an upper bound that hold for every size; None is unknown.

    Each atom is written as its least value and what it is beyond that, which is not negative.

    >>> B, C = symbol("B"), symbol("C")
    >>> bounds(B * C - B), bounds((B + 1) // 2), bounds(3 - B), bounds(B - C)
    ((2, None), (1, None), (None, 1), (None, None))
    """
    if isinstance(dim, int):
        return dim, dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        factors = [_beyond_least(atom) for atom in monomial]
        if None in factors:
            return None, None
        total = total + product(x for x in factors if x is not None) * coefficient
    smallest = sum(coefficient for monomial, coefficient in terms_of(total) if not monomial)
    signs = {coefficient > 0 for monomial, coefficient in terms_of(total) if monomial}
    return (None if False in signs else smallest), (None if True in signs else smallest)


def _beyond_least(atom: Atom) -> Dim | None:
    """An atom that is counted from its least value, plus that value; None where nothing is known of it."""
    if isinstance(atom, str):
        least: int | None = smallest_size(atom)
    else:
        left, right = (bounds(part)[0] for part in atom.parts())
        if isinstance(atom, Maximum):
            least = max((x for x in (left, right) if x is not None), default=None)
        elif left is None or right is None or right <= 0:
            least = None
        else:
            least = left // atom.denominator if isinstance(atom.denominator, int) else min(left, 0)
    return None if least is None else SymbolicDim((((atom,), 1),)) + least


def smallest_size(name: str) -> int:
    """The least that a symbol stands for."""
    return 0 if name.startswith(BY_DATA) else SMALLEST_SYMBOLIC_SIZE


def terms_of(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, SymbolicDim) else (((), int(dim)),)


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = {monomial: c for monomial, c in total.items() if c}
    if not kept.keys() - {()}:
        return kept.get((), 0)
    return SymbolicDim(tuple(sorted(kept.items(), key=lambda item: (len(item[0]), str(item[0])))))


def divide_exactly(dim: Dim, divisor: Dim) -> Dim | None:
    """The quotient when the division leaves no remainder for any size, else None: long division of polynomials."""
    monomial, coefficient = terms_of(divisor)[-1]
    quotient: Dim = 0
    rest: Dim = dim
    for _ in range(MAX_ATOMS):
        if isinstance(rest, int) and rest == 0:
            return quotient
        lead, times = terms_of(rest)[-1]
        left = without(lead, monomial)
        if left is None or times % coefficient:
            return None
        part = _collect([(left, times // coefficient)])
        quotient, rest = quotient + part, rest - divisor * part
    return None


def _divide_by_term(dim: SymbolicDim, divisor: Dim) -> Dim | None:
    """The quotient where what a divisor of one term leaves over is less than it, or needs less than one more."""
    ((monomial, coefficient), *others) = terms_of(divisor)
    if others or coefficient < 0:
        return None
    whole = [(left, c // coefficient) for m, c in dim.terms if (left := without(m, monomial)) is not None]
    quotient = _collect(whole)
    for q in (quotient, quotient - 1):
        rest = dim - divisor * q
        if _is_natural(rest) and _is_natural(divisor - rest - 1):
            return q
    return None


def _is_natural(dim: Dim) -> bool:
    low = bounds(dim)[0]
    return low is not None and low >= 0


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """The monomial divided by another one; None where it is no multiple."""
    rest = list(monomial)
    for atom in factors:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
