"""What is done with the sums of a product: at which places of memory, and along which axes these are one run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tenon.loops.affine import affine, is_same
from tenon.loops.expressions import Expr, Index, Load, Local
from tenon.loops.loop_ir import Block, Let, Store


def only_stored(epilogue: Block, total: Local, along: Index | None, bits: int = 32) -> Store | None:
    """The store that is all of the epilogue, if it writes sums that are neighbours along this axis side by side, and
    they have so many bits in memory or more."""
    match epilogue:
        case (Store(buffer=buffer, offset=offset, value=value) as store,) if along is not None:
            found = buffer.type.dtype
            side_by_side = is_same(affine(offset).terms.get(along, 0), 1)
            return store if value is total and side_by_side and found is total.dtype and found.bits >= bits else None
    return None


def joined(epilogue: Block, axes: Sequence[Index]) -> int:
    """How many of the innermost axes are one run of all that the epilogue reads and writes.

    A place may then be named by the last axis alone, beyond its extent.
    """
    places, named = _places(epilogue)
    count = min(len(axes), 1)
    for outer, inner in zip(axes[-2::-1], axes[:0:-1], strict=True):
        if {outer, inner} & named or not all(_is_one_run(place, outer, inner) for place in places):
            break
        count += 1
    return count


def are_straight(epilogue: Block, axes: Sequence[Index]) -> bool:
    """Whether the places along these axes are equally far apart, in all that the epilogue reads and writes."""
    places, _ = _places(epilogue)
    return all(isinstance(atom, Index) or atom.free.isdisjoint(axes) for x in places for atom in affine(x).terms) \
        and all(_is_one_run(place, outer, inner) for place in places for outer, inner in pairwise(axes))


def _places(epilogue: Block) -> tuple[list[Expr], set[Expr]]:
    """(the offsets at which an epilogue reads and writes, what else its values are made of)."""
    offsets = [x.offset for x in epilogue if isinstance(x, Store)]
    stack = [x.value for x in epilogue if isinstance(x, (Let, Store))]
    seen: set[Expr] = set()
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if isinstance(x, Load):
            offsets.append(x.offset)
            stack += [] if x.mask is None else [x.mask]
        else:
            stack += x.children()
    return offsets, seen


def _is_one_run(offset: Expr, outer: Index, inner: Index) -> bool:
    """Whether the end of a row of `inner` is followed by the next row, of the next `outer`."""
    terms = affine(offset).terms
    plain = all(isinstance(atom, Index) or not {outer, inner} & atom.free for atom in terms)
    return plain and is_same(terms.get(outer, 0), terms.get(inner, 0) * inner.extent)
