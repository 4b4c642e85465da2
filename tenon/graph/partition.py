"""Parts of a graph: what its results need, what is known before some of its parameters are, and derivatives of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenon.dims.size_assumptions import told_by
from tenon.graph.build import Builder
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import Graph, Node, Value, graphs_in
from tenon.graph.op import Op
from tenon.graph.size_stages import sizes_read, told_by_data
from tenon.records import dataclass


def needed(graph: Graph, results: Iterable[Value], keep: Callable[[Node], bool] = lambda node: False,
           known: Collection[Value] = ()) -> set[Node]:
    """The nodes that some values depend on, and those to `keep` with what they depend on, behind `known` values."""
    wanted, found, told = set(results), set(), told_by_data(graph)
    for node in reversed(graph.nodes):
        if keep(node) or not wanted.isdisjoint(node.outputs):
            found.add(node)
            wanted.update(x for x in (*node.uses(), *sizes_read(node, told)) if x not in known)
    return found


def innermost(node: Node) -> Iterator[Node]:
    """The nodes of the graphs in a node, and of those in them, without those that hold graphs; itself without any."""
    if not node.graphs:
        yield node
    for inner in (inner for graph in node.graphs for inner in graph.nodes):
        yield from innermost(inner)


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of those in it, in the order in which they run."""
    for node in graph.nodes:
        for inner in node.graphs:
            yield from all_nodes(inner)
        yield node


def depending(graph: Graph, start: Collection[Value]) -> set[Value]:
    """These values, and all that are computed from them."""
    found = set(start)
    for node in graph.nodes:
        if any(x in found for x in node.uses()):
            found.update(node.outputs)
    return found


def has_effect(node: Node) -> bool:
    """Whether the node, or any node of its sub-graphs, must neither be removed nor repeated."""
    return node.op.effect or any(map(_has_effects, node.graphs))


@once_a_graph
def _has_effects(graph: Graph) -> bool:
    return any(map(has_effect, graph.nodes))


def extent(graph: Graph) -> tuple[int, int]:
    """(the nodes of a graph and its sub-graphs, the same with those of a sub-graph counted wherever it is held)."""
    known: dict[Graph, int] = {}

    def count(inner: Graph) -> int:
        if inner not in known:
            known[inner] = sum(1 + sum(map(count, node.graphs)) for node in inner.nodes)
        return known[inner]
    total = count(graph)
    return sum(len(inner.nodes) for inner in known), total


def map_graphs(attrs: Mapping[str, Any], run: Callable[[Graph], Graph]) -> dict[str, Any]:
    """Attributes with `run` applied to every graph among them."""
    def mapped(value: Any) -> Any:
        if isinstance(value, Graph):
            return run(value)
        return tuple(map(run, value)) if graphs_in(value) else value
    return {name: mapped(value) for name, value in attrs.items()}


def copy_nodes(nodes: Iterable[Node], builder: Builder, values: dict[Value, Any], effects: bool = True) -> None:
    """Append the nodes to `builder`; `values` maps what they read, and afterwards what they make.

    Without `effects`, their sub-graphs have none.
    """
    for node in nodes:
        inputs = tuple(values[x] if isinstance(x, Value) else x for x in node.inputs)
        attrs = node.attrs if effects or not has_effect(node) else map_graphs(node.attrs, quiet)
        out = builder.emit(node.op, inputs, attrs, node.loc)
        values.update(zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True))


def quiet(graph: Graph) -> Graph:
    """The graph without effects: for what is computed again."""
    return part(graph, graph.name, graph.params, graph.results)


def part(graph: Graph, name: str, params: Sequence[Value], results: Sequence[Value],
         nodes: Collection[Node] | None = None) -> Graph:
    """The graph from some values of `graph` to others, without effects."""
    inside = needed(graph, results) if nodes is None else nodes
    builder = Builder(name, rewriting=True)
    values: dict[Value, Any] = {p: builder.parameter(p.type, p.name) for p in params}
    copy_nodes((node for node in graph.nodes if node in inside and not values.keys() >= set(node.outputs)), builder,
               values, effects=False)
    return builder.finish([values[r] for r in results])


@dataclass(frozen=True)
class SplitGraph:
    """A graph in two: `early` computes `kept` from the first parameters, `late` the results from it and the others."""

    early: Graph
    late: Graph


