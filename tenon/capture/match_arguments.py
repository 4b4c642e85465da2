"""Conditions on the arguments of a call, put in front of a fast path: in Python, what its machine code cannot check.

Each takes what makes the call, and gives a function that says MISS where the condition does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tenon.capture.guards import same_atom
from tenon.capture.nest_reader import nest_reader
from tenon.capture.prologue import Prologue
from tenon.capture.pytree import LEAF, Structure, unfold
from tenon.tensor import Tensor

MISS = object()
Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Run = Callable[[tuple[Any, ...]], Any]      # given the leaves


def is_plain(structure: Structure) -> bool:
    """Whether the leaves of a call are its positional arguments."""
    positional, named = structure.children
    return not named.children and all(child is LEAF for child in positional.children)


def with_leaves(structure: Structure, leaves: Sequence[Any], call: Run,
                 apart: frozenset[int], changed: bool) -> Call:
    """A function of a call's arguments that gives their leaves to `call`, and says MISS where the structure differs.

    Behind them stand the containers, where they are `changed`.
    """
    positional, named = structure.children
    count, names = len(positional.children), named.labels

    def plain(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return call(args) if len(args) == count and not keywords else MISS

    def with_names(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        same = len(args) == count and tuple(keywords) == names
        return call((*args, *keywords.values())) if same else MISS

    def simple(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        leaves = read(args, keywords)
        return MISS if leaves is None else call(leaves)

    def nested(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        leaves, found, containers = unfold((args, keywords), classes=classes)
        if found != structure or not apart.isdisjoint(map(id, containers)):
            return MISS
        return call((*leaves, *containers) if changed else tuple(leaves))
    if any(child is not LEAF for child in (*positional.children, *named.children)):
        read: Any = nest_reader(structure, leaves, apart, changed)
        classes = structure.kinds()
        return nested if read is None else simple
    return with_names if names else plain


def with_equal(values: Mapping[int, Any], made: Run) -> Run:
    """The call, where these arguments are made anew for each, such as `rate * 0.5`: conditions want the objects."""
    if not values:
        return made

    def equal(given: tuple[Any, ...]) -> Any:
        leaves = list(given)
        for k, value in values.items():
            if not same_atom(leaves[k], value):
                return MISS
            leaves[k] = value
        return made(tuple(leaves))
    return equal


def for_leaves_of_tape(places: Sequence[int], made: Run) -> Run:
    """The call, where these arguments were not computed from others."""
    def call(given: tuple[Any, ...]) -> Any:
        for k in places:
            if given[k].own.node is not None:
                return MISS
        return made(given)
    return call


def same_tensors(leaves: Sequence[Any]) -> list[tuple[int, int]]:
    """The places in which a tensor stands once more, each behind the first one."""
    first = {id(x): k for k, x in reversed([*enumerate(leaves)])}
    return [(first[id(x)], k) for k, x in enumerate(leaves) if isinstance(x, Tensor) and first[id(x)] != k]


def with_same(pairs: Sequence[tuple[int, int]], made: Run) -> Run:
    """The call, where the arguments in these places are one tensor."""
    def call(given: tuple[Any, ...]) -> Any:
        for first, other in pairs:
            if given[first] is not given[other]:
                return MISS
        return made(given)
    return call


def with_prologue(prologue: Prologue, made: Run, leaves: Sequence[Any], own: int,
               outside: frozenset[int]) -> Run:
    """The call, with what is read anew behind its own arguments; of its tensors as many must be one as were."""
    tensors = [k for k, x in enumerate(leaves) if isinstance(x, Tensor)]
    pick = itemgetter(*tensors) if len(tensors) > 1 else None
    distinct = len(tensors) - len(same_tensors(leaves))

    def call(given: tuple[Any, ...]) -> Any:
        further = prologue(given)
        if further is None:
            return MISS
        given = (*given[:own], *further, *given[own:])
        if outside and not outside.isdisjoint(map(id, given)):
            return MISS
        if pick is not None and len(set(map(id, pick(given)))) != distinct:
            return MISS
        return made(given)
    return call


def apart_from(outside: frozenset[int], call: Call) -> Call:
    """The call, for arguments that are none of the tensors from outside."""
    def apart(args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return call(args, keywords) if outside.isdisjoint(map(id, args)) else MISS
    return apart
