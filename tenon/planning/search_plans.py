"""A model, a cluster and a number of devices -> the ways to divide a training step, the fastest first.

All divisions that fit the sizes are costed by formulas over simulated layers; the best of these are simulated whole.
What another choice is never slower or larger than is left out: tokens are split where tensors are, replicas divide the
optimizer's state, and attention is not recomputed where nothing of it is kept, which takes dropout.
"""

from __future__ import annotations

from collections.abc import Iterator

from tenon.errors import ArgumentError
from tenon.planning.cluster import Cluster
from tenon.planning.parallel_sizes import RECOMPUTED, ParallelSizes
from tenon.planning.training_step import StepEstimate, estimate_step
from tenon.planning.transformer_model import TransformerModel
from tenon.records import replace

SIMULATED = 16          # candidates that are simulated whole
MAX_CHUNKS = 8
MICRO_BATCHES = (1, 2, 4, 8, 16, 32)


def search(model: TransformerModel, cluster: Cluster, devices: int, overlap: bool = False) -> tuple[StepEstimate, ...]:
    """Simulated steps, those that fit the memory, the fastest first.

    Raises ArgumentError where no division of the model has as many devices, or none fits their memory.
    """
    if devices > cluster.devices:
        raise ArgumentError(f"plan: {devices} devices, and the cluster {cluster.name!r} has {cluster.devices}")
    tried = [estimate_step(model, sizes, cluster, "formula") for sizes in divisions(model, cluster, devices, overlap)]
    if not tried:
        raise ArgumentError(f"plan: {model.batch} texts, {model.layers} layers and {model.heads} heads cannot be "
                            f"divided over {devices} devices", hint="choose devices, or a batch, with more divisors")
    fitting = sorted((x for x in tried if x.fits), key=lambda x: x.seconds)
    if not fitting:
        least = min(tried, key=lambda x: x.memory)
        raise ArgumentError(f"plan: no division over {devices} devices fits: the least, {least.memory / 1e9:.1f} GB a "
                            f"device of {least.room / 1e9:.1f}, is that of {least.sizes}",
                            hint="use more devices, or a smaller batch")
    return _simulated(model, cluster, fitting)


def _simulated(model: TransformerModel, cluster: Cluster, tried: list[StepEstimate]) -> tuple[StepEstimate, ...]:
    """The best of those that were tried, simulated, until what is left is slower even by its formula."""
    found: list[StepEstimate] = []
    for x in tried:
        if len(found) >= SIMULATED:
            break
        step = estimate_step(model, x.sizes, cluster, "some")
        if step.fits:
            found.append(step)
    best = sorted(found or tried[:SIMULATED], key=lambda x: x.seconds)
    first = estimate_step(model, best[0].sizes, cluster)
    return tuple(sorted([first, *best[1:]], key=lambda x: x.seconds))


def divisions(model: TransformerModel, cluster: Cluster, devices: int,
              overlap: bool = False) -> Iterator[ParallelSizes]:
    """All ways to divide the model over so many devices that are worth a look."""
    for parts in divisors(devices):
        if parts > 2 * cluster.levels[0].size:      # every layer would wait for the slowest messages
            break
        for stage in divisors(devices // parts):
            if stage > model.layers:
                break
            for sizes in _schedules(model, ParallelSizes(devices // (parts * stage), parts, stage, overlap=overlap)):
                for recompute in RECOMPUTED if model.dropout else ("none", "layer"):
                    for shard in _shards(sizes):
                        yield replace(sizes, recompute=recompute, shard=shard,
                                      sequence=sizes.model > 1 and model.tokens % sizes.model == 0)


def _schedules(model: TransformerModel, sizes: ParallelSizes) -> Iterator[ParallelSizes]:
    """Micro-batches and schedules for a mesh."""
    for micro_batch in MICRO_BATCHES:
        plain = replace(sizes, micro_batch=micro_batch)
        if plain.misfit(model) is not None:
            continue
        yield plain
        if sizes.stage > 1:
            yield replace(plain, schedule="zero_bubble")
            for chunks in range(2, min(MAX_CHUNKS, model.layers // sizes.stage) + 1):
                more = replace(plain, schedule="interleaved", chunks=chunks)
                if more.misfit(model) is None:
                    yield more


def _shards(sizes: ParallelSizes) -> tuple[int, ...]:
    """What replicas may divide; all only where there is no pipeline, whose micro-batches would gather it often."""
    if sizes.data == 1:
        return (0,)
    return (1, 2, 3) if sizes.stage == 1 else (1,)


def divisors(n: int) -> list[int]:
    """
    >>> from tenon.planning.search_plans import divisors
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = [k for k in range(1, int(n ** 0.5) + 1) if n % k == 0]
    return low + [n // k for k in reversed(low) if k * k != n]
