"""What expressions are made of: all their parts in order, those of a kind, and parts replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tenon.loops.expressions import Expr

Part = TypeVar("Part", bound="Expr")


def walk(*roots: Expr) -> list[Expr]:
    """Every distinct sub-expression, parts before the whole."""
    if len(roots) == 1:
        return [*roots[0].below, roots[0]]
    order: dict[Expr, None] = {}
    for root in roots:
        if root not in order:
            order.update(dict.fromkeys(root.below))
            order[root] = None
    return list(order)


def parts(x: Expr, kind: type[Part]) -> tuple[Part, ...]:
    """Every distinct sub-expression of one kind, parts before the whole."""
    if kind not in x.kinds:
        return ()
    try:
        found = x._parts[kind]
    except (AttributeError, KeyError):
        found = tuple([part for part in x.below if isinstance(part, kind)])
        x._parts = {**getattr(x, "_parts", {}), kind: found}
    return (*found, x) if isinstance(x, kind) else found


def in_order(roots: Sequence[Expr]) -> list[Expr]:
    """Every distinct expression that these are made of, and these, parts before the whole; without recursion."""
    seen: set[Expr] = set()
    order: list[Expr] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        x, ready = stack.pop()
        if ready:
            order.append(x)
        elif x not in seen:
            seen.add(x)
            children = x.children()
            if children:
                stack.append((x, True))
                stack += [(child, False) for child in reversed(children)]
            else:
                order.append(x)
    return order


def replace(x: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """`x` with sub-expressions replaced."""
    done: dict[Expr, Expr] = dict(values)
    for part in walk(x):
        if part not in done:
            children = part.children()
            parts = tuple(done[child] for child in children)
            done[part] = part if parts == children else part.rebuilt(parts)
    return done[x]
