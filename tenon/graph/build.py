"""Operator calls -> graph nodes: the interpreter that records, and the loop behind every pass.

    graph = trace(lambda x, y: x @ y + 1.0, TensorType(float32, (2, 3)), TensorType(float32, (3, 4)))
    graph = rebuild(graph, lambda node, inputs: ...)      # op calls inside append to the new graph
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import same_sizes
from tenon.dims.size_assumptions import Answers, are_given_again, noted_answers
from tenon.dims.symbolic_dim import SymbolicDim, is_by_data
from tenon.errors import CaptureError, DTypeError, GraphError, Location, TenonError, user_location
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.op import OPS, Op, interpreter, using
from tenon.graph.promotion import separate
from tenon.graph.structural_key import Exact
from tenon.observe import emit as tell
from tenon.types import TOKEN, DType, TensorType, as_dtype, broadcast_shapes, no_operand

PYTHON_SCALARS = (bool, int, float, complex)


class Builder:
    """Appends a node for every operator call.

    `loc` is where new nodes come from; None asks the caller's frame, unless the builder is `rewriting` a graph.
    """

    records = True
    outer: Builder | None = None        # that of the graph around, where this is one of a branch or loop

    def __init__(self, name: str, params: Sequence[Value] = (), loc: Location | None = None, rewriting: bool = False):
        self.name, self.loc, self.rewriting = name, loc, rewriting
        self.params: list[Value] = list(params)
        self.nodes: list[Node] = []
        self.order: tuple[Value, ...] = ()      # the token of the last effect
        self.visited: Node | None = None        # the node that is being rebuilt
        self._constants: dict[tuple[Any, ...], Value] = {}

    def parameter(self, type: TensorType, name: str = "") -> Value:
        """A new parameter."""
        self.params.append(Value(type, name=name))
        return self.params[-1]

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The lenient form: promote, broadcast and normalise, then record."""
        recorded = agree(op, tuple(self.lift(x) for x in inputs))
        values = tuple(self._cast(x, dtype) for x, dtype in recorded)
        if op.elementwise:
            values = self.broadcast(values)
        return self.emit(op, values, canonical_attrs(op, types_of(values), attrs))

    def emit(self, op: Op, inputs: tuple[Input, ...], attrs: Mapping[str, Any], loc: Location | None = None,
             after: tuple[Value, ...] = ()) -> Any:
        """The strict form: record exactly this node; its outputs, one value or a tuple."""
        if op.data_dependent and attrs.get("size") is None:
            raise CaptureError(f"{op.name}: the shape of the result depends on the data, so it cannot be in a graph",
                               where=loc or self.loc,
                               hint="call it before the captured function, or keep the shape: tn.where(mask, x, other)")
        known = self._known_type(op, inputs, attrs)
        types = op.type(*types_of(inputs), **attrs) if known is None else known
        listed = types if isinstance(types, tuple) else (types,)
        where = loc or self.loc or (None if self.rewriting else user_location())
        node = Node(op, inputs, attrs, (), where, after)
        if op.effect:
            node.after = tuple(dict.fromkeys(after + self.order))
        node.outputs = tuple(Value(type, node, k) for k, type in enumerate(listed))
        if op.effect:
            self.order = tuple(x for x in node.outputs if x.type == TOKEN)
        self.nodes.append(node)
        if not self.rewriting:
            tell("node", node=node)     # whoever hears it may give the node a `loc` that says more
        return node.outputs if isinstance(types, tuple) else node.outputs[0]

    def _known_type(self, op: Op, inputs: tuple[Input, ...], attrs: Mapping[str, Any]) -> TensorType | None:
        """That of the visited node, where this is the same on inputs of the same types: most of what is rebuilt."""
        old = self.visited
        if old is None or old.op is not op or old.attrs is not attrs or op.compute is None or len(old.outputs) > 1 \
                or len(inputs) != len(old.inputs):
            return None
        for x, y in zip(inputs, old.inputs, strict=True):
            if x is not y and (x is None or y is None or x.type is not y.type):
                return None
        return old.outputs[0].type

    def lift(self, x: Any) -> Any:
        """What an argument is in the graph: arrays become constants."""
        if x is None or isinstance(x, (Value, Literal, SymbolicDim, *PYTHON_SCALARS)):
            return x
        if isinstance(x, (np.ndarray, np.generic)):
            return self.constant(np.asarray(x))
        raise no_operand(x)

    def constant(self, array: np.ndarray) -> Value:
        """The value of an array known now; equal arrays are one node."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.emit(OPS["constant"], (), constant_attrs(array))
        return self._constants[key]

    def finish(self, results: Sequence[Value]) -> Graph:
        """The graph recorded so far, returning `results`."""
        return Graph(self.name, tuple(self.params), tuple(self.nodes), tuple(results))

    def _cast(self, x: Any, dtype: DType | None) -> Input:
        if x is None or dtype is None:
            return None
        if isinstance(x, Value):
            return x if x.dtype is dtype else self.emit(OPS["cast"], (x,), {"dtype": dtype})
        if isinstance(x, SymbolicDim):
            size: Value = self.emit(OPS["dimension"], (), {"size": x, "dtype": dtype})
            return size
        return literal(x.value if isinstance(x, Literal) else x, dtype)

    def broadcast(self, values: tuple[Input, ...]) -> tuple[Input, ...]:
        """The inputs of an elementwise operator, all of one shape; literals stay scalars."""
        shapes = [x.shape for x in values if isinstance(x, Value)]
        if same_sizes(*shapes):
            return values
        shape = broadcast_shapes(*shapes)
        return tuple(self.emit(OPS["broadcast_to"], (x,), {"shape": shape})
                     if isinstance(x, Value) and not same_sizes(x.shape, shape) else x for x in values)


def current_builder() -> Builder:
    """The builder that operator calls go to in this block."""
    builder = interpreter()
    assert isinstance(builder, Builder)
    return builder


def agree(op: Op, inputs: tuple[Any, ...]) -> list[tuple[Any, DType | None]]:
    """Each input with the element type that the operator's promotion gives it."""
    kinds = tuple(map(_kind, inputs))
    try:
        return list(zip(inputs, (op.promote or separate)(kinds), strict=True))
    except TenonError as error:
        raise type(error)(f"{op.name}: {error.what}", hint=error.hint) from None


