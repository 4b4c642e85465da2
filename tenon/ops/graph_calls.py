"""Operators whose meaning is a graph that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.errors import GraphError
from tenon.graph.interpret import interpret_within
from tenon.graph.ir import Graph
from tenon.ops.define import define
from tenon.types import TensorType


def result_types(graph: Graph) -> tuple[TensorType, ...]:
    """The types of a graph's results."""
    return tuple(r.type for r in graph.results)


def check_takes(name: str, what: str, graph: Graph, given: Sequence[TensorType]) -> None:
    """Raise GraphError unless the graph takes values of these types."""
    taken = tuple(p.type for p in graph.params)
    if taken != tuple(given):
        raise GraphError(f"{name}: {what} takes ({shown(taken)}), and is given ({shown(given)})")


def check_returns(name: str, what: str, graph: Graph, expected: Sequence[TensorType]) -> None:
    """Raise GraphError unless the graph returns values of these types."""
    if result_types(graph) != tuple(expected):
        raise GraphError(f"{name}: {what} returns ({shown(result_types(graph))}), not ({shown(expected)})")


def shown(types: Sequence[TensorType]) -> str:
    """Types in words."""
    return ", ".join(map(str, types))


def one_or_all(listed: Sequence[Any]) -> Any:
    """What an operator with these outputs returns."""
    return listed[0] if len(listed) == 1 else tuple(listed)


def type_of_body(*xs: TensorType, body: Graph) -> TensorType | tuple[TensorType, ...]:
    """The types of the results of a body that takes these inputs."""
    check_takes("the call", "the body", body, xs)
    types: TensorType | tuple[TensorType, ...] = one_or_all(result_types(body))
    return types


def run_body(*xs: Any, body: Graph) -> Any:
    """The results of a body on arrays."""
    return one_or_all(interpret_within(body, xs))


fused = define("fused", public=False, type=type_of_body, ref=run_body,
               doc="Several operators as one kernel: `body`, a graph of the inputs.  The pass `fuse` makes it.")
