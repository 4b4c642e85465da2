"""A model, how it is divided, and a cluster -> what a training step takes: the simulation of all of it.

    layers' graphs -> seconds of each stage -> the pipeline -> gradients summed over replicas -> the update

What is simulated of a rank are its own graphs (`tenon.planning.rank_costs`); stages differ, replicas do not.
"""

from __future__ import annotations

from tenon.pipelining.simulate_schedule import StageCosts
from tenon.planning.cluster import Cluster
from tenon.planning.collective_time import collective_seconds, send, sent_bytes
from tenon.planning.device_group import DeviceGroup, device_group
from tenon.planning.parallel_sizes import ParallelSizes
from tenon.planning.pipeline_time import (
    about_micro_batches_kept,
    about_pipeline_seconds,
    micro_batches_kept,
    pipeline_seconds,
)
from tenon.planning.rank_costs import LayerCosts, entered, layer_costs, update_seconds
from tenon.planning.transformer_model import TransformerModel
from tenon.records import dataclass
from tenon.sharding.sharding import Spec
from tenon.types import as_dtype

STATE = 12              # bytes a parameter of AdamW: a wide copy, and two moments; 8 where parameters are wide


@dataclass(frozen=True)
class StepEstimate:
    """What a step takes: seconds; bytes on the device that needs most, against `room`; what is sent by all devices,
    by level of the cluster; the share of time in which pipelines wait; operations of the model a second, of the peak;
    how groups of a step's tensors are split over "model", by name.
    """

    sizes: ParallelSizes
    seconds: float
    pipeline: float             # of these seconds
    replicas: float             # for messages between replicas
    update: float
    bubble: float
    memory: float
    room: float
    sent: tuple[float, ...]
    mfu: float
    splits: tuple[tuple[str, Spec], ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the memory is enough."""
        return self.memory <= self.room


@dataclass(frozen=True)
class Stages:
    """What the stages of a pipeline cost: seconds, parameters on a rank, bytes kept and bytes sent by level for a
    micro-batch."""

    seconds: StageCosts
    parameters: tuple[int, ...]
    kept: tuple[float, ...]
    passing: float                  # bytes that one stage hands the next on a rank
    sent: tuple[float, ...]
    working: float                  # bytes that one layer needs while it runs


def estimate_step(model: TransformerModel, sizes: ParallelSizes, cluster: Cluster,
                  effort: str = "exact") -> StepEstimate:
    """Simulate a training step with AdamW.

    `effort` "exact" simulates each micro-batch of the pipeline, "some" as many as it takes to see how it goes on, and
    "formula" takes the formulas of its schedule.  Raises ArgumentError where the model cannot be divided so, or the
    cluster has no such devices.
    """
    sizes.check(model)
    stages, schedule = stages_of(model, sizes, cluster), sizes.pipeline(model)
    pipeline = about_pipeline_seconds(schedule, stages.seconds) if effort == "formula" else \
        pipeline_seconds(schedule, stages.seconds, effort == "exact")
    replicas, sent = _between_replicas(model, sizes, cluster, stages)
    update = max(stages.parameters) / (sizes.data if sizes.shard else 1) * update_seconds(cluster.chip, model.dtype)
    seconds = pipeline + replicas + update
    busy = sizes.micro_batches(model) * sum(stages.seconds.whole(len(stages.kept))) / sizes.stage
    every = sizes.micro_batches(model) * sizes.data * sizes.model
    sent = tuple(a + every * b for a, b in zip(sent, stages.sent, strict=True))
    peak = cluster.chip.operations(model.dtype) * sizes.devices
    memory = memory_of(model, sizes, stages, effort == "formula")
    return StepEstimate(sizes, seconds, pipeline, replicas, update, max(0.0, 1 - busy / pipeline), memory,
                        cluster.chip.room, sent, model.operations() / seconds / peak)


def stages_of(model: TransformerModel, sizes: ParallelSizes, cluster: Cluster) -> Stages:
    """The costs of the stages, each some layers; the first has the embedding too, the last the head."""
    split, count = sizes.split(model), sizes.stage * sizes.chunks
    block, first, last = (layer_costs(model, split, sizes.micro_batch, kind, cluster, sizes.overlap)
                          for kind in ("block", "embedding", "head"))
    layers, again = model.layers // count, sizes.recompute == "layer"
    ahead, back, weights = [layers * block.forward] * count, [layers * block.input_gradient] * count, \
        [layers * block.weight_gradient] * count
    kept = [layers * (block.entered if again else block.kept)] * count
    parameters = [layers * block.parameters] * count
    if again:
        back = [x + layers * block.forward for x in back]
    for place, part in ((0, first), (-1, last)):
        ahead[place] += part.forward
        back[place] += part.input_gradient
        weights[place] += part.weight_gradient
        kept[place] += part.kept
        parameters[place] += part.parameters
    passing, transfer = _handed_on(model, sizes, cluster)
    if sizes.micro_batches(model) > 1:      # gradients are added to those of the micro-batches before
        rate = cluster.chip.memory_bandwidth * cluster.chip.efficiency.bandwidth
        weights = [w + n * 3 * as_dtype(model.dtype).itemsize / rate for w, n in zip(weights, parameters, strict=True)]
    if not sizes.overlap:                   # who sends waits until it has
        ahead, back = ([x + transfer for x in xs] for xs in (ahead, back))
        transfer = 0.0
    sent = _sent(model, sizes, cluster, block, first, last, passing)
    working = block.kept if again else 0.0
    if sizes.shard == 3:                    # a layer's parameters are gathered while those of the one before are used
        working += 2 * block.parameters * as_dtype(model.dtype).itemsize
    return Stages(StageCosts(tuple(ahead), tuple(back), tuple(weights), transfer), _by_device(parameters, sizes),
                  tuple(kept), passing, sent, working)


def _by_device(parameters: list[int], sizes: ParallelSizes) -> tuple[int, ...]:
    """The parameters of each device, which has every `stage`-th stage."""
    return tuple(sum(parameters[k::sizes.stage]) for k in range(sizes.stage))


def _handed_on(model: TransformerModel, sizes: ParallelSizes, cluster: Cluster) -> tuple[float, float]:
    """(bytes that a rank hands to the next stage, seconds): each rank sends its part, and the next ones gather them."""
    if sizes.stage == 1:
        return 0.0, 0.0
    whole = entered(model, sizes.split(model), sizes.micro_batch)
    part = whole if sizes.sequence else whole / sizes.model
    seconds = send(part, device_group(cluster, (2, sizes.model * sizes.data)))
    if not sizes.sequence:
        seconds += collective_seconds("all_gather", whole, device_group(cluster, (sizes.model, 1)))
    return part, seconds


def _sent(model: TransformerModel, sizes: ParallelSizes, cluster: Cluster, block: LayerCosts, first: LayerCosts,
          last: LayerCosts, passing: float) -> tuple[float, ...]:
    """Bytes that the ranks of one place send for a micro-batch in all stages, by level."""
    again = sizes.recompute == "layer"
    sent = [model.layers * (f * (1 + again) + b) for f, b in zip(block.sent_forward, block.sent_backward, strict=True)]
    for part in (first, last):
        sent = [x + f + b for x, f, b in zip(sent, part.sent_forward, part.sent_backward, strict=True)]
    if sizes.stage > 1:
        level = device_group(cluster, (2, sizes.model * sizes.data)).outermost
        sent[level] += 2 * passing * (sizes.stage * sizes.chunks - 1)
    return tuple(sent)


def _between_replicas(model: TransformerModel, sizes: ParallelSizes, cluster: Cluster,
                      stages: Stages) -> tuple[float, tuple[float, ...]]:
    """Seconds for, and bytes of all devices in, the messages between replicas, and between the first stage and the
    last, which both have the embedding."""
    width = as_dtype(model.dtype).itemsize
    group = device_group(cluster, (sizes.data, sizes.model))
    seconds, sent = 0.0, [0.0] * len(cluster.levels)

    def say(kind: str, size: float, among: DeviceGroup, times: float, devices: int) -> None:
        nonlocal seconds
        if among.size > 1:
            seconds += times * collective_seconds(kind, size, among)
            sent[among.outermost] += times * devices * sent_bytes(kind, size, among.size)
    largest, count = max(stages.parameters) * width, sizes.micro_batches(model)
    if sizes.shard < 2:
        mean = sum(stages.parameters) / max(1, sizes.stage * max(stages.parameters))
        say("all_reduce", largest, group, 1.0, round(sizes.devices * mean))
    else:                       # gradients are scattered as they are summed, after each micro-batch
        uses = (2 + (sizes.recompute == "layer")) * count if sizes.shard == 3 else 1
        say("reduce_scatter", largest, group, count, sizes.devices)
        say("all_gather", largest, group, uses, sizes.devices)
    if sizes.overlap:           # the last layers' gradients are summed while those before them are computed
        hidden = min(stages.seconds.backward(len(stages.kept))) * (count if sizes.shard >= 2 else 1)
        seconds = max(seconds * sizes.stage / model.layers, seconds - hidden)
    if sizes.stage > 1:
        rows = model.vocabulary * model.width // sizes.model * width
        say("all_reduce", rows, device_group(cluster, (2, (sizes.stage - 1) * sizes.model * sizes.data)), 1.0,
            2 * sizes.data * sizes.model)
    return seconds, tuple(sent)


def memory_of(model: TransformerModel, sizes: ParallelSizes, stages: Stages, about: bool = False) -> float:
    """Bytes on the device that needs most: parameters, gradients, the optimizer's state, and what is kept."""
    width, replicas = as_dtype(model.dtype).itemsize, sizes.data
    state = STATE if width < 4 else STATE - 4
    each = (width / (replicas if sizes.shard >= 3 else 1) + width / (replicas if sizes.shard >= 2 else 1)
            + state / (replicas if sizes.shard >= 1 else 1))
    most, last = 0.0, sizes.stage * sizes.chunks
    counts = (about_micro_batches_kept if about else micro_batches_kept)(sizes.pipeline(model))
    for device, count in enumerate(counts):
        own = [stages.kept[stage] for stage in range(device, last, sizes.stage)]
        most = max(most, stages.parameters[device] * each + count * sum(own) / len(own))
    return most + stages.working + 2 * stages.passing
