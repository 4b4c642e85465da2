"""A graph in which the data decide sizes -> stages: graphs of ordinary symbols, and what is done between them.

    Stages(graph, (Stage(graph, reads, makes, after), ...))

A stage is all that can be computed from the sizes that are known so far; operators such as `argwhere`, which are done
after it, say further ones.  In the graph of a stage such a size is a symbol like any other, of at least 2; `of_sizes`
gives the graph for sizes that are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenon.dims.size_assumptions import told_by
from tenon.dims.symbolic_dim import (
    BY_DATA,
    SMALLEST_SYMBOLIC_SIZE,
    Dim,
    SymbolicDim,
    is_by_data,
    substitute,
    symbol,
    symbols,
)
from tenon.errors import ShapeError
from tenon.graph.build import Builder
from tenon.graph.graph_cache_property import once_a_graph
from tenon.graph.ir import AS_READ, AUTOTUNE, MEMORY_BUDGET, Graph, Node, Value, symbols_in
from tenon.records import dataclass, replace
from tenon.types import TOKEN, TensorType

KEPT_NOTES = (AUTOTUNE, MEMORY_BUDGET)


@dataclass(frozen=True, eq=False)
class Stage:
    """`graph` computes `made` from `reads`; then come the operators that say sizes."""

    graph: Graph
    reads: tuple[Value, ...]
    made: tuple[Value, ...]
    after: tuple[Node, ...]
    names: Mapping[str, str]        # what the graph calls the sizes that the data decide


def is_sized_by_data(graph: Graph) -> bool:
    """Whether the data decide a size in a graph."""
    return any(name.startswith(BY_DATA) for name in graph.symbols()) or any(
        node.op.data_dependent for node in graph.nodes)


@once_a_graph
def stages_of(graph: Graph) -> tuple[Stage, ...]:
    """The graph as stages, in order."""
    levels, told = _levels(graph)
    last = max(levels.values(), default=0)
    return tuple(_stage(graph, k, levels, told) for k in range(last + 1))


def _levels(graph: Graph) -> tuple[dict[Any, int], dict[str, Value]]:
    """(the stage in which a node or value is there, a value whose shape tells each size that the data decide)."""
    levels: dict[Any, int] = dict.fromkeys(graph.params, 0)
    told: dict[str, Value] = {}
    for value in graph.params:
        _tell(value, told)
    effects = 0
    for node in graph.nodes:
        needs = [levels[x] for x in node.uses()] + [levels[told[name]] for name in symbols_of(node) if name in told]
        level = max([*needs, effects if node.op.effect else 0], default=0)
        levels[node] = level
        levels.update(dict.fromkeys(node.outputs, level + 1 if node.op.data_dependent else level))
        if node.op.data_dependent:
            for x in node.outputs:
                _tell(x, told)
        effects = level if node.op.effect else effects
    return levels, told


@once_a_graph
def told_by_data(graph: Graph) -> dict[str, Value]:
    """What tells each size that the data decide."""
    told: dict[str, Value] = {}
    for x in (x for node in graph.nodes if node.op.data_dependent for x in node.outputs):
        _tell(x, told)
    return told


def sizes_read(node: Node, told: Mapping[str, Value]) -> list[Value]:
    """What tells the sizes that a node has to know."""
    return [told[name] for name in sorted(symbols_of(node)) if name in told] if told else []


def _tell(value: Value, told: dict[str, Value]) -> None:
    for dim in value.shape:
        if is_by_data(dim) and (name := told_by(dim)) is not None:
            told.setdefault(name, value)


def symbols_of(node: Node) -> set[str]:
    """The symbols in the attributes and results of a node; an operator that says a size does not ask for it."""
    if node.op.data_dependent:
        return set()
    parts = [symbols_in(value) for value in node.attrs.values()]
    return set().union(*parts, *(symbols(dim) for x in node.outputs for dim in x.shape))


def _stage(graph: Graph, level: int, levels: Mapping[Any, int], told: Mapping[str, Value]) -> Stage:
    """The stage of this number: what is read later is among its results; what reads nothing is made where it is read.
    """
    here = [node for node in graph.nodes if levels[node] == level]
    after = tuple(node for node in here if node.op.data_dependent)
    own = {node for node in here if not node.op.data_dependent}
    inside = own | {x.node for x in _read_by(own) if x.node is not None and _reads_nothing(x.node)}
    nodes = [node for node in graph.nodes if node in inside]
    made = {x for node in nodes for x in node.outputs}
    kept = {*graph.results, *_read_by(node for node in graph.nodes if node.op.data_dependent)}
    later = _read_by(node for node in graph.nodes if levels[node] > level)
    results = tuple(x for node in nodes if node in own for x in node.outputs if x.type != TOKEN and (
        x in kept or (x in later and not _reads_nothing(node))))
    reads = dict.fromkeys(x for node in nodes for x in node.inputs if isinstance(x, Value) and x not in made)
    for name in sorted(set().union(*map(symbols_of, nodes))):
        if not any(told_by(dim) == name for x in reads for dim in x.shape):
            reads.update(dict.fromkeys([told[name]] if name in told else _telling(graph, name)))
    return _renamed(graph, nodes, tuple(reads), results, after)


def _read_by(nodes: Iterable[Node]) -> set[Value]:
    return {x for node in nodes for x in node.inputs if isinstance(x, Value)}


def _reads_nothing(node: Node) -> bool:
    return not node.op.data_dependent and not node.uses() and not node.op.effect


def _telling(graph: Graph, name: str) -> list[Value]:
    """A parameter that tells an ordinary size."""
    return [p for p in graph.params if any(told_by(dim) == name for dim in p.shape)][:1]


# ---------------------------------------------------------------- symbols

def _renamed(graph: Graph, nodes: Sequence[Node], reads: tuple[Value, ...], results: tuple[Value, ...],
             after: tuple[Node, ...]) -> Stage:
    """The stage, with ordinary symbols for the sizes that the data decide."""
    names = {name for name in graph.symbols() if name.startswith(BY_DATA)}
    others = set(graph.symbols()) - names
    new = {name: next(n for n in _candidates(name) if n not in others) for name in sorted(names)}
    renamed = substituted(Graph(graph.name, reads, tuple(nodes), results),
                          {name: symbol(n) for name, n in new.items()})
    notes = {name: graph.notes[name] for name in KEPT_NOTES if name in graph.notes}
    if AS_READ in graph.notes:
        notes[AS_READ] = renamed
    renamed = replace(renamed, notes=notes)
    return Stage(renamed, reads, results, after, new)


def _candidates(name: str) -> Iterable[str]:
    base = "D" + name.removeprefix(BY_DATA)
    while True:
        yield base
        base += "_"


def substituted(graph: Graph, values: Mapping[str, Dim]) -> Graph:
    """The graph with these sizes in the place of symbols, its types as they are."""
    replaced: dict[Value, Value] = {p: Value(_type(p.type, values), name=p.name) for p in graph.params}
    nodes = []
    for node in graph.nodes:
        new = Node(node.op, tuple([replaced[x] if isinstance(x, Value) else x for x in node.inputs]),
                   {name: _attribute(x, values) for name, x in node.attrs.items()}, (), node.loc,
                   tuple([replaced[x] for x in node.after if x in replaced]))
        new.outputs = tuple([Value(_type(x.type, values), new, k) for k, x in enumerate(node.outputs)])
        replaced.update(zip(node.outputs, new.outputs, strict=True))
        nodes.append(new)
    return Graph(graph.name, tuple(replaced[p] for p in graph.params), tuple(nodes),
                 tuple(replaced[r] for r in graph.results), graph.notes)


def _type(type: TensorType, values: Mapping[str, Dim]) -> TensorType:
    return type.with_shape([substitute(dim, values) for dim in type.shape])


def _attribute(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, Graph):
        return substituted(value, values)
    if isinstance(value, tuple):
        return tuple(_attribute(x, values) for x in value)
    return substitute(value, values) if isinstance(value, SymbolicDim) else value


def of_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph for sizes that are 0 or 1, each operator as its rule has it for them.

    Raises what the rule raises where an operator refuses them, and ShapeError where a size of 1 means something else.
    """
    replaced: dict[Value, Any] = {}
    builder = Builder(graph.name, rewriting=True)
    for p in graph.params:
        replaced[p] = builder.parameter(_type(p.type, sizes), p.name)
    for node in graph.nodes:
        attrs = {name: _attribute(x, sizes) for name, x in node.attrs.items()}
        out = builder.emit(node.op, tuple([replaced[x] if isinstance(x, Value) else x for x in node.inputs]), attrs,
                           node.loc)
        for x, y in zip(node.outputs, out if isinstance(out, tuple) else (out,), strict=True):
            if str(y.type) != str(_type(x.type, sizes)):
                raise ShapeError(f"{node.op.name} gives {y.type} for sizes of 0 or 1", where=node.loc)
            replaced[x] = y
    made = builder.finish([replaced[r] for r in graph.results])
    return replace(made, notes=graph.notes if AS_READ not in graph.notes else {**graph.notes, AS_READ: made})


def small_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Those that no symbol stands for."""
    return {name: size for name, size in sizes.items() if size < SMALLEST_SYMBOLIC_SIZE}
