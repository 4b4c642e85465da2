"""A GraphProto or FunctionProto -> a plan: steps that name what they read, and the constants of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tenon.errors import TenonError
from tenon.onnx.known_values import Known
from tenon.onnx.model_file import ModelError
from tenon.onnx.onnx_package import onnx
from tenon.records import dataclass, field


@dataclass(frozen=True, eq=False)
class Reference:
    """An attribute of a node in a function that is one of the function's own."""

    name: str


@dataclass(frozen=True, eq=False)
class OperatorStep:
    """A node: the operator, what it reads and what it names."""

    op_type: str
    domain: str
    overload: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    node: Any
    plan: GraphPlan

    @property
    def label(self) -> str:
        """How errors call it."""
        return f"{self.op_type} {self.name!r}" if self.name else f"{self.op_type} of {', '.join(self.outputs)}"


@dataclass(eq=False)
class GraphPlan:
    """A graph to evaluate.  `opsets` is the version of each domain, `functions` those of the model."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: Mapping[str, int]
    functions: Mapping[Any, Any]
    constants: dict[str, Known] = field(default_factory=dict)
    steps: list[OperatorStep] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)      # a function's attributes
    types: dict[str, Any] = field(default_factory=dict)         # of inputs and results, where they are declared
    dead_after: list[list[str]] = field(default_factory=list)   # for each step, what nothing reads after it

    def set_steps(self, steps: Iterable[OperatorStep]) -> None:
        """These in their order, in the place of those before."""
        self.steps[:] = steps
        alive, dead = {*self.outputs, *self.constants}, []
        for step in reversed(self.steps):
            used = {*names_read(step), *step.outputs} - alive - {""}
            dead.append(sorted(used))
            alive |= used
        self.dead_after[:] = reversed(dead)


def names_read(step: OperatorStep) -> set[str]:
    """What a node reads, its sub-graphs included."""
    read = set(step.inputs)
    for inner in plans_in(step):
        read |= {name for part in inner.steps for name in names_read(part)} | set(inner.outputs)
    return read


def plans_in(step: OperatorStep) -> list[GraphPlan]:
    """The sub-graphs of a node."""
    values = [v for value in step.attributes.values() for v in (value if isinstance(value, list) else [value])]
    return [v for v in values if isinstance(v, GraphPlan)]


def steps_of(plan: GraphPlan) -> Iterator[OperatorStep]:
    """All steps, those of sub-graphs too."""
    for step in plan.steps:
        yield step
        for inner in plans_in(step):
            yield from steps_of(inner)


def model_plan(model: Any) -> GraphPlan:
    """The plan of a model that was verified."""
    functions: dict[Any, GraphPlan] = {}        # which call each other
    functions.update({(f.domain, f.name, f.overload): function_plan(f, functions) for f in model.functions})
    return graph_plan(model.graph, opsets_of(model), functions)


def opsets_of(proto: Any) -> dict[str, int]:
    """Domain -> version."""
    return {domain_name(o.domain): o.version for o in proto.opset_import}


def domain_name(domain: str) -> str:
    """The standard's domain has two names."""
    return "" if domain == "ai.onnx" else domain


def graph_plan(graph: Any, opsets: Mapping[str, int], functions: Any) -> GraphPlan:
    """The plan of a graph, initializers included."""
    weights = {t.name: known_tensor(t) for t in graph.initializer}
    weights |= {s.values.name: dense(s) for s in graph.sparse_initializer}
    plan = GraphPlan(graph.name, tuple(x.name for x in graph.input if x.name not in weights),
                tuple(x.name for x in graph.output), opsets, functions, weights,
                types={x.name: x.type for x in (*graph.input, *graph.output)})
    _add_steps(plan, graph.node)
    return plan


def function_plan(function: Any, functions: Any) -> GraphPlan:
    """The plan of a function's body."""
    opsets = opsets_of(function)
    plan = GraphPlan(function.name, tuple(function.input), tuple(function.output), opsets, functions)
    plan.defaults.update((a.name, attribute_value(a, plan)) for a in function.attribute_proto)
    _add_steps(plan, function.node)
    return plan


def _add_steps(plan: GraphPlan, nodes: Any) -> None:
    def step_of(node: Any) -> OperatorStep:
        attributes = {a.name: Reference(a.ref_attr_name) if a.ref_attr_name else attribute_value(a, plan)
                      for a in node.attribute}
        return OperatorStep(node.op_type, domain_name(node.domain), node.overload, node.name, tuple(node.input),
                            tuple(node.output), attributes, node, plan)
    plan.set_steps(map(step_of, nodes))


def attribute_value(attribute: Any, plan: GraphPlan) -> Any:
    """An attribute as a value of Python; a graph as a plan."""
    kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
    if kind not in _READ:
        raise ModelError(f"the attribute {attribute.name!r} is of kind {kind}, which there is not")
    return _READ[kind](attribute, plan)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


_READ: dict[str, Callable[[Any, GraphPlan], Any]] = {
    "FLOAT": lambda a, p: a.f, "INT": lambda a, p: a.i, "STRING": lambda a, p: _text(a.s),
    "TENSOR": lambda a, p: known_tensor(a.t), "GRAPH": lambda a, p: graph_plan(a.g, p.opsets, p.functions),
    "SPARSE_TENSOR": lambda a, p: dense(a.sparse_tensor), "TYPE_PROTO": lambda a, p: a.tp,
    "FLOATS": lambda a, p: list(a.floats), "INTS": lambda a, p: list(a.ints),
    "STRINGS": lambda a, p: [_text(s) for s in a.strings],
    "TENSORS": lambda a, p: [known_tensor(t) for t in a.tensors],
    "GRAPHS": lambda a, p: [graph_plan(g, p.opsets, p.functions) for g in a.graphs],
    "SPARSE_TENSORS": lambda a, p: [dense(t) for t in a.sparse_tensors],
    "TYPE_PROTOS": lambda a, p: list(a.type_protos), "UNDEFINED": lambda a, p: None,
}


def known_tensor(tensor: Any) -> Known:
    """The elements of a TensorProto."""
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        raise ModelError(f"the tensor {tensor.name!r} cannot be read: {error}") from None
    return Known(array)


MAX_DENSE = 1 << 28     # elements of a sparse tensor, written out


def dense(sparse: Any) -> Known:
    """A sparse tensor with its zeros."""
    values, indices = known_tensor(sparse.values).array, known_tensor(sparse.indices).array
    shape = tuple(sparse.dims)
    if min(shape, default=1) < 0 or np.prod([float(d) for d in shape]) > MAX_DENSE:
        raise ModelError(f"the sparse tensor {sparse.values.name!r} has the sizes {list(shape)}")
    try:
        places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
        result = np.zeros(int(np.prod(shape)), values.dtype)
        if places.shape != values.shape or (places.size and places.min() < 0):
            raise ValueError(f"{values.shape[0]} values at {places.size} places")
        result[places] = values
    except (ValueError, IndexError, TenonError) as error:
        raise ModelError(f"the sparse tensor {sparse.values.name!r} is damaged: {error}") from None
    return Known(result.reshape(shape))
