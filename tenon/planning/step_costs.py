"""A captured step, how it is divided over a mesh, and a cluster -> what one rank does: its graph, by SPMD partition,
timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.graph.ir import UPDATES, Graph, Node, Value
from tenon.planning.cluster import Cluster
from tenon.planning.device_graph import optimized
from tenon.planning.device_group import groups_of
from tenon.planning.node_work import WorkRules, is_free
from tenon.planning.state_groups import CapturedStep
from tenon.planning.step_division import BY_ROWS, Division
from tenon.planning.timeline import DeviceTimeline, device_timeline
from tenon.program.kernel import count
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh
from tenon.sharding.node_search import Known
from tenon.sharding.propagate import propagate
from tenon.sharding.sharding import Sharding
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import local_graph
from tenon.types import TOKEN


@dataclass(frozen=True, eq=False)
class RankStep:
    """What one rank does in a step."""

    graph: Graph
    timeline: DeviceTimeline
    fresh: float                # seconds in which results get memory that was not there before
    memory: float

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.timeline.seconds + self.fresh


def capture_step(step: Any, args: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> CapturedStep:
    """The capture of a step, whole.  Raises CaptureError where it is no one graph."""
    jitted = step if isinstance(step, Jitted) else Jitted(step, fullgraph=True)
    return CapturedStep(jitted, jitted.capture(*args, **(keywords or {})))


def rank_step(step: CapturedStep, mesh: Mesh, cluster: Cluster, division: Division = BY_ROWS,
              overlap: bool = False) -> RankStep:
    """Partition a captured step over a mesh, and simulate rank 0.

    Raises ShapeError or CaptureError where it cannot be divided so.
    """
    local = optimized(local_graph(divided(step, mesh, division), 0), cluster.chip)
    timeline = device_timeline(local, WorkRules(cluster.chip), groups_of(cluster, mesh), overlap)
    rate = cluster.chip.efficiency.fresh
    fresh = sum(map(size_of, own_results(local))) / rate if rate else 0.0
    return RankStep(local, timeline, fresh, peak_memory(local))


def divided(step: CapturedStep, mesh: Mesh, division: Division = BY_ROWS, known: Known | None = None) -> ShardingPlan:
    """How the graph of a captured step is divided over a mesh."""
    captured = step.captured
    shardings = division.shardings(step, mesh)
    return propagate(captured.graph, shardings, mesh, _results(captured, shardings), known)


def _results(captured: Captured, shardings: Sequence[Sharding | None]) -> list[Sharding | None]:
    """What is stored in a tensor is split as that is; what is returned is whole."""
    place = {source: k for k, source in enumerate(captured.sources)}
    found: list[Sharding | None] = [None] * len(captured.graph.results)
    for source, k, _ in captured.assigned:
        if k is not None and source in place:
            found[k] = shardings[place[source]]
    return found


def own_results(graph: Graph) -> list[Value]:
    """The results that need memory of their own: not those that take that of the argument which they update.

    That is for results which are made when nothing can fail any more: no message, and no index outside of an axis.
    """
    failing = max((k for k, node in enumerate(graph.nodes) if _may_fail(node)), default=-1)
    place = {x: k for k, node in enumerate(graph.nodes) for x in node.outputs}
    updates = {graph.results[k] for _, k in graph.notes.get(UPDATES, ())}
    return [x for x in dict.fromkeys(graph.results) if x not in updates or place.get(x, -1) <= failing]


def _may_fail(node: Node) -> bool:
    inner = [x for graph in node.graphs for x in graph.nodes]
    return any(x.op.fails == "index" or (x.op.is_host and not is_free(x)) for x in (inner or [node]))


def peak_memory(graph: Graph) -> float:
    """The bytes that lie in memory at once, at most: arguments, results, and between, if each value goes when it has
    been read for the last time."""
    place = {x: k for k, node in enumerate(graph.nodes) for x in node.outputs}
    last = {x: k for k, node in enumerate(graph.nodes) for x in node.uses()}
    kept = sum(map(size_of, graph.params)) + sum(map(size_of, own_results(graph)))
    now = most = 0.0
    outside = {*graph.params, *graph.results}
    leaving: dict[int, list[Value]] = {}
    for x, k in place.items():
        if x not in outside and not _is_view(x):
            leaving.setdefault(last.get(x, k), []).append(x)
    for k, node in enumerate(graph.nodes):
        now += sum(size_of(x) for x in node.outputs if x not in outside and not _is_view(x))
        most = max(most, now)
        now -= sum(map(size_of, leaving.get(k, ())))
    return kept + most


def _is_view(x: Value) -> bool:
    return x.node is not None and x.node.op.name in ("reshape", "barrier")


def size_of(x: Value) -> float:
    """The bytes of a value."""
    return 0.0 if x.type == TOKEN else float(count(x.type.size, {})) * x.dtype.itemsize

