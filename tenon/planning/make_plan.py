"""`tn.distributed.plan`: a model or a step, and a cluster -> a plan; nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenon.errors import ArgumentError, CaptureError, ShapeError
from tenon.planning.calibrate import calibrate
from tenon.planning.cluster import Cluster, load_cluster
from tenon.planning.divided_step import divisions
from tenon.planning.node_work import KernelWork, WorkRules
from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.plan import Plan
from tenon.planning.search_plans import divisors, search
from tenon.planning.state_groups import CapturedStep
from tenon.planning.step_costs import RankStep, capture_step, rank_step
from tenon.planning.step_division import BY_ROWS, Division
from tenon.planning.training_step import StepEstimate
from tenon.planning.transformer_model import TransformerModel
from tenon.sharding.mesh import Mesh

HERE = "here"       # this machine, measured now


def plan(what: Any, *args: Any, cluster: str | Path | Cluster = HERE, devices: int | None = None,
         overlap: bool = False) -> Plan:
    """The ways to divide a training step over `devices` of a cluster (all of them, unless said), the fastest first.

    `what` is a `TransformerModel`, whose step is forward, backward and AdamW's update in mixed precision; its layers
    are divided over replicas, tensors and stages of a pipeline.  Or it is a step, a function of `args`, as `tn.jit`
    takes it: the rows of its arguments are divided over replicas, which share its state or divide it.

    `cluster` is a cluster, the path of its TOML file, the name of one that comes with Tenon, or "here": threads of this
    machine, measured.  With `overlap`, messages run beside kernels.  Raises ArgumentError where no division fits the
    memory, or the sizes divide into no such number, and CaptureError where the step is no one graph.

    >>> model = tn.distributed.TransformerModel(layers=24, width=2304, heads=24, batch=64)
    >>> tn.distributed.plan(model, cluster="a100", devices=4).sizes.devices
    4
    """
    if devices is not None and (type(devices) is not int or devices < 1):
        raise ArgumentError(f"plan: devices is a whole number from 1 on, not {devices!r}")
    chosen = calibrate(devices or 2) if cluster == HERE else load_cluster(cluster)
    count = devices or chosen.devices
    if count > chosen.devices:
        raise ArgumentError(f"plan: {count} devices, and the cluster {chosen.name!r} has {chosen.devices}")
    levels = tuple(level.name for level in chosen.levels)
    if isinstance(what, TransformerModel):
        if args:
            raise ArgumentError("plan: a TransformerModel has no arguments")
        model = what.checked()
        text = f"{model.parameters / 1e9:.3g} billion parameters, {model.batch} x {model.tokens} tokens,"
        return Plan(text, chosen.name, levels, search(model, chosen, count, overlap))
    if not callable(what):
        raise ArgumentError(f"plan: a TransformerModel or a function is expected, not {type(what).__name__}",
                            hint="tn.distributed.TransformerModel(layers=24, width=2304, heads=24)")
    step = capture_step(what, args)
    return plan_step(step, [mesh_of(count // parts, parts) for parts in divisors(count)], chosen, overlap)


def mesh_of(data: int, model: int) -> Mesh:
    """The mesh of a step: an axis that has one place is left out."""
    return Mesh({name: size for name, size in (("data", data), ("model", model)) if size > 1} or {"data": 1})


def plan_step(step: CapturedStep, meshes: Sequence[Mesh], cluster: Cluster, overlap: bool = False) -> Plan:
    """The ways to divide a captured step over meshes of axes "data" and "model"."""
    alone = rank_step(step, Mesh({"data": 1}), cluster)
    rules, devices = WorkRules(cluster.chip), meshes[0].size
    operations = sum(w.operations for node in alone.graph.nodes for w in rules.of(node)
                     if isinstance(w, KernelWork) and w.product is not None)
    found, why = [], None
    for mesh in meshes:
        try:
            ways = [(BY_ROWS, alone)] if devices == 1 else divisions(
                step, mesh, cluster, "data" if "data" in mesh.axes else None, overlap)
        except (ShapeError, CaptureError) as error:
            why = error
            continue
        found += [_estimate(rank, division, cluster, mesh, operations) for division, rank in ways
                  if division.splits or "model" not in mesh.axes or len(meshes) == 1]
    fitting = sorted((x for x in found if x.fits), key=lambda x: x.seconds)
    if not found and why is not None:
        raise why
    if not fitting:
        least = min(x.memory for x in found)
        raise ArgumentError(f"plan: no division over {devices} devices fits: {least / 1e9:.3g} GB a device are needed, "
                            f"and there are {cluster.chip.room / 1e9:.3g}",
                            hint=f"use more devices: {', '.join(map(str, divisors(cluster.devices)[-3:]))}")
    levels = tuple(level.name for level in cluster.levels)
    return Plan(step.jitted.__name__, cluster.name, levels, tuple(fitting))


def _estimate(rank: RankStep, division: Division, cluster: Cluster, mesh: Mesh, operations: float) -> StepEstimate:
    timeline, devices = rank.timeline, mesh.size
    messages = sum(x.end - x.start for x in timeline.nodes if x.is_message)
    sent = tuple(devices * x for x in timeline.sent(len(cluster.levels)))
    peak = cluster.chip.operations("float32") * devices
    mfu = min(1.0, operations / rank.seconds / peak) if operations else 0.0
    data, model = (mesh.axis_size(name) if name in mesh.axes else 1 for name in ("data", "model"))
    sizes = ParallelSizes(data=data, model=model, recompute="none", shard=3 if division.besides else 0)
    return StepEstimate(sizes, rank.seconds, timeline.computing, messages, rank.fresh, 0.0, rank.memory,
                        cluster.chip.room, sent, mfu, division.splits)
