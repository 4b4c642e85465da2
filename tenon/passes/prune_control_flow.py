"""Branches and loops -> those that compute and carry only what somebody reads.

A result that nobody reads goes, with what only it needed; so does a carried value that only computes itself, and an
operand that no graph reads.  `drop_dead` asks for this where it meets such a node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import has_effect, needed
from tenon.ops.control_flow_nodes import Control
from tenon.records import replace

Clean = Callable[[Graph], Graph]


def trimmed(control: Control, read: Collection[int], clean: Clean) -> tuple[Control, list[int]]:
    """The node without what is not needed for the outputs at `read`, and which outputs it still has."""
    count = len(control.carried)
    carried = needed_carried(control, {k for k in read if k < count}, {k - count for k in read if k >= count})
    kept = [*sorted(carried), *sorted(k for k in read if k >= count)]
    graphs = [clean(replace(graph, results=tuple(graph.results[k] for k in kept))) if graph in control.bodies
              else clean(graph) for graph in control.graphs]
    used = [{x for node in graph.nodes for x in node.uses()}.union(graph.results) for graph in graphs]

    def is_read(k: int) -> bool:
        return any(graph.params[k] in values for graph, values in zip(graphs, used, strict=True))
    fixed, first = len(control.constants), len(control.constants) + count
    params = [*(k for k in range(fixed) if is_read(k)), *(fixed + k for k in sorted(carried)),
              *(k for k in range(first, first + len(control.sequences)) if is_read(k))]
    inputs = (*control.constants, *control.carried, *control.sequences)
    parts = [tuple(inputs[k] for k in params if low <= k < high)
             for low, high in ((0, fixed), (fixed, first), (first, len(inputs)))]
    graphs = [replace(graph, params=tuple(graph.params[k] for k in params)) for graph in graphs]
    return replace(control, constants=parts[0], carried=parts[1], sequences=parts[2], graphs=tuple(graphs)), kept


def needed_carried(control: Control, carried: set[int], stacked: Collection[int]) -> set[int]:
    """The carried values that the outputs read, the condition or an effect depends on in any iteration."""
    count = len(control.carried)
    for graph in control.graphs:
        own = control.params(graph)[1]
        if graph not in control.bodies:
            carried |= reads(graph, graph.results, own)
    while True:
        found = set(carried)
        for body in control.bodies:
            results = [body.results[k] for k in carried] + [body.results[count + k] for k in stacked]
            found |= reads(body, results, control.params(body)[1])
        if found == carried:
            return carried
        carried = found


def reads(graph: Graph, results: Collection[Value], params: tuple[Value, ...]) -> set[int]:
    """Which of some parameters the results, or effects of a graph depend on."""
    inside: set[Node] = needed(graph, results, has_effect)
    values = {x for node in inside for x in node.uses()}.union(results)
    return {k for k, p in enumerate(params) if p in values}
