"""Optimised graph -> an assembly: the kernels, and the steps that call them on places in memory.  No sizes yet.

    Assembly(graph, steps, arguments, results)

Where some arguments are constants (`graph.notes[CONSTANTS]`), what packs them for products is an assembly of its own,
`packing`; the panels that it returns are further arguments.

What only renames memory (a reshape) is no step.  What no kernel can do (a `host` operator, complex numbers) is a step
that calls NumPy.  Sub-graphs of branches and loops become steps inside of steps (`tenon.program.control_flow_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tenon.dims.symbolic_dim import product
from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import CONSTANTS, Graph, Input, Literal, Node, Value
from tenon.ops.async_all_reduce import all_reduce_done
from tenon.ops.graph_calls import fused
from tenon.ops.shape import constant, reshape_op
from tenon.passes.fusion.kernel_bodies import body_of, has_loops
from tenon.passes.fusion.parametrize_slices import on_pieces
from tenon.program.control_flow_steps import add_structure
from tenon.program.kernel import CompiledKernel
from tenon.program.kernel_backend import KernelBackend
from tenon.program.release_stacks import with_releases
from tenon.program.steps import (
    CopyStep,
    HostStep,
    KernelStep,
    Step,
    Storage,
    homes,
    leaves,
    resolve,
    resolved,
    share,
)
from tenon.records import dataclass, replace

MakeUnit = Callable[[Graph], CompiledKernel | None]
VIEWS = (reshape_op,)       # the same bytes under another type
IN_PLACE = (all_reduce_done,)       # whose results lie where their first inputs do
MAX_GROWTH = 2              # times the bytes that a factor is made of, for its panels,
SMALL_PANEL_BYTES = 1 << 16  # and as many bytes in any case
PANEL_ELEMENT_BYTES = 4     # bytes of an element as panels hold it


@dataclass(eq=False)
class Assembly:
    graph: Graph
    steps: tuple[Step, ...]
    arguments: tuple[Storage, ...]
    results: tuple[Storage, ...]
    packing: Assembly | None = None
    packs: tuple[int, ...] = ()         # the arguments that `packing` takes
    unread: frozenset[int] = frozenset()        # those of them that no step reads

    @property
    def units(self) -> list[CompiledKernel]:
        """The distinct kernels."""
        return list(dict.fromkeys(step.unit for step in self.kernel_steps))

    @property
    def kernel_steps(self) -> Iterator[KernelStep]:
        """Those that call a kernel, inside of branches and loops too."""
        return (step for step in leaves(self.steps) if isinstance(step, KernelStep))


def assemble(graph: Graph, make_unit: MakeUnit, make_inner: MakeUnit, backend: KernelBackend) -> Assembly:
    """Steps for every node, in the order of the graph; `make_inner` makes the kernels of its branches and loops."""
    arguments = tuple(Storage("argument", p.type, k) for k, p in enumerate(graph.params))
    constants = tuple(arguments[k] for k in graph.notes.get(CONSTANTS, ()))
    assembler = Assembler(make_unit, make_inner, backend, {}, frozenset(constants))
    places = assembler.steps_of(graph, arguments)
    results = assembler.own_results(places)
    share(assembler.steps)
    steps = resolved(with_releases(assembler.steps, results))
    made = Assembly(graph, steps, arguments, tuple(map(resolve, results)))
    return _with_packing(made, assembler.packing, backend) if assembler.packing else made


def _with_packing(made: Assembly, steps: Sequence[KernelStep], backend: KernelBackend) -> Assembly:
    """The assembly with the panels that these steps make as further arguments."""
    taken = list(dict.fromkeys(x for step in steps for x in step.inputs))
    places = {x: Storage("argument", x.type, k) for k, x in enumerate(taken)}
    panels = [step.outputs[0] for step in steps]
    packed = [Storage("result", x.type, k) for k, x in enumerate(panels)]
    inner = tuple(KernelStep(step.node, step.unit, tuple(places[x] for x in step.inputs), (x,))
                  for step, x in zip(steps, packed, strict=True))
    params, results = ([Value(x.type, name=f"{name}{k}") for k, x in enumerate(listed)]
                       for name, listed in (("p", taken), ("panels", panels)))
    packing = Assembly(Graph(f"{made.graph.name}_packing", tuple(params), (), tuple(results)), inner,
                       tuple(places.values()), tuple(packed))
    for k, x in enumerate(panels, len(made.arguments)):
        x.kind, x.index = "argument", k
    graph = replace(made.graph, params=(*made.graph.params, *results))
    read = {x for y in backend.packing.read_by(made.steps) for x in homes(y)}
    return replace(made, graph=graph, arguments=(*made.arguments, *panels), packing=packing,
                   packs=tuple(x.index for x in taken), unread=frozenset(x.index for x in taken if x not in read))


class Assembler:
    """Fills a list of steps; `places` says where every value lies."""

    def __init__(self, make_unit: MakeUnit, make_inner: MakeUnit, backend: KernelBackend,
                 places: dict[Value, Storage], constants: frozenset[Storage] = frozenset()):
        self.make_unit, self.make_inner, self.backend = make_unit, make_inner, backend
        self.places, self.constants = places, constants
        self.steps: list[Step] = []
        self.packing: list[KernelStep] = []     # of constants

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
            if not self.add_kernel(node) and not self.add_structure(node):
                self.add_without_kernel(node)
            new = [self.with_panels(step) for step in self.steps[first:]]
            self.steps[first:] = [step for step in new if step not in self.packing]

    def with_panels(self, step: Step) -> Step:
        """The step; a product whose right factor is made of constants takes panels, which `packing` makes."""
        if not self.constants:
            return step
        pack = self.backend.packing
        if isinstance(step, KernelStep) and pack.is_packing(step.unit) and self.constants.issuperset(step.inputs):
            self.packing.append(step)       # before a loop
            return step
        found = pack.right_of(step)
        if found is None or not self.constants.issuperset(found[0]) or not pack.is_worth_keeping(step, *found) \
                or not _is_as_small(*found, pack.is_convolution(step)):
            return step
        assert isinstance(step, KernelStep)
        packing, packed = pack.in_two(step, *found)
        same = next((x for x in self.packing if x.inputs == packing.inputs and x.unit is packing.unit), None)
        if same is not None:
            return replace(packed, inputs=(*step.inputs, *same.outputs))
        self.packing.append(packing)
        return packed

    def inside(self, graph: Graph, arguments: Sequence[Storage]) -> tuple[list[Step], list[Storage]]:
        """The steps of a sub-graph, and where its results lie.  Its kernels may yet become parts of a larger one."""
        inner = Assembler(self.make_inner, self.make_inner, self.backend, self.places)
        places = inner.steps_of(graph, arguments)
        return inner.steps, places

    def set_results(self, node: Node, places: Sequence[Storage]) -> None:
        """Note where the outputs lie; tokens behind them lie nowhere in particular."""
        tokens = [Storage("arena", x.type) for x in node.outputs[len(places):]]
        self.places.update(zip(node.outputs, (*places, *tokens), strict=True))

    def add_kernel(self, node: Node) -> bool:
        """One kernel for the node; False where none can be made."""
        if node.op is fused:
            body, outside = node.attrs["body"], node.inputs
            if not all(map(has_loops, body.nodes)):
                return False
        elif has_loops(node):
            body, outside = body_of([node], node.outputs)
        else:
            return False
        inputs = tuple(map(self.place_of, outside))
        pieces: Mapping[int, int] = {}
        if self.constants.isdisjoint(inputs):       # of which panels are made, as they are
            body, pieces = on_pieces(body)
        unit = self.make_unit(body)
        if unit is None:
            return False
        temporaries = tuple(Storage("temporary", type) for type in unit.facts.temporaries)
        self.steps.append(KernelStep(node, unit, inputs, self.new_places(node), temporaries, pieces))
        return True

    def add_structure(self, node: Node) -> bool:
        """The steps of a branch, a loop or a stack; False where the node is none."""
        return add_structure(self, node)

    def add_without_kernel(self, node: Node) -> None:
        """A fused node falls into its parts, any other is a host step."""
        if node.op is not fused:
            arguments = tuple(self.places[x] if isinstance(x, Value) else x for x in node.inputs)
            places = self.places_in_place(node) if node.op in IN_PLACE else self.new_places(node)
            self.steps.append(HostStep(node, arguments, places))
            return
        body: Graph = node.attrs["body"]
        self.places.update((p, self.place_of(x)) for p, x in zip(body.params, node.inputs, strict=True))
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

    def places_in_place(self, node: Node) -> tuple[Storage, ...]:
        """Those of the first inputs for all results, but for the token at the end."""
        self.set_results(node, [self.place_of(x) for x, _ in zip(node.inputs, node.outputs[:-1], strict=False) if x])
        return tuple(self.places[y] for y in node.outputs)

    def own_results(self, places: Sequence[Storage]) -> list[Storage]:
        """Every result gets memory of its own: what is an argument, a constant, or a result twice, is copied."""
        listed: list[Storage] = []
        for k, place in enumerate(map(resolve, places)):
            if place.kind == "arena":
                place.kind, place.index = "result", k
            else:
                source, place = place, Storage("result", place.type, k)
                self.steps.append(CopyStep(source, place))
            listed.append(place)
        return listed


def _is_as_small(made_from: Sequence[Storage], size: int, convolution: bool) -> bool:
    """Whether panels take about the memory of what they are made of: 8-bit weights are worth their small size.

    Those of a convolution, which computes far more than it reads, are not: they count as if they were wide.
    """
    least = PANEL_ELEMENT_BYTES if convolution else 1
    given = sum(product(x.type.shape) * max(x.type.dtype.itemsize, least) for x in made_from)
    return isinstance(given, int) and size <= max(MAX_GROWTH * given, SMALL_PANEL_BYTES)
