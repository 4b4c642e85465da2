"""Optimised graph -> an assembly: the kernels, and the steps that call them on places in memory.  No sizes yet.

    Assembly(graph, steps, arguments, results)

What only renames memory (a reshape) is no step.  What no kernel can do (a `host` operator, complex numbers) is a step
that calls NumPy.  Sub-graphs of branches and loops become steps inside of steps (`tenon.backends.cpu.structure`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tenon.backends.cpu.steps import (
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    Storage,
    leaves,
    now,
    resolved,
    share,
)
from tenon.backends.cpu.structure import add_structure
from tenon.backends.cpu.unit import Unit
from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.ops.call import fused
from tenon.ops.shape import constant, reshape_op
from tenon.passes.bodies import body_of, has_loops

MakeUnit = Callable[[Graph], Unit | None]
Start = Callable[[Unit], None]
VIEWS = (reshape_op,)       # the same bytes under another type


@dataclass(eq=False)
class Assembly:
    graph: Graph
    steps: tuple[Step, ...]
    arguments: tuple[Storage, ...]
    results: tuple[Storage, ...]

    @property
    def units(self) -> list[Unit]:
        """The distinct kernels."""
        return list(dict.fromkeys(step.unit for step in leaves(self.steps) if isinstance(step, KernelStep)))


def assemble(graph: Graph, make_unit: MakeUnit, start: Start = lambda unit: None) -> Assembly:
    """Steps for every node, in the order of the graph; `start` is told of every kernel that will be called."""
    arguments = tuple(Storage("argument", p.type, k) for k, p in enumerate(graph.params))
    assembler = Assembler(make_unit, start, {})
    places = assembler.steps_of(graph, arguments)
    results = assembler.own_results(places)
    share(assembler.steps)
    return Assembly(graph, resolved(assembler.steps), arguments, tuple(map(now, results)))


class Assembler:
    """Fills a list of steps; `places` says where every value lies."""

    def __init__(self, make_unit: MakeUnit, start: Start, places: dict[Value, Storage]):
        self.make_unit, self.start, self.places = make_unit, start, places
        self.steps: list[Step] = []

    def steps_of(self, graph: Graph, arguments: Sequence[Storage]) -> list[Storage]:
        """Append the steps of a graph on these arguments; where its results lie."""
        self.places.update(zip(graph.params, arguments, strict=True))
        for node in graph.nodes:
            self.add(node)
        return [self.places[r] for r in graph.results]

    def add(self, node: Node) -> None:
        """The steps of one node."""
        if node.op in VIEWS and isinstance(node.inputs[0], Value):
            self.places[node.output] = self.places[node.inputs[0]]
        elif node.op is constant:
            data = np.ascontiguousarray(evaluate_op(node.op, (), node.attrs)[0])
            self.places[node.output] = Storage("constant", node.output.type, data=data)
        else:
            first = len(self.steps)
            if not self.add_kernel(node) and not add_structure(self, node):
                self.add_without_kernel(node)
            for step in leaves(self.steps[first:]):
                if isinstance(step, KernelStep):
                    self.start(step.unit)

    def inside(self, graph: Graph, arguments: Sequence[Storage]) -> tuple[list[Step], list[Storage]]:
        """The steps of a sub-graph, and where its results lie.  Its kernels may yet become parts of a larger one."""
        inner = Assembler(self.make_unit, lambda unit: None, self.places)
        places = inner.steps_of(graph, arguments)
        return inner.steps, places

    def set_results(self, node: Node, places: Sequence[Storage]) -> None:
        """Note where the outputs lie; tokens behind them lie nowhere in particular."""
        tokens = [Storage("arena", x.type) for x in node.outputs[len(places):]]
        self.places.update(zip(node.outputs, (*places, *tokens), strict=True))

    def add_kernel(self, node: Node) -> bool:
        """One kernel for the node; False where none can be made."""
        if node.op is fused:
            body, outside = node.attrs["body"], tuple(x for x in node.inputs if isinstance(x, Value))
        elif has_loops(node):
            body, outside = body_of([node], node.outputs)
        else:
            return False
        unit = self.make_unit(body)
        if unit is None:
            return False
        inputs = tuple(self.places[x] for x in outside)
        temporaries = tuple(Storage("temporary", type) for type in unit.facts.temporaries)
        self.steps.append(KernelStep(node, unit, inputs, self.new_places(node), temporaries))
        return True

    def add_without_kernel(self, node: Node) -> None:
        """A fused node falls into its parts, any other is a host step."""
        if node.op is not fused:
            arguments = tuple(self.places[x] if isinstance(x, Value) else x for x in node.inputs)
            self.steps.append(HostStep(node, arguments, self.new_places(node)))
            return
        body: Graph = node.attrs["body"]
        self.places.update((p, self.places[x]) for p, x in zip(body.params, node.inputs, strict=True)
                           if isinstance(x, Value))
        for inner in body.nodes:
            self.add(inner)
        self.places.update(zip(node.outputs, (self.places[r] for r in body.results), strict=True))

    def place_of(self, x: Input) -> Storage:
        """Where an input lies; a number gets a place."""
        if isinstance(x, Value):
            return self.places[x]
        assert isinstance(x, Literal)
        return Storage("constant", x.type, data=np.asarray(x.value, x.dtype.numpy))

    def new_places(self, node: Node) -> tuple[Storage, ...]:
        made = tuple(Storage("arena", output.type) for output in node.outputs)
        self.places.update(zip(node.outputs, made, strict=True))
        return made

    def own_results(self, places: Sequence[Storage]) -> list[Storage]:
        """Every result gets memory of its own: what is an argument, a constant, or a result twice, is copied."""
        listed: list[Storage] = []
        for k, place in enumerate(map(now, places)):
            if place.kind == "arena":
                place.kind, place.index = "result", k
            else:
                source, place = place, Storage("result", place.type, k)
                self.steps.append(CopyStep(source, place))
            listed.append(place)
        return listed
