"""Nested Python containers <-> flat leaves and a structure that can be compared.

Lists, tuples, named tuples, dictionaries and dataclasses are containers; everything else is a leaf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tenon.errors import ArgumentError


@dataclass(frozen=True)
class Structure:
    """The shape of a nest: its container type, what labels its children (keys, field names), and the children."""

    kind: Any                                   # None for a leaf
    labels: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()

    def __hash__(self) -> int:
        return hash((self.kind, self.labels, self.children))

    @property
    def leaves(self) -> int:
        """How many leaves the nest has."""
        return 1 if self.kind is None else sum(child.leaves for child in self.children)

    def build(self, leaves: Iterable[Any]) -> Any:
        """The nest of this structure with these leaves."""
        return _build(self, iter(leaves))


LEAF = Structure(None)


def flatten(tree: Any, whole: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a nest from left to right, and its structure; containers of which `whole` is true are leaves.

    >>> from tenon.capture.tree import flatten
    >>> flatten({"a": 1, "b": (2, 3)})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    try:
        return leaves, _flatten(tree, leaves, (), whole)
    except RecursionError:
        raise ArgumentError("the containers are nested too deep", hint="put the tensors in one flat list") from None


def containers(tree: Any) -> Iterator[Any]:
    """The containers of a nest, but for itself."""
    parts = _open(tree)
    for child in parts[1] if parts else ():
        if _open(child) is not None:
            yield child
            yield from containers(child)


def map_leaves(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The nest with `fn` applied to every leaf."""
    leaves, structure = flatten(tree)
    return structure.build(map(fn, leaves))


def _flatten(tree: Any, leaves: list[Any], above: tuple[int, ...], whole: Callable[[Any], bool] | None) -> Structure:
    parts = _open(tree)
    if parts is None or (whole is not None and whole(tree)):
        leaves.append(tree)
        return LEAF
    if id(tree) in above:
        raise ArgumentError(f"a {type(tree).__name__} contains itself; it has no finite structure")
    labels, children = parts
    inner = (*above, id(tree))
    return Structure(type(tree), labels, tuple(_flatten(child, leaves, inner, whole) for child in children))


def _open(tree: Any) -> tuple[tuple[Any, ...], Iterable[Any]] | None:
    """The labels and children of a container, None for a leaf."""
    kind = type(tree)
    if kind in (list, tuple):
        return (len(tree),), tree
    if kind is dict:
        return tuple(tree), tree.values()
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return tree._fields, tree
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = tuple(field.name for field in dataclasses.fields(tree) if field.init)
        return names, [getattr(tree, name) for name in names]
    return None


def _build(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure.kind is None:
        return next(leaves)
    children = [_build(child, leaves) for child in structure.children]
    if structure.kind in (list, tuple):
        return structure.kind(children)
    if structure.kind is dict:
        return dict(zip(structure.labels, children, strict=True))
    if issubclass(structure.kind, tuple):
        return structure.kind(*children)
    return structure.kind(**dict(zip(structure.labels, children, strict=True)))


def form(structure: Structure) -> str:
    """A nest in words: `(*, [*, *])`."""
    if structure.kind is None:
        return "*"
    inner = [form(child) for child in structure.children]
    if structure.kind in (list, tuple):
        return f"[{', '.join(inner)}]" if structure.kind is list else f"({', '.join(inner)}{',' * (len(inner) == 1)})"
    named = ", ".join(f"{label}: {text}" for label, text in zip(structure.labels, inner, strict=True))
    return f"{'' if structure.kind is dict else structure.kind.__name__}{{{named}}}"
