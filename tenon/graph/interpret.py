"""The reference interpreter: a graph run node by node on NumPy arrays.  The oracle for all compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tenon.context_values import during
from tenon.dims.size_assumptions import learn
from tenon.dims.symbolic_dim import SymbolicDim, evaluate
from tenon.errors import DTypeError, GraphError, ShapeError
from tenon.graph.build import expansion
from tenon.graph.ir import Graph, Literal, Node, Value, graphs_in
from tenon.graph.kernels import UserKernel
from tenon.graph.op import Op
from tenon.records import dataclass, field
from tenon.types import TOKEN, DType, TensorType, as_dtype, bfloat16, float16

NARROW = (float16, bfloat16)    # computed in float32 and rounded once, as compiled code does


def interpret(graph: Graph, arrays: Sequence[np.ndarray], sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """The results of `graph` on these arrays.  `sizes` gives symbols; they are read off the arrays otherwise."""
    sizes = dict(sizes or bind_sizes(graph, [a.shape for a in arrays]))
    run = _run.get()
    if run is not None and run.sizes == sizes:
        return _interpret(graph, arrays, sizes)
    with running(sizes):
        return _interpret(graph, arrays, sizes)


def interpret_within(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a graph that is part of the one that runs: a symbol means the same size in both."""
    return interpret(graph, arrays, current_sizes())


@dataclass(frozen=True)
class GraphRun:
    """What the graphs inside a running graph share with it: its sizes, and the cells of its stacks."""

    sizes: Mapping[str, int]
    cells: list[tuple[int, tuple[np.ndarray, ...]]] = field(default_factory=list)


_run: ContextVar[GraphRun | None] = ContextVar("run", default=None)


def running(sizes: Mapping[str, int]) -> AbstractContextManager[GraphRun]:
    """The run that the graphs of this block belong to."""
    outer = _run.get()
    return during(_run, GraphRun(sizes) if outer is None else GraphRun(sizes, outer.cells))


def current_run() -> GraphRun:
    """The run that is going on."""
    run = _run.get()
    assert run is not None, "stacks live in the run of a graph"
    return run


def current_sizes() -> Mapping[str, int]:
    """The size of every symbol of the graph that runs."""
    run = _run.get()
    return {} if run is None else run.sizes


class OutOfPatience(Exception):
    """More nodes were run than were asked for: a loop may have no end."""


_patience: ContextVar[list[int] | None] = ContextVar("patience", default=None)     # how many nodes may still be run


def with_patience(nodes: int) -> AbstractContextManager[Any]:
    """So many nodes are run at most, those of loops counted in every iteration; then OutOfPatience is raised."""
    return during(_patience, [nodes])


def _lose_patience(nodes: int) -> None:
    left = _patience.get()
    if left is not None:
        left[0] -= nodes
        if left[0] < 0:
            raise OutOfPatience


See = Callable[[Node, Sequence[Any], Sequence[Any]], None]
_witness: ContextVar[See | None] = ContextVar("witness", default=None)


def witnessed(see: See) -> AbstractContextManager[Any]:
    """Tell `see` of every node that is run in this block, with its inputs and outputs; those of sub-graphs too."""
    return during(_witness, see)


def _interpret(graph: Graph, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    _lose_patience(len(graph.nodes) + 1)
    values: dict[Value, Any] = dict(zip(graph.params, arrays, strict=True))
    see = _witness.get()
    for node in graph.nodes:
        inputs = [None if x is None else np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal) else values[x]
                  for x in node.inputs]
        if node.op.data_dependent:
            sizes = _say_sizes(node, inputs, values, sizes)
        else:
            attrs = concrete(node.attrs, sizes) if sizes else node.attrs
            types = tuple(concrete_type(x.type, sizes) for x in node.outputs)
            values.update(zip(node.outputs, evaluate_op(node.op, inputs, attrs, types), strict=True))
        if see is not None:
            see(node, inputs, [values[x] for x in node.outputs])
    return [values[r] for r in graph.results]


