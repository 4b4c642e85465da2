"""Things that are found to be one -> the sets that they make (union-find)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

X = TypeVar("X", bound=Hashable)


class UnionFind(Generic[X]):
    """Sets without a common element; `find` names the one that a thing is in.

    >>> sets = UnionFind()
    >>> sets.union("a", "b")
    >>> sets.find("a") == sets.find("b"), sets.find("c")
    (True, 'c')
    """

    def __init__(self) -> None:
        self._parent: dict[X, X] = {}

    def find(self, x: X) -> X:
        """The one that stands for the set of x."""
        while x in self._parent:
            x = self._parent[x]
        return x

    def union(self, x: X, y: X) -> None:
        """The sets of both are one, for which what stood for y's stands."""
        if (a := self.find(x)) != (b := self.find(y)):
            self._parent[a] = b
