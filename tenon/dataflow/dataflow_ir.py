"""The dataflow form of a graph: no sub-graphs, five primitives for control flow, and loops that are edges leading back.

    Switch(x, p)          the token x, on output 1 where p is true, on output 0 where it is not
    Merge(x, y, ...)      the first token that comes
    Enter(x, frame=...)   the token x in iteration 0 of a loop (in every iteration, where it is `constant`)
    Exit(x)               the token x, out of the loop
    NextIteration(x)      the token x in the next iteration; the only way back

An output that gets no token gets a dead one, and what reads a dead token passes on dead tokens: so what stands in the
branch not taken does not run.  The primitives, and how they are executed, are those of Yu et al., "Dynamic control flow
in large-scale machine learning", EuroSys 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from typing import Any

from tenon.errors import Location
from tenon.graph.ir import Literal
from tenon.graph.op import Op
from tenon.records import dataclass, field
from tenon.types import TensorType


class Primitive(Enum):
    """What a vertex does that is not an operator."""

    PARAMETER = "parameter"
    LITERAL = "literal"
    SWITCH = "Switch"
    MERGE = "Merge"
    ENTER = "Enter"
    EXIT = "Exit"
    NEXT_ITERATION = "NextIteration"


@dataclass(eq=False)
class Vertex:
    """An operator or a primitive; `after` are edges that carry no data: control edges."""

    does: Op | Primitive
    inputs: list[Source]
    attrs: Mapping[str, Any]
    types: tuple[TensorType, ...]
    loc: Location | None = None
    after: list[Edge] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Of the operator or the primitive."""
        return self.does.name if isinstance(self.does, Op) else self.does.value

    def edges(self) -> Iterator[Edge]:
        """Everything that it waits for."""
        yield from (x for x in self.inputs if isinstance(x, Edge))
        yield from self.after

    def __getitem__(self, output: int) -> Edge:
        return Edge(self, output)


@dataclass(frozen=True)
class Edge:
    """One output of a vertex."""

    vertex: Vertex
    output: int = 0

    @property
    def type(self) -> TensorType:
        return self.vertex.types[self.output]


Source = Edge | Literal | None


@dataclass(eq=False)
class Dataflow:
    """A function as vertices; `params` are vertices too."""

    name: str
    params: tuple[Vertex, ...]
    vertices: tuple[Vertex, ...]
    results: tuple[Edge, ...]

    def __str__(self) -> str:
        printer = import_module("tenon.dataflow.dataflow_text")     # by name: it stands above
        return str(printer.print_dataflow(self))