def split(graph: Graph, count: int, results: Sequence[Value], first: Sequence[Value] = ()) -> SplitGraph:
    """Cut the part of a graph that makes `results` between its first `count` parameters and the others.

    `early` returns `first` and then what is kept; `late` takes what is kept and the other parameters.  What is as
    cheap to compute as to keep is computed again.
    """
    later = depending(graph, graph.params[count:])
    inside = needed(graph, results)
    again = {node for node in inside if later.isdisjoint(node.outputs) and is_cheap(node)}
    kept, late = _kept(graph, count, results, inside, later, again)
    if light := _from_kept(graph, kept, late):
        kept, late = _kept(graph, count, results, inside, later, again | light)
    return SplitGraph(part(graph, graph.name + "_kept", graph.params[:count], [*first, *kept]),
                 part(graph, graph.name + "_late", [*kept, *graph.params[count:]], results, late))


def _kept(graph: Graph, count: int, results: Sequence[Value], inside: set[Node], later: set[Value],
          again: set[Node]) -> tuple[list[Value], set[Node]]:
    """(what is kept, the nodes behind the cut), where the nodes `again` are computed behind it if anything is."""
    late: set[Node] = set()
    wanted, told = set(results), _told_within(graph, graph.params[count:])
    for node in reversed(graph.nodes):
        if node in inside and not wanted.isdisjoint(node.outputs) and (node in again or not
                                                                       later.isdisjoint(node.outputs)):
            late.add(node)
            wanted.update(x for x in (*node.inputs, *sizes_read(node, told)) if isinstance(x, Value))
    made = {x for node in late for x in node.outputs}.union(graph.params[count:])
    return [*(x for x in graph.params[:count] if x in wanted),
            *(x for node in graph.nodes for x in node.outputs if x in wanted and x not in made)], late


def _told_within(graph: Graph, params: Sequence[Value]) -> dict[str, Value]:
    """What tells the sizes that the data decide, but for those that these parameters tell."""
    known = {told_by(dim) for p in params for dim in p.shape}
    return {name: x for name, x in told_by_data(graph).items() if name not in known}


def _from_kept(graph: Graph, kept: Sequence[Value], late: set[Node]) -> set[Node]:
    """The nodes that make kept values of other kept values by a few light operations, for such operations alone.

    y * (1 - y) is computed from y where it is needed; the factor of a product is kept, or it would be stored once more.
    """
    users = graph.users()
    near = {*kept, *(x for node in late for x in node.outputs)}
    found: set[Node] = set()

    def way(x: Value, steps: int) -> set[Node] | None:
        """The nodes from what is near to a value."""
        node = x.node
        if node is None or steps == 0 or not is_light(node.op):
            return None
        nodes = {node}
        for y in node.inputs:
            if isinstance(y, Value) and y not in near:
                more = way(y, steps - 1)
                if more is None:
                    return None
                nodes |= more
        return nodes
    for x in reversed(kept):
        light = all(user.op.elementwise for user in users[x] if user in late)
        nodes = way(x, MAX_LIGHT) if light and x.ndim else None
        if nodes is not None:
            found |= nodes
    return found


MAX_LIGHT = 2           # operations in a row, which are less than to store a value and to load it


def is_light(op: Op) -> bool:
    """Whether it takes an instruction or two for each element."""
    return op.elementwise and op.operations == 1


def is_cheap(node: Node) -> bool:
    """Whether the outputs cost no more to compute than to keep."""
    moved = node.op.moves in ("view", "source") or node.op.operations == 0
    return moved or not any(isinstance(x, Value) for x in node.inputs)


# ---------------------------------------------------------------- derivatives

Derivative = Callable[[Graph], Graph]
_derivative: list[Derivative] = []


def set_derivative(derivative: Derivative) -> None:
    """Let operators that hold graphs differentiate them; `tenon.autodiff`, which stands above them, knows how."""
    _derivative.append(derivative)


@once_a_graph
def derivative_of(graph: Graph) -> Graph:
    """The graph from the parameters, and a gradient for each differentiable result, to the results and the gradients
    of the differentiable parameters."""
    return _derivative[-1](graph)


@once_a_graph
def with_results(graph: Graph, chosen: tuple[int, ...]) -> Graph:
    """The graph that returns these results alone, without effects; itself where no other has a gradient."""
    if all(k in chosen for k, r in enumerate(graph.results) if r.dtype.is_differentiable):
        return graph
    return part(graph, graph.name, graph.params, [graph.results[k] for k in chosen])


@once_a_graph
def pullback_of(graph: Graph) -> Graph:
    """The graph from the parameters, and a gradient for each differentiable result, to the gradients of the
    differentiable parameters."""
    both = derivative_of(graph)
    return part(both, graph.name + "_pullback", both.params, both.results[len(graph.results):])
