"""A graph some of whose parameters rarely change -> what depends on these alone, and the rest.

    cut = cut_constants(graph)          # graph.notes[CONSTANTS]: the places of these parameters
    cut.early                           # from them to what is kept between calls
    cut.late                            # from the others, some of them as they are, and what is kept, to the results

This is partial evaluation (Jones 1993); a weight of a network in use is such a parameter.  Before the cut,
`absorb_scales` multiplies weights by what scales their products.

What is as cheap to compute as to keep (a transposed weight) is computed in every call, and so is what is much larger
than what it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.dims.symbolic_dim import SymbolicDim
from tenon.graph.build import copy, rebuild
from tenon.graph.ir import CONSTANTS, DONATED, UPDATES, Graph, Node, Value
from tenon.graph.partition import has_effect, is_cheap, needed, part
from tenon.records import dataclass, replace
from tenon.types import STACK, TOKEN

MAX_GROWTH = 2              # times the bytes of the parameters that it is made of may be kept,
SMALL_CONSTANT_BYTES = 1 << 16  # and as many bytes in any case


@dataclass(frozen=True, eq=False)
class ConstantCut:
    """A graph in two.  `reads` are the places of its parameters that come first in those of `late`; what `early`
    returns comes behind them.  `early` takes the parameters at `made_from`."""

    early: Graph
    late: Graph
    made_from: tuple[int, ...]
    reads: tuple[int, ...]


def cut_constants(graph: Graph) -> ConstantCut:
    """The graph in two; `early` returns nothing where nothing is worth keeping."""
    constants: Sequence[int] = graph.notes[CONSTANTS]
    known = constant_values(graph, constants)
    late = needed_late(graph, known)
    made = {x for node in late for x in node.outputs}.union(graph.params)
    wanted = dict.fromkeys(x for node in graph.nodes if node in late for x in node.uses())
    wanted.update(dict.fromkeys(graph.results))
    kept = [x for x in wanted if x not in made]
    used = {x for node in needed(graph, kept) for x in node.uses()}
    made_from = tuple(k for k in constants if graph.params[k] in used)
    others = set(range(len(graph.params))).difference(constants)
    reads = tuple(k for k, p in enumerate(graph.params) if k in others or p in wanted)
    early = part(graph, f"{graph.name}_constants", [graph.params[k] for k in made_from], kept)
    rest = Graph(graph.name, (*(graph.params[k] for k in reads), *kept), tuple(n for n in graph.nodes if n in late),
                 graph.results)
    places = tuple(n for n, k in enumerate(reads) if k not in others)
    notes = {**graph.notes, CONSTANTS: (*places, *range(len(reads), len(reads) + len(kept))),
             DONATED: tuple(n for n, k in enumerate(reads) if k in graph.notes.get(DONATED, ())),
             UPDATES: tuple((reads.index(k), result) for k, result in graph.notes.get(UPDATES, ()) if k in reads)}
    return ConstantCut(early, replace(rebuild(rest, copy), notes=notes), made_from, reads)


def needed_late(graph: Graph, known: Mapping[Value, int]) -> set[Node]:
    """The nodes of the rest: what depends on other parameters too, and what is cheap to compute from what is kept."""
    wanted, late = set(graph.results), set[Node]()
    for node in reversed(graph.nodes):
        read = not wanted.isdisjoint(node.outputs)
        constant = read and all(x in known for x in node.outputs)
        if has_effect(node) or (read and (not constant or is_cheap(node))):
            late.add(node)
            wanted.update(node.uses())
    return late


def constant_values(graph: Graph, constants: Sequence[int]) -> dict[Value, int]:
    """The values that depend on these parameters alone, and how many bytes of them each is made of."""
    known = {graph.params[k]: bytes_of(graph.params[k]) for k in constants
             if all(isinstance(n, int) for n in graph.params[k].shape)}
    for node in graph.nodes:
        if _is_constant(node, known):
            source = sum(known[x] for x in dict.fromkeys(node.uses()))
            if is_cheap(node) or may_be_kept(sum(map(bytes_of, node.outputs)), source):
                known.update(dict.fromkeys(node.outputs, source))
    return known


def _is_constant(node: Node, known: Mapping[Value, int]) -> bool:
    fixed = all(x.type not in (STACK, TOKEN) and isinstance(x.size, int) for x in node.outputs)
    return (fixed and not has_effect(node) and not node.op.data_dependent and all(x in known for x in node.uses())
            and not any(_mentions_symbol(value) for value in node.attrs.values()))


def may_be_kept(size: int, source: int) -> bool:
    """Whether so many bytes are not too many, made of `source` bytes of parameters."""
    return size <= max(MAX_GROWTH * source, SMALL_CONSTANT_BYTES)


def bytes_of(value: Value) -> int:
    assert isinstance(value.size, int)
    return value.size * value.dtype.itemsize


def _mentions_symbol(value: Any) -> bool:
    if isinstance(value, Graph):
        return bool(value.symbols())
    return isinstance(value, SymbolicDim) or (isinstance(value, tuple) and any(map(_mentions_symbol, value)))
