"""How a training step is divided over devices: the numbers that a plan chooses."""

from __future__ import annotations

from tenon.errors import ArgumentError
from tenon.pipelining.schedules import SCHEDULES
from tenon.planning.pipeline_time import PipelineSizes
from tenon.planning.tensor_parallel_gpt import TensorParallel
from tenon.planning.transformer_model import TransformerModel
from tenon.records import dataclass
from tenon.sharding.mesh import Mesh

RECOMPUTED = ("none", "attention", "layer")


@dataclass(frozen=True)
class ParallelSizes:
    """A mesh of `stage` x `data` x `model` devices, the last axis of neighbours, and what runs on it.

    A pipeline has `stage` * `chunks` stages under `schedule`; a micro-batch is `micro_batch` texts of each of `data`
    replicas.  `sequence` splits tokens between the products of `model` ranks.  `recompute` says what is not kept for
    the backward part, "none", "attention" or "layer".  `shard` is what replicas divide among them: 0 nothing, 1 the
    optimizer's state, 2 gradients too, 3 parameters too (S. Rajbhandari et al., "ZeRO", 2020).  With `overlap`,
    messages run beside kernels.
    """

    data: int = 1
    model: int = 1
    stage: int = 1
    micro_batch: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    sequence: bool = False
    recompute: str = "layer"
    shard: int = 0
    overlap: bool = False

    @property
    def devices(self) -> int:
        """How many are used."""
        return self.data * self.model * self.stage

    @property
    def mesh(self) -> Mesh:
        """The devices, as a mesh."""
        return Mesh({"stage": self.stage, "data": self.data, "model": self.model})

    def micro_batches(self, model: TransformerModel) -> int:
        """How many a step has."""
        return model.batch // (self.data * self.micro_batch)

    def pipeline(self, model: TransformerModel) -> PipelineSizes:
        """The schedule that a step runs."""
        return PipelineSizes(self.schedule, self.stage, self.micro_batches(model), self.chunks)

    def split(self, model: TransformerModel) -> TensorParallel:
        """How the modules of a layer are split."""
        return TensorParallel(self.model, self.sequence and self.model > 1, self.recompute == "attention",
                              model.dropout)

    def misfit(self, model: TransformerModel) -> str | None:
        """Why the model cannot be divided so; None where it can."""
        for what, whole, parts in (
                ("texts", model.batch, self.data * self.micro_batch),
                ("layers", model.layers, self.stage * self.chunks),
                ("heads", model.heads, self.model), ("rows of the embedding", model.vocabulary, self.model),
                ("columns of a layer", model.inner or 4 * model.width, self.model),
                ("tokens", model.tokens, self.model if self.sequence else 1)):
            if whole % parts:
                return f"{whole} {what} do not divide into {parts} parts"
        if self.chunks > 1 and (self.schedule != "interleaved" or self.micro_batches(model) % self.stage):
            return f"{self.chunks} chunks need the interleaved schedule, and micro-batches in groups of {self.stage}"
        return None

    def check(self, model: TransformerModel) -> None:
        """Raise ArgumentError where these are no sizes, or the model cannot be divided so."""
        for name in ("data", "model", "stage", "micro_batch", "chunks"):
            size = getattr(self, name)
            if type(size) is not int or size < 1:
                raise ArgumentError(f"ParallelSizes: {name} is a whole number from 1 on, not {size!r}")
        for name, value, known in (("recompute", self.recompute, RECOMPUTED), ("schedule", self.schedule, SCHEDULES),
                                   ("shard", self.shard, (0, 1, 2, 3))):
            if value not in known:
                raise ArgumentError(f"ParallelSizes: {name} is one of {', '.join(map(str, known))}, not {value!r}")
        if (why := self.misfit(model)) is not None:
            raise ArgumentError(f"ParallelSizes: {why}")
