"""What is derived from a graph is kept with the graph, and goes when the graph goes.

    @once_a_graph
    def program_of(graph): ...

A table of graphs beside them (`functools.lru_cache`) would keep every graph, program and kernel alive that the process
ever made, since graphs are compared by identity and a captured function has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tenon.graph.ir import Graph

P = ParamSpec("P")
R = TypeVar("R")


class once_a_graph(Generic[P, R]):
    """A function of a graph, and of further hashable arguments, that is computed once for each graph."""

    def __init__(self, function: Callable[Concatenate[Graph, P], R]):
        update_wrapper(self, function)
        self.function = function
        self.version = object()         # changes when all that was remembered is to be forgotten

    def __call__(self, graph: Graph, *args: P.args, **keywords: P.kwargs) -> R:
        key = (self.version, args, tuple(keywords.items()))
        known: dict[Any, R] = graph.remembered
        if key not in known:
            known.setdefault(key, self.function(graph, *args, **keywords))      # two threads get the same
        return known[key]

    def set(self, graph: Graph, value: R) -> None:
        """Note what an earlier process computed for the graph, without further arguments."""
        graph.remembered[self.version, (), ()] = value

    def cache_clear(self) -> None:
        """Compute everything anew from now on."""
        self.version = object()
