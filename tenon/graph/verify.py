"""Graph -> nothing, or an error: checks every rule of the representation.  Runs around each pass in tests.

    verify(graph)               raises GraphError at the first node that breaks a rule
    verify_sizes(graph, sizes)  the same for these sizes of its symbols, of which rules may have left something open

A graph may come from anybody (`tenon.graph.parse`).  What is accepted can be compiled and run: it ends in results or
in a TenonError, and touches no memory but its own.  What an operator asks of its inputs and attributes stands in its
type rule; the rules for all of them stand here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tenon.context_values import during
from tenon.dims.size_assumptions import told_by
from tenon.dims.symbolic_dim import SymbolicDim
from tenon.dims.undecided_sizes import innermost
from tenon.errors import ADDRESSABLE, ArgumentError, DeviceError, GraphError, TenonError
from tenon.graph.attributes import check_attributes
from tenon.graph.build import agree, canonical_attrs, types_of
from tenon.graph.interpret import concrete, concrete_type
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import extent, map_graphs
from tenon.graph.structural_key import exactly
from tenon.graph.value_devices import devices_of, speaks_of_devices
from tenon.types import TOKEN, TensorType, has_arrays

MAX_AXES = 64               # of NumPy's arrays
MAX_NESTED = 32             # graphs within graphs
MAX_NODES = 1 << 18         # of a graph, those of its sub-graphs counted wherever they are held
MAX_ACCEPTED = 1 << 14      # nodes that are remembered to break no rule
MAX_KEPT = 64               # elements of an attribute of theirs
HANDLES = "ts"              # kinds of types that are no data: tokens and stacks


def verify(graph: Graph) -> Graph:
    """`graph` itself; raises GraphError at the first node that breaks a rule."""
    _check_extent(graph)
    _check_ends(graph)
    _check_symbols(graph)
    _verify(graph, set())
    if speaks_of_devices(graph):
        try:
            devices_of(graph)
        except (ArgumentError, DeviceError) as error:
            raise GraphError(error.what, where=error.where, hint=error.hint) from None
    return graph


def verify_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raise GraphError where a rule is broken once the symbols have these sizes."""
    try:
        with_numbers = sized(graph, sizes)
    except ArithmeticError as error:
        raise GraphError(f"{graph.name}: with {dict(sizes)} a size is no number: {error}") from None
    _verify(with_numbers, set())


# ---------------------------------------------------------------- the whole

def _check_extent(graph: Graph) -> None:
    """Compiling takes time for every node, as often as a graph that holds it is held."""
    if _depth(graph, 0) > MAX_NESTED:
        raise GraphError(f"{graph.name}: more than {MAX_NESTED} graphs are nested")
    if extent(graph)[1] > MAX_NODES:
        raise GraphError(f"{graph.name}: more than {MAX_NODES} nodes, with those of its sub-graphs")


def _depth(graph: Graph, so_far: int, known: dict[Graph, int] | None = None) -> int:
    """How many graphs are within one another, as far as is allowed."""
    known = {} if known is None else known
    if known.get(graph, -1) >= so_far or so_far > MAX_NESTED:
        return so_far
    known[graph] = so_far
    return max([so_far, *(_depth(body, so_far + 1, known) for node in graph.nodes for body in node.graphs)])


def _check_ends(graph: Graph) -> None:
    """Stacks and tokens live in one run."""
    for what, values in (("parameter", graph.params), ("result", graph.results)):
        for x in values:
            if x.dtype.kind in HANDLES:
                raise GraphError(f"{graph.name}: a {what} is a {x.dtype.name}, which lives in one run of a graph")


def _check_symbols(graph: Graph) -> None:
    """The size of every symbol follows from that of an axis of a parameter."""
    said = [x for node in graph.nodes if node.op.data_dependent for x in node.outputs]
    told = {told_by(dim) for x in (*graph.params, *said) for dim in x.shape}
    if unknown := [name for name in graph.symbols() if name not in told]:
        raise GraphError(f"{graph.name}: the size {unknown[0]} follows from no parameter's shape",
                         hint=f"an axis of size {unknown[0]}, or 2*{unknown[0]} + 1, says what it is")