def _kind(x: Any) -> Any:
    """What promotion sees of an input: a size is a Python integer."""
    if x is None or isinstance(x, SymbolicDim):
        return None if x is None else int
    kind = type(x)
    if isinstance(x, PYTHON_SCALARS):                       # so is NumPy's float64, which is a Python float
        return kind if kind in PYTHON_SCALARS else next(k for k in PYTHON_SCALARS if isinstance(x, k))
    return (getattr(x, "weak", None) or x.dtype) if hasattr(x, "dtype") else kind


def literal(value: Any, dtype: DType) -> Literal:
    """A scalar of this type; raises DTypeError when the type cannot hold it."""
    if dtype.kind in "ui":
        info = np.iinfo(dtype.numpy)
        endless = value - value != 0        # or it is none
        if endless or value != int(value) or not info.min <= int(value) <= info.max:
            raise DTypeError(f"the number {value} does not fit {dtype.name}")
        return Literal(int(value), TensorType(dtype, ()))
    convert: Callable[[Any], Any] = {"b": bool, "f": float, "c": complex}[dtype.kind]
    return Literal(_in_reach(convert(value), dtype.numpy), TensorType(dtype, ()))


def _in_reach(number: Any, dtype: np.dtype[Any]) -> Any:
    """The number, or the infinity that a type makes of one beyond its largest: NumPy would warn at each use of it."""
    if max(abs(number.real), abs(number.imag)) > MAX_FINITE.get(dtype, np.inf):
        with np.errstate(over="ignore"):
            return np.asarray(number, dtype).item()
    return number


MAX_FINITE = {np.dtype(kind): float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.complex64)}


