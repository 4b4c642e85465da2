"""What a user's compute rule reads: proved to lie in its input, axis by axis, or looked at when the kernel runs.

    x((i[0] + 1,))      ->      x((checked(i[0] + 1, n),))      unless the loops say that i[0] + 1 < n

A position in the buffer says too little: a column too far is an element of the next row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.dims.symbolic_dim import Dim, SymbolicDim
from tenon.errors import READS, ArgumentError
from tenon.graph.ir import Node
from tenon.loops.expressions import Cast, CheckedIndex, Expr, Index, lift, size
from tenon.loops.ranges import Ranges
from tenon.loops.simplify_expressions import TRUE, simplify
from tenon.loops.traversal import walk
from tenon.types import Shape, int64

if TYPE_CHECKING:
    from tenon.loops.expression_builder import Scalars


def within(s: Scalars, node: Node, place: int) -> Callable[[Any, Shape], tuple[Expr, ...]]:
    """A function that makes sure of each index at which the rule of a node reads one of its inputs.

    What is not proved is a check, whose failure ends the run in an error that names the operator and the line.
    """
    reads = f"{node.op.name}: its compute rule reads input {place}"

    def inside(index: Any, shape: Shape) -> tuple[Expr, ...]:
        if not isinstance(index, Sequence) or len(index) != len(shape):
            raise ArgumentError(f"{reads}, of {len(shape)} axes, at {index!r}", node.loc,
                                hint="an index is a tuple with a position for each axis")
        return tuple(look(_position(reads, i), n) for i, n in zip(index, shape, strict=True))

    def look(i: Expr, n: Dim) -> Expr:
        mask = None if s.mask is TRUE else s.mask
        if _around((i, s.mask)).where(mask).is_within(i, n):
            return i
        return CheckedIndex(i, n, mask, node.loc, READS + reads, False)
    return inside


def made_as_told(node: Node, found: Sequence[Any]) -> None:
    """Raise ArgumentError where elements that a user's rule made are not of the types that its type rule says."""
    wrong = [(x.dtype, out.dtype) for x, out in zip(found, node.outputs, strict=True)
             if isinstance(x, Expr) and x.dtype is not out.dtype]
    if wrong:
        made, told = wrong[0]
        raise ArgumentError(f"{node.op.name}: its compute rule makes an element of type {made}, and its type rule says "
                            f"{told}", node.loc, hint="s.cast(x, dtype) converts")


def _position(reads: str, i: Any) -> Expr:
    if not isinstance(i, (Expr, int, SymbolicDim, np.integer)):
        raise ArgumentError(f"{reads} at {i!r}", hint="positions are whole numbers")
    position = lift(i, int64)
    if position.dtype.kind not in "iu":
        raise ArgumentError(f"{reads} at a number of type {position.dtype}",
                            hint="s.index(x, n) makes an index of data")
    return simplify(position if position.dtype is int64 else Cast(position, int64))


def _around(found: Iterable[Expr]) -> Ranges:
    """What the loops say of the indices in expressions."""
    known = Ranges()
    for index in dict.fromkeys(x for x in walk(*found) if isinstance(x, Index)):
        known = known.inside(index, size(index.extent))
    return known
