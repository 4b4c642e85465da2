"""A model's sizes and how its layers are split -> what each kind of layer costs a rank, by its own graphs.

A rank's modules are made without elements, captured forward and backward with Tenon's passes, and each graph is run by
the simulator of a device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tenon.nn.module import Module, Parameter
from tenon.optim.adam import AdamW
from tenon.planning.cluster import Chip, Cluster
from tenon.planning.device_graph import TwoPhases, device_graph, two_phases
from tenon.planning.device_group import DeviceGroup, device_group
from tenon.planning.node_work import WorkRules
from tenon.planning.shapes_only import hollow_tensor, shapes_only
from tenon.planning.tensor_parallel_gpt import RankBlock, RankEmbedding, RankHead, TensorParallel
from tenon.planning.timeline import ancestors, device_timeline
from tenon.planning.transformer_model import TransformerModel
from tenon.program.kernel import count
from tenon.records import dataclass, replace
from tenon.tensor import Tensor
from tenon.types import as_dtype

UPDATED = 1 << 20       # parameters of the graph that stands for every update


@dataclass(frozen=True)
class LayerCosts:
    """Of one micro-batch, on one rank: seconds forward, and backward to the input and to the weights; bytes kept from
    one to the other, and of the input; parameters; bytes sent by level, forward and backward."""

    forward: float
    input_gradient: float
    weight_gradient: float
    kept: float
    entered: float
    parameters: int
    sent_forward: tuple[float, ...]
    sent_backward: tuple[float, ...]

    @property
    def backward(self) -> float:
        """Seconds of the whole backward part."""
        return self.input_gradient + self.weight_gradient


class BlockAlone(Module):
    """A layer as a function of one tensor."""

    def __init__(self, block: RankBlock):
        self.block = block

    def forward(self, x: Any) -> Any:
        return self.block(x, None, 0, None)


@lru_cache(maxsize=512)
def layer_costs(model: TransformerModel, split: TensorParallel, micro_batch: int, kind: str, cluster: Cluster,
                overlap: bool = False) -> LayerCosts:
    """The costs of a "block", the "embedding" or the "head"; the ranks of a tensor-parallel group are neighbours."""
    chip, dtype = cluster.chip, as_dtype(model.dtype)
    if kind != "block":
        split = replace(split, recompute_attention=False, dropout=0.0)      # which they have none of
    phases, parameters = _phases(replace(model, layers=1, batch=1), split, kind, chip)
    rules = WorkRules(chip, dtype if dtype.bits < 32 else None, {phases.batch: micro_batch})
    group = device_group(cluster, (split.parts, 1))
    forward, backward = (device_timeline(graph, rules, lambda over: group, overlap)
                         for graph in (phases.forward, phases.backward))
    to_input = ancestors(phases.backward, phases.backward.results[:1]) if kind != "embedding" else set()
    whole, ahead = backward.seconds, backward.of(to_input)
    kept = [float(count(t.size, rules.sizes)) * rules.type(t.dtype).itemsize for t in phases.kept]
    levels = len(cluster.levels)
    return LayerCosts(forward.seconds, min(ahead, whole), max(0.0, whole - ahead), sum(kept), entered(
        model, split, micro_batch), parameters, forward.sent(levels), backward.sent(levels))


def entered(model: TransformerModel, split: TensorParallel, micro_batch: int) -> float:
    """The bytes of a layer's input on a rank."""
    return float(micro_batch * split.tokens(model.tokens) * model.width * as_dtype(model.dtype).itemsize)


@lru_cache(maxsize=512)
def _phases(model: TransformerModel, split: TensorParallel, kind: str, chip: Chip) -> tuple[TwoPhases, int]:
    """The graphs of a layer on a rank, for micro-batches of any size, and how many parameters it has."""
    config = model.config

    def arguments(batch: int) -> list[Tensor]:
        x = hollow_tensor((batch, split.tokens(model.tokens), model.width), model.dtype)
        x.requires_grad = True
        return {"block": [x], "embedding": [], "head": [x]}[kind] + (
            [] if kind == "block" else [hollow_tensor((batch, model.tokens), "int64")])
    with shapes_only():
        module: Module = BlockAlone(RankBlock(config, split)) if kind == "block" else \
            RankHead(config, split) if kind == "head" else RankEmbedding(config, split)
        module.to(model.dtype)
    parameters = list(module.parameters())
    return two_phases(module, arguments, parameters, chip), sum(int(p.size) for p in parameters)


@lru_cache(maxsize=64)
def update_seconds(chip: Chip, dtype: str) -> float:
    """Seconds that AdamW takes for a parameter, by its graph: numbers of 32 bits, and the narrow ones made of them."""
    with shapes_only():
        module = Flat()
        for p in module.parameters():
            p.grad = hollow_tensor((UPDATED,))
        optimizer = AdamW(module.parameters(), lr=1e-4)

    def update() -> Any:
        optimizer.step()
        return module.weight.astype(dtype)
    timeline = device_timeline(device_graph(update, chip=chip), WorkRules(chip), lambda over: DeviceGroup((), ()))
    return timeline.seconds / UPDATED


class Flat(Module):
    """All parameters of a rank, as an optimizer sees them."""

    def __init__(self) -> None:
        self.weight = Parameter(hollow_tensor((UPDATED,)))
