"""`tn.distributed.plan`: a model or a step, and a cluster -> a plan; nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenon.errors import ArgumentError, CaptureError, ShapeError
from tenon.planning.calibrate import calibrate
from tenon.planning.cluster import Cluster, load_cluster
from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.plan import Plan
from tenon.planning.search_plans import divisors, search
from tenon.planning.step_costs import STATES, RankStep, capture_step, rank_step
from tenon.planning.training_step import StepEstimate
from tenon.planning.transformer_model import TransformerModel
from tenon.planning.work import KernelWork, WorkRules
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
    return Plan(getattr(what, "__name__", "step"), chosen.name, levels, _of_step(what, args, chosen, count, overlap))


def _of_step(step: Any, args: Sequence[Any], cluster: Cluster, devices: int, overlap: bool) -> tuple[StepEstimate, ...]:
    """Estimates of a step over all devices: with state that is whole, or divided."""
    captured = capture_step(step, args)
    alone = rank_step(captured, Mesh({"data": 1}), cluster)
    rules = WorkRules(cluster.chip)
    operations = sum(w.operations for node in alone.graph.nodes for w in rules.of(node)
                     if isinstance(w, KernelWork) and w.product is not None)
    found, why = [], None
    for state in STATES[:1] if devices == 1 else STATES:
        try:
            rank = alone if devices == 1 else rank_step(captured, Mesh({"data": devices}), cluster, state, overlap)
        except (ShapeError, CaptureError) as error:
            why = error
            continue
        found.append(_estimate(rank, cluster, devices, operations))
    fitting = sorted((x for x in found if x.fits), key=lambda x: x.seconds)
    if not fitting and why is not None:
        raise why
    if not fitting:
        least = min(x.memory for x in found)
        raise ArgumentError(f"plan: no division over {devices} devices fits: {least / 1e9:.3g} GB a device are needed, "
                            f"and there are {cluster.chip.room / 1e9:.3g}",
                            hint=f"use more devices: {', '.join(map(str, divisors(cluster.devices)[-3:]))}")
    return tuple(fitting)


def _estimate(rank: RankStep, cluster: Cluster, devices: int, operations: float) -> StepEstimate:
    timeline = rank.timeline
    messages = sum(x.end - x.start for x in timeline.nodes if x.is_message)
    sent = tuple(devices * x for x in timeline.sent(len(cluster.levels)))
    peak = cluster.chip.operations("float32") * devices
    sizes = ParallelSizes(data=devices, recompute="none", shard=3 if rank.state == "split" else 0)
    return StepEstimate(sizes, rank.seconds, timeline.computing, messages, rank.fresh, 0.0, rank.memory,
                        cluster.chip.room, sent, min(1.0, operations / rank.seconds / peak))