# ---------------------------------------------------------------- one graph

def _verify(graph: Graph, seen: set[Graph]) -> None:
    """`seen` are graphs that need not be looked at again."""
    if graph in seen:
        return
    seen.add(graph)
    defined: set[Value] = set()
    for param in graph.params:
        _check_param(graph, param)
        _define(param, defined, graph)
    for node in graph.nodes:
        for value in node.uses():
            if value not in defined:
                raise _broken(graph, node, "reads a value before it is made, or from another graph")
        for body in node.graphs:
            if any(inner.op.data_dependent for inner in body.nodes):
                raise _broken(graph, node, "holds a graph in which the data decide a size")
            _verify(body, seen)
        _check_node(graph, node)
        for output in node.outputs:
            if output.node is not node:
                raise _broken(graph, node, "does not own its output")
            _define(output, defined, graph)
    if missing := [r for r in graph.results if r not in defined]:
        raise GraphError(f"{graph.name}: a result of type {missing[0].type} is made nowhere in the graph")


def _check_param(graph: Graph, param: Value) -> None:
    try:
        _check_type(param.type)
    except GraphError as error:
        raise GraphError(f"{graph.name}: the parameter {param.name}: {error.what}") from None


def _define(value: Value, defined: set[Value], graph: Graph) -> None:
    if value in defined:
        raise GraphError(f"{graph.name}: the value {value!r} is defined twice")
    defined.add(value)


def _check_node(graph: Graph, node: Node) -> None:
    """What holds for every operator, and then what its own rule says.  A rule that stumbles over a node refuses it."""
    key = _key(node)
    if key is None:
        _check_rules(graph, node)
    elif key not in _accepted:
        try:
            with during(innermost, None):       # what holds whatever is known of sizes
                _check_rules(graph, node)
        except GraphError:
            _check_rules(graph, node)
            return
        if len(_accepted) >= MAX_ACCEPTED:
            _accepted.clear()
        _accepted.add(key)


def _check_rules(graph: Graph, node: Node) -> None:
    try:
        _check_inputs(node)
        check_attributes(node.op, node.attrs)
        _check_handles(node)
        _check_agreement(node)
        for x in node.outputs:
            _check_type(x.type)
        _check_rule(node)
    except TenonError as error:
        raise _broken(graph, node, error.what) from None
    except Exception as error:
        raise _broken(graph, node, f"is not made so: {type(error).__name__}: {error}") from None


def _key(node: Node) -> Any:
    """All that decides whether a node breaks a rule, symbols by their spelling; None where that is not plain data.

    Sub-graphs change, and long attributes are not worth keeping.
    """
    if node.after or any(type(value) is tuple and len(value) > MAX_KEPT for value in node.attrs.values()):
        return None
    types = *types_of(node.inputs), None, *[x.type for x in node.outputs]
    stated = tuple([None if t is None else (t.dtype, *map(_spelled, t.shape)) for t in types])
    try:
        key = node.op, stated, tuple([(name, _spelled(value)) for name, value in node.attrs.items()])
        hash(key)
    except TypeError:
        return None
    return None if node.graphs else key


def _spelled(value: Any) -> Any:
    """Equal for what is spelled alike: to compare symbols would be to ask what they stand for."""
    if type(value) is int:
        return value
    if type(value) is tuple:
        return tuple(map(_spelled, value))
    return (SymbolicDim, str(value)) if isinstance(value, SymbolicDim) else exactly(value)


_accepted: set[Any] = set()     # keys of nodes that break no rule: passes leave most of a graph as it is


def _check_inputs(node: Node) -> None:
    signature, given = node.op.signature, node.inputs
    names = len(signature.data)     # what is left out is None
    if len(given) < names or (len(given) > names and not signature.variadic):
        raise GraphError(f"takes ({signature}), and is given {len(given)} inputs")
    if None in given[:names - signature.optional] or None in given[names:]:
        raise GraphError(f"takes ({signature}), and input {given.index(None)} is left out")
    if node.op.data_dependent and node.attrs.get("size") is None:
        raise GraphError("has results whose shapes depend on the data, and no symbol for their size")
    if any(x.type != TOKEN for x in node.after):
        raise GraphError("waits for a value that is no token")


