"""Compute rules -> expressions: the `s` that a rule is written against, and the loads that it reads.

    body = GraphExpressions(graph, buffers)
    body.at(value, (i, j))      # what element (i, j) of `value` is, in terms of the buffers

A load of a value that has a buffer reads it; a load of any other is that value's own rule at those indices, so fusion
is substitution.  The same value at the same indices is one expression.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tenon.dims.symbolic_dim import Dim
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.loops.affine import Affine, affine, from_affine
from tenon.loops.check_reads import made_as_told, within
from tenon.loops.expressions import (
    Binary,
    BitsOf,
    Buffer,
    Call,
    Cast,
    CheckedIndex,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    binary,
    constant,
    lift,
    size,
)
from tenon.loops.round_narrow_types import rounded
from tenon.loops.simplify_expressions import FALSE, TRUE, Substitution, simplify
from tenon.loops.traversal import parts, walk
from tenon.records import dataclass, replace
from tenon.types import DType, Shape, TensorType, bool_, int32, int64

Indices = tuple[Expr, ...]
SMALL = 2**31


class Scalars:
    """The operations of a compute rule beyond Python's operators; see the compute protocol in the documentation."""

    def __init__(self) -> None:
        self.mask: Expr = TRUE                  # under which conditions the current expression is read
        self.depth = 0                          # how many reduction indices are in scope
        self.value: Value | None = None         # whose rule is running
        self.owner: dict[Expr, Value] = {}      # the value in whose rule a reduction or a call was written

    def const(self, value: Any, dtype: DType) -> Expr:
        return lift(value, dtype)

    def cast(self, x: Any, dtype: DType) -> Expr:
        return simplify(Cast(lift(x, int64), dtype))

    def bits(self, x: Expr, dtype: DType) -> Expr:
        return BitsOf(x, dtype)

    def select(self, condition: Any, x: Any, y: Any) -> Expr:
        dtype = x.dtype if isinstance(x, Expr) else y.dtype
        return simplify(Select(lift(condition, bool_), lift(x, dtype), lift(y, dtype)))

    def when(self, condition: Any, x: Callable[[], Expr], otherwise: Any) -> Expr:
        """`x()`, whose loads touch memory only where the condition holds."""
        condition = simplify(lift(condition, bool_))
        if condition is FALSE:
            return otherwise if isinstance(otherwise, Expr) else lift(otherwise, self._under(FALSE, x).dtype)
        inner = self._under(condition, x)
        return self.select(condition, inner, lift(otherwise, inner.dtype))

    def _under(self, condition: Expr, x: Callable[[], Expr]) -> Expr:
        outer, self.mask = self.mask, simplify(Binary("&", self.mask, condition))
        try:
            return x()
        finally:
            self.mask = outer

    def eq(self, x: Any, y: Any) -> Expr:
        return binary("==", x, y)

    def ne(self, x: Any, y: Any) -> Expr:
        return binary("!=", x, y)

    def minimum(self, x: Any, y: Any) -> Expr:
        return binary("min", x, y)

    def maximum(self, x: Any, y: Any) -> Expr:
        return binary("max", x, y)

    def call(self, name: str, *args: Any) -> Expr:
        dtype = next(x.dtype for x in args if isinstance(x, Expr))
        return self._owned(Call(name, tuple(lift(x, dtype) for x in args)))

    def product(self, x: Expr, y: Any) -> Expr:
        """x * y, rounded before anything is added to it."""
        return Call("product", (x, lift(y, x.dtype)))

    def isnan(self, x: Expr) -> Expr:
        return Call("isnan", (x,)) if x.dtype.kind == "f" else FALSE

    def index(self, x: Expr, size: Dim) -> Expr:
        """A data-dependent index, checked."""
        mask, node = None if self.mask is TRUE else self.mask, self.value.node if self.value is not None else None
        where, operator = (node.loc, node.op.name) if node is not None else (None, "")
        return CheckedIndex(self.cast(x, int64), size, mask, where, operator)

    def reduce(self, kind: str, extents: Sequence[Dim], body: Callable[[Indices], Expr]) -> Expr:
        """`body` at every index below the extents, combined."""
        if kind in ("argmin", "argmax"):
            return self._position(kind[3:], tuple(extents), body)
        with self._indices(extents) as indices:
            inner = simplify(body(indices))
        return self._reduction(kind, indices, inner)

    def _position(self, kind: str, extents: tuple[Dim, ...], body: Callable[[Indices], Expr]) -> Expr:
        """The first position of the extreme value: the smallest index whose element equals it, or is NaN."""
        with self._indices(extents) as indices:
            inner = simplify(body(indices))
            extreme = self._reduction(kind, indices, inner)
            position: Expr = size(0)
            for index, extent in zip(indices, extents, strict=True):
                position = position * size(extent) + index
            count = 1
            for extent in extents:
                count = count * extent if isinstance(extent, int) else SMALL
            dtype = int32 if count < SMALL else int64
            hit = self.eq(inner, extreme)
            if inner.dtype.kind == "f":
                hit = hit | self.isnan(inner)
            last = constant((1 << (dtype.bits - 1)) - 1, dtype)
            found = self._reduction("min", indices, self.select(hit, self.cast(simplify(position), dtype), last))
        return self.cast(found, int64)

    @contextmanager
    def _indices(self, extents: Sequence[Dim]) -> Iterator[Indices]:
        """One index for each extent; those of 1 are zero."""
        indices = tuple(size(0) if isinstance(n, int) and n == 1 else Index(f"open{self.depth + place}", n)
                        for place, n in enumerate(extents))
        self.depth += len(extents)
        try:
            yield indices
        finally:
            self.depth -= len(extents)

    def _reduction(self, kind: str, indices: Indices, body: Expr) -> Expr:
        """A reduction that is named by what stands inside of it, so that equal ones are one wherever they stand."""
        real = tuple(k for k in indices if isinstance(k, Index))
        if not real:        # what begins with 0 iterations -0 to 0, however few elements there are
            return body + constant(0.0, body.dtype) if kind == "add" and body.dtype.kind == "f" else body
        inside = [int(k.name[1:]) for x in parts(body, Reduce) if not x.free.isdisjoint(real) for k in x.indices]
        first = max(inside, default=-1) + 1
        named = {k: Index(f"k{first + place}", k.extent) for place, k in enumerate(real)}
        renamed = Substitution(named)
        for x in walk(body):
            if x in self.owner and not x.free.isdisjoint(real):
                self.owner.setdefault(renamed(x), self.owner[x])
        return self._owned(Reduce(kind, tuple(named.values()), renamed(body),
                                  tuple(size(k.extent) for k in real)))

    def _owned(self, x: Expr) -> Expr:
        if self.value is not None:
            self.owner.setdefault(x, self.value)
        return x


