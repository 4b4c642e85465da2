"""A captured step on a mesh, and a division or none -> its state in parts, and a note of how its arguments are.

`Jitted` calls `divide_as_awaited` where a step reads tensors that `shard(net, mesh, plan="auto")` has left to a plan.
Of several processes the first one plans, and all do as it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tenon.capture.captured import Captured
from tenon.capture.jitted import Jitted
from tenon.capture.parameter_sources import Argument, Held
from tenon.distributed.shard import split_in_place
from tenon.distributed.world import gather_texts, rank
from tenon.errors import ArgumentError, TenonError
from tenon.graph.ir import DIVIDED
from tenon.ops.sharding_annotation import with_sharding
from tenon.planning.calibrate import calibrate
from tenon.planning.cluster import Cluster
from tenon.planning.search_splits import search_splits
from tenon.planning.state_groups import CapturedStep
from tenon.planning.step_costs import RankStep, rank_step
from tenon.planning.step_division import Division, sharding_of
from tenon.records import replace
from tenon.sharding.awaiting_plan import is_awaiting
from tenon.sharding.mesh import Mesh
from tenon.sharding.sharding import Sharding
from tenon.tensor import Tensor


def divide(step: CapturedStep, mesh: Mesh, division: Division) -> None:
    """Split the state of a step in place, and let its graph say how whole arguments are divided."""
    captured, arguments = step.captured, {}
    shardings = division.shardings(step, mesh)
    for k, (source, sharding) in enumerate(zip(captured.sources, shardings, strict=True)):
        if isinstance(source, Argument) and sharding is not None:
            arguments[k] = sharding
        elif isinstance(source, Held) and isinstance(source.holder, Tensor) and sharding_of(source.holder) != sharding:
            split_in_place(source.holder, sharding or Sharding(mesh))
    captured.graph.notes = {**captured.graph.notes, DIVIDED: arguments}


def divide_as_awaited(jitted: Jitted, captured: Captured, mesh: Mesh) -> None:
    """Divide a step as a plan for this machine says.  Raises ArgumentError for a pipeline, whose stages divide it."""
    if jitted.pipeline is not None:
        raise ArgumentError(f'shard: plan="auto" splits rows and tensors, and {jitted.__name__} runs in stages',
                            hint="give rules for what its stages hold: shard(net, mesh, rules)")
    step = CapturedStep(jitted, captured, lambda x: is_awaiting(x, mesh) and sharding_of(x) is None)
    if jitted.division is None:         # a later capture, whose sizes may be symbols, does as the first
        jitted.division = _from_json(by_first(lambda: _to_json(best_division(step, mesh, calibrate(mesh.size)))))
        jitted.division.check(step)
    divide(step, mesh, jitted.division)


def best_division(step: CapturedStep, mesh: Mesh, cluster: Cluster) -> Division:
    """The fastest that fits the memory; the smallest, where none does."""
    rows: list[str | None] = [axis for axis in mesh.axes if axis == "data"] or [None, mesh.axes[0]]
    if any(node.op is with_sharding for node in step.captured.graph.nodes):
        rows = [None]       # the step says itself how they are split
    tried = [x for axis in rows for x in divisions(step, mesh, cluster, axis)]
    fitting = [x for x in tried if x[1].memory <= cluster.chip.room]
    if fitting:
        return min(fitting, key=lambda x: x[1].seconds)[0]
    return min(tried, key=lambda x: x[1].memory)[0]


def divisions(step: CapturedStep, mesh: Mesh, cluster: Cluster, rows: str | None,
              overlap: bool = False) -> list[tuple[Division, RankStep]]:
    """The division that takes least time beside rows over one axis, with state that is whole over it, or divided."""
    best = search_splits(step, mesh, cluster, rows)
    ways = [best]
    if rows is not None and mesh.axis_size(rows) > 1:
        ways.append(replace(best, besides=rows))
    return [(way, rank_step(step, mesh, cluster, way, overlap)) for way in ways]


def by_first(make: Callable[[], str]) -> str:
    """What the first process makes, for all; its error is one on all of them."""
    said, error = "", None
    if rank() == 0:
        try:
            said = "+" + make()
        except TenonError as found:
            said, error = f"-{found.what}", found
    heard = gather_texts(said)[0]
    if error is not None:
        raise error
    if heard[:1] == "-":
        raise ArgumentError(heard[1:])
    return heard[1:]


def _to_json(x: Division) -> str:
    return json.dumps([x.rows, x.splits, x.besides])


def _from_json(text: str) -> Division:
    rows, splits, besides = json.loads(text)
    return Division(rows, tuple((name, tuple(spec)) for name, spec in splits), besides)
