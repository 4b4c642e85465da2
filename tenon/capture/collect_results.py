"""What a function left behind -> its leaves: containers that it made are opened, those from outside stay whole."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence, Set
from types import SimpleNamespace
from typing import Any

from tenon.capture.class_inspection import is_library
from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.opened_objects import is_made_of_attributes
from tenon.capture.pytree import unfold
from tenon.capture.result_leaves import ResultNest, SharedLeaf
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.tensor import Tensor

COLLECTIONS = (set, Counter)     # which are opened where they are left, unlike those among arguments


class CollectedResults:
    """What a function left behind, opened: what it made is found once."""

    def __init__(self, known: Container[int], tables: Container[int], tree: Any):
        self.known, self.tables, self.opened = known, tables, set[int]()
        self.shared: dict[int, Any] = {}
        self.nests: dict[int, SharedLeaf] = {}
        self.classes = self._classes_made(tree)
        self._count(tree, Counter(), Counter(), False)
        self.leaves, self.structure, made = unfold(tree, self.is_whole, self.classes)
        self.opened.update(map(id, made))
        self.tensors = [x for x in self._leaves_of(tree, self.classes, self.leaves) if isinstance(x, Tensor)]
        self.places = Counter(map(id, [*self.tensors, *{id(x): x.own.grad for x in self.tensors}.values()]))

    def _classes_made(self, tree: Any) -> Set[type]:
        """The classes of the objects that the function made, which another call makes of their attributes."""
        found: Set[type] = frozenset()
        while more := {type(x) for x in self._leaves_of(tree, found) if id(x) not in self.known
                       and (type(x) in COLLECTIONS or self._is_made_of_attributes(x))} - found:
            found |= more
        return found

    def _leaves_of(self, tree: Any, classes: Set[type], leaves: Sequence[Any] | None = None) -> Iterator[Any]:
        """The leaves, and those of each of several values that one may be."""
        for x in unfold(tree, self.is_whole, classes)[0] if leaves is None else leaves:
            if type(x) is UnionValue:
                for _, option in x.options:
                    yield from self._leaves_of(option, classes)
            else:
                yield x

    def _is_made_of_attributes(self, x: Any) -> bool:
        """Whether an object has attributes alone, and its class was there before the call."""
        cls = type(x)
        return is_made_of_attributes(x) and (cls is SimpleNamespace or not is_library(cls)) and (
            id(cls) in self.known or getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls)

    def is_whole(self, container: Any) -> bool:
        """Whether a container was there before."""
        if id(container) in self.known or issubclass(type(container), SymbolicDim) or id(container) in self.shared:
            return True
        if id(container) in self.tables:
            raise UnsafeCall("the function leaves the dictionary of an object's attributes")
        if id(container) in self.opened:
            raise UnsafeCall("the function leaves one container in two places, as the data decide")
        return False

    def _count(self, x: Any, seen: Counter[int], chosen: Counter[int], by_data: bool) -> None:
        """Note the containers that stand in several places, in one of them as the data decide."""
        if type(x) is UnionValue:
            for _, option in x.options:
                self._count(option, seen, chosen, True)
            return
        inside = unfold(x, lambda c: c is not x, self.classes)[0]
        if id(x) in self.known or (len(inside) == 1 and inside[0] is x):
            return      # a leaf
        if not isinstance(x, tuple):
            chosen[id(x)] += by_data
            seen[id(x)] += 1
            if seen[id(x)] > 1:
                if chosen[id(x)]:
                    self.shared[id(x)] = x
                return
        for part in inside:
            self._count(part, seen, chosen, by_data)

    def share(self, x: Any, leaf: Callable[[Any], Any]) -> SharedLeaf:
        """A container that is made once."""
        if id(x) not in self.nests:
            leaves, structure, made = unfold(x, lambda c: c is not x and self.is_whole(c), self.classes)
            self.opened.update(map(id, made))
            self.nests[id(x)] = SharedLeaf(id(x), ResultNest(structure, tuple(map(leaf, leaves))))
        return self.nests[id(x)]

    def opened_later(self, tree: Any, leaf: Callable[[Any], Any]) -> ResultNest:
        """One of several things that a leaf may be."""
        leaves, structure, made = unfold(tree, self.is_whole, self.classes)
        self.opened.update(map(id, made))
        return ResultNest(structure, tuple(map(leaf, leaves)))

    def name(self, tensor: Tensor) -> int | None:
        """A name for a tensor that is left in several places."""
        return id(tensor) if self.places[id(tensor)] > 1 else None
