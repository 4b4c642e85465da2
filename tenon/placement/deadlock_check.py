"""The graphs of several devices -> nothing, or an error that names what waits for what in a circle.

    check_no_deadlock({0: first, 1: second})

The proof: on each device what speaks comes in one order, which passes keep.  Draw an edge from each such node to the
next one of its device, and from each send to its recv; a branch or loop that speaks is one vertex with those that it
speaks to, since they run together, and so are the calls of one collective.  Where no circle is, an order of all exists
in which each finds what it waits for.  What is within branches and loops is proved by itself, for each graph of theirs;
that they do the same everywhere follows from where their conditions come from: one value, sent to all.

A send does not wait (`tenon.ops.transfer`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from tenon.errors import GraphError
from tenon.graph.ir import Graph, Input, Literal, Node, Value
from tenon.graph.structural_key import Exact
from tenon.ops.control_flow_nodes import Control, is_control
from tenon.ops.loops import scan, while_loop
from tenon.ops.transfer import recv, send
from tenon.records import dataclass, field

Letter = tuple[int, int, int]       # from, to, tag
Origin = tuple[Any, ...]            # what a value is, wherever it is
Place = tuple[int, Node]


def check_no_deadlock(graphs: Mapping[int, Graph], arguments: Mapping[int, Sequence[int]] | None = None) -> None:
    """Raise GraphError unless every run of these graphs, one a rank, comes to an end as far as they speak.

    `arguments` says which argument of all each parameter is; without it, parameters of one name are one.
    """
    origins: dict[Value, Origin] = {}
    for rank, graph in graphs.items():
        names: Sequence[Any] = arguments[rank] if arguments is not None else [p.name for p in graph.params]
        origins.update({p: ("argument", name) for p, name in zip(graph.params, names, strict=True)})
    _check(_Level(dict(graphs), origins))


@dataclass(eq=False)
class _Level:
    """Graphs that run together, what their parameters are, and who sends what."""

    graphs: dict[int, Graph]
    origins: dict[Value, Origin]
    sends: dict[Letter, Place] = field(default_factory=dict)
    recvs: dict[Letter, Place] = field(default_factory=dict)


def _check(level: _Level) -> None:
    events = {rank: [node for node in graph.nodes if _speaks(node)] for rank, graph in level.graphs.items()}
    _pair_letters(level, events)
    joint = _joint(events)
    for group in joint.values():
        _check_together(level, group)
    vertex = {place: name for name, group in joint.items() for place in group}
    waits: dict[Any, set[Any]] = {}
    for rank, nodes in events.items():
        for node in nodes:
            waits.setdefault(vertex.get((rank, node), (rank, node)), set())
        for before, after in pairwise((rank, node) for node in nodes):
            _wait(waits, vertex.get(after, after), vertex.get(before, before))
    for letter, place in level.recvs.items():
        _wait(waits, place, level.sends[letter])
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        raise _circle(error.args[1], joint) from None


def _wait(waits: dict[Any, set[Any]], after: Any, before: Any) -> None:
    """A branch that is one vertex does not wait for itself."""
    if after != before:
        waits[after].add(before)


def _circle(vertices: Sequence[Any], joint: Mapping[Any, Sequence[Place]]) -> GraphError:
    told = [_shown(joint.get(x, [x])) for x in reversed(vertices)]
    return GraphError("these devices wait for each other in a circle: " + " waits for ".join(told),
                      hint="send and receive in one order of all nodes on every device")


def _shown(places: Sequence[Place]) -> str:
    rank, node = places[0]
    address = f"(tag={node.attrs['tag']})" if node.op in (send, recv) else ""
    where = f" ({node.loc})" if node.loc else ""
    return f"{node.op.name}{address} on device {rank}{where}"


# ---------------------------------------------------------------- who speaks to whom

def _speaks(node: Node) -> bool:
    return node.op in (send, recv) or _is_collective(node) or any(any(map(_speaks, g.nodes)) for g in node.graphs)


def _is_collective(node: Node) -> bool:
    return node.op.effect and "over" in node.attrs


def _letter(rank: int, node: Node) -> Letter:
    return (rank, node.attrs["to"], node.attrs["tag"]) if node.op is send else (node.attrs["source"], rank,
                                                                             node.attrs["tag"])


def _pair_letters(level: _Level, events: Mapping[int, Sequence[Node]]) -> None:
    """Every send has one recv beside it, and every recv its send, of the same type."""
    for rank, nodes in events.items():
        for node in nodes:
            if node.op in (send, recv):
                listed = level.sends if node.op is send else level.recvs
                letter = _letter(rank, node)
                if letter in listed:
                    raise GraphError(f"device {rank} has {node.op.name}(tag={letter[2]}) twice", where=node.loc)
                listed[letter] = rank, node
    for letter in level.sends.keys() ^ level.recvs.keys():
        rank, node = (level.sends.get(letter) or level.recvs[letter])
        other = "receives" if node.op is send else "sends"
        raise GraphError(f"{_shown([(rank, node)])}: nobody {other} that in the same graph, branch or body",
                         where=node.loc)
    for letter, (_, node) in level.sends.items():
        (given,), taken = node.inputs, level.recvs[letter][1].output
        assert given is not None
        if given.type != taken.type:
            raise GraphError(f"tag {letter[2]} is sent as {given.type} and received as {taken.type}", where=node.loc)


def _joint(events: Mapping[int, Sequence[Node]]) -> dict[Any, list[Place]]:
    """Branches and loops that speak to each other, and calls of one collective, by a name of each group."""
    groups: dict[Any, list[Place]] = {}
    of: dict[Place, Any] = {}
    keys: dict[Any, Any] = {}           # what is said within -> the group that says it
    for rank, nodes in events.items():
        counts: dict[Any, int] = {}
        for node in nodes:
            if node.op in (send, recv):
                continue
            place, said = (rank, node), list(_said(rank, node))
            if _is_collective(node):
                counts[said[0]] = counts.get(said[0], 0) + 1
                said = [(*said[0], counts[said[0]])]
            name = ("group", len(of))
            groups[name], of[place] = [place], name
            for key in said:
                _merge(groups, of, keys, keys.setdefault(key, of[place]), of[place])
    return groups


def _merge(groups: dict[Any, list[Place]], of: dict[Place, Any], keys: dict[Any, Any], a: Any, b: Any) -> None:
    if a != b:
        groups[a] += groups.pop(b)
        of.update(dict.fromkeys(groups[a], a))
        keys.update({key: a for key, name in keys.items() if name == b})


def _said(rank: int, node: Node) -> Iterator[Any]:
    """The letters and collectives in a node."""
    if node.op in (send, recv):
        yield _letter(rank, node)
    elif _is_collective(node):
        yield "collective", node.op.name, node.attrs["over"]
    for graph in node.graphs:
        for inner in graph.nodes:
            yield from _said(rank, inner)


# ---------------------------------------------------------------- branches and loops

def _check_together(level: _Level, group: Sequence[Place]) -> None:
    """What is one vertex runs together: as often, and with the same choice, on every device."""
    (first, node), by_rank = group[0], dict(group)
    if _is_collective(node):
        return
    if len(by_rank) != len(group):
        raise GraphError(f"{_shown(group)}: two nodes of one device speak to one of another", where=node.loc)
    if not all(is_control(other) and other.op is node.op for other in by_rank.values()):
        raise GraphError(f"{_shown(group)}: it speaks to {by_rank[group[-1][0]].op.name}", where=node.loc)
    parts = {rank: Control.of(other) for rank, other in by_rank.items()}
    says = {_choice(level, rank, part) for rank, part in parts.items()}
    counts = {len(part.graphs) for part in parts.values()}
    if len(says) > 1 or len(counts) > 1:
        raise GraphError(f"{_shown(group)}: its devices need not choose the same", where=node.loc)
    for k in range(len(parts[first].graphs)):
        inner = _inner(level, parts, k)
        _check(inner)
        if node.op is while_loop and k == 0:
            answers = {_origin(inner, rank, graph.results[0]) for rank, graph in inner.graphs.items()}
            if len(answers) > 1:
                raise GraphError(f"{_shown(group)}: its devices need not go on together", where=node.loc)


def _choice(level: _Level, rank: int, part: Control) -> Origin:
    if part.op is scan:
        return "turns", str(part.rest["length"])
    return tuple(_origin(level, rank, x) for x in part.choice)


def _inner(level: _Level, parts: Mapping[int, Control], k: int) -> _Level:
    """The graphs of this number: constants are what they are outside, what is carried is one device's own."""
    graphs, origins = {rank: part.graphs[k] for rank, part in parts.items()}, dict[Value, Origin]()
    for rank, part in parts.items():
        constants, carried, sequences = part.params(graphs[rank])
        origins.update({p: _origin(level, rank, x) for p, x in zip(constants, part.constants, strict=True)})
        origins.update({p: ("own", rank, p) for p in carried})
        origins.update({p: ("slice", _origin(level, rank, x)) for p, x in zip(sequences, part.sequences, strict=True)})
    return _Level(graphs, origins)


def _origin(level: _Level, rank: int, x: Input) -> Origin:
    """What a value is: where it was made, if it was sent from there; what is made from nothing is the same anywhere."""
    if x is None or isinstance(x, Literal):
        return "literal", x
    if x in level.origins:
        return level.origins[x]
    node = x.node
    assert node is not None
    if node.op is recv:
        source, sender = level.sends[_letter(rank, node)]
        return _origin(level, source, sender.inputs[0])
    if not node.uses() and not node.graphs and not node.op.effect:
        return "made", node.op.name, Exact(node.attrs), x.index
    return "own", rank, x
