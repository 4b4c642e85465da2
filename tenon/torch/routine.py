"""An FX graph of ATen operators -> a function on PyTorch's tensors: programs of Tenon, and PyTorch in between.

It is made at the first call, since none of PyTorch's tensors has elements while PyTorch compiles; and once more for
other sizes, where PyTorch leaves sizes open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tenon import pipeline
from tenon.dataclasses import dataclass
from tenon.locks import Lock
from tenon.runtime.addressed import Addressed
from tenon.torch.aten import name_of
from tenon.torch.plan import Turn, is_drawn, is_like, is_torchs, make_plan
from tenon.torch.report import Report, note
from tenon.torch.site import Unmapped
from tenon.torch.symints import Known, size_of
from tenon.torch.tensors import as_tensor, lying_as
from tenon.torch.translate import Refused, placed, translate

Environment = dict[fx.Node, Any]
Step = Callable[[Environment], None]


class Routine:
    """What a compiled FX graph is to PyTorch: a function of a list of tensors and sizes, which it empties."""

    def __init__(self, module: fx.GraphModule, name: str, notes: Mapping[str, Any]):
        self.module, self.name, self.notes = module, name, notes
        self.inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.numbers = [k for k, node in enumerate(self.inputs) if not isinstance(node.meta["val"], torch.Tensor)]
        self.made: dict[tuple[Any, ...], Made] = {}
        self._lock = Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        key = tuple([args[k] for k in self.numbers])
        made = self.made.get(key)
        if made is None:
            with self._lock:
                made = self.made.get(key)
                if made is None:
                    made = self.made[key] = self._make(args)
        return made.run(args)

    def _make(self, args: list[Any]) -> Made:
        return make(self.module, self.name, self.notes, dict(zip(self.inputs, args, strict=True)))


@dataclass
class Made:
    """The steps for some sizes."""

    inputs: Sequence[fx.Node]
    constants: Mapping[fx.Node, Any]
    steps: Sequence[Step]
    results: Sequence[Any]      # nodes, and None

    def run(self, args: list[Any]) -> list[Any]:
        """The results; `args` is empty afterwards, so that what nobody needs goes at once."""
        known: Environment = {**self.constants, **dict(zip(self.inputs, args, strict=True))}
        args.clear()
        for step in self.steps:
            step(known)
        return [known[x] if isinstance(x, fx.Node) else x for x in self.results]


def make(module: fx.GraphModule, name: str, notes: Mapping[str, Any], given: Mapping[fx.Node, Any]) -> Made:
    """The steps for arguments of these sizes."""
    known = sizes_known(given)
    numbers = numbers_of(module.graph, given, known)
    refused: dict[fx.Node, str] = {}
    while True:
        turns = make_plan(module.graph, refused, numbers)
        try:
            graphs = [translated(turn, f"{name}_{k}", notes, numbers, known) for k, turn in enumerate(turns)]
            break
        except Refused as error:
            refused[error.node] = error.why
    steps: list[Step] = []
    for turn, program in zip(turns, graphs, strict=True):
        steps += [torch_step(node, known) for node in turn.torch]
        steps += [program] if program else []
    note(_counted(turns, refused, sum(program is not None for program in graphs)))
    constants = {node: _attribute(module, str(node.target)) for node in module.graph.nodes if node.op == "get_attr"}
    output: Any = module.graph.output_node()
    return Made(tuple(given), {**constants, **numbers}, steps, output.args[0])


def sizes_known(given: Mapping[fx.Node, Any]) -> Known:
    """What PyTorch's symbols are in a call."""
    known: dict[Any, Any] = {}
    for node, value in given.items():
        fake = node.meta["val"]
        pairs: Any = zip(fake.shape, value.shape, strict=True) if isinstance(fake, torch.Tensor) else [(fake, value)]
        for symbolic, size in pairs:
            if isinstance(symbolic, (torch.SymInt, torch.SymFloat)) and symbolic.node.expr.is_Symbol:
                known[symbolic.node.expr] = size
    return known


def numbers_of(graph: fx.Graph, given: Mapping[fx.Node, Any], known: Known) -> dict[fx.Node, Any]:
    """The nodes that are numbers, as far as sizes tell them."""
    found: dict[fx.Node, Any] = {node: x for node, x in given.items() if not isinstance(x, torch.Tensor)}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)):
            try:
                found[node] = size_of(value, known)
            except Unmapped:
                continue
    return found


def translated(turn: Turn, name: str, notes: Mapping[str, Any], numbers: Mapping[fx.Node, Any],
               known: Known) -> Step | None:
    """The step that runs the nodes of Tenon in a turn."""
    here = set(turn.tenon)
    inputs = list(dict.fromkeys(n for node in turn.tenon for n in node.all_input_nodes
                                if n not in here and n not in numbers))
    outputs = [node for node in turn.tenon if any(user not in here for user in node.users)
               and isinstance(node.meta["val"], torch.Tensor)]
    if not outputs:
        return None
    made = translate(name, inputs, turn.tenon, outputs, numbers, known)
    made.notes = dict(notes)
    return ProgramStep(pipeline.compile(made), inputs, outputs, known)


class ProgramStep:
    """A program of Tenon among the steps: tensors in and out by their memory."""

    def __init__(self, program: Any, inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], known: Known):
        self.inputs = [(node, placed(node, known)) for node in inputs]
        self.outputs = [(node, placed(node, known), node.meta["val"].dtype) for node in outputs]
        self.call = Addressed(program, [tuple(map(int, place.stored)) for _, place in self.inputs])

    def __call__(self, known: Environment) -> None:
        tensors = [lying_as(known[node], place) for node, place in self.inputs]
        arrays = self.call.run([tensor.data_ptr() for tensor in tensors])
        for array, (node, place, dtype) in zip(arrays, self.outputs, strict=True):
            known[node] = as_tensor(array, place, dtype)


def torch_step(node: fx.Node, known: Known) -> Step:
    """The step in which PyTorch runs a node."""
    target: Any = node.target
    like: Any = node.args[0] if is_like(node) else None

    def step(values: Environment) -> None:
        def read(n: fx.Node) -> Any:
            return _empty(like.meta["val"], known) if n is like else values[n]
        values[node] = target(*fx.map_arg(node.args, read), **fx.map_arg(node.kwargs, read))
    return step


def _empty(fake: torch.Tensor, known: Known) -> torch.Tensor:
    """A tensor that has the type of this one."""
    shape, strides = ([size_of(n, known) for n in sizes] for sizes in (fake.shape, fake.stride()))
    return torch.empty_strided(shape, strides, dtype=fake.dtype)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _counted(turns: Sequence[Turn], refused: Mapping[fx.Node, str], programs: int) -> Report:
    report = Report(graphs=1, programs=programs)
    for node in (node for turn in turns for node in (*turn.tenon, *turn.torch)):
        name = name_of(node.target)
        if name == "getitem":
            continue
        if not is_torchs(node, refused):
            report.operators += 1
        elif is_drawn(node):
            report.drawn += 1
        else:
            report.in_torch[name] += 1
            report.reasons[name] = refused.get(node, "it is not in the table")
    return report
