"""An FX graph of ATen operators -> a function on PyTorch's tensors: programs of Tenon, and PyTorch in between.

It is made at the first call, since none of PyTorch's tensors has elements while PyTorch compiles; and once more for
other sizes, where PyTorch leaves sizes open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tenon import pipeline
from tenon.dims.size_assumptions import Assumptions, assuming, told_by
from tenon.dims.symbolic_dim import SMALLEST_SYMBOLIC_SIZE, PinnedSize, symbol
from tenon.dims.undecided_sizes import UndecidedSize
from tenon.errors import CompilerDefect
from tenon.graph.ir import DONATED, UPDATES
from tenon.locks import Lock
from tenon.program.backend_interface import Executable
from tenon.records import dataclass
from tenon.runtime.foreign_memory import ForeignMemoryCall
from tenon.torch.call_plan import PlanStep, counted, is_like, make_plan
from tenon.torch.input_mutations import Step, mutation_step, mutations, updates
from tenon.torch.memory_order import MemoryOrder, fits, of_sizes
from tenon.torch.report import note
from tenon.torch.symints import Known, numbers_of, size_of, sizes_known
from tenon.torch.torch_tensors import as_tensor, lying_as
from tenon.torch.translate import Refused, placed, translate


class FxProgram:
    """What a compiled FX graph is to PyTorch: a function of a list of tensors and sizes, which it empties."""

    def __init__(self, module: fx.GraphModule, name: str, notes: Mapping[str, Any]):
        self.module, self.name, self.notes = module, name, notes
        self.inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.numbers = [k for k, node in enumerate(self.inputs) if not isinstance(node.meta["val"], torch.Tensor)]
        self.compiled: list[Compiled] = []
        self.made: dict[tuple[Any, ...], Made] = {}
        self._lock = Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        key = tuple([args[k] for k in self.numbers])
        made = self.made.get(key)
        if made is None:
            with self._lock:
                made = self.made.get(key)
                if made is None:
                    made = self.made[key] = self._make(dict(zip(self.inputs, args, strict=True)))
        return made.run(args)

    def _make(self, given: Mapping[fx.Node, Any]) -> Made:
        """The steps for these sizes, by programs that are there if some are for other sizes too."""
        known = sizes_known(given)
        found = next((x for x in self.compiled if x.serves(known, given)), None)
        if found is None:
            found = compiled(self.module, self.name, self.notes, given, known)
            self.compiled.append(found)
        return assembled(self.module, found, numbers_of(self.module.graph, given, known), known)


@dataclass
class Compiled:
    """The turns of a graph, their programs, and the sizes that these are for."""

    turns: Sequence[PlanStep]
    programs: Sequence[Translated | None]
    exact: Known                            # what has to be the same
    numbers: Mapping[fx.Node, Any]          # of the arguments that are no tensors and no sizes
    assumptions: Assumptions

    def serves(self, known: Known, given: Mapping[fx.Node, Any]) -> bool:
        """Whether the programs are right for these sizes."""
        return (all(known[s] == size for s, size in self.exact.items())
                and all(given[node] == x for node, x in self.numbers.items())
                and all(size >= SMALLEST_SYMBOLIC_SIZE for s, size in known.items() if s not in self.exact)
                and self.assumptions.hold({str(s): size for s, size in known.items()}))


@dataclass
class Made:
    """The steps for some sizes.  Every value has a slot: arguments first, then what is known, then what is computed."""

    known: Sequence[Any]
    steps: Sequence[Step]
    results: Sequence[int]

    def run(self, args: list[Any]) -> list[Any]:
        """The results; `args` is empty afterwards, so that what nobody needs goes at once."""
        slots = [*args, *self.known]
        args.clear()
        for step in self.steps:
            step(slots)
        return [slots[k] for k in self.results]


def compiled(module: fx.GraphModule, name: str, notes: Mapping[str, Any], given: Mapping[fx.Node, Any],
             known: Known) -> Compiled:
    """The programs: for all sizes as far as that goes, else for these."""
    open_sizes = {s: symbol(str(s)) for s, size in known.items()
                  if isinstance(size, int) and size >= SMALLEST_SYMBOLIC_SIZE}
    if open_sizes:
        try:
            return _compiled(module, name, notes, given, known, open_sizes)
        except (PinnedSize, UndecidedSize, CompilerDefect, Untold):
            pass        # which these sizes may not come to
    return _compiled(module, name, notes, given, known, {})


class Untold(Exception):
    """The shapes of a program's arguments do not tell a size that it needs."""


def _compiled(module: fx.GraphModule, name: str, notes: Mapping[str, Any], given: Mapping[fx.Node, Any],
              known: Known, open_sizes: Known) -> Compiled:
    exact = {s: size for s, size in known.items() if s not in open_sizes}
    sizes = {**exact, **open_sizes}
    values = {node: x for node, x in given.items() if not isinstance(node.meta["val"], (torch.Tensor, torch.SymInt))}
    numbers = numbers_of(module.graph, values, sizes)
    assumptions = Assumptions({str(s): size for s, size in known.items()})
    refused: dict[fx.Node, str] = {}
    while True:
        turns = make_plan(module.graph, refused, numbers)
        try:
            with assuming(assumptions):
                programs = [translated(turn, f"{name}_{k}", notes, numbers, sizes, turn is turns[-1])
                            for k, turn in enumerate(turns)]
            break
        except Refused as error:
            refused[error.node] = error.why
    note(counted(turns, refused, sum(program is not None for program in programs)))
    return Compiled(turns, programs, exact, values, assumptions)


