"""A branch or loop whose graphs hold nodes of several devices -> one branch or loop on each device that takes part.

    r = cond(p, x, true=T, false=F)     ->      cpu:0: r = cond(p, x, true=T0, false=F0)        T0 sends to T1
                                                cpu:1: n = cond(p', x', true=T1, false=F1)      p' and x' are received

The choice of a branch is sent to each device that takes part.  The condition of a while_loop is computed where its
nodes are, in each iteration, and sent to the others within the condition.  A scan has as many iterations everywhere.
What is carried has one device, that on which the body makes it; who else reads it receives it in each iteration.  What
graphs read from outside crosses before, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tenon.graph.ir import Graph, Input, Node, Value
from tenon.graph.op import using
from tenon.graph.partition import has_effect
from tenon.ops.control_flow_nodes import BRANCHES, Control
from tenon.ops.loops import while_loop
from tenon.records import dataclass, replace
from tenon.types import TensorType, bool_

if TYPE_CHECKING:
    from tenon.placement.cut_by_device import Level

NOTHING = TensorType(bool_, ())     # the type of what means nothing


def cut_control(level: Level, node: Node) -> None:
    """The node on each device that takes part, in the graphs of these."""
    ranks, control = level.placement.ranks(node), Control.of(node)
    homes = _homes(level, node, control)
    inner = [_inner_level(level, ranks, control, graph, homes) for graph in control.graphs]
    for one, graph in zip(inner, control.graphs, strict=True):
        one.nodes(graph)
        one.end()
        if control.op not in BRANCHES and any(map(has_effect, graph.nodes)):
            one.wait_for_effects(ranks)     # as the next iteration does
    parts = [_results(one, control, graph, homes) for one, graph in zip(inner, control.graphs, strict=True)]
    for rank in sorted(ranks):
        _emit(level, node, control, rank, inner, [part[rank] for part in parts], homes)


# ---------------------------------------------------------------- who has what

def _homes(level: Level, node: Node, control: Control) -> list[int]:
    """The device of each result: where a graph makes it, else where it comes from, or the main one of the node."""
    main, ranks = level.placement.main(node), level.placement.ranks(node)
    first = [_first_home(level, control, k, ranks) for k in range(len(control.bodies[0].results))]
    return [main if home is None else home for home in first]


def _first_home(level: Level, control: Control, k: int, ranks: frozenset[int]) -> int | None:
    for body in control.bodies:
        maker = body.results[k].node
        if maker is not None:
            return level.placement.main(maker)
    start: Input = control.carried[k] if k < len(control.carried) else None
    if control.op in BRANCHES:
        body = control.bodies[0]
        start = control.constants[body.params.index(body.results[k])]
    home = level.homes[start] if isinstance(start, Value) else None
    return home if home in ranks else None


def _inner_level(level: Level, ranks: frozenset[int], control: Control, graph: Graph, homes: Sequence[int]) -> Level:
    inner = type(level)(level.placement, ranks, level.tags)
    constants, carried, sequences = control.params(graph)
    for param in constants:
        inner.enter(param, None)
    for k, param in enumerate(carried):
        inner.enter(param, homes[k])
    for param in sequences:
        inner.enter(param, None)
    return inner


def _results(inner: Level, control: Control, graph: Graph, homes: Sequence[int]) -> Mapping[int, list[Value]]:
    """What a graph returns on each device: a condition its answer everywhere, others what has its home there."""
    everywhere = control.op is while_loop and graph is control.graphs[0]
    found: dict[int, list[Value]] = {rank: [] for rank in sorted(inner.ranks)}
    for k, x in enumerate(graph.results):
        for rank in found if everywhere else (homes[k],):
            found[rank].append(inner.at(x, rank))
    return found


# ---------------------------------------------------------------- one device

@dataclass(frozen=True)
class _Read:
    """The places of what the graphs of one device read."""

    constants: list[int]
    carried: list[int]
    sequences: list[int]


def _emit(level: Level, node: Node, control: Control, rank: int, inner: Sequence[Level],
          results: Sequence[list[Value]], homes: Sequence[int]) -> None:
    """The node on one device.  Where it makes nothing there, but sends, it carries or returns what means nothing."""
    mine = [k for k, home in enumerate(homes) if home == rank]
    read = _read(control, rank, inner, mine)
    nothing = not mine
    graphs = [_graph(control, graph, one, rank, read, made, nothing)
              for graph, one, made in zip(control.graphs, inner, results, strict=True)]
    here = _here(level, rank, control, read)
    if nothing and control.op not in BRANCHES:
        here = replace(here, carried=(level.no_data(rank),))
    builder = level.builders[rank]
    with using(builder):
        builder.loc = node.loc
        out = replace(here, graphs=tuple(graphs)).emit()
    level.note(builder.nodes[-1])
    level.made(node, rank, () if nothing else out, mine)


def _read(control: Control, rank: int, inner: Sequence[Level], mine: Sequence[int]) -> _Read:
    """The constants and sequences that any graph of a device asks for, and what is carried there."""
    asked: list[set[int]] = [set(), set()]
    for one, graph in zip(inner, control.graphs, strict=True):
        constants, _, sequences = control.params(graph)
        for found, params in zip(asked, (constants, sequences), strict=True):
            found.update(k for k, p in enumerate(params) if p in one.known[rank])
    return _Read(sorted(asked[0]), [k for k in mine if k < len(control.carried)], sorted(asked[1]))


def _graph(control: Control, graph: Graph, inner: Level, rank: int, read: _Read, results: Sequence[Value],
           nothing: bool) -> Graph:
    """A branch, body or condition of one device, with the parameters of all of its graphs."""
    constants, carried, sequences = control.params(graph)
    old = [*(constants[k] for k in read.constants), *(carried[k] for k in read.carried)]
    params = [inner.param(x, rank) for x in old]
    made = list(results)
    is_condition = control.op is while_loop and graph is control.graphs[0]
    if nothing and control.op in BRANCHES:
        made.append(inner.no_data(rank))
    elif nothing:
        iteration = inner.builders[rank].parameter(NOTHING, "nothing")
        params.append(iteration)
        made = made if is_condition else [iteration, *made]
    params += [inner.param(sequences[k], rank) for k in read.sequences]
    found = inner.finish(rank, graph.name, made)
    return replace(found, params=tuple(params))


def _here(level: Level, rank: int, control: Control, read: _Read) -> Control:
    """The operands of one device, there."""
    def there(x: Input) -> Input:
        return level.at(x, rank) if isinstance(x, Value) else x
    return replace(control, choice=tuple(map(there, control.choice)),
                   constants=tuple([there(control.constants[k]) for k in read.constants]),
                   carried=tuple([there(control.carried[k]) for k in read.carried]),
                   sequences=tuple([there(control.sequences[k]) for k in read.sequences]))
