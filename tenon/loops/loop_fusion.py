"""Nests that go through the same memory one after the other -> one nest, whose parallel loop does an iteration of each.

    for i in parallel(n): out[i, :2] = x[i, :2]                 for i in parallel(n):
    barrier()                                           ->          out[i, :2] = x[i, :2]
    for i in parallel(n): out[i, 2:] = x[i, 2:] + 1                 out[i, 2:] = x[i, 2:] + 1

So intervals of a result (`index_set_splitting`) are stored while their lines are in a cache, and threads meet less
often.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenon.loops.cost import count
from tenon.loops.expressions import Binary, Buffer, Const, Load
from tenon.loops.loop_ir import Let, Loop, Nest, Store, roots, statements
from tenon.loops.simplify_expressions import simplify
from tenon.loops.traversal import walk

MAX_ITERATION_BYTES = 1 << 17  # bytes of an iteration: what a second cache keeps beside other things


def fuse_loops(nests: Sequence[Nest]) -> list[Nest]:
    """The nests, as few as can be."""
    found: list[Nest] = []
    for nest in nests:
        both = _fused(found[-1], nest) if found else None
        found[-1:] = [both] if both is not None else [*found[-1:], nest]
    return found


def _fused(one: Nest, other: Nest) -> Nest | None:
    """Both in one loop, where neither reads what is stored and an iteration of both stays in a cache."""
    a, b = _loop(one), _loop(other)
    if a is None or b is None or a.index is not b.index or a.extent is not b.extent:
        return None
    (read_a, stored_a), (read_b, stored_b) = _touched(one), _touched(other)
    stored, read = stored_a | stored_b, read_a | read_b
    sizes = [x.elements * x.type.dtype.itemsize for x in stored | read]
    shared = stored_a & stored_b
    if not shared or stored & read or not all(isinstance(n, int) and n <= MAX_ITERATION_BYTES * count(a.index)
                                              for n in sizes):
        return None
    first, second = sorted((a, b), key=_elements, reverse=True)
    grain = simplify(Binary("min", a.grain, b.grain))
    return Nest((Loop(a.index, a.extent, (*first.body, *second.body), "parallel", grain),))


def _loop(nest: Nest) -> Loop | None:
    """The parallel loop that is all of the nest, around plain loops."""
    match nest:
        case Nest(body=(Loop(kind="parallel", grain=Const()) as loop,), locals=()) if all(
                isinstance(x, (Let, Loop)) for x in loop.body) and all(
                isinstance(x, (Let, Loop, Store)) for x in statements(loop.body)):
            return loop
    return None


def _elements(loop: Loop) -> int:
    """How many are stored: those that are most go first, along memory, which the processor follows."""
    return sum(count(*x.offset.free) for x in statements(loop.body) if isinstance(x, Store))


def _touched(nest: Nest) -> tuple[set[Buffer], set[Buffer]]:
    """What is read, and what is stored."""
    inside = list(statements(nest.body))
    read = {x.buffer for s in inside for x in walk(*roots(s)) if isinstance(x, Load)}
    return read, {s.buffer for s in inside if isinstance(s, Store)}
