"""Loop variables -> new ones, and the condition under which replacing one leaves a program's meaning alone.

Expressions are interned, so two loops whose indices have one name and one extent have the same index.  Loops beside
each other share theirs on purpose: that is how they are found to be one loop.  Loops inside of each other must not
(Barendregt's convention): an inner one would capture what depends on the outer one, and two axes become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tenon.dims.symbolic_dim import Dim
from tenon.loops.expressions import Expr, Index, Reduce
from tenon.loops.loop_ir import Block, Let, Loop, roots, statements
from tenon.loops.traversal import parts, walk


def fresh(name: str, extent: Dim, taken: Iterable[str]) -> Index:
    """An index whose name, this one or one that begins so, is not taken.

    >>> fresh("i", 4, {"j"}), fresh("i", 4, {"i", "i_2"})
    (i, i_3)
    """
    found, number, names = name, 1, set(taken)
    while found in names:
        number += 1
        found = f"{name}_{number}"
    return Index(found, extent)


def names_in(*values: Expr) -> set[str]:
    """The names of all indices that expressions depend on, or bind."""
    inside = walk(*values)
    bound = {k.name for x in inside if isinstance(x, Reduce) for k in x.indices}
    return bound | {x.name for x in inside if isinstance(x, Index)}


def names_inside(body: Block) -> set[str]:
    """The names of all indices that statements depend on, or bind."""
    inside = statements(body)
    bound = {x.index.name for x in inside if isinstance(x, Loop)}
    return bound | names_in(*(root for x in inside for root in roots(x)))


def loops_are_distinct(body: Block, around: frozenset[Index] = frozenset()) -> bool:
    """Whether no loop, and no index that is computed, is one of those around it.

    Fused loops may both say what an index is, if it is the same.
    """
    computed: dict[Index, Expr] = {}
    for x in body:
        match x:
            case Loop(index=index, body=inner) if index in around or not loops_are_distinct(inner, around | {index}):
                return False
            case Let(local=Index() as index, value=value):
                if index in around and computed.get(index) is not value:
                    return False
                computed[index], around = value, around | {index}
    return True


def binders_are_distinct(indices: Sequence[Index], value: Expr) -> bool:
    """Whether no two loops around one another have one name: those of the indices, and of reductions in the value.

    A reduction that does not depend on a loop is computed outside of it, and may have the name of that loop.
    """
    around = [index.name for index in indices]
    inside = [k.name for x in parts(value, Reduce) for k in x.indices]
    if len(set(around)) < len(around) or not set(around).isdisjoint(inside):
        return False
    return all(_is_apart(x) for x in parts(value, Reduce))


def _is_apart(x: Reduce) -> bool:
    """Whether no reduction that has to be computed in each iteration of x has a name of its loops."""
    names = {k.name for k in x.indices}
    within = [y for y in parts(x.body, Reduce) if not y.free.isdisjoint(x.indices)]
    return len(names) == len(x.indices) and names.isdisjoint(k.name for y in within for k in y.indices)
