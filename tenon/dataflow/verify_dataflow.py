"""Dataflow -> nothing, or an error: every vertex in one frame, every cycle through a NextIteration."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tenon.dataflow.dataflow_ir import Dataflow, Edge, Primitive, Vertex
from tenon.errors import GraphError

ARITY = {Primitive.SWITCH: 2, Primitive.ENTER: 1, Primitive.EXIT: 1, Primitive.NEXT_ITERATION: 1}
Frames = tuple[str, ...]


def verify(flow: Dataflow) -> Dataflow:
    """`flow` itself; raises GraphError where it breaks a rule.

    A loop is no cyclic dependency: what NextIteration passes back belongs to another iteration.  Any other cycle waits
    for itself for ever, and is refused with the vertices on it.
    """
    for vertex in flow.vertices:
        wanted = ARITY.get(vertex.does, len(vertex.inputs)) if isinstance(vertex.does, Primitive) else None
        if wanted is not None and len(vertex.inputs) != wanted:
            raise GraphError(f"{flow.name}: {vertex.name} takes {wanted} inputs, not {len(vertex.inputs)}",
                             where=vertex.loc)
        if vertex.does is Primitive.ENTER and not isinstance(vertex.attrs.get("frame"), str):
            raise GraphError(f"{flow.name}: an Enter names its frame, as in Enter(x, frame='loop')", where=vertex.loc)
    frames: dict[Vertex, Frames] = {}
    for vertex in in_order(flow):
        frames[vertex] = _frame(flow, vertex, frames)
    for vertex in flow.vertices:
        for edge in vertex.edges():
            if edge.vertex.does is Primitive.NEXT_ITERATION and frames[edge.vertex] != frames[vertex]:
                raise GraphError(f"{flow.name}: a NextIteration of {_spelled(frames[edge.vertex])} leads to "
                                 f"{_spelled(frames[vertex])}", where=vertex.loc)
    if any(frames[edge.vertex] for edge in flow.results):
        raise GraphError(f"{flow.name}: a result is inside of a loop", hint="lead it through an Exit")
    return flow


def in_order(flow: Dataflow) -> Iterator[Vertex]:
    """The vertices, each behind those that it reads in its own iteration; raises GraphError where there is a cycle."""
    waits = {vertex: [edge.vertex for edge in vertex.edges() if edge.vertex.does is not Primitive.NEXT_ITERATION]
             for vertex in flow.vertices}
    try:
        yield from TopologicalSorter(waits).static_order()
    except CycleError as error:
        names = " -> ".join(vertex.name for vertex in error.args[1])
        raise GraphError(f"{flow.name}: these wait for each other: {names}",
                         hint="a value of the iteration before comes through NextIteration") from None


def _frame(flow: Dataflow, vertex: Vertex, frames: dict[Vertex, Frames]) -> Frames:
    """The loops around the outputs of a vertex, from the outermost on."""
    found = {frames[edge.vertex] for edge in vertex.edges() if edge.vertex in frames and not _leads_back(edge)}
    if len(found) > 1:
        raise GraphError(f"{flow.name}: {vertex.name} reads values of {' and of '.join(map(_spelled, sorted(found)))}",
                         where=vertex.loc, hint="a value comes into a loop through Enter, and out of it through Exit")
    around = found.pop() if found else ()
    if vertex.does is Primitive.ENTER:
        return (*around, vertex.attrs["frame"])
    if vertex.does is not Primitive.EXIT:
        return around
    if not around:
        raise GraphError(f"{flow.name}: an Exit stands outside of all loops", where=vertex.loc)
    return around[:-1]


def _leads_back(edge: Edge) -> bool:
    return edge.vertex.does is Primitive.NEXT_ITERATION


def _spelled(frames: Frames) -> str:
    return f"loop {'/'.join(frames)}" if frames else "no loop"
