"""Nested Python containers <-> flat leaves and a structure that can be compared.

Lists, tuples, named tuples, deques, dictionaries of the standard library and dataclasses are containers; everything
else is a leaf, an operator and an element type too.
A dataclass is opened into all its attributes and made again without its constructor: it may have changed since. So are
objects of further classes where a caller says so, and bound methods and partial functions.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from tenon.capture.callable_parts import BOUND, CALLABLES, callable_of, callable_parts, definition_of
from tenon.capture.effects import set_slots
from tenon.capture.guards import is_atom
from tenon.errors import ArgumentError
from tenon.graph.op import Op
from tenon.graph.structural_key import exactly
from tenon.records import dataclass, is_dataclass
from tenon.types import DType


@dataclass(frozen=True, eq=False)
class Structure:
    """The shape of a nest: its container type, what labels its children (keys, field names), and the children."""

    kind: Any                                   # None for a leaf
    labels: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    exact: tuple[Any, ...] = ()                 # the labels as what tells equal keys apart: 1, 1.0 and True
    factory: Any = None                         # what makes the entries that a `defaultdict` lacks, or a function

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Structure) and self.kind is other.kind and self.factory is other.factory
                and (self.exact or self.labels) == (other.exact or other.labels) and self.children == other.children)

    def __hash__(self) -> int:
        return hash((self.kind, self.exact or self.labels, self.children))

    @property
    def leaves(self) -> int:
        """How many leaves the nest has."""
        return 1 if self.kind is None else sum(child.leaves for child in self.children)

    @property
    def is_mapping(self) -> bool:
        """Whether its children are entries of a dictionary."""
        return self.kind is not None and issubclass(self.kind, dict)

    @property
    def is_sequence(self) -> bool:
        """Whether its children are items, that have no names."""
        return self.kind in SEQUENCES

    def kinds(self) -> set[type]:
        """The classes of the containers."""
        own = set() if self.kind in (None, SeenContainer) else {self.kind}
        return own.union(*(child.kinds() for child in self.children))

    def all_labels(self) -> Iterator[Any]:
        """The labels of all containers."""
        yield from self.labels
        for child in self.children:
            yield from child.all_labels()

    @property
    def repeats(self) -> bool:
        """Whether a container stands in the nest that stood before."""
        return self.kind is SeenContainer or any(child.repeats for child in self.children)

    def repeated(self) -> frozenset[int]:
        """The numbers of the containers that stand in several places."""
        own = self.labels if self.kind is SeenContainer else ()
        return frozenset(own).union(*(child.repeated() for child in self.children))

    @property
    def is_changeable(self) -> bool:
        """Whether its parts can become others."""
        return self.kind not in BOUND and not issubclass(self.kind, tuple)

    @property
    def has_changeable(self) -> bool:
        """Whether it, or a container in it, can."""
        return self.kind is not None and (self.kind is SeenContainer or self.is_changeable or any(
            child.has_changeable for child in self.children))

    def build(self, leaves: Iterable[Any], change: Change | None = None) -> Any:
        """The nest of this structure with these leaves; `change` may change what is in a container."""
        return _build(self, iter(leaves), [], change)


class SeenContainer:
    """The kind of a container that stood in the nest before; its label is its number."""


LEAF = Structure(None)
SEQUENCES = (list, tuple, deque)
STRING = frozenset((str,))
WHOLE = (Op, DType)     # dataclasses that are values: another object of equal parts is another one
Change = Callable[[Structure, list[Any]], Structure]


def flatten(tree: Any, whole: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a nest from left to right, and its structure; containers of which `whole` is true are leaves.

    >>> from tenon.capture.pytree import flatten
    >>> flatten({"a": 1, "b": (2, 3)})[0]
    [1, 2, 3]
    """
    opening = _Opening(whole)
    return opening.leaves, opening.whole_nest(tree)


def unfold(tree: Any, whole: Callable[[Any], bool] | None = None,
           classes: Collection[type] = ()) -> tuple[list[Any], Structure, list[Any]]:
    """As `flatten`, and the containers that can be changed; one that stands in several places is opened once.

    Objects of these classes are opened too, unless one contains itself, or arrays of NumPy, which would be tensors.

    >>> from tenon.capture.pytree import unfold
    >>> inner = [1]
    >>> unfold((inner, inner))[2]
    [[1]]
    """
    opening = _Opening(whole, {}, classes)
    structure = opening.whole_nest(tree)
    if opening.has_no_form:
        return unfold(tree, whole)
    return opening.leaves, structure, list((opening.numbered or {}).values())