def _say_sizes(node: Node, inputs: Sequence[Any], values: dict[Value, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """Run a node whose results have sizes that the data decide; the sizes that are known then."""
    known = dict(sizes)
    for x, array in zip(node.outputs, evaluate_op(node.op, inputs, {"size": None}), strict=True):
        learn_shape(x, array, known)
        values[x] = array
    return known


def learn_shape(value: Value, array: np.ndarray, sizes: dict[str, int]) -> None:
    """Add the sizes that an array tells; raises ShapeError where it does not have the shape that is stated."""
    pairs = zip(value.shape, array.shape, strict=False)
    if value.ndim != array.ndim or not all(
            dim == size if isinstance(dim, int) else learn(dim, size, sizes) for dim, size in pairs):
        raise ShapeError(f"the data give a tensor of shape {list(array.shape)} where {value.type} is expected")


def evaluate_op(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any],
                types: Sequence[TensorType] | None = None, kernel: UserKernel | None = None) -> tuple[Any, ...]:
    """The outputs of one operator by its reference, or by a user's kernel.

    `types` are the output types, inferred where not given.
    """
    if types is None:
        inferred = op.type(*map(type_of, arrays), **attrs)
        types = inferred if isinstance(inferred, tuple) else (inferred,)
    with np.errstate(all="ignore"):
        if kernel is not None:
            out = kernel.run(*arrays, **attrs)
        elif op.ref is not None:
            out = op.ref(*_given(op, arrays, attrs), **attrs)
        else:
            body = expansion(op, tuple(map(type_of, arrays)), attrs)
            return tuple(interpret(body, [a for a in arrays if a is not None]))
    listed = out if isinstance(out, tuple) and len(types) > 1 else (out,)
    if kernel is not None or not op.is_own:
        _check_of_user(op, "kernel" if kernel is not None else "reference", listed, types)
    return tuple(as_type(x, t) for x, t in zip(listed, types, strict=True))


def _check_of_user(op: Op, what: str, found: Sequence[Any], types: Sequence[TensorType]) -> None:
    """Raise where a user's code gives other arrays than the operator's type rule says."""
    rule = f"its type rule says {', '.join(map(str, types))}"
    if len(found) != len(types):
        raise ShapeError(f"{op.name}: its {what} gave {len(found)} arrays; {rule}")
    for x, type in zip(found, types, strict=True):
        array = np.asarray(x)
        if array.shape != type.shape:
            raise ShapeError(f"{op.name}: its {what} gave an array of shape {list(array.shape)}; {rule}")
        if type != TOKEN and not np.can_cast(array.dtype, type.dtype.numpy, "same_kind"):   # a token holds nothing
            raise DTypeError(f"{op.name}: its {what} gave elements of type {array.dtype}; {rule}")


def type_of(array: Any) -> TensorType | None:
    """The type of an array."""
    return None if array is None else TensorType(as_dtype(array.dtype), array.shape)


def bind_sizes(graph: Graph, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The size of every symbol, read off the shapes of the arguments; raises GraphError where they do not fit."""
    sizes: dict[str, int] = {}
    for value, shape in zip(graph.params, shapes, strict=True):
        if len(shape) != value.ndim:
            raise GraphError(f"{graph.name}: {value.name} is {value.type} and got an array of shape {list(shape)}")
        for dim, size in zip(value.shape, shape, strict=True):
            learn(dim, size, sizes)
    for value, shape in zip(graph.params, shapes, strict=True):
        if not _has_shape(value, shape, sizes):
            raise GraphError(f"{graph.name}: {value.name} is {value.type} and got an array of shape {list(shape)}")
    return sizes


def _has_shape(value: Value, shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    try:
        return all(evaluate(dim, sizes) == size for dim, size in zip(value.shape, shape, strict=True))
    except ZeroDivisionError:       # a size divided by a difference of others
        return False


def concrete(attrs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Attributes with every symbolic size replaced by its number."""
    return {name: _concrete(value, sizes) for name, value in attrs.items()}


def concrete_type(type: TensorType, sizes: Mapping[str, int]) -> TensorType:
    """The type with every symbolic size replaced by its number."""
    return type.with_shape([evaluate(dim, sizes) for dim in type.shape]) if sizes else type


def _concrete(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, SymbolicDim):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(_concrete(x, sizes) for x in value)
    return value


def _given(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Any]:
    """What a reference computes with.  A stack hands back what it got, and sub-graphs take what their types say."""
    if op.handles or not any(map(_is_narrow, arrays)) or any(map(graphs_in, attrs.values())):
        return arrays
    return [x.astype(np.float32) if _is_narrow(x) else x for x in arrays]


def _is_narrow(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.itemsize == 2 and any(array.dtype == x.numpy for x in NARROW)


def as_type(array: Any, type: TensorType) -> np.ndarray:
    """What a reference returned, as an array of the type that the operator promises."""
    if type == TOKEN:
        return np.zeros((), np.bool_)
    found: np.ndarray = np.asarray(array)
    return found if found.dtype == type.dtype.numpy else _astype(found, type.dtype)


def _astype(array: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        real = array.real if array.dtype.kind == "c" and dtype.kind != "c" else array
        converted: np.ndarray = real.astype(dtype.numpy)
        return converted
