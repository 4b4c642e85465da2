"""The arrays and texts of a safetensors file -> the model that they are, or DamagedFile.

They may come from anybody.  All that is read is checked against all that it speaks of: places and numbers against the
graph, the arguments and the state; graphs by the verifier.  Nothing is run, and no name but an operator's is looked up.
`tenon.serialization.write_model` says what stands where.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon import tensor_file
from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.result_leaves import FromGraph, FromOutside, FromSize, OneOf, ResultNest, SharedLeaf
from tenon.dims.size_assumptions import Assumptions
from tenon.dims.symbolic_dim import SymbolicDim, symbols
from tenon.errors import TenonError
from tenon.graph.ir import Graph
from tenon.graph.parse import parse_attribute, parse_graph, parse_type
from tenon.graph.verify import verify
from tenon.nn.module import Parameter
from tenon.serialization.saved_function import Function, Model, Variant
from tenon.serialization.structure_json import from_json
from tenon.serialization.write_model import FORMAT, FUNCTION, GRADIENT, GRAPH, STATE, VERSION, WRITER
from tenon.tensor import Tensor
from tenon.tensor_file import DamagedFile
from tenon.types import BY_SHORT, TensorType

RELATIONS = ("==", "<")
MAX_VARIANTS = 256
MAX_DEPTH = 50                  # of results among which the data choose
MAX_LEAVES = 1 << 31
OPTIONS = {"memory_budget": int, "autotune": bool, "constants": bool}


def is_model(metadata: Mapping[str, str]) -> bool:
    """Whether a file holds functions."""
    return VERSION in metadata


def read_model(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Model:
    """The model that a file holds; raises DamagedFile where anything does not fit."""
    if not metadata[VERSION].isdecimal() or len(metadata[VERSION]) > 9:
        raise DamagedFile(f"its format is {metadata[VERSION]!r:.50}, which is no number")
    if not 1 <= int(metadata[VERSION]) <= FORMAT:
        raise DamagedFile(f"its format is {metadata[VERSION]}, and this Tenon reads up to {FORMAT}: it was written by "
                          f"Tenon {metadata.get(WRITER, '?'):.20}")
    try:
        return _read_model(arrays, metadata)
    except DamagedFile:
        raise
    except (TenonError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError,
            ArithmeticError) as error:
        raise DamagedFile(f"its header holds no model: {getattr(error, 'what', None) or repr(error):.300}") from None


def _read_model(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Model:
    said = _object(_json(metadata[STATE]), "state")
    gradients = _names(said["gradients"], {name.removesuffix(GRADIENT) for name in arrays if name.endswith(GRADIENT)})
    held = {name: x for name, x in arrays.items()
            if not (name.endswith(GRADIENT) and name.removesuffix(GRADIENT) in gradients)}
    parameters, trained = (_names(said[key], held) for key in ("parameters", "trained"))
    state: dict[str, Tensor] = {}
    for name, array in held.items():
        x = Parameter(Tensor(array), requires_grad=False) if name in parameters else Tensor(array)
        if name in trained:
            x.requires_grad = True
        state[name] = x
    for name, other in _object(said["same"], "names").items():
        if name in held:
            raise DamagedFile(f"the name {name!r:.60} is taken")
        state[name] = state[_names([other], held)[0]]
    found: dict[str, Tensor] = {}
    for name in gradients:
        found[name] = Tensor(arrays[name + GRADIENT])
        if found[name].type != state[name].type:
            raise DamagedFile(f"the gradient of {name!r:.60} is {found[name].type}")
        state[name].grad = found[name]
    functions = {name: _read_function(name, _object(_json(text), name), metadata, state)
                 for key, text in metadata.items() if (name := key.removeprefix(FUNCTION)) != key}
    if not functions:
        raise DamagedFile("it holds no function")
    return Model(functions, state, found)


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=tensor_file.distinct, parse_constant=tensor_file.no_number)


def _object(found: Any, what: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise DamagedFile(f"what it says of {what:.60} is no object")
    return found


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise DamagedFile(f"{found!r:.60} is no list")
    return found


def _names(found: Any, known: Any) -> list[str]:
    """A list of names of tensors."""
    if wrong := [x for x in _list(found) if not isinstance(x, str) or x not in known]:
        raise DamagedFile(f"it names a tensor {wrong[0]!r:.60}, which it does not hold")
    return list(found)


def _integer(found: Any, end: int) -> int:
    if type(found) is not int or not 0 <= found < end:
        raise DamagedFile(f"{found!r:.60} is no number from 0 up to {end}")
    return found


def _flag(found: Any) -> bool:
    if type(found) is not bool:
        raise DamagedFile(f"{found!r:.60} is neither true nor false")
    return found


def _read_function(name: str, said: Mapping[str, Any], metadata: Mapping[str, str],
                   state: Mapping[str, Tensor]) -> Function:
    if not name.isidentifier():
        raise DamagedFile(f"a function is called {name!r:.60}")
    structure = from_json(said["structure"])
    if structure.kind is not tuple or [x.kind for x in structure.children] != [tuple, dict]:
        raise DamagedFile(f"{name}: its arguments are no tuple and dict")
    arguments, positional = (tuple(_texts(said[key])) for key in ("arguments", "positional"))
    if len(arguments) != structure.leaves or len(positional) != len(structure.children[0].children):
        raise DamagedFile(f"{name}: it has {structure.leaves} arguments, and {len(arguments)} names")
    values = {_integer(k, len(arguments)): _value(x) for k, x in map(_pair, _list(said["values"]))}
    options = {key: x for key, x in _object(said["options"], "options").items() if type(x) is OPTIONS[key]}
    tensors = [k for k in range(len(arguments)) if k not in values]
    listed = _list(said["variants"])
    if not 1 <= len(listed) <= MAX_VARIANTS:
        raise DamagedFile(f"{name}: it has {len(listed)} graphs")
    variants = tuple(_Reader(metadata[f"{GRAPH}{name}.{k}"], _object(x, name), tensors, state).variant()
                     for k, x in enumerate(listed))
    return Function(name, arguments, positional, structure, values, variants, options)


def _texts(found: Any) -> list[str]:
    if not all(isinstance(x, str) for x in _list(found)):
        raise DamagedFile(f"{found!r:.60} are no names")
    return list(found)


def _pair(found: Any) -> tuple[Any, Any]:
    first, second = _list(found)
    return first, second


def _value(found: Any) -> Any:
    """What `_plain` wrote."""
    if isinstance(found, dict):
        (kind, text), = found.items()
        if kind == "dtype":
            return BY_SHORT[text]
        if kind == "float" and isinstance(text, str):
            return float(text)
        raise DamagedFile(f"{found!r:.60} is no value")
    if found is None or type(found) in (bool, int, str):
        return found
    raise DamagedFile(f"{found!r:.60} is no value")


class _Reader:
    """One variant: every place and number that it names is one of its graph, its arguments or its state."""

    def __init__(self, text: str, said: Mapping[str, Any], tensors: Sequence[int], state: Mapping[str, Tensor]):
        self.graph = verify(parse_graph(text))
        _check_operators(self.graph)
        self.graph.notes = {}       # who calls it verifies it for the sizes of the call
        self.said, self.tensors, self.state = said, tensors, state
        self.types = tuple(map(parse_type, _texts(said["types"])))
        self.results = len(self.graph.results)
        self.held: dict[str, Held] = {}

    def variant(self) -> Variant:
        said = self.said
        sources = tuple(map(self.source, _list(said["reads"])))
        self.check_inputs(sources)
        recording, accumulates = (None if x is None else _flag(x) for x in (said["recording"], said["accumulates"]))
        failed = said["failed"]
        assigned = [(self.stored(x, k), k, _flag(carries)) for x, k, carries in map(_list, _list(said["assigned"]))]
        gradients = [(self.stored(x, k), k) for x, k in map(_pair, _list(said["gradients"]))]
        return Variant(
            self.graph, sources, self.types, self.nest(said["returns"], 0), tuple(assigned), tuple(gradients),
            self.assumptions(), frozenset(_integer(k, self.results) for k in _list(said["carrying"])),
            tuple((_integer(k, len(sources)), self.condition(r)) for k, r in map(_pair, _list(said["by_data"]))),
            None if failed is None else self.condition(failed), accumulates, recording,
            tuple(_texts(said.get("raising", []))))

    def source(self, found: Any) -> Source:
        if isinstance(found, str):
            if found not in self.held:
                self.held[found] = Held(self.state[_names([found], self.state)[0]])
            return self.held[found]
        if isinstance(found, list) and len(found) == 1:
            inner = self.source(found[0])
            if not isinstance(inner, GradientOf):
                return GradientOf(inner)
        return Argument(self.tensors[self.tensors.index(_integer(found, MAX_LEAVES))])

    def check_inputs(self, sources: Sequence[Source]) -> None:
        """Every parameter is of the type of what it reads, and every tensor argument is read once."""
        if len(self.types) != len(self.tensors) or len(sources) != len(self.graph.params):
            raise DamagedFile(f"{self.graph.name}: its graph takes other inputs")
        known = dict(zip(self.tensors, self.types, strict=True))
        for source, param in zip(sources, self.graph.params, strict=True):
            if param.type != self.type_of(source, known):
                raise DamagedFile(f"{self.graph.name}: {param.name} is {param.type}, and what it reads is another type")
        if len({id(x) if isinstance(x, Held) else x for x in sources}) != len(sources):
            raise DamagedFile(f"{self.graph.name}: its graph reads one thing twice")

    def type_of(self, source: Source, known: Mapping[int, TensorType]) -> TensorType:
        if isinstance(source, GradientOf):
            return self.type_of(source.source, known)
        if isinstance(source, Argument):
            return known[source.position]
        assert isinstance(source.holder, Tensor)
        return source.holder.type

    def stored(self, found: Any, result: Any) -> Source:
        """A tensor that takes a result of its type."""
        source = self.source(found)
        known = dict(zip(self.tensors, self.types, strict=True))
        if isinstance(source, GradientOf):
            raise DamagedFile(f"{self.graph.name}: it stores to a gradient of a gradient")
        made = None if result is None else self.graph.results[_integer(result, self.results)].type
        if made is not None and made != self.type_of(source, known):
            raise DamagedFile(f"{self.graph.name}: it stores {made} in another type")
        return source

    def condition(self, found: Any) -> int:
        """A result that is one bool."""
        k = _integer(found, self.results)
        if str(self.graph.results[k].type) != "bool":
            raise DamagedFile(f"{self.graph.name}: a condition is {self.graph.results[k].type}")
        return k

    def assumptions(self) -> Assumptions:
        found = Assumptions({})
        known = {*self.graph.symbols()}.union(*(_symbols(x) for x in self.types))
        for row in map(_list, _list(self.said["sizes"])):
            left, relation, right, answer = row
            sides = [parse_attribute(text) for text in _texts([left, right])]
            if relation not in RELATIONS or any(type(x) not in (int, SymbolicDim) for x in sides) \
                    or not set().union(*map(symbols, sides)) <= known:
                raise DamagedFile(f"{self.graph.name}: {row!r:.80} compares no sizes")
            found.recorded[sides[0], relation, sides[1]] = _flag(answer)
        return found

    # ------------------------------------------------------------ what is returned

    def nest(self, found: Any, depth: int) -> ResultNest:
        said = _object(found, "results")
        structure, leaves = from_json(said["structure"]), _list(said["leaves"])
        if structure.leaves != len(leaves) or depth > MAX_DEPTH:
            raise DamagedFile(f"{self.graph.name}: its results are not as it says")
        return ResultNest(structure, tuple(self.leaf(_object(x, "a result"), depth) for x in leaves))

    def leaf(self, said: dict[str, Any], depth: int) -> Any:
        if "result" in said:
            number = _flag(said["number"])
            k = _integer(said["result"], self.results)
            if number and self.graph.results[k].shape != ():
                raise DamagedFile(f"{self.graph.name}: a number is {self.graph.results[k].type}")
            same = None if said["same"] is None else _integer(said["same"], MAX_LEAVES)
            return FromGraph(k, _flag(said["requires_grad"]), _flag(said["released"]), same, number,
                             is_leaf=_flag(said["leaf"]))
        if "tensor" in said:
            return FromOutside(self.source(said["tensor"]))
        if "size" in said:
            size = parse_attribute(said["size"])
            if type(size) is not SymbolicDim or not symbols(size) <= {*self.graph.symbols()}:
                raise DamagedFile(f"{self.graph.name}: it returns a size {said['size']!r:.60}")
            return FromSize(size)
        if "first" in said:
            return OneOf(tuple((True if p is True else self.decided(p, depth), self.nest(x, depth + 1))
                               for p, x in map(_pair, _list(said["first"]))))
        if "shared" in said:
            return SharedLeaf(_integer(said["shared"], MAX_LEAVES), self.nest(said["nest"], depth + 1))
        return _value(said["value"])

    def decided(self, found: Any, depth: int) -> Any:
        leaf = self.leaf(_object(found, "a condition"), depth)
        if not isinstance(leaf, FromGraph):
            raise DamagedFile(f"{self.graph.name}: a condition is no result")
        self.condition(leaf.index)
        return leaf


def _check_operators(graph: Graph) -> None:
    for node in graph.nodes:
        if not node.op.is_own:
            raise DamagedFile(f"{graph.name}: the operator {node.op.name} is not Tenon's own")
        for body in node.graphs:
            _check_operators(body)


def _symbols(type: TensorType) -> set[str]:
    return set().union(*map(symbols, type.shape))
