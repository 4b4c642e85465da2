"""What a function left behind -> its leaves: containers that it made are opened, those from outside stay whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import Any

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.convert.union_value import UnionValue
from tenon.capture.pytree import flatten, unfold
from tenon.capture.result_leaves import ResultNest, SharedLeaf
from tenon.dims import SymbolicDim
from tenon.tensor import Tensor


class CollectedResults:
    """What a function left behind, opened: what it made is found once."""

    def __init__(self, known: Container[int], tables: Container[int], tree: Any):
        self.known, self.tables, self.opened = known, tables, set[int]()
        self.shared: dict[int, Any] = {}
        self.nests: dict[int, SharedLeaf] = {}
        self._count(tree, Counter(), Counter(), False)
        self.leaves, self.structure, made = unfold(tree, self.is_whole)
        self.opened.update(map(id, made))
        tensors = [x for x in self.leaves if isinstance(x, Tensor)]
        self.places = Counter(map(id, [*tensors, *{id(x): x.own.grad for x in tensors}.values()]))

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
        inside = flatten(x, lambda c: c is not x)[0]
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
            leaves, structure, made = unfold(x, lambda c: c is not x and self.is_whole(c))
            self.opened.update(map(id, made))
            self.nests[id(x)] = SharedLeaf(id(x), ResultNest(structure, tuple(map(leaf, leaves))))
        return self.nests[id(x)]

    def opened_later(self, tree: Any, leaf: Callable[[Any], Any]) -> ResultNest:
        """One of several things that a leaf may be."""
        leaves, structure, made = unfold(tree, self.is_whole)
        self.opened.update(map(id, made))
        return ResultNest(structure, tuple(map(leaf, leaves)))

    def name(self, tensor: Tensor) -> int | None:
        """A name for a tensor that is left in several places."""
        return id(tensor) if self.places[id(tensor)] > 1 else None
