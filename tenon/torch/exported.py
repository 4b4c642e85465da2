"""A module of PyTorch -> a model of Tenon, which needs PyTorch no more: `torch.export`, then one graph.

The model is what `tn.load` gives: its weights are its state, and it is run, differentiated, trained and saved like any.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from tenon.capture.capture_cache import argument_names
from tenon.capture.parameter_sources import Argument, Held, Source
from tenon.capture.pytree import flatten
from tenon.capture.result_leaves import FromGraph, ResultNest
from tenon.dims.size_assumptions import Assumptions, assuming
from tenon.dims.symbolic_dim import PinnedSize, symbol
from tenon.errors import ArgumentError
from tenon.nn.module import Parameter
from tenon.passes.drop_dead import drop_dead
from tenon.serialization.loaded_model import LoadedModel
from tenon.serialization.saved_function import Function, Model, Variant
from tenon.serialization.structure_json import nameless
from tenon.tensor import Tensor
from tenon.torch.aten import name_of, rule_for
from tenon.torch.call_plan import is_assertion
from tenon.torch.dynamo import decompositions
from tenon.torch.fx_program import numbers_of
from tenon.torch.symints import Known
from tenon.torch.torch_tensors import copied
from tenon.torch.translate import Refused, line_of, tensor_type, translate
from tenon.types import TensorType

MAX_SYMBOLS = 4         # for each, calls with size 1 have a graph of their own


def from_module(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *,
                dynamic_shapes: Any = None, name: str = "forward") -> LoadedModel:
    """A module of PyTorch as a model of Tenon, for arguments like these; its weights are copied.

    `dynamic_shapes` is as `torch.export` has it: {"x": {0: torch.export.Dim("B")}}.  The module is taken in the mode
    in which it is.  Raises ArgumentError where an operator has no form in Tenon, such as one that draws random numbers:
    call `module.eval()` before.

    >>> import torch
    >>> net = tn.torch.from_module(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> net(tn.ones(4, 3)).shape, [name for name, _ in net.named_parameters()]
    ((4, 2), ['weight', 'bias'])
    """
    keywords = dict(kwargs or {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)      # PyTorch warns of what it does itself
        program = torch.export.export(module, tuple(args), keywords, dynamic_shapes=dynamic_shapes)
        program = program.run_decompositions(decompositions())
    state = _state(module, program)
    _read_once(program, state)
    names = argument_names(module.forward, flatten(((None, *args), keywords))[1])[1:]
    leaves, structure = flatten((tuple(args), keywords))
    values = {k: x for k, x in enumerate(leaves) if not isinstance(x, torch.Tensor)}
    variants = [_variant(program, state, sizes, name) for sizes in _sizes(program)]
    positional = tuple(names[:len(args)])
    function = Function(name, tuple(names), positional, nameless(structure), values, tuple(variants))
    return LoadedModel(Model({name: function}, state))


# ---------------------------------------------------------------- the weights

def _state(module: torch.nn.Module, program: Any) -> dict[str, Tensor]:
    """The tensors that the module holds, by name; one that has two names is one tensor."""
    known: dict[tuple[Any, ...], Tensor] = {}
    found: dict[str, Tensor] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            held = program.state_dict.get(spec.target, program.constants.get(spec.target))
            key = held.data_ptr(), tuple(held.shape), held.stride(), spec.kind, spec.target * (not held.numel())
            if key not in known:
                made = copied(held.detach())
                known[key] = Parameter(made, requires_grad=held.requires_grad) if spec.kind is InputKind.PARAMETER \
                    else made
            found[spec.target] = known[key]
    return found


def _read_once(program: Any, state: Mapping[str, Tensor]) -> None:
    """A tensor that has two names is read by the first of them alone, as a file has it."""
    first: dict[int, fx.Node] = {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.target in state and (known := first.setdefault(id(state[spec.target]), node)) is not node:
            node.replace_all_uses_with(known)


# ---------------------------------------------------------------- the graph

def _sizes(program: Any) -> Iterator[Known]:
    """What symbols stand for: sizes of at least 2, and each of them 1."""
    found = dict.fromkeys(n.node.expr for node in program.graph.nodes if node.op == "placeholder"
                          and isinstance(node.meta["val"], torch.Tensor) for n in node.meta["val"].shape
                          if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol)
    symbols = list(found)
    choices = [(symbol(str(s)), *([1] if len(symbols) <= MAX_SYMBOLS else [])) for s in symbols]
    for chosen in itertools.product(*choices):
        yield dict(zip(symbols, chosen, strict=True))


def _variant(program: Any, state: Mapping[str, Tensor], known: Known, name: str) -> Variant:
    """The graph for these sizes, with what it reads and what becomes of its results."""
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    numbers = numbers_of(program.graph, {}, known)
    inputs: list[fx.Node] = []
    sources: list[Source] = []
    types: list[TensorType] = []
    seen: set[int] = set()
    position = 0
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            position += 1
        if not isinstance(spec.arg, TensorArgument) or id(held := state.get(spec.target)) in seen:
            continue
        seen |= set() if held is None else {id(held)}
        inputs.append(node)
        sources.append(Argument(position - 1) if spec.kind is InputKind.USER_INPUT else Held(state[spec.target]))
        types += [tensor_type(node.meta["val"], known)] if spec.kind is InputKind.USER_INPUT else []
    output: Any = program.graph.output_node()
    results = list(dict.fromkeys(x for x, spec in zip(output.args[0], signature.output_specs, strict=True)
                                 if isinstance(x, fx.Node) and spec.kind is not OutputKind.TOKEN))
    assumptions = Assumptions({str(value): _hint(key) for key, value in known.items() if value != 1})
    graph = _translated(program, inputs, results, name, numbers, known, assumptions)
    by_name = {node.name: node for node in placeholders}
    assigned = []
    for x, spec in zip(output.args[0], signature.output_specs, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            holder = sources[inputs.index(by_name[spec.target])] if spec.target in by_name else \
                next(s for s in sources if isinstance(s, Held) and s.holder is state[spec.target])
            assigned.append((holder, results.index(x), False))
    carrying = frozenset(k for k, r in enumerate(graph.results) if r.dtype.is_differentiable) \
        - {k for _, k, _ in assigned}
    return Variant(graph, tuple(sources), tuple(types), _nest(program, results, carrying), tuple(assigned),
                   assumptions=assumptions, carrying=carrying)


def _hint(expression: Any) -> int:
    """A size that is as good as any."""
    return 7 + len(str(expression))


def _translated(program: Any, inputs: Sequence[fx.Node], results: Sequence[fx.Node], name: str,
                numbers: Mapping[fx.Node, Any], known: Known, assumptions: Assumptions) -> Any:
    needed = _read_for(results)
    called = [node for node in program.graph.nodes if node.op == "call_function" and node not in numbers
              and node in needed and not (rule_for(node.target) is None and is_assertion(node))]
    try:
        with assuming(assumptions):
            return drop_dead(translate(name, inputs, called, results, numbers, known, in_order=True))
    except Refused as error:
        hint = "module.eval() before" if torch.Tag.nondeterministic_seeded in getattr(
            error.node.target, "tags", ()) else 'torch.compile(module, backend="tenon") runs it by PyTorch'
        raise ArgumentError(f"from_module: {name_of(error.node.target)} has no form in Tenon: {error.why}",
                            where=line_of(error.node), hint=hint) from error
    except PinnedSize as error:
        raise ArgumentError(f"from_module: the module needs a size that may change to be a number: {error}",
                            hint="leave it out of dynamic_shapes") from None


def _read_for(results: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes that results depend on: not what PyTorch makes sure of, nor what is computed for that alone."""
    found: set[fx.Node] = set()
    pending = list(results)
    while pending:
        if (node := pending.pop()) not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _nest(program: Any, results: Sequence[fx.Node], carrying: frozenset[int]) -> ResultNest:
    """What the module returns, with the results of the graph as its leaves."""
    specs, output = program.graph_signature.output_specs, program.graph.output_node()
    returned = [x for x, spec in zip(output.args[0], specs, strict=True) if spec.kind is OutputKind.USER_OUTPUT]
    leaves, structure = flatten(_plain(pytree.tree_unflatten(returned, program.call_spec.out_spec)))
    filled = tuple(FromGraph(results.index(x), results.index(x) in carrying, False) if isinstance(x, fx.Node) else x
                   for x in leaves)
    return ResultNest(nameless(structure), filled)


def _plain(value: Any) -> Any:
    """A nest of tuples, lists and dicts: what libraries return by name is a dict, PyTorch's pairs are tuples."""
    if isinstance(value, Mapping):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, tuple) and type(value) is not tuple and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    if isinstance(value, (tuple, list)):
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    return value
