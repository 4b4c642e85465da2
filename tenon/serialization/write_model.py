"""A model -> what stands in a safetensors file: arrays by name, and texts in the header's metadata.

    tenon.format            "1"
    tenon.version           of the Tenon that wrote it
    tenon.state             JSON: what is a parameter, what requires a gradient, further names of a tensor
    tenon.function.NAME     JSON: arguments, structure, and of each variant what its graph reads and what is stored
    tenon.graph.NAME.K      the text of a graph, as `tenon.graph.text` prints it

What is changed here raises FORMAT; `tenon.serialization.read_model` goes on reading what was written before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.capture.parameter_sources import Argument, GradientOf, Held, Source
from tenon.capture.result_leaves import FromGraph, FromOutside, FromSize, OneOf, ResultNest, SharedLeaf
from tenon.errors import ArgumentError, DTypeError
from tenon.graph.text import print_graph
from tenon.nn.module import Parameter
from tenon.serialization.saved_function import Function, Model, Variant
from tenon.serialization.structure_json import as_json
from tenon.tensor import Tensor
from tenon.types import DType

FORMAT = 1                      # of what is written; what is read may be older
PREFIX = "tenon."
VERSION, WRITER, STATE = PREFIX + "format", PREFIX + "version", PREFIX + "state"
FUNCTION, GRAPH = PREFIX + "function.", PREFIX + "graph."
GRADIENT = ".grad"


def write_model(model: Model, version: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays, metadata) of the file."""
    first: dict[int, str] = {}
    for name, x in model.state.items():
        first.setdefault(id(x), name)
    arrays = {name: _array(name, x) for name, x in model.state.items() if first[id(x)] == name}
    arrays |= {name + GRADIENT: _array(name, x) for name, x in model.gradients.items()}
    names = {id(model.state[name]): name for name in first.values()}
    state = {"parameters": [name for name in arrays if isinstance(model.state.get(name), Parameter)],
             "trained": [name for name in arrays if name in model.state and model.state[name].requires_grad],
             "same": {name: first[id(x)] for name, x in model.state.items() if first[id(x)] != name},
             "gradients": list(model.gradients)}
    metadata = {VERSION: str(FORMAT), WRITER: version, STATE: json.dumps(state)}
    for function in model.functions.values():
        metadata[FUNCTION + function.name] = json.dumps(_function_as_json(function, names))
        for k, variant in enumerate(function.variants):
            _name_parameters(function, variant, names)
            metadata[f"{GRAPH}{function.name}.{k}"] = print_graph(variant.graph)
    return arrays, metadata


def _name_parameters(function: Function, variant: Variant, names: Mapping[int, str]) -> None:
    """Let the text of a graph say what it reads; a name decides nothing."""
    for param, source in zip(variant.graph.params, variant.sources, strict=True):
        if isinstance(source, Argument):
            param.name = function.arguments[source.position]
        elif isinstance(source, Held):
            param.name = names[id(source.holder)].replace(".", "_")


def _array(name: str, x: Tensor) -> np.ndarray:
    array = np.asarray(x.detach())
    if array.dtype == np.complex128:
        raise DTypeError(f"save: {name!r} is complex128, which safetensors files do not hold")
    return np.ascontiguousarray(array).reshape(array.shape)


def _function_as_json(function: Function, names: Mapping[int, str]) -> dict[str, Any]:
    return {"arguments": list(function.arguments), "positional": list(function.positional),
            "structure": as_json(function.structure), "options": dict(function.options),
            "values": [[k, _plain(x)] for k, x in function.values.items()],
            "variants": [_variant_as_json(variant, names) for variant in function.variants]}


def _variant_as_json(variant: Variant, names: Mapping[int, str]) -> dict[str, Any]:
    def place(source: Source) -> Any:
        if isinstance(source, Argument):
            return source.position
        return [place(source.source)] if isinstance(source, GradientOf) else names[id(source.holder)]
    return {"reads": [place(x) for x in variant.sources], "types": [str(x) for x in variant.types],
            "returns": _nest_as_json(variant.output, place),
            "assigned": [[place(x), result, carries] for x, result, carries in variant.assigned],
            "gradients": [[place(x), result] for x, result in variant.gradients],
            "sizes": [[str(left), relation, str(right), answer]
                      for (left, relation, right), answer in variant.assumptions.recorded.items()],
            "carrying": sorted(variant.carrying), "by_data": [list(x) for x in variant.by_data],
            "failed": variant.failed, "raising": list(variant.raising), "recording": variant.recording,
            "accumulates": variant.accumulates}


def _nest_as_json(nest: ResultNest, place: Callable[[Source], Any]) -> dict[str, Any]:
    return {"structure": as_json(nest.structure), "leaves": [_leaf_as_json(x, place) for x in nest.leaves]}


def _leaf_as_json(leaf: Any, place: Callable[[Source], Any]) -> dict[str, Any]:
    if isinstance(leaf, FromGraph):
        return {"result": leaf.index, "requires_grad": leaf.requires_grad, "released": leaf.released,
                "same": leaf.name, "number": leaf.number, "leaf": leaf.is_leaf}
    if isinstance(leaf, FromOutside):
        return {"tensor": place(leaf.source)}
    if isinstance(leaf, FromSize):
        return {"size": str(leaf.size)}
    if isinstance(leaf, OneOf):
        return {"first": [[p if p is True else _leaf_as_json(p, place), _nest_as_json(nest, place)]
                          for p, nest in leaf.options]}
    if isinstance(leaf, SharedLeaf):
        return {"shared": leaf.name, "nest": _nest_as_json(leaf.nest, place)}
    return {"value": _plain(leaf)}


def _plain(value: Any) -> Any:
    """A Python value; raises ArgumentError for what JSON cannot say."""
    if isinstance(value, DType):
        return {"dtype": value.short}
    if type(value) is float:
        return {"float": repr(value)}
    if value is None or type(value) in (bool, int, str):
        return value
    raise ArgumentError(f"save: the function returns a {type(value).__name__}, which no file holds: {value!r:.60}",
                        hint="return tensors, numbers, strings and None, in lists, tuples and dicts")
