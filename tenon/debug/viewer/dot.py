"""The data of a captured function -> Graphviz's DOT: modules are clusters, edges have types.

    tenon view train.py:step "f32[8, 784]" --dot step.dot && dot -Tsvg step.dot > step.svg
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenon.debug.viewer.graph_data import Data

COLORS = {"forward": "#dbeafe", "backward": "#fde7d3", "update": "#dcfce7"}


def dot_of(data: Data) -> str:
    """The captured graph; branches and loops are clusters of their own."""
    lines = [f"digraph {_quoted(data['name'])} {{", '  node [shape=box, style="rounded,filled", fontname="Helvetica"];']
    lines += [f"  p{k} [label={_quoted(p['name'] + ': ' + p['type'])}, fillcolor=\"#eeeeee\"];"
              for k, p in enumerate(data["params"])]
    for phase in COLORS:
        nodes = [n for n in data["nodes"] if _origin(data, n).get("phase", "forward") == phase]
        lines += _clusters(data, nodes, (phase,), "  ")
    lines += _edges(data)
    return "\n".join([*lines, "}"]) + "\n"


def _origin(data: Data, node: Data) -> Data:
    return data["origins"][node["origin"]] if node["origin"] >= 0 else {}


def _scope(data: Data, node: Data) -> tuple[str, ...]:
    """The clusters that a node stands in, outermost first."""
    origin = _origin(data, node)
    inner = [f"{node['parent'][1]} of n{node['parent'][0]}"] if node["parent"] else []
    return (origin.get("phase", "forward"), *filter(None, origin.get("path", "").split(".")), *inner)


def _clusters(data: Data, nodes: Sequence[Data], scope: tuple[str, ...], indent: str) -> Iterator[str]:
    if not nodes:
        return
    yield f"{indent}subgraph {_quoted('cluster_' + '.'.join(scope))} {{"
    yield f"{indent}  label={_quoted(scope[-1])};"
    inner: dict[tuple[str, ...], list[Data]] = {}
    for node in nodes:
        whole = _scope(data, node)
        if len(whole) > len(scope):
            inner.setdefault(whole[:len(scope) + 1], []).append(node)
        else:
            yield f"{indent}  n{node['id']} [label={_quoted(node['op'])}, fillcolor=\"{COLORS[scope[0]]}\"];"
    for deeper, those in inner.items():
        yield from _clusters(data, those, deeper, indent + "  ")
    yield f"{indent}}}"


def _edges(data: Data) -> Iterator[str]:
    types = {node["id"]: node["types"] for node in data["nodes"]}
    for node in data["nodes"]:
        for x in node["inputs"]:
            if not isinstance(x, list):
                continue
            source, k = x
            if source >= 0:
                yield f"  n{source} -> n{node['id']} [label={_quoted(types[source][k])}];"
            elif node["parent"] is None:
                yield f"  p{k} -> n{node['id']};"
        for source in node["after"]:
            yield f"  n{source} -> n{node['id']} [style=dashed];"
        if node["parent"]:
            yield f"  n{node['parent'][0]} -> n{node['id']} [style=dotted, arrowhead=none];"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
