"""Nested Python containers <-> flat leaves and a structure that can be compared.

Lists, tuples, named tuples, deques, dictionaries of the standard library and dataclasses are containers; everything
else is a leaf, an operator too.
A dataclass is opened into all its attributes and made again without its constructor: it may have changed since.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenon.capture.effects import slots_of
from tenon.errors import ArgumentError
from tenon.graph.op import Op
from tenon.graph.structural_key import exactly
from tenon.records import dataclass, is_dataclass


@dataclass(frozen=True, eq=False)
class Structure:
    """The shape of a nest: its container type, what labels its children (keys, field names), and the children."""

    kind: Any                                   # None for a leaf
    labels: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    exact: tuple[Any, ...] = ()                 # the labels as what tells equal keys apart: 1, 1.0 and True
    factory: Any = None                         # what makes the entries that a `defaultdict` lacks

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
        return self.kind in MAPPINGS

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

    def build(self, leaves: Iterable[Any], change: Change | None = None) -> Any:
        """The nest of this structure with these leaves; `change` may change what is in a container."""
        return _build(self, iter(leaves), [], change)


class SeenContainer:
    """The kind of a container that stood in the nest before; its label is its number."""


LEAF = Structure(None)
SEQUENCES = (list, tuple, deque)
MAPPINGS = (dict, OrderedDict, defaultdict)
STRING = frozenset((str,))
Change = Callable[[Structure, list[Any]], Structure]


def flatten(tree: Any, whole: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure]:
    """The leaves of a nest from left to right, and its structure; containers of which `whole` is true are leaves.

    >>> from tenon.capture.pytree import flatten
    >>> flatten({"a": 1, "b": (2, 3)})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, _whole_nest(tree, leaves, whole, None)


def unfold(tree: Any, whole: Callable[[Any], bool] | None = None) -> tuple[list[Any], Structure, list[Any]]:
    """As `flatten`, and the containers that can be changed; one that stands in several places is opened once.

    >>> from tenon.capture.pytree import unfold
    >>> inner = [1]
    >>> unfold((inner, inner))[2]
    [[1]]
    """
    leaves: list[Any] = []
    opened: dict[int, Any] = {}
    structure = _whole_nest(tree, leaves, whole, opened)
    return leaves, structure, list(opened.values())


def _whole_nest(tree: Any, leaves: list[Any], whole: Callable[[Any], bool] | None,
                opened: dict[int, Any] | None) -> Structure:
    try:
        return _flatten(tree, leaves, (), whole, opened)
    except RecursionError:
        raise ArgumentError("the containers are nested too deep", hint="put the tensors in one flat list") from None


def _flatten(tree: Any, leaves: list[Any], above: tuple[int, ...], whole: Callable[[Any], bool] | None,
             opened: dict[int, Any] | None) -> Structure:
    parts = _open(tree)
    if parts is None or (whole is not None and whole(tree)):
        leaves.append(tree)
        return LEAF
    if id(tree) in above:
        raise ArgumentError(f"a {type(tree).__name__} contains itself; it has no finite structure")
    if opened is not None and not isinstance(tree, tuple):
        if id(tree) in opened:
            return Structure(SeenContainer, (list(opened).index(id(tree)),))
        opened[id(tree)] = tree
    labels, children = parts
    inner = (*above, id(tree))
    return Structure(type(tree), labels, tuple(_flatten(child, leaves, inner, whole, opened) for child in children),
                     exactly(labels) if type(tree) in MAPPINGS and not STRING.issuperset(map(type, labels)) else (),
                     tree.default_factory if type(tree) is defaultdict else None)


def _open(tree: Any) -> tuple[tuple[Any, ...], Iterable[Any]] | None:
    """The labels and children of a container, None for a leaf."""
    kind = type(tree)
    if kind in SEQUENCES:
        return (len(tree),) if kind is not deque else (len(tree), tree.maxlen), list(tree)
    if kind in MAPPINGS:
        return tuple(tree), tree.values()
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return tree._fields, tree
    if is_dataclass(kind) and not issubclass(kind, Op) and getattr(kind, "__new__", None) is object.__new__:
        attributes = {**slots_of(tree), **getattr(tree, "__dict__", {})}
        return tuple(attributes), list(attributes.values())
    return None


def _build(structure: Structure, leaves: Iterator[Any], made: list[Any], change: Change | None) -> Any:
    """The nest; `made` collects what can be changed, in the order of `unfold`."""
    if structure.kind is None:
        return next(leaves)
    if structure.kind is SeenContainer:
        return made[structure.labels[0]]
    number = len(made)
    if not issubclass(structure.kind, tuple):
        made.append(None)
    children = [_build(child, leaves, made, change) for child in structure.children]
    if change is not None:
        structure = change(structure, children)
    new = container(structure, children)
    if not issubclass(structure.kind, tuple):
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
    if structure.is_mapping:
        made = defaultdict(structure.factory) if structure.kind is defaultdict else structure.kind()
        made.update(zip(structure.labels, children, strict=True))
        return made
    new = object.__new__(structure.kind)
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
