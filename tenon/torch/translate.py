"""Nodes of an FX graph -> one graph of Tenon: each ATen operator by its rule, with the user's line."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

import tenon as tn
from tenon.errors import Location, TenonError
from tenon.graph.build import Builder
from tenon.graph.ir import Graph, Value
from tenon.graph.op import using
from tenon.torch.aten import higher_order_rule, rule_for
from tenon.torch.aten_call import AtenCall, UnmappedOperator, as_type, dtype_of, is_value
from tenon.torch.memory_order import MemoryOrder, in_the_order_of_axes, order_of
from tenon.torch.symints import Known, OpenNumber, numbers_of, size_of
from tenon.types import TensorType

LINE = re.compile(r'File "(.+)", line (\d+), in (.+)')


class Refused(Exception):
    """A node that no rule takes."""

    def __init__(self, node: fx.Node, why: str):
        super().__init__(why)
        self.node, self.why = node, why


def translate(name: str, inputs: Sequence[fx.Node], nodes: Sequence[fx.Node], outputs: Sequence[fx.Node],
              numbers: Mapping[fx.Node, Any], known: Known, in_order: bool = False) -> Graph:
    """The graph that computes `outputs` from `inputs`, each as it lies in PyTorch's memory, or all in order.

    `numbers` are the values of nodes that are no tensors.  Raises Refused at the first node without a rule.
    """
    builder = Builder(name, rewriting=True)
    values: dict[fx.Node, Any] = dict(numbers)
    with using(builder):
        for node in inputs:
            try:
                type = type_of(node, known)
            except UnmappedOperator as error:       # PyTorch made it, and runs what reads it
                raise Refused(next(n for n in nodes if node in n.all_input_nodes), str(error)) from error
            place = placed(node, known, in_order)
            values[node] = place.seen(builder.parameter(type.with_shape(place.stored), node.name))
        for node in nodes:
            builder.loc = line_of(node)
            try:
                values[node] = _called(node, values, known)
            except (UnmappedOperator, TenonError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
                raise Refused(node, f"{type_name(error)}{error}") from error
        builder.loc = None
        results = [placed(node, known, in_order).laid(values[node]) for node in outputs]
    return builder.finish(results)


def type_name(error: Exception) -> str:
    """What kind of error it is, where that is not said by its text."""
    return "" if isinstance(error, (UnmappedOperator, TenonError)) else f"{type(error).__name__}: "


def _called(node: fx.Node, values: Mapping[fx.Node, Any], known: Known) -> Any:
    arguments, keywords = (fx.map_arg(x, lambda n: _computed(values[n])) for x in (node.args, node.kwargs))
    if node.target is operator.getitem:
        return arguments[0][arguments[1]]
    if (holder := higher_order_rule(node.target)) is not None:
        def graph_of(module: fx.GraphModule, given: Sequence[Any]) -> Graph:
            return _held_graph(module, given, known)
        found, types = holder(graph_of, *arguments, **keywords), types_of(node, known)
        found = found if isinstance(found, tuple) else (found,)
    elif (rule := rule_for(node.target)) is not None:
        site = site_of(node, known)
        found, types = rule(site, *arguments, **keywords), site.types
    else:
        raise UnmappedOperator("it is not in the table")
    if not isinstance(found, (tuple, list)):
        return _promised(found, types[0])
    return tuple(_promised(x, type) for x, type in zip(found, types, strict=True))


def _held_graph(module: fx.GraphModule, given: Sequence[Any], known: Known) -> Graph:
    """The graph of a module that an operator holds, where what it is `given` tells which parameters are numbers."""
    nodes = list(module.graph.nodes)
    params = [node for node in nodes if node.op == "placeholder"]
    numbers = numbers_of(module.graph, {p: x for p, x in zip(params, given, strict=True) if not is_value(x)}, known)
    called = [node for node in nodes if node.op == "call_function" and node not in numbers]
    returned = module.graph.output_node().args[0]
    results = [returned] if isinstance(returned, fx.Node) else list(returned)
    if not all(isinstance(x, fx.Node) for x in results):
        raise UnmappedOperator("a graph in it does not return tensors alone")
    try:
        return translate(module._get_name(), [p for p in params if p not in numbers], called, results, numbers, known,
                         in_order=True)
    except Refused as error:
        raise UnmappedOperator(f"{error.node.name} in it: {error.why}") from error


def _computed(value: Any) -> Any:
    return value.computed() if isinstance(value, OpenNumber) else value


def site_of(node: fx.Node, known: Known) -> AtenCall:
    """What PyTorch promises of the results of a call."""
    arguments, keywords = (fx.map_arg(x, lambda n: n.meta["val"]) for x in (node.args, node.kwargs))
    return AtenCall(types_of(node, known), arguments, keywords)


def types_of(node: fx.Node, known: Known) -> Sequence[TensorType | None]:
    """The types of the results of a call; None where one is no tensor."""
    found = node.meta["val"]
    listed = found if isinstance(found, (tuple, list)) else (found,)
    return [tensor_type(x, known) if isinstance(x, torch.Tensor) else None for x in listed]


def _promised(found: Any, type: TensorType | None) -> Any:
    """A result of the type that PyTorch promises; raises Unmapped for another shape."""
    if type is None or found is None:
        return None
    if not isinstance(found, Value):
        found = tn.full((), as_type(found, type.dtype), dtype=type.dtype)
    if tuple(found.shape) != tuple(type.shape):
        raise UnmappedOperator(f"the rule gives {found.type}, PyTorch {type}")
    return as_type(found, type.dtype)


def tensor_type(fake: torch.Tensor, known: Known) -> TensorType:
    """The type of a tensor that has no elements; raises Unmapped for what is not in this machine's memory."""
    if fake.device.type not in ("cpu", "meta") or fake.layout is not torch.strided:
        raise UnmappedOperator(f"a tensor on {fake.device}, laid out as {fake.layout}")
    return TensorType(dtype_of(fake.dtype), tuple(size_of(n, known) for n in fake.shape))


def type_of(node: fx.Node, known: Known) -> TensorType:
    """The type of the tensor that a node is; raises Unmapped where it is none."""
    if not isinstance(node.meta["val"], torch.Tensor):
        raise UnmappedOperator("a number that the data decide")
    return tensor_type(node.meta["val"], known)


def placed(node: fx.Node, known: Known, in_order: bool = False) -> MemoryOrder:
    """How the tensor that a node is lies in memory."""
    fake = node.meta["val"]
    if in_order:
        return in_the_order_of_axes(tuple(size_of(n, known) for n in fake.shape))
    return order_of(tuple(size_of(n, known) for n in fake.shape), [size_of(n, known) for n in fake.stride()])


def line_of(node: fx.Node) -> Location | None:
    """The user's line that a node comes from."""
    found = LINE.findall(node.meta.get("stack_trace") or "")
    return Location(found[-1][0], int(found[-1][1]), function=found[-1][2]) if found else None
