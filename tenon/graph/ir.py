"""The graph: values, the nodes that make them, and sub-graphs as attributes.

    Graph(name, params, nodes, results)      nodes in an order that respects their inputs
    Node(op, inputs, attrs, outputs)         inputs are Values, Literals, or None for an optional input left out
    Value(type)                              made by one node, or a parameter; a type in a graph, not a number
    Literal(value, type)                     a scalar written among a node's inputs

Graphs are data that nobody changes: a pass takes a graph and makes another (`tenon.graph.build.rebuild`).  Effects
(print, check) return a `token`; `Node.after` holds the tokens that must come first: control edges.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tenon.dims.symbolic_dim import Dim, SymbolicDim, symbols
from tenon.errors import Location
from tenon.graph.operators import Traced
from tenon.records import dataclass, field
from tenon.types import DType, Shape, TensorType

if TYPE_CHECKING:
    from tenon.graph.op import Op


NUMBERS = itertools.count()


class Value(Traced):
    """An edge of the graph: what a node's output or a parameter will be.  Compared by identity."""

    __slots__ = ("index", "name", "node", "number", "type")

    def __init__(self, type: TensorType, node: Node | None = None, index: int = 0, name: str = ""):
        self.type, self.node, self.index, self.name = type, node, index, name
        self.number = next(NUMBERS)     # later values have higher ones

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Dim:
        return self.type.size

    @property
    def slot(self) -> Value:
        """What a gradient is accumulated under."""
        return self

    def __repr__(self) -> str:
        return f"Value({self.name}: {self.type})" if self.name else f"Value({self.type})"


@dataclass(frozen=True, eq=False)
class Literal(Traced):
    """A scalar among a node's inputs; equal when bits and type are equal."""

    value: bool | int | float | complex
    type: TensorType
    ndim = 0

    def key(self) -> tuple[str, str]:
        return repr(self.value), self.type.dtype.short

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return ()


Input = Value | Literal | None


@dataclass(eq=False, slots=True)
class Node:
    """One application of an operator.  Compared by identity, so repeated operations stay distinct."""

    op: Op
    inputs: tuple[Input, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[Value, ...] = ()
    loc: Location | None = None
    after: tuple[Value, ...] = ()

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The sub-graphs among the attributes."""
        found: tuple[Graph, ...] = ()
        for value in self.attrs.values():       # of most nodes there are few, and none holds a graph
            kind = type(value)
            if kind is Graph or (kind is tuple and value and type(value[0]) is not int):
                found += graphs_in(value)
        return found

    @property
    def slots(self) -> tuple[Value, ...]:
        """What the gradients of the outputs are accumulated under."""
        return self.outputs

    def uses(self) -> list[Value]:
        """Every value that must exist before this node runs."""
        return [*[x for x in self.inputs if isinstance(x, Value)], *self.after]


# Notes.
MEMORY_BUDGET = "memory_budget"     # how many bytes may lie between the kernels of a graph
AUTOTUNE = "autotune"               # whether schedules are chosen by measuring them
CONSTANTS = "constants"             # the places of the parameters that are the same in nearly all calls
AS_READ = "as_read"                 # the graph as it was read from text, to be verified for the sizes of each run
UPDATES = "updates"                 # (parameter, result): places of what takes the memory of what, if any does
PROCESS = "process "                # how the names of processes begin among these:
PLACE = "place"                     # the names of the devices on which nodes are to be placed by their cost
SIZES = "sizes"                     # what is known of the sizes that the data decide: (left, relation, right) -> answer
MESH = "mesh"                       # the devices that it runs on, in a grid (tenon.sharding.mesh)
DIVIDED = "divided"                 # how a plan divides the parameters that are given whole: place -> sharding
HELD = "held"                       # the places of the parameters that are tensors from outside, not arguments
DEVICES = "devices"                 # of each parameter its name; None is the first, "any" where it is read
PIPELINE = "pipeline"               # how the step is cut in stages (`tenon.pipelining.pipelined.PipelineNote`)
DONATED = "donated"                 # the places of the parameters whose memory results take in nearly all calls


@dataclass(eq=False)
class Graph:
    """A function: parameters, nodes in order, results.  A graph closes over nothing."""

    name: str
    params: tuple[Value, ...]
    nodes: tuple[Node, ...] = ()
    results: tuple[Value, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    remembered: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)    # by `once_a_graph`

    def symbols(self) -> tuple[str, ...]:
        """The symbolic sizes in the types and attributes, in order of first appearance."""
        types = [p.type for p in self.params] + [x.type for node in self.nodes for x in node.outputs]
        attributes = (value for node in self.nodes for value in node.attrs.values())
        found: dict[str, None] = {}
        for dim in itertools.chain((dim for type in types for dim in type.shape), attributes):
            if type(dim) is not int:        # as nearly all are
                found.update(dict.fromkeys(sorted(symbols_in(dim))))
        return tuple(found)

    def users(self) -> dict[Value, list[Node]]:
        """For every value, the nodes that read it."""
        found: dict[Value, list[Node]] = {value: [] for value in self.params}
        for node in self.nodes:
            found.update({output: [] for output in node.outputs})
        for node in self.nodes:
            for value in dict.fromkeys(node.uses()):
                found[value].append(node)
        return found

    def __str__(self) -> str:
        return str(import_module("tenon.graph.text").print_graph(self))     # by name: the printer stands above

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.params)} params, {len(self.nodes)} nodes>"


def graphs_in(value: Any) -> tuple[Graph, ...]:
    """The graph that an attribute is, or those that a tuple of graphs holds."""
    if isinstance(value, Graph):
        return (value,)
    return tuple(x for x in value if isinstance(x, Graph)) if isinstance(value, tuple) else ()


def symbols_in(value: Any) -> set[str]:
    """The symbols of an attribute: of a size, of a graph, of all in a tuple."""
    if isinstance(value, Graph):
        return set(value.symbols())
    if isinstance(value, tuple):
        return set().union(*map(symbols_in, value))
    return symbols(value) if isinstance(value, SymbolicDim) else set()