def _check_agreement(node: Node) -> None:
    """Inputs have been promoted and broadcast: in a graph both are nodes of their own."""
    for x, dtype in agree(node.op, node.inputs):
        if x is not None and x.dtype is not dtype:
            raise GraphError(f"computes with {None if dtype is None else dtype.name} here, and is given {x.dtype.name}")
    shapes = [x.shape for x in node.inputs if isinstance(x, Value) and x.shape]
    if node.op.elementwise and any(shape != shapes[0] for shape in shapes):
        raise GraphError(f"goes element by element, and is given {', '.join(str(list(shape)) for shape in shapes)}")


def _check_handles(node: Node) -> None:
    """Stacks and tokens are made by what says so, and go through what leaves elements as they are."""
    if node.op.handles or node.graphs:
        return
    for x in (*node.inputs, *(() if node.op.effect else node.outputs)):
        if x is not None and x.dtype.kind in HANDLES:
            raise GraphError(f"computes with elements, and a {x.dtype.name} is none")


def _check_type(type: TensorType) -> None:
    """Sizes are numbers that an array may have."""
    if any(isinstance(n, bool) or not isinstance(n, (int, SymbolicDim)) or (isinstance(n, int) and n < 0)
           for n in type.shape):
        raise GraphError(f"no tensor is {type}: sizes are whole numbers from 0")
    if len(type.shape) > MAX_AXES:
        raise GraphError(f"a type of {len(type.shape)} axes, more than {MAX_AXES}")
    numbers = [n for n in type.shape if isinstance(n, int)]
    if not has_arrays(type) or prod(numbers) * type.dtype.itemsize >= ADDRESSABLE:
        raise GraphError(f"{type} is larger than any memory")


def _check_rule(node: Node) -> None:
    """The operator's own rule gives the types that are stated, and its attributes have their one form."""
    given, attrs = types_of(node.inputs), node.attrs
    normal = canonical_attrs(node.op, given, dict(attrs))
    if exactly(tuple(sorted(normal.items()))) != exactly(tuple(sorted(attrs.items()))):
        raise GraphError(f"has attributes {_listed(attrs)}, their one form is {_listed(normal)}")
    inferred = node.op.type(*given, **attrs)
    expected = inferred if isinstance(inferred, tuple) else (inferred,)
    stated = tuple(x.type for x in node.outputs)
    if expected != stated:
        raise GraphError(f"states {', '.join(map(str, stated))}, its rule gives {', '.join(map(str, expected))}")


def _listed(attrs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in attrs.items())


def _broken(graph: Graph, node: Node, problem: str) -> GraphError:
    said = problem.removeprefix(f"{node.op.name}: ")
    return GraphError(f"{graph.name}: {node.op.name} {said}", where=node.loc)


# ---------------------------------------------------------------- with sizes

def sized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with numbers for its symbols."""
    return _sized(graph, sizes, {})


def _sized(graph: Graph, sizes: Mapping[str, int], known: dict[Graph, Graph]) -> Graph:
    """The same, as far as the sub-graphs that are known."""
    if graph not in known:
        values: dict[Value, Value] = {p: Value(concrete_type(p.type, sizes), name=p.name) for p in graph.params}
        nodes = []
        for node in graph.nodes:
            attrs = map_graphs(concrete(node.attrs, sizes), lambda body: _sized(body, sizes, known))
            new = Node(node.op, tuple([values[x] if isinstance(x, Value) else x for x in node.inputs]), attrs, (),
                       node.loc, tuple([values[x] for x in node.after]))
            new.outputs = tuple([Value(concrete_type(x.type, sizes), new, k) for k, x in enumerate(node.outputs)])
            values.update(zip(node.outputs, new.outputs, strict=True))
            nodes.append(new)
        known[graph] = Graph(graph.name, tuple(values[p] for p in graph.params), tuple(nodes),
                             tuple(values[r] for r in graph.results))
    return known[graph]