def assembled(module: fx.GraphModule, made: Compiled, numbers: Mapping[fx.Node, Any], known: Known) -> Made:
    """The steps, with a slot for every node."""
    nodes = [node for node in module.graph.nodes if node.op != "output"]
    nodes.sort(key=lambda node: node.op != "placeholder")
    slot = {node: k for k, node in enumerate(nodes)}
    values = [_attribute(module, str(node.target)) if node.op == "get_attr" else numbers.get(node)
              for node in nodes if node.op != "placeholder"]
    steps: list[Step] = []
    for turn, program in zip(made.turns, made.programs, strict=True):
        steps += [torch_step(node, slot, known) for node in turn.torch]
        steps += [program_step(program, slot, known)] if program else []
    steps += [mutation_step(node, slot) or torch_step(node, slot, known) for node in mutations(module.graph)]
    output: Any = module.graph.output_node()
    listed = [len(slot) if x is None else x if isinstance(x, int) else slot[x] for x in output.args[0]]
    return Made([*values, None], steps, listed)


@dataclass
class Translated:
    """A program, and the nodes that it reads and makes."""

    program: Executable
    inputs: Sequence[fx.Node]
    outputs: Sequence[fx.Node]
    orders: Mapping[fx.Node, MemoryOrder]       # of both in memory, as the program has them


def translated(turn: PlanStep, name: str, notes: Mapping[str, Any], numbers: Mapping[fx.Node, Any],
               known: Known, is_last: bool) -> Translated | None:
    """The program of the nodes of Tenon in a turn."""
    here = set(turn.tenon)
    inputs = list(dict.fromkeys(n for node in turn.tenon for n in node.all_input_nodes
                                if n not in here and n not in numbers))
    outputs = [node for node in turn.tenon if any(user not in here for user in node.users)
               and isinstance(node.meta["val"], torch.Tensor)]
    if not outputs:
        return None
    made = translate(name, inputs, turn.tenon, outputs, numbers, known)
    orders = {node: placed(node, known) for node in (*inputs, *outputs)}
    changed = updates(inputs, outputs, orders) if is_last else ()
    made.notes = {**notes, DONATED: tuple(sorted(k for k, _ in changed)), UPDATES: changed} if changed else dict(notes)
    told = {told_by(dim) for param in made.params for dim in param.shape}
    if not told.issuperset(made.symbols()):
        raise Untold
    return Translated(pipeline.compile(made), inputs, outputs, orders)


def program_step(program: Translated, slot: Mapping[fx.Node, int], known: Known) -> Step:
    """The step that runs a program: tensors in and out by their memory."""
    def place_of(node: fx.Node) -> MemoryOrder:
        return of_sizes(program.orders[node], tuple(size_of(n, known) for n in node.meta["val"].shape))
    places = [place_of(node) for node in program.inputs]
    inputs = [(slot[node], place.is_plain and not may_be_conjugate(node), place)
              for node, place in zip(program.inputs, places)]
    outputs = [(slot[node], place := place_of(node), node.meta["val"].dtype, promised(node, place, known))
               for node in program.outputs]
    run = ForeignMemoryCall(program.program, [tuple(map(int, place.stored)) for place in places]).run

    def step(slots: list[Any]) -> None:
        given = []
        for k, plain, place in inputs:
            tensor = slots[k]
            given.append(tensor if plain and tensor.is_contiguous() else lying_as(tensor, place))
        for made, (k, place, dtype, strides) in zip(run([tensor.data_ptr() for tensor in given]), outputs):
            if isinstance(made, int):
                slots[k] = given[made]
                continue
            slots[k] = tensor = as_tensor(made, place, dtype)
            if strides is not None:
                slots[k] = torch.empty_strided(tensor.shape, strides, dtype=dtype).copy_(tensor)
    return step


def may_be_conjugate(node: fx.Node) -> bool:
    """Whether a tensor may be one whose signs PyTorch has not applied: complex, or an imaginary part in order."""
    fake = node.meta["val"]
    return fake.dtype.is_complex or all(n == 1 for n in fake.shape if isinstance(n, int))


def promised(node: fx.Node, place: MemoryOrder, known: Known) -> Sequence[int] | None:
    """The strides that PyTorch promises of a result where it does not lie so: where there are gaps, or their order was
    not known when the program was made; else None."""
    fake, step = node.meta["val"], 1
    sizes, strides = ([size_of(n, known) for n in x] for x in (fake.shape, fake.stride()))
    once = all(stride or n == 1 for n, stride in zip(sizes, strides, strict=True))
    apart = once and not fits(place, strides)
    for n, stride in sorted(zip(sizes, strides, strict=True), key=lambda pair: pair[1]):
        if n > 1 and stride:
            if stride < step:
                return None         # elements lie over each other
            apart, step = apart or stride > step, stride * n
    return strides if apart else None


def torch_step(node: fx.Node, slot: Mapping[fx.Node, int], known: Known) -> Step:
    """The step in which PyTorch runs a node."""
    target: Any = node.target
    like: Any = node.args[0] if is_like(node) else None
    at = slot[node]

    def step(slots: list[Any]) -> None:
        def read(n: fx.Node) -> Any:
            return _empty(like.meta["val"], known) if n is like else slots[slot[n]]
        slots[at] = target(*fx.map_arg(node.args, read), **fx.map_arg(node.kwargs, read))
    return step


def _empty(fake: torch.Tensor, known: Known) -> torch.Tensor:
    """A tensor that has the type of this one."""
    shape, strides = ([size_of(n, known) for n in sizes] for sizes in (fake.shape, fake.stride()))
    return torch.empty_strided(shape, strides, dtype=fake.dtype)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module