def types_of(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The types of a node's inputs, None for one left out."""
    return tuple(None if x is None else x.type for x in inputs)


def canonical_attrs(op: Op, types: Sequence[Any], attrs: dict[str, Any]) -> Mapping[str, Any]:
    """Attributes in their one IR form (axes counted from the front, tuples for lists)."""
    return op.canonical(*types, **attrs) if op.canonical else attrs


def constant_attrs(array: np.ndarray) -> dict[str, Any]:
    """The attributes of the `constant` that holds this array."""
    return {"data": tuple(array.ravel().tolist()), "dtype": as_dtype(array.dtype), "shape": array.shape}


class ExpansionBuilder(Builder):
    """Of a composite operator: one of too many nodes is refused, as an attribute says how many there are."""

    def emit(self, op: Op, inputs: tuple[Input, ...], attrs: Mapping[str, Any], loc: Location | None = None,
             after: tuple[Value, ...] = ()) -> Any:
        if len(self.nodes) >= MAX_EXPANSION_NODES:
            raise GraphError(f"{self.name} would be made of more than {MAX_EXPANSION_NODES} operators",
                             where=loc or self.loc, hint="give it smaller attributes")
        return super().emit(op, inputs, attrs, loc, after)


MAX_EXPANSION_NODES = 10_000


def trace(fn: Callable[..., Any], *types: TensorType | None, name: str | None = None, **attrs: Any) -> Graph:
    """The graph of `fn` applied to values of these types; None passes None."""
    return _traced(Builder(name or getattr(fn, "__name__", "graph").strip("<>")), fn, types, attrs)


def _traced(builder: Builder, fn: Callable[..., Any], types: Sequence[TensorType | None],
            attrs: Mapping[str, Any]) -> Graph:
    names = list(inspect.signature(fn).parameters) if not isinstance(fn, Op) else []
    names += [f"x{k}" for k in range(len(names), len(types))]
    inputs = [None if t is None else builder.parameter(t, n) for t, n in zip(types, names, strict=False)]
    with using(builder):
        out = fn(*inputs, **attrs)
        results = [x if isinstance(x, Value) else builder.constant(np.asarray(x)) for x in
                   (out if isinstance(out, (tuple, list)) else [out])]
    return builder.finish(results)


Visit = Callable[[Node, tuple[Input, ...]], Any]


def rebuild(graph: Graph, visit: Visit, name: str | None = None) -> Graph:
    """The loop behind every rewriting pass: `visit(node, new inputs)` returns the new outputs.

    Operator calls inside `visit` append to the new graph and carry the location of the node they replace.  A node
    whose visit returns None is left out; its outputs must be unused.
    """
    params = [Value(p.type, name=p.name) for p in graph.params]
    builder = Builder(name or graph.name, params, rewriting=True)
    replaced: dict[Value, Value] = dict(zip(graph.params, params, strict=True))
    with using(builder):
        inline(graph, builder, replaced, visit)
    new = builder.finish([replaced[r] for r in graph.results])
    new.notes = graph.notes
    return new


def inline(graph: Graph, builder: Builder, replaced: dict[Value, Value], visit: Visit) -> None:
    """Visit the nodes of `graph` into `builder`; `replaced` maps its parameters, and afterwards all its values."""
    for node in graph.nodes:
        builder.loc, builder.visited = node.loc, node
        outputs = visit(node, tuple([replaced[x] if isinstance(x, Value) else x for x in node.inputs]))
        if outputs is None:
            continue
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(listed) != len(node.outputs):
            raise GraphError(f"{node.op.name} was replaced by {len(listed)} values, it has {len(node.outputs)} outputs",
                             where=node.loc)
        replaced.update(zip(node.outputs, listed, strict=True))
    builder.loc = builder.visited = None


def copy(node: Node, inputs: tuple[Input, ...]) -> Any:
    """The same node on new inputs: what `visit` returns to leave a node as it is."""
    return current_builder().emit(node.op, inputs, node.attrs)


def call_graph(graph: Graph, inputs: Sequence[Input]) -> tuple[Value, ...]:
    """Inline `graph` on these inputs in the current builder; its results."""
    builder = current_builder()
    loc = builder.loc
    replaced: dict[Value, Any] = dict(zip(graph.params, inputs, strict=True))
    for node in graph.nodes:
        outputs = builder.emit(node.op, tuple(replaced[x] if isinstance(x, Value) else x for x in node.inputs),
                               node.attrs, loc or node.loc)
        replaced.update(zip(node.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
    builder.loc = loc
    return tuple(replaced[r] for r in graph.results)


def expansion(op: Op, types: tuple[TensorType | None, ...], attrs: Mapping[str, Any]) -> Graph:
    """The graph of a composite operator's definition for inputs of these types.

    It is remembered, with what it asked about sizes: another capture may have others by the same names.  Not where it
    may ask about sizes that the data decide.
    """
    assert op.expand is not None
    if any(is_by_data(dim) for type in types if type is not None for dim in type.shape):
        return _traced(ExpansionBuilder(op.name), op.expand, types, attrs)
    key = op, types, Exact(attrs)
    graph, answers = _expansions.get(key, (None, {}))
    if graph is None or not are_given_again(answers):
        with noted_answers() as answers:
            graph = _traced(ExpansionBuilder(op.name), op.expand, types, attrs)
        if len(_expansions) >= MAX_EXPANSIONS:
            _expansions.clear()
        _expansions[key] = graph, answers
    return graph


MAX_EXPANSIONS = 4096
_expansions: dict[tuple[Op, tuple[TensorType | None, ...], Exact], tuple[Graph, Answers]] = {}
