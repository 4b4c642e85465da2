"""What a place holds when a loop begins, and at the end of an iteration -> what it can hold in every iteration."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from tenon.capture.convert.object_trees import are_lists, matches, parts_of, rebuilt
from tenon.capture.convert.phi_merge import IsNew, compatible
from tenon.capture.convert.tensor_list import FirstRows, TensorList
from tenon.capture.convert.union_value import UNBOUND, UnionValue, words
from tenon.capture.guards import same_atom
from tenon.capture.runtime_numbers import RuntimeNumber, as_tensor, is_number, kind_of
from tenon.ops.creation import zeros
from tenon.tensor import Tensor


class Unstable(Exception):
    """The two are different kinds of things, so the first iteration is not like the others."""


Grow = Callable[[Any, Any], Any]        # two lists of different lengths -> what can be either, or None


def widened(entry: Any, exit: Any, is_new: IsNew, grow: Grow) -> Any:
    """The entry, with numbers that change turned into numbers of the graph; the entry itself where it will do."""
    if entry is exit or same_atom(entry, exit):
        return entry
    if is_number(entry) and is_number(exit) and kind_of(entry) is kind_of(exit):
        return entry if type(entry) is RuntimeNumber else RuntimeNumber(as_tensor(entry))
    if isinstance(entry, Tensor) and compatible(entry, exit, is_new):
        return entry
    if isinstance(entry, UnionValue) and isinstance(exit, UnionValue) and len(entry.options) == len(exit.options):
        options = [(widened(p, q, is_new, grow), widened(x, y, is_new, grow))
                   for (p, x), (q, y) in zip(entry.options, exit.options, strict=True)]
        same = all(p is q and x is y for (p, x), (q, y) in zip(options, entry.options, strict=True))
        return entry if same else UnionValue(tuple(options))
    if entry is UNBOUND and isinstance(exit, UnionValue) and (choice := unbound_at_first(exit)) is not None:
        return choice
    try:
        if entry is not UNBOUND and matches(entry, exit, is_new):
            before, after = parts_of(entry), parts_of(exit)
            assert before is not None and after is not None
            parts = [widened(x, y, is_new, grow) for x, y in zip(before[1], after[1], strict=True)]
            return entry if all(x is y for x, y in zip(parts, before[1], strict=True)) else rebuilt(entry, parts)
    except Unstable:
        if not are_lists(entry, exit, is_new):
            raise
    if are_lists(entry, exit, is_new) and (grown := grow(entry, exit)) is not None:
        return rebuilt(entry, grown)
    raise Unstable(f"{words(entry)} before an iteration and {words(exit)} after it")


def unbound_at_first(exit: UnionValue) -> UnionValue | None:
    """What an iteration may bind to data, as it is before the first one: a result that it returns."""
    if not any(x is UNBOUND for _, x in exit.options) or not all(is_data(x) for _, x in exit.options):
        return None
    return UnionValue(tuple((RuntimeNumber(as_tensor(x is UNBOUND)), nothing_like(x)) for _, x in exit.options))


def is_data(x: Any) -> bool:
    """Whether it is a tensor, a number, a tuple of such, or nothing."""
    return all(map(is_data, x)) if type(x) is tuple else x is UNBOUND or isinstance(x, Tensor) or is_number(x)


def nothing_like(x: Any) -> Any:
    """Data of the same types that nobody is going to read."""
    if type(x) is tuple:
        return tuple(map(nothing_like, x))
    if x is UNBOUND:
        return x
    return RuntimeNumber(as_tensor(kind_of(x)(0))) if is_number(x) else zeros(x.shape, dtype=x.dtype)


def renewed(entry: Any, exit: Any) -> Iterator[Any]:
    """The containers of the entry in whose place an iteration leaves another one."""
    if entry is exit or entry is UNBOUND or (before := parts_of(entry)) is None:
        return
    if not isinstance(entry, (tuple, TensorList, FirstRows)):
        yield entry
    after = None if exit is UNBOUND else parts_of(exit)
    if after is not None:
        for x, y in zip(before[1], after[1], strict=False):
            yield from renewed(x, y)


def leaves_of(entry: Any, exit: Any, found: list[tuple[Tensor, Any]], memo: dict[int, Any]) -> None:
    """The tensors of a stable entry, in the order of `replaced`, each with what stands in its place in `exit`."""
    if isinstance(entry, Tensor):
        found.append((entry, exit))
        return
    if id(entry) in memo:
        if memo[id(entry)] is not exit:
            raise Unstable("one object in two places before an iteration, and two after it")
        return
    if isinstance(entry, UnionValue):
        for (p, x), (q, y) in zip(entry.options, exit.options, strict=True):
            leaves_of(p, q, found, memo)
            leaves_of(x, y, found, memo)
    elif (parts := None if entry is UNBOUND else parts_of(entry)) is not None:
        memo[id(entry)] = exit
        after = parts if exit is UNBOUND else parts_of(exit)
        assert after is not None
        for x, y in zip(parts[1], after[1], strict=True):
            leaves_of(x, y, found, memo)


def replaced(entry: Any, fill: Callable[[Tensor], Tensor], memo: dict[int, Any]) -> Any:
    """The entry with other tensors in it; an object that stands in it twice is replaced by one."""
    if isinstance(entry, Tensor):
        return fill(entry)
    if id(entry) in memo:
        return memo[id(entry)]
    if isinstance(entry, UnionValue):
        return UnionValue(tuple((replaced(p, fill, memo), replaced(x, fill, memo)) for p, x in entry.options))
    elif (found := None if entry is UNBOUND else parts_of(entry)) is not None:
        parts = [replaced(x, fill, memo) for x in found[1]]
        memo[id(entry)] = entry if all(map(operator.is_, parts, found[1])) else rebuilt(entry, parts)
        return memo[id(entry)]
    return entry