class _Opening:
    """Collects the leaves of one nest, and the containers that can be changed where these are `numbered`."""

    def __init__(self, whole: Callable[[Any], bool] | None, numbered: dict[int, Any] | None = None,
                 classes: Collection[type] = ()):
        self.whole, self.numbered, self.classes = whole, numbered, classes
        self.leaves: list[Any] = []
        self.has_no_form = False        # what is opened for its class: it contains itself, or arrays of NumPy

    def whole_nest(self, tree: Any) -> Structure:
        """The structure of the nest."""
        try:
            return self.nest(tree, ())
        except RecursionError:
            raise ArgumentError("the containers are nested too deep", hint="put the tensors in one flat list") from None

    def nest(self, tree: Any, above: tuple[int, ...], within: bool = False) -> Structure:
        """The structure of what stands in these containers."""
        kind, numbered = type(tree), self.numbered
        parts = _open(tree)
        if parts is None and kind in self.classes:
            parts, within = _attributes(tree), True
        if parts is None or (self.whole is not None and self.whole(tree)):
            self.leaves.append(tree)
            self.has_no_form |= within and isinstance(tree, np.ndarray)
            return LEAF
        if id(tree) in above and within:
            self.has_no_form = True
            return LEAF
        if id(tree) in above:
            raise ArgumentError(f"a {kind.__name__} contains itself; it has no finite structure")
        if numbered is not None and kind not in BOUND and not isinstance(tree, tuple):
            if id(tree) in numbered:
                return Structure(SeenContainer, (list(numbered).index(id(tree)),))
            numbered[id(tree)] = tree
        labels, children = parts
        inner = (*above, id(tree))
        by_value = issubclass(kind, (dict, set)) and not STRING.issuperset(map(type, labels))
        return Structure(kind, labels, tuple([self.nest(child, inner, within) for child in children]),
                         exactly(labels) if by_value else (),
                         tree.default_factory if kind is defaultdict else
                         definition_of(tree) if kind is types.FunctionType else None)


def _open(tree: Any) -> tuple[tuple[Any, ...], Iterable[Any]] | None:
    """The labels and children of a container, None for a leaf."""
    kind = type(tree)
    if kind in SEQUENCES:
        return (len(tree),) if kind is not deque else (len(tree), tree.maxlen), list(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return tree._fields, tree
    if kind in (dict, OrderedDict, defaultdict) or (is_dataclass(kind) and not issubclass(kind, WHOLE)
                                                    and getattr(kind, "__new__", None) is object.__new__):
        return _attributes(tree)
    return None


def _attributes(tree: Any) -> tuple[tuple[Any, ...], Iterable[Any]] | None:
    """The same of an object."""
    if isinstance(tree, CALLABLES):
        return callable_parts(tree)
    own = getattr(tree, "__dict__", {})
    if isinstance(tree, set):       # code that goes through it finds an order, which another one may not have
        return (tuple(tree), ()) if all(map(is_atom, tree)) and exactly(tuple(tree)) == exactly(tuple(set(tree))) \
            else None
    if isinstance(tree, dict):
        table = table_type(type(tree))
        return None if own else (tuple(table.keys(tree)), table.values(tree))
    attributes = {**set_slots(tree), **own}
    return tuple(attributes), list(attributes.values())


def table_type(kind: type) -> Any:
    """The class whose methods read the entries of a dictionary of this class, whatever that makes of them."""
    return OrderedDict if issubclass(kind, OrderedDict) else dict


def _build(structure: Structure, leaves: Iterator[Any], made: list[Any], change: Change | None) -> Any:
    """The nest; `made` collects what can be changed, in the order of `unfold`."""
    if structure.kind is None:
        return next(leaves)
    if structure.kind is SeenContainer:
        return made[structure.labels[0]]
    number = len(made)
    if structure.is_changeable:
        made.append(None)
    children = [_build(child, leaves, made, change) for child in structure.children]
    if change is not None:
        structure = change(structure, children)
    new = container(structure, children)
    if structure.is_changeable:
        made[number] = new
    return new


def container(structure: Structure, children: list[Any]) -> Any:
    """A container of this structure that holds these."""
    if issubclass(structure.kind, tuple):
        return structure.kind(children) if structure.kind is tuple else structure.kind(*children)
    if structure.kind is list:
        return children
    if structure.kind is deque:
        return deque(children, structure.labels[1])
    if structure.kind is set:
        return set(structure.labels)
    if issubclass(structure.kind, CALLABLES):
        return callable_of(structure.kind, structure.labels, structure.factory, children)
    new = structure.kind.__new__(structure.kind)
    if structure.is_mapping:
        for key, child in zip(structure.labels, children, strict=True):
            table_type(structure.kind).__setitem__(new, key, child)
        if structure.kind is defaultdict:
            new.default_factory = structure.factory
        return new
    for name, child in zip(structure.labels, children, strict=True):
        object.__setattr__(new, name, child)
    return new


def form(structure: Structure) -> str:
    """A nest in words: `(*, [*, *])`."""
    if structure.kind is None or structure.kind is SeenContainer:
        return "*" if structure.kind is None else "the same"
    inner = [form(child) for child in structure.children]
    if structure.kind is tuple:
        return f"({', '.join(inner)}{',' * (len(inner) == 1)})"
    if structure.is_sequence:
        return f"[{', '.join(inner)}]"
    named = ", ".join(f"{label}: {text}" for label, text in zip(structure.labels, inner, strict=True))
    return f"{'' if structure.is_mapping else structure.kind.__name__}{{{named}}}"
