"""The namespace `tn.tree`: functions of nests of lists, tuples, dictionaries, named tuples and dataclasses.

The names are those of `jax.tree`.  Everything else is a leaf, None too; so are modules, whose parameters
`net.state_dict()` gives as a dictionary.

>>> params = {"weight": tn.ones(2), "bias": tn.zeros(1)}
>>> tn.tree.map(lambda p: p - 0.5, params)
{'weight': tensor([0.5, 0.5]), 'bias': tensor([-0.5])}
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable
from typing import Any

from tenon.capture.pytree import LEAF, Structure, form
from tenon.capture.pytree import flatten as _flatten
from tenon.errors import ArgumentError

__all__ = ["Structure", "all", "flatten", "leaves", "map", "reduce", "structure", "unflatten"]
IsLeaf = Callable[[Any], bool] | None


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], Structure]:
    """The leaves from left to right, and the structure that makes the nest of them again.

    What `is_leaf` is true of is not opened.

    >>> leaves, structure = tn.tree.flatten({"a": 1, "b": (2, 3)})
    >>> leaves, tn.tree.unflatten(structure, [x * 10 for x in leaves])
    ([1, 2, 3], {'a': 10, 'b': (20, 30)})
    """
    return _flatten(tree, is_leaf)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The nest of this structure with these leaves.  Raises ArgumentError where there are more or fewer."""
    given = list(leaves)
    if len(given) != structure.leaves:
        raise ArgumentError(f"tree.unflatten: {form(structure)} has {structure.leaves} leaves, {len(given)} are given")
    return structure.build(given)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves from left to right."""
    return _flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> Structure:
    """What is left of a nest without its leaves; structures can be compared."""
    return _flatten(tree, is_leaf)[1]


def map(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """The nest of `function(leaf, ...)`, with what stands in its place in each of `rest`.

    A leaf of `tree` may stand for a nest in `rest`.  Raises ArgumentError where one of these has another structure.

    >>> tn.tree.map(lambda p, g: p - g, [3, (4,)], [1, (2,)])
    [2, (2,)]
    """
    given, form_ = _flatten(tree, is_leaf)
    columns = [_under(form_, other, number) for number, other in enumerate(rest, 1)]
    return form_.build([function(*row) for row in zip(given, *columns, strict=True)])


def reduce(function: Callable[[Any, Any], Any], tree: Any, *initial: Any, is_leaf: IsLeaf = None) -> Any:
    """The leaves put together from left to right, as `functools.reduce` does it.

    >>> tn.tree.reduce(lambda total, x: total + x, {"a": 1, "b": [2, 3]}, 0)
    6
    """
    return functools.reduce(function, leaves(tree, is_leaf), *initial)


def all(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(builtins.map(bool, leaves(tree, is_leaf)))


def _under(expected: Structure, tree: Any, number: int) -> list[Any]:
    """What stands in a nest where the structure has leaves."""
    found: list[Any] = []
    _collect(expected, tree, found, number)
    return found


def _collect(expected: Structure, tree: Any, found: list[Any], number: int) -> None:
    if expected is LEAF:
        found.append(tree)
        return
    children, outer = _flatten(tree, lambda x: x is not tree)
    if (outer.kind, outer.exact or outer.labels) != (expected.kind, expected.exact or expected.labels):
        raise ArgumentError(f"tree.map: nest {number} of the others has {form(outer)} where {form(expected)} stands",
                            hint="the nests must have the same containers, with the same keys in the same order")
    for child, inner in zip(expected.children, children, strict=True):
        _collect(child, inner, found, number)
