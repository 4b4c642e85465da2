"""A captured step, a mesh and a cluster -> how its tensors are split over axes of the mesh: a search.

Weights are tried one group after the other, the largest first, along each of their axes.  What is read in parts then is
split too: of a first product in columns follows a second in rows (Megatron, Shoeybi et al. 2019).  A split stays where
products, messages, and the passes over state take less time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tenon.errors import ArgumentError, CaptureError, ShapeError
from tenon.graph.ir import Node, Value
from tenon.planning.cluster import Cluster
from tenon.planning.collective_time import collective_seconds
from tenon.planning.device_group import groups_of
from tenon.planning.kernel_time import kernel_seconds
from tenon.planning.node_work import KernelWork, MessageWork, WorkRules
from tenon.planning.state_groups import CapturedStep, StateGroup
from tenon.planning.step_costs import divided, size_of
from tenon.planning.step_division import Division
from tenon.sharding.axis_layout import as_spec
from tenon.sharding.meeting_layouts import Layouts
from tenon.sharding.mesh import Mesh
from tenon.sharding.node_search import Known
from tenon.sharding.sharding import Spec
from tenon.sharding.sharding_plan import ShardingPlan
from tenon.sharding.spmd_partition import local_graph

MAX_TRIALS = 24         # each is a propagation through the graph
MIN_GAIN = 0.01         # of the time, for which a weight is split
Splits = Mapping[str, Spec]


def search_splits(step: CapturedStep, mesh: Mesh, cluster: Cluster, rows: str | None) -> Division:
    """The division with the splits that take least time, beside rows over one axis."""
    search = _SplitSearch(step, mesh, cluster, rows)
    for axis, size in zip(mesh.axes, mesh.shape, strict=True):
        if axis != rows and size > 1:
            search.over(axis)
    return search.division(search.best)


class _SplitSearch:
    def __init__(self, step: CapturedStep, mesh: Mesh, cluster: Cluster, rows: str | None):
        self.step, self.mesh, self.cluster, self.rows = step, mesh, cluster, rows
        self.best: Splits = {}
        self.known: Known = {}
        self.seconds, _ = self._tried({})

    def division(self, splits: Splits) -> Division:
        return Division(self.rows, tuple(splits.items()))

    def over(self, axis: str) -> None:
        """Split what is better split over a mesh axis."""
        trials = 0
        for name, group in self.step.groups.items():
            for spec in self._specs(group, axis):
                if trials >= MAX_TRIALS or name in self.best:
                    break
                trials += 1
                self._try({**self.best, name: spec})

    def _specs(self, group: StateGroup, axis: str) -> Iterator[Spec]:
        """The ways to split weights over a mesh axis; vectors follow, and are not tried."""
        parts = self.mesh.axis_size(axis)
        if len(group.shape) > 1:
            for k, size in reversed(list(enumerate(group.shape))):
                if size >= parts and size % parts == 0:
                    yield (None,) * k + (axis,)

    def _try(self, splits: Splits) -> None:
        seconds, plan = self._tried(splits)
        if plan is not None and (more := self._read_in_parts(plan, splits)):
            with_more, _ = self._tried(more)
            if with_more < seconds:
                seconds, splits = with_more, more
        if seconds < self.seconds * (1 - MIN_GAIN):
            self.seconds, self.best = seconds, splits

    def _tried(self, splits: Splits) -> tuple[float, ShardingPlan | None]:
        try:
            plan = divided(self.step, self.mesh, self.division(splits), self.known)
            return self._cost(plan), plan
        except (ShapeError, CaptureError):
            return float("inf"), None

    def _cost(self, plan: ShardingPlan) -> float:
        """Seconds of products and messages, and of reading and writing what is kept."""
        local, rules = local_graph(plan, 0), WorkRules(self.cluster.chip)
        group_of = groups_of(self.cluster, self.mesh)
        rate = self.cluster.chip.memory_bandwidth * self.cluster.chip.efficiency.bandwidth
        seconds = sum(map(size_of, (*local.params, *local.results))) / rate
        for node in local.nodes:
            for work in _works(rules, node):
                if isinstance(work, MessageWork):
                    seconds += collective_seconds(work.kind, work.bytes, group_of(work.over))
                elif work.product is not None:
                    seconds += kernel_seconds(work, rules.chip)
        return seconds

    def _read_in_parts(self, plan: ShardingPlan, splits: Splits) -> Splits | None:
        """The splits, and those of what most weights of a group are read as; None where there are no others."""
        new = dict(zip(self.step.captured.graph.params, plan.graph.params, strict=True))
        reads = _reads(plan)
        found = dict(splits)
        for name, group in self.step.groups.items():
            if name in splits:
                continue
            counts = Counter(spec for p in group.weights if (spec := _spec(reads.get(new[p], set()))) is not None)
            if counts and counts.most_common(1)[0][1] * 2 > len(group.weights):
                found[name] = counts.most_common(1)[0][0]
        return found if len(found) > len(splits) else None


def _works(rules: WorkRules, node: Node) -> Sequence[KernelWork | MessageWork]:
    try:
        return rules.of(node)
    except ArgumentError:           # a loop, whose iterations nobody knows
        return ()


def _reads(plan: ShardingPlan) -> Mapping[Value, set[Layouts]]:
    """For every value the layouts that it is read in, where it is not read whole."""
    found: dict[Value, set[Layouts]] = {}
    for (node, k), need in plan.needs.items():
        x = node.inputs[k]
        if isinstance(x, Value) and any(need.layouts):
            found.setdefault(x, set()).add(need.layouts)
    return found


def _spec(layouts: set[Layouts]) -> Spec | None:
    """The spec of what is read in one layout; None for several, and for one that no spec means."""
    axes = as_spec(next(iter(layouts))) if len(layouts) == 1 else None
    return None if axes is None else tuple(None if entry is None else entry[0] if len(entry) == 1 else entry
                                           for entry in axes)
