"""A graph, or the attributes of a call -> what they are apart from identities: equal for those that do the same."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon.graph.ir import Graph, Input, Literal

NUMBERS = (bool, int, float, complex, np.generic)
TIMES = (datetime.datetime, datetime.time)      # equal where the instants are, in whatever zones


def structure(graph: Graph) -> tuple[Any, ...]:
    """Equal for graphs that do the same with inputs of the same types."""
    numbers: dict[Input, int] = {p: k for k, p in enumerate(graph.params)}
    key: list[Any] = [p.type for p in graph.params]
    for node in graph.nodes:
        inputs = tuple(x if x is None else x.key() if isinstance(x, Literal) else numbers[x] for x in node.inputs)
        after = tuple([numbers[x] for x in node.after])
        key.append((node.op, inputs, after, tuple([(name, exactly(value)) for name, value in node.attrs.items()])))
        for x in node.outputs:
            numbers[x] = len(numbers)
    return (*key, tuple(numbers[r] for r in graph.results))


def exactly(value: Any) -> Any:
    """Equal for plain data that mean the same: 1, 1.0 and True differ, as do 0.0 and -0.0, and nan equals itself.

    A graph is compared by identity.
    """
    kind = type(value)
    if isinstance(value, NUMBERS):
        return kind, repr(value)
    if kind is tuple:
        return tuple(map(exactly, value))
    if kind is frozenset:
        return kind, tuple(map(exactly, value))      # code that goes through it finds this order
    if kind is slice or kind is range:
        return kind, exactly((value.start, value.stop, value.step))
    return (kind, *value.__reduce_ex__(4)[1]) if kind in TIMES else (kind, value)


class Exact:
    """Attributes as a key of a table that is remembered; `values` are what they are."""

    __slots__ = ("key", "values")

    def __init__(self, values: Mapping[str, Any]):
        self.values = dict(values)
        self.key = tuple([(name, exactly(value)) for name, value in self.values.items()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)
