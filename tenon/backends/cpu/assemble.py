"""Optimised graph -> an assembly: the kernels, and the steps that call them on places in memory.  No sizes yet.

    Assembly(graph, steps, arguments, results)
    Step    = KernelStep | HostStep | CopyStep
    Storage                             memory that one or several values lie in: views share it, in-place results too

What only renames memory (a reshape) is no step.  What no kernel can do (a `host` operator, complex numbers) is a step
that calls NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tenon.backends.base import Array
from tenon.backends.cpu.unit import Unit
from tenon.dims import Dim
from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Graph, Literal, Node, Value
from tenon.ops.call import fused
from tenon.ops.shape import constant, reshape_op
from tenon.passes.bodies import body_of, computed_by_element
from tenon.types import TensorType

MakeUnit = Callable[[Graph], Unit | None]
VIEWS = (reshape_op,)       # the same bytes under another type


@dataclass(eq=False)
class Storage:
    """`kind`: argument, constant, result, arena (lives during the run), or temporary (during one step)."""

    kind: str
    type: TensorType
    index: int = -1                     # which argument or result
    data: Array | None = None           # of a constant

    @property
    def bytes(self) -> Dim:
        return self.type.size * self.type.dtype.itemsize


@dataclass(eq=False)
class KernelStep:
    """A kernel on its inputs, outputs and temporaries, in this order."""

    node: Node
    unit: Unit
    inputs: tuple[Storage, ...]
    outputs: tuple[Storage, ...]
    temporaries: tuple[Storage, ...] = ()


@dataclass(eq=False)
class HostStep:
    """An operator that NumPy does."""

    node: Node
    arguments: tuple[Storage | Literal | None, ...]
    outputs: tuple[Storage, ...]

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return tuple(x for x in self.arguments if isinstance(x, Storage))


@dataclass(eq=False)
class CopyStep:
    source: Storage
    target: Storage

    @property
    def inputs(self) -> tuple[Storage, ...]:
        return (self.source,)

    @property
    def outputs(self) -> tuple[Storage, ...]:
        return (self.target,)


Step = KernelStep | HostStep | CopyStep


@dataclass(eq=False)
class Assembly:
    graph: Graph
    steps: tuple[Step, ...]
    arguments: tuple[Storage, ...]
    results: tuple[Storage, ...]

    @property
    def units(self) -> list[Unit]:
        """The distinct kernels."""
        return list(dict.fromkeys(step.unit for step in self.steps if isinstance(step, KernelStep)))

    def storages(self) -> list[Storage]:
        """All memory that the steps use."""
        used = (x for step in self.steps for x in touched(step))
        return list(dict.fromkeys([*self.arguments, *self.results, *used]))


def touched(step: Step) -> tuple[Storage, ...]:
    """All memory that a step uses, in the order of a kernel's parameters."""
    return step.inputs + step.outputs + (step.temporaries if isinstance(step, KernelStep) else ())


def assemble(graph: Graph, make_unit: MakeUnit) -> Assembly:
    """Steps for every node, in the order of the graph."""
    arguments = tuple(Storage("argument", p.type, k) for k, p in enumerate(graph.params))
    assembler = _Assembler(make_unit, dict(zip(graph.params, arguments, strict=True)))
    for node in graph.nodes:
        assembler.add(node)
    results = assembler.own_results(graph.results)
    return Assembly(graph, tuple(share_in_place(assembler.steps)), arguments, tuple(results))


class _Assembler:
    def __init__(self, make_unit: MakeUnit, places: dict[Value, Storage]):
        self.make_unit, self.places = make_unit, places
        self.steps: list[Step] = []

    def add(self, node: Node) -> None:
        """The steps of one node."""
        if node.op in VIEWS and isinstance(node.inputs[0], Value):
            self.places[node.output] = self.places[node.inputs[0]]
        elif node.op is constant:
            data = np.ascontiguousarray(evaluate_op(node.op, (), node.attrs)[0])
            self.places[node.output] = Storage("constant", node.output.type, data=data)
        elif not self.add_kernel(node):
            self.add_without_kernel(node)

    def add_kernel(self, node: Node) -> bool:
        """One kernel for the node; False where none can be made."""
        if node.op is fused:
            body, outside = node.attrs["body"], tuple(x for x in node.inputs if isinstance(x, Value))
        elif computed_by_element(node):
            body, outside = body_of([node], node.outputs)
        else:
            return False
        unit = self.make_unit(body)
        if unit is None:
            return False
        inputs = tuple(self.places[x] for x in outside)
        temporaries = tuple(Storage("temporary", type) for type in unit.temporaries)
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

    def new_places(self, node: Node) -> tuple[Storage, ...]:
        made = tuple(Storage("arena", output.type) for output in node.outputs)
        self.places.update(zip(node.outputs, made, strict=True))
        return made

    def own_results(self, results: Sequence[Value]) -> list[Storage]:
        """Every result gets memory of its own: what is an argument, a constant, or a result twice, is copied."""
        listed: list[Storage] = []
        for k, value in enumerate(results):
            place = self.places[value]
            if place.kind == "arena":
                place.kind, place.index = "result", k
            else:
                source, place = place, Storage("result", value.type, k)
                self.steps.append(CopyStep(source, place))
            listed.append(place)
        return listed


# ---------------------------------------------------------------- results in the place of inputs

def share_in_place(steps: Sequence[Step]) -> list[Step]:
    """The same steps, where an output takes the place of an input that is read for the last time at the same index.

    Not results: the longer theirs are unwritten, the longer a donated argument may be read in the same place.
    """
    last_read = {x: k for k, step in enumerate(steps) for x in step.inputs}
    merged: dict[Storage, Storage] = {}
    shared: list[Step] = []
    for k, step in enumerate(steps):
        step = _replaced(step, merged)
        for source, target in _candidates(step):
            unused = source not in step.outputs and target in step.outputs
            if unused and last_read[source] == k and source.bytes == target.bytes:
                merged[target] = source
                last_read[source] = last_read.get(target, k)
                step = _replaced(step, merged)
        shared.append(step)
    return shared


def _candidates(step: Step) -> Iterator[tuple[Storage, Storage]]:
    """(input, output) pairs where the kernel reads the input only at the element that it writes."""
    if isinstance(step, KernelStep):
        for output, source in sorted(step.unit.in_place):
            pair = step.inputs[source], step.outputs[output]
            if step.inputs.count(pair[0]) == 1 and pair[0].kind == pair[1].kind == "arena":
                yield pair


def _replaced(step: Step, merged: dict[Storage, Storage]) -> Step:
    if not any(x in merged for x in touched(step)):
        return step

    def new(places: tuple[Storage, ...]) -> tuple[Storage, ...]:
        return tuple(merged.get(x, x) for x in places)
    match step:
        case KernelStep():
            return KernelStep(step.node, step.unit, new(step.inputs), new(step.outputs), step.temporaries)
        case CopyStep():
            return CopyStep(*new((step.source, step.target)))
        case HostStep():
            return HostStep(step.node, tuple(merged.get(x, x) if isinstance(x, Storage) else x
                                             for x in step.arguments), new(step.outputs))
