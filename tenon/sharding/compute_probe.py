"""An operator's compute rule -> its axis rule: the rule is run once on indices that only remember where they go.

An axis that a rule reads at exactly the index of an axis of the output goes together with that axis; one that it reads
at the index of a sum is combined by adding.  Wherever an index is more than that (shifted, compared, made of two), the
axis has to be whole.  What an output is linear in is read off in the same run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tenon.graph.axis_rule import AxisRule, Label, Labels, Monomial, Terms
from tenon.graph.ir import Node, Value
from tenon.records import dataclass
from tenon.sharding.axis_layout import numbers_of
from tenon.types import DType, Shape, bool_, int64

MAX_TERMS = 16
ZERO: Terms = frozenset()
ONE: Terms = frozenset([frozenset()])
COMBINING = {"add": "add", "max": "max", "min": "min"}      # kinds of reduction whose parts a collective combines


class CannotProbe(Exception):
    """A compute rule asks what only numbers can answer."""


@dataclass(frozen=True)
class ProbeIndex:
    """An index: of an axis of the output, or of a reduction."""

    name: str
    extent: int


Pending = frozenset[tuple[ProbeIndex, str]]       # reductions whose parts may still be combined later


class Probe:
    """A scalar of a compute rule: which indices it depends on by more than reading there, and what it is linear in."""

    __slots__ = ("dtype", "index", "pending", "terms", "uses")

    def __init__(self, dtype: DType, terms: Terms = ONE, uses: frozenset[ProbeIndex] = frozenset(),
                 pending: Pending = frozenset(), index: ProbeIndex | int | None = None):
        self.dtype, self.terms, self.uses, self.pending, self.index = dtype, terms, uses, pending, index

    def __bool__(self) -> bool:
        raise CannotProbe

    def __add__(self, other: Any) -> Probe: return _sum(self, other, 1)
    def __radd__(self, other: Any) -> Probe: return _sum(self, other, 1)
    def __sub__(self, other: Any) -> Probe: return _sum(self, other, -1)
    def __rsub__(self, other: Any) -> Probe: return _sum(_lifted(other, self.dtype), self, -1)
    def __mul__(self, other: Any) -> Probe: return _product(self, other)
    def __rmul__(self, other: Any) -> Probe: return _product(self, other)
    def __truediv__(self, other: Any) -> Probe: return _quotient(self, other)
    def __floordiv__(self, other: Any) -> Probe: return _divided(self, other)
    def __mod__(self, other: Any) -> Probe: return _remainder(self, other)
    def __neg__(self) -> Probe: return Probe(self.dtype, self.terms, self.uses, self.pending)
    def __invert__(self) -> Probe: return _opaque(self.dtype, self)
    def __lt__(self, other: Any) -> Probe: return _opaque(bool_, self, other)
    def __le__(self, other: Any) -> Probe: return _opaque(bool_, self, other)
    def __gt__(self, other: Any) -> Probe: return _opaque(bool_, self, other)
    def __ge__(self, other: Any) -> Probe: return _opaque(bool_, self, other)

    def _mixed(self, other: Any) -> Probe: return _opaque(self.dtype, self, other)

    __rtruediv__ = __rfloordiv__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _mixed
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _mixed


def _lifted(x: Any, dtype: DType) -> Probe:
    if isinstance(x, Probe):
        return x
    return Probe(dtype, ZERO if x == 0 else ONE, index=int(x) if isinstance(x, int) else None)


def _nonlinear(x: Probe) -> Terms:
    """The terms of a function of `x` that is not linear."""
    read = {k for term in x.terms for k, _ in term}
    return frozenset([frozenset((k, 2) for k in read)])


def _closed(x: Probe) -> frozenset[ProbeIndex]:
    """The indices of `x`, where its reductions may not be left to be combined."""
    return x.uses | {variable for variable, _ in x.pending}


def _opaque(dtype: DType, *xs: Any) -> Probe:
    """A function of these that nothing is known of."""
    listed = [_lifted(x, dtype) for x in xs]
    terms: Terms = ONE
    for x in listed:
        terms = _times(terms, _nonlinear(x))
    return Probe(dtype, terms, frozenset().union(*map(_closed, listed)))


def _times(a: Terms, b: Terms) -> Terms:
    return frozenset(_monomial(p, q) for p in a for q in b)


def _monomial(p: Monomial, q: Monomial) -> Monomial:
    both = {k for k, _ in p} & {k for k, _ in q}
    return frozenset((k, 2 if k in both else power) for k, power in p | q)


def _sum(x: Probe, other: Any, sign: int) -> Probe:
    y = _lifted(other, x.dtype)
    if y.index == 0:
        return x
    if x.index == 0 and sign > 0:
        return y
    index = x.index + sign * y.index if isinstance(x.index, int) and isinstance(y.index, int) else None
    terms = x.terms | y.terms
    if len(terms) > MAX_TERMS:
        return _opaque(x.dtype, x, y)
    kept = (x.pending if not y.terms else y.pending if not x.terms else
            frozenset(p for p in x.pending & y.pending if p[1] == "add"))
    uses = x.uses | y.uses | {variable for variable, _ in (x.pending | y.pending) - kept}
    return Probe(x.dtype, terms, uses, kept, index)


def _product(x: Probe, other: Any) -> Probe:
    y = _lifted(other, x.dtype)
    if y.index == 1:
        return x
    if x.index == 1:
        return y
    index = x.index * y.index if isinstance(x.index, int) and isinstance(y.index, int) else None
    shared = {p for p in x.pending | y.pending if p[1] != "add" or p in x.pending & y.pending}
    kept = frozenset((x.pending | y.pending) - shared)
    return Probe(x.dtype, _times(x.terms, y.terms), x.uses | y.uses | {variable for variable, _ in shared}, kept, index)


def _quotient(x: Probe, y: Any) -> Probe:
    y = _lifted(y, x.dtype)
    return _product(x, Probe(y.dtype, _nonlinear(y), _closed(y)))


def _divided(x: Probe, y: Any) -> Probe:
    if isinstance(x.index, ProbeIndex) and isinstance(y, int) and y >= x.index.extent:
        return _lifted(0, int64)
    return x if isinstance(y, int) and y == 1 else _opaque(x.dtype, x, y)


def _remainder(x: Probe, y: Any) -> Probe:
    inside = isinstance(x.index, ProbeIndex) and isinstance(y, int) and y >= x.index.extent
    return x if inside else _opaque(x.dtype, x, y)


class ProbeScalars:
    """What `s` is in a compute rule that is probed."""

    def __init__(self) -> None:
        self.count = itertools.count()

    def const(self, value: Any, dtype: DType) -> Probe:
        return Probe(dtype, ZERO if value == 0 else ONE, index=value if type(value) is int else None)

    def cast(self, x: Any, dtype: DType) -> Probe:
        x = _lifted(x, int64)
        exact = x.dtype is dtype or (x.dtype.kind in "buif" and dtype.kind == "f" and x.dtype.bits <= dtype.bits) or (
            x.dtype.kind in "bui" and dtype.kind in "iu" and x.dtype.bits < dtype.bits)
        if not exact and x.dtype.kind == dtype.kind == "i":
            exact = x.index is not None
        return Probe(dtype, x.terms, x.uses, x.pending, x.index) if exact else _opaque(dtype, x)

    def bits(self, x: Any, dtype: DType) -> Probe:
        return _opaque(dtype, x)

    def select(self, condition: Any, x: Any, y: Any) -> Probe:
        dtype = x.dtype if isinstance(x, Probe) else y.dtype
        chosen = _sum(Probe(dtype, *_parts(_lifted(x, dtype))), Probe(dtype, *_parts(_lifted(y, dtype))), 1)
        return _product(chosen, _opaque(dtype, condition))

    def when(self, condition: Any, x: Callable[[], Any], otherwise: Any) -> Probe:
        return self.select(condition, x(), otherwise)

    def eq(self, x: Any, y: Any) -> Probe: return _opaque(bool_, x, y)
    def ne(self, x: Any, y: Any) -> Probe: return _opaque(bool_, x, y)
    def minimum(self, x: Any, y: Any) -> Probe: return _opaque(_dtype(x, y), x, y)
    def maximum(self, x: Any, y: Any) -> Probe: return _opaque(_dtype(x, y), x, y)
    def isnan(self, x: Any) -> Probe: return _opaque(bool_, x)
    def product(self, x: Any, y: Any) -> Probe: return _product(x, y)

    def call(self, name: str, *args: Any) -> Probe:
        return -args[0] if name == "neg" else _opaque(_dtype(*args), *args)

    def index(self, x: Any, size: Any) -> Probe:
        return _opaque(int64, x)

    def reduce(self, kind: str, extents: Sequence[Any], body: Callable[[Any], Any]) -> Probe:
        variables = [ProbeIndex(f"r{next(self.count)}", n) for n in extents]
        inner = body(tuple(Probe(int64, uses=frozenset([v]), index=v) for v in variables))
        if kind not in COMBINING:
            return _opaque(int64 if kind.startswith("arg") else inner.dtype, inner,
                           Probe(int64, uses=frozenset(variables)))
        kept = frozenset(p for p in inner.pending if p[1] == kind)
        uses = inner.uses | {v for v, other in inner.pending if other != kind}
        terms = inner.terms if kind == "add" else _nonlinear(inner)
        return Probe(inner.dtype, terms, uses, kept | {(v, COMBINING[kind]) for v in variables if v not in uses})


def _parts(x: Probe) -> tuple[Terms, frozenset[ProbeIndex], Pending]:
    return x.terms, x.uses, x.pending


def _dtype(*xs: Any) -> DType:
    found: DType = next(x.dtype for x in xs if isinstance(x, Probe))
    return found


class ProbeRead:
    """What a rule sees of an input: it notes the indices that are read."""

    def __init__(self, number: int, shape: Shape, dtype: DType, literal: Any = None):
        self.number, self.shape, self.dtype, self.ndim = number, shape, dtype, len(shape)
        self.literal = literal
        self.read: list[set[ProbeIndex | None]] = [set() for _ in shape]

    def __call__(self, index: Sequence[Any]) -> Probe:
        if self.literal is not None:
            return Probe(self.dtype, ZERO if self.literal == 0 else ONE)
        terms: Terms = frozenset([frozenset([(self.number, 1)])])
        uses: frozenset[ProbeIndex] = frozenset()
        for axis, (at, n) in enumerate(zip(index, self.shape, strict=True)):
            at = _lifted(at, int64)
            exact = at.index if isinstance(at.index, ProbeIndex) and at.index.extent == n else None
            self.read[axis].add(exact)
            if exact is None:
                uses |= _closed(at)
                terms = _times(terms, _nonlinear(at))
        return Probe(self.dtype, terms, uses)


def probed(node: Node) -> AxisRule | None:
    """The axis rule of a node, read off its compute rule; None where it cannot be."""
    assert node.op.compute is not None
    reads = [None if x is None else ProbeRead(k, x.shape, x.dtype, None if isinstance(x, Value) else x.value)
             for k, x in enumerate(node.inputs)]
    axes = tuple(ProbeIndex(f"i{k}", n) for k, n in enumerate(numbers_of(node.output)))
    indices = tuple(Probe(int64, uses=frozenset([v]), index=v) for v in axes)
    try:
        out = node.op.compute(ProbeScalars(), indices, *reads, **node.attrs)
    except Exception:       # of whatever a rule asks; without one, everything is whole, which is always right
        return None
    listed = [_lifted(x, y.dtype) for x, y in zip(out if isinstance(out, tuple) else (out,), node.outputs, strict=True)]
    whole = _whole(listed, reads)

    def labels(variables: Iterable[ProbeIndex | None]) -> Labels:
        return tuple(None if v in whole else v for v in variables)

    def of_input(x: ProbeRead | None) -> Labels:
        return () if x is None else labels(next(iter(found)) if len(found) == 1 else None for found in x.read)
    combined: dict[Label, str] = {v: kind for x in listed for v, kind in x.pending if v not in whole}
    terms = listed[0].terms if len(listed) == 1 else None
    return AxisRule(tuple(map(of_input, reads)), (labels(axes),) * len(listed), combined, terms)


def _whole(outputs: Sequence[Probe], reads: Sequence[ProbeRead | None]) -> set[ProbeIndex]:
    """The indices along which nothing may be split."""
    found: set[ProbeIndex] = set().union(*(x.uses for x in outputs))
    pending = [dict(x.pending) for x in outputs]
    for x in reads:
        for variables in x.read if x is not None else ():
            exact = {v for v in variables if v is not None}
            if len(variables) > 1:
                found |= exact
            found |= {v for v in exact if v.name.startswith("r") and any(v not in p for p in pending)}
    return found
