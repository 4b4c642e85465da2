"""Masks that are the same along a line -> what is not there is read elsewhere, and the line asks nothing.

    for i in range(9): r[i] = x[9*j + i - 9] if j >= 1 else 0
    ->  for i in range(9): r[i] = x[(9*j - 9 if j >= 1 else 0) + i] if j >= 1 else 0

A choice between two places is made before the line, and one between two elements takes next to no time, where a load
that is left out makes code of its own.
"""

from __future__ import annotations

from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import Affine, affine, affine_bounds, from_affine
from tenon.loops.expressions import (
    Binary,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Local,
    Select,
    SizeOf,
    constant,
    size,
)
from tenon.loops.loop_ir import Accumulator, Block, Let, Loop, Stmt, Store, Update, roots, statements
from tenon.loops.simplify_expressions import simplify
from tenon.loops.traversal import replace as replaced
from tenon.loops.traversal import walk
from tenon.records import replace
from tenon.types import bool_

OF_PLACES = frozenset({Const, SizeOf, Index, Local, Binary, Select})      # what asks no memory


def read_elsewhere(line: Loop) -> Loop:
    """The line, in which loads with masks that it does not change have none."""
    inside = statements(line.body)
    parts = walk(*(x for statement in inside for x in roots(statement)))
    if not any(isinstance(x, Load) and x.mask is not None for x in parts) \
            or any(isinstance(x, CheckedIndex) for x in parts) \
            or not all(isinstance(x, (Let, Store, Update, Accumulator, Loop)) for x in inside):
        return line
    return replace(line, body=_Line(line).block(line.body))


def is_speculable(along: Affine, elements: Dim) -> bool:
    """Whether a line that moves so far may be read from some place in the memory, wherever it would begin.

    Its mask and its beginning are invariant in the line: where the mask holds, each read is the one that it guards.
    Elsewhere the line begins where its least place is 0, and ends inside.  So the loads are speculated without faults.
    """
    low, high = affine_bounds(along)
    return isinstance(low, int) and isinstance(high, int) and isinstance(elements, int) and high - low < elements


class _Line:
    """What is known of a line, statement by statement."""

    def __init__(self, line: Loop):
        self.indices = [line.index]                 # and those of the loops inside
        self.varying: set[Expr] = {line.index}      # and the scalars that are named, or change, inside
        self.varying.update(x.local for x in statements(line.body) if isinstance(x, Update))
        self.answers: dict[Expr, Expr] = {}         # what other scalars are, that depend on the places alone

    def block(self, body: Block) -> Block:
        return tuple(found for x in body for found in self.statement(x))

    def statement(self, x: Stmt) -> Block:
        match x:
            case Let(local=local, value=value):
                value = self.value(value)
                if local.dtype is bool_ and self.is_steady(value):
                    self.answers[local] = value
                    return ()
                self.varying.add(local)
                return (Let(local, value),)
            case Store(buffer=buffer, offset=offset, value=value):
                return (Store(buffer, offset, self.value(value)),)
            case Update(local=local, kind=kind, value=value):
                return (Update(local, kind, self.value(value)),)
            case Loop(index=index, body=body):
                self.indices.append(index)
                return (replace(x, body=self.block(body)),)
        return (x,)

    def is_steady(self, x: Expr) -> bool:
        """Whether it is the same all along, and may be asked for anywhere."""
        return OF_PLACES.issuperset(x.kinds) and self.varying.isdisjoint(walk(x))

    def value(self, x: Expr) -> Expr:
        x = simplify(replaced(x, self.answers))
        loads = [part for part in walk(x) if isinstance(part, Load) and part.mask is not None]
        return simplify(replaced(x, {load: self.elsewhere(load) for load in loads}))

    def elsewhere(self, load: Load) -> Expr:
        """The load without a mask: where that does not hold, along the beginning of the memory."""
        form, mask, elements = affine(load.offset), load.mask, load.buffer.elements
        along = Affine({atom: step for atom, step in form.terms.items() if atom in self.indices
                        and not (mask is not None and atom in mask.free)}, 0)
        rest = from_affine(form + along.scaled(-1))
        if mask is None or not self.is_steady(mask) or not self.is_steady(rest) or not is_speculable(along, elements):
            return load
        low = affine_bounds(along)[0]
        assert isinstance(low, int)
        place = from_affine(affine(Select(mask, rest, size(-low))) + along)
        return Select(mask, Load(load.buffer, place, None), constant(0, load.dtype))
