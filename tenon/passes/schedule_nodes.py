"""Graph -> the same nodes in an order in which less memory is in use at once.

    g1 = product(x, dy)                         g1 = product(x, dy)
    g2 = product(z, dy)             ->          w1_new = step(w1, g1)           g1 is free from here on
    w1_new = step(w1, g1)                       g2 = product(z, dy)
    w2_new = step(w2, g2)                       w2_new = step(w2, g2)

Runs on kernels.  The order stays as it is, but that a node which frees more than it makes comes as soon as it can: what
it reads for the last time is gone, and may still be in a cache.  Arguments and results have memory of their own.  A
node that makes a result waits until nothing can fail any more, and until nobody else reads an argument whose memory the
result may take (`tenon.runtime.program_layout.take_donated`); so does, in any graph, one that keeps little waiting:

    new = advance(state)                        v = draw(state)
    v = draw(state)                 ->          new = advance(state)            may be written where state is
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tenon.dims.symbolic_dim import Dim
from tenon.graph.ir import Graph, Node, Value
from tenon.graph.partition import has_effect
from tenon.ops.graph_calls import fused
from tenon.ops.shape import constant
from tenon.passes.fusion.classify_ops import kind_of
from tenon.passes.fusion.fusion_groups import bytes_of
from tenon.passes.fusion.fusion_partition import RENAMES
from tenon.passes.fusion.index_checks import checked, is_whole
from tenon.passes.fusion.kernel_bodies import has_loops
from tenon.passes.fusion.liveness import peak_bytes
from tenon.records import replace


def schedule_nodes(graph: Graph) -> Graph:
    """Let what frees memory come early, where that lowers the most that is in use."""
    found = replace(graph, nodes=tuple(NodeOrder(graph).all()))
    return after_readers(found if peak_bytes(found) < peak_bytes(graph) else graph)


SMALL_RESULT_BYTES = 256  # bytes that a node may make any time: the numbers that all steps of an optimizer read


class NodeOrder:
    """Which nodes have come, and who still reads what is in memory."""

    def __init__(self, graph: Graph):
        self.nodes = graph.nodes
        self.home: dict[Value, Value] = {}              # renamed values are one memory
        self.readers: dict[Value, dict[Node, None]] = {}    # of memory: those that have not come
        self.waits: dict[Node, set[Node]] = {node: set() for node in graph.nodes}   # for those that have not come
        self.followers: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node in graph.nodes:
            self._enter(node)
        for before, after in pairwise(node for node in graph.nodes if has_effect(node)):
            self._after(before, after)
        self.params = set(graph.params)
        self.results = {self.home_of(r) for r in graph.results} - self.params
        self.failing = set(failing(graph))
        self.small = {node: None for node in graph.nodes if sum(map(bytes_of, node.outputs)) <= SMALL_RESULT_BYTES}
        self.come: dict[Node, None] = {}
        self.held: dict[Node, None] = {}        # what would store a result, while something could still fail

    def all(self) -> Iterable[Node]:
        """Every node, in the new order."""
        for node in self.nodes:
            if node not in self.come:
                self._come(node)
        return self.come

    def home_of(self, x: Value) -> Value:
        """The value in whose memory this one lies."""
        return self.home.get(x, x)

    def _enter(self, node: Node) -> None:
        for x in node.uses():
            self.readers.setdefault(self.home_of(x), {})[node] = None
            if x.node is not None:
                self._after(x.node, node)
        renamed = node.inputs[0] if node.op in RENAMES else None
        for x in node.outputs:
            self.home[x] = self.home_of(renamed) if isinstance(renamed, Value) else x

    def _after(self, before: Node, after: Node) -> None:
        self.waits[after].add(before)
        self.followers[before].append(after)

    def _come(self, first: Node) -> None:
        """Take the node, then what can come early now, and so on."""
        queue = deque([first])
        while queue:
            node = queue.popleft()
            if node in self.come or not (node is first or self._comes_early(node)):
                continue
            self.come[node] = None
            if node in self.failing:
                self.failing.remove(node)
                queue.extend(() if self.failing else (*self.small, *self.held))
            for follower in self.followers[node]:
                self.waits[follower].discard(node)
            queue.extend(self.followers[node])
            for x in dict.fromkeys(map(self.home_of, node.uses())):
                self.readers[x].pop(node, None)
                if len(self.readers[x]) == 1:       # what more of them wait for has not come
                    queue.extend(self.readers[x])

    def _comes_early(self, node: Node) -> bool:
        """Whether nothing is in the way of a node that frees memory; renaming costs none."""
        if self.waits[node]:
            return False
        return node.op in RENAMES or ((node in self.small or self._frees_memory(node)) and self._may_store(node))

    def _frees_memory(self, node: Node) -> bool:
        own = self.params | self.results
        freed = {self.home_of(x) for x in node.uses()} - own
        made = {self.home_of(x) for x in node.outputs} - own
        return sum(bytes_of(x) for x in freed if self.readers[x].keys() == {node}) > sum(map(bytes_of, made))

    def _may_store(self, node: Node) -> bool:
        """Whether what is a result may be written by now, in the place of an argument."""
        types = [x.type for x in node.outputs if self.home_of(x) in self.results]
        if types and self.failing:
            self.held[node] = None
            return False
        replaced = [x for x in node.uses() if x in self.params and x.type in types]
        return all(self.readers[x].keys() == {node} for x in replaced)


def after_readers(graph: Graph) -> Graph:
    """Let small nodes that only make results in the place of arguments come after all others that read these."""
    params, last = set(graph.params), dict[Value, int]()        # the last reader of what lies where an argument does
    home: dict[Value, Value] = {x: x for x in graph.params}
    for k, node in enumerate(graph.nodes):
        for x in node.uses():
            last[home.get(x, x)] = k
        renamed = node.inputs[0] if node.op in RENAMES else None
        if isinstance(renamed, Value) and renamed in home:
            home[node.output] = home[renamed]
    ends = set(graph.results) - last.keys()
    behind = list(range(len(graph.nodes)))
    for k, node in enumerate(graph.nodes):
        small = sum(bytes_of(x) for x in {*node.uses(), *node.outputs} - params) <= SMALL_RESULT_BYTES
        movable = small and ends.issuperset(node.outputs) and not has_effect(node) and node.op not in RENAMES
        types = {x.type for x in node.outputs} if movable else ()
        behind[k] = max([k, *(last[x] for x in node.uses() if x in params and x.type in types)])
    nodes = tuple(graph.nodes[k] for k in sorted(range(len(behind)), key=lambda k: (behind[k], behind[k] != k)))
    return graph if nodes == graph.nodes else replace(graph, nodes=nodes)


def failing(graph: Graph) -> Iterator[Node]:
    """The nodes that may find an error which no node before them would have found."""
    known = set[tuple[Value, Dim]]()
    for node in filter(can_fail, graph.nodes):
        body = node.attrs["body"] if node.op is fused else None
        found = body and checked(body, filter(can_fail, body.nodes))
        places = {(node.inputs[k], size) for k, size in found or ()}
        if not places or not places <= known:
            yield node
        if body is not None and is_whole(body):
            known |= {(x, size) for x, size in places if isinstance(x, Value)}


def can_fail(node: Node) -> bool:
    """Whether running the node may find an error in the data."""
    if node.op is fused:
        return any(map(can_fail, node.attrs["body"].nodes))
    return node.op not in (*RENAMES, constant) and (not has_loops(node) or kind_of(node).checks)
