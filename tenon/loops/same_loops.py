"""Two kernels -> whether they are the same, but for where their checked indices stand in a user's program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenon.loops.expressions import Buffer, CheckedIndex, Expr, Load
from tenon.loops.loop_ir import Kernel
from tenon.loops.traversal import walk
from tenon.records import fields, is_dataclass


def is_same(one: Any, other: Any) -> bool:
    """Whether two kernels, nests, statements or elements are the same; memory is the same by name, type and role."""
    return _same(one, other, {})


def _same(a: Any, b: Any, paired: dict[Buffer, Buffer]) -> bool:
    """The same, with the buffers of `a` that stand for those of `b`."""
    if isinstance(a, Buffer) and isinstance(b, Buffer):
        return paired.setdefault(b, a) is a and (a.name, a.type, a.role) == (b.name, b.type, b.role)
    if isinstance(a, Expr) and isinstance(b, Expr):
        for x, y in zip(_buffers(a), _buffers(b), strict=False):
            if not _same(x, y, paired):
                return False
        return _rebuilt(a, {}) is _rebuilt(b, paired)
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(_same(x, y, paired) for x, y in zip(a, b, strict=True))
    if is_dataclass(a):
        left_out = ("checks",) if isinstance(a, Kernel) else ()       # which follow from the rest
        return all(_same(getattr(a, f.name), getattr(b, f.name), paired) for f in fields(a) if f.name not in left_out)
    return bool(a == b)


def _buffers(x: Expr) -> list[Buffer]:
    return [part.buffer for part in walk(x) if isinstance(part, Load)]


def _rebuilt(x: Expr, buffers: Mapping[Buffer, Buffer]) -> Expr:
    """The expression with other buffers, which says no place in a program."""
    done: dict[Expr, Expr] = {}
    for part in walk(x):
        made = part.rebuilt(tuple(done[child] for child in part.children()))
        match made:
            case Load(buffer=buffer, offset=offset, mask=mask):
                made = Load(buffers.get(buffer, buffer), offset, mask)
            case CheckedIndex(x=inner, size=size, mask=mask, operator=operator, wraps=wraps):
                made = CheckedIndex(inner, size, mask, None, operator, wraps)
        done[part] = made
    return done[x]