@dataclass(eq=False, slots=True)
class InputRead:
    """What a rule sees of an input: index -> scalar."""

    shape: Shape
    dtype: DType
    at: Callable[[Indices], Expr]
    literal: bool = False
    inside: Callable[[Any, Shape], Indices] | None = None       # makes sure of an index that a user's rule gives

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __call__(self, index: Sequence[Any]) -> Expr:
        if self.literal:
            return self.at(())
        if self.inside is not None:
            index = self.inside(index, self.shape)
        assert len(index) == len(self.shape), f"{len(index)} indices for a value of {len(self.shape)} axes"
        return self.at(tuple(itertools.starmap(_along, zip(index, self.shape, strict=True))))


def _along(i: Any, n: Dim) -> Expr:
    """An index into an axis of n elements: of one, it is 0, but for data that have to be checked."""
    alone = isinstance(n, int) and n == 1
    return size(0) if alone and not (isinstance(i, Expr) and CheckedIndex in i.kinds) else simplify(lift(i, int64))


class GraphExpressions:
    """The scalars of a graph; `buffers` says which values are read from memory."""

    def __init__(self, graph: Graph, buffers: Mapping[Value, Buffer]):
        self.graph, self.buffers = graph, buffers
        self.scalars = Scalars()
        self._rules: dict[tuple[Node, Indices, Expr], tuple[Expr, ...]] = {}

    @property
    def owner(self) -> dict[Expr, Value]:
        return self.scalars.owner

    def at(self, value: Value, index: Indices) -> Expr:
        """Element `index` of `value`, with the bits that it has in memory."""
        return rounded(self.to_store(value, index))

    def to_store(self, value: Value, index: Indices) -> Expr:
        """The same before it is rounded to its type; read from its buffer if it has one.

        A value without elements is never read when a kernel runs, and rules need not think of it; but the index into
        it may be data that has to be checked.
        """
        if is_empty(value.type):
            checked = next((i for i in index if parts(i, CheckedIndex)), size(0))
            return self.scalars.cast(checked, value.dtype)
        buffer = self.buffers.get(value)
        return self.defined(value, index) if buffer is None else self._load(buffer, index)

    def defined(self, value: Value, index: Indices) -> Expr:
        """Element `index` of `value`, by the rule of the operator that makes it."""
        node = value.node
        assert node is not None, f"{value} is neither stored nor computed"
        key = node, index, self.scalars.mask
        if key not in self._rules:
            self._rules[key] = self._run(node, index)
        return self._rules[key][value.index]

    def _run(self, node: Node, index: Indices) -> tuple[Expr, ...]:
        assert node.op.compute is not None, f"{node.op.name} has no compute rule"
        outer, self.scalars.value = self.scalars.value, node.output
        loads = [self.read(x) for x in node.inputs]
        if not node.op.is_own:
            loads = [load and replace(load, inside=within(self.scalars, node, k)) for k, load in enumerate(loads)]
        found = node.op.compute(self.scalars, index, *loads, **node.attrs)
        self.scalars.value = outer
        listed = found if isinstance(found, tuple) else (found,)
        if not node.op.is_own:
            made_as_told(node, listed)
        return tuple(simplify(lift(x, out.dtype)) for x, out in zip(listed, node.outputs, strict=True))

    def read(self, x: Value | Literal | None) -> InputRead | None:
        """What a rule sees of an input."""
        if x is None:
            return None
        if isinstance(x, Literal):
            number = constant(x.value, x.dtype)
            return InputRead((), x.dtype, lambda index: number, literal=True)
        return InputRead(x.shape, x.dtype, lambda index: self.at(x, index))

    def _load(self, buffer: Buffer, index: Indices) -> Expr:
        mask = self.scalars.mask
        return simplify(Load(buffer, offset(buffer.type.shape, index), None if mask is TRUE else mask))


def is_empty(type: TensorType) -> bool:
    """Whether there is no element, whatever the symbolic sizes."""
    return any(isinstance(n, int) and n == 0 for n in type.shape)


def offset(shape: Shape, index: Indices) -> Expr:
    """The flat, row-major position of an element."""
    total = Affine({}, 0)
    for n, i in zip(shape, index, strict=True):
        total = total.scaled(n) + affine(i)
    return simplify(from_affine(total))
