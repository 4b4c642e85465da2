"""Losses as modules: each applies the function of its name with the options it was made with."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar

from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.ops import losses as ops
from tenon.ops import pairwise_losses
from tenon.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "Loss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d",
    "PairwiseDistance", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]

OTHER_NAMES = {"dim": "axis", "keepdim": "keepdims"}


class Loss(Module):
    """A function of predictions and targets, whose options are attributes; tensors among them (class weights) are
    buffers.
    """

    fn: ClassVar[Callable[..., Any]]
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *values: Any, **named: Any):
        name, names = type(self).__name__, self.defaults
        given = dict(zip(names, values)) | {OTHER_NAMES.get(key, key): x for key, x in named.items()}
        unknown = [key for key in given if key not in names]
        if unknown or len(values) > len(names):
            problem = f"no option {unknown[0]!r}" if unknown else f"{len(values)} options were given"
            raise ArgumentError(f"{name}: {problem}", hint=f"its options are ({', '.join(names)})")
        if given.get("reduction", "mean") not in ("mean", "sum", "none", *["batchmean"] * (name == "KLDivLoss")):
            raise ArgumentError(f"{name}: reduction must be 'mean', 'sum' or 'none', not {given['reduction']!r}")
        for key, value in {**names, **given}.items():
            if isinstance(value, Tensor):
                self.register_buffer(key, value)
            else:
                setattr(self, key, value)

    @property
    def options(self) -> dict[str, Any]:
        """The options as they are now; each is an attribute, which may be given anew."""
        return {name: getattr(self, name) for name in self.defaults if not isinstance(getattr(self, name), Tensor)}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return type(self).fn(*inputs, **named, **{name: getattr(self, name) for name in self.defaults})

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={x!r}" for name, x in self.options.items() if x != self.defaults[name])


class _Loss(Module):
    """The base of losses of one's own."""

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"):
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """One of classes that have weights."""

    def __init__(self, weight: Tensor | None = None, size_average: Any = None, reduce: Any = None,
                 reduction: str = "mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


def _loss(name: str, fn: Callable[..., Any], **defaults: Any) -> type[Loss]:
    also = {theirs: property(attrgetter(ours)) for theirs, ours in OTHER_NAMES.items() if ours in defaults}
    return type(name, (Loss,), {"fn": staticmethod(fn), "defaults": defaults, "__doc__": fn.__doc__,
                                "__module__": __name__, **also})


CrossEntropyLoss = _loss("CrossEntropyLoss", ops.cross_entropy, weight=None, ignore_index=-100, reduction="mean",
                         label_smoothing=0.0)
NLLLoss = _loss("NLLLoss", ops.nll_loss, weight=None, ignore_index=-100, reduction="mean")
NLLLoss2d = NLLLoss
MSELoss = _loss("MSELoss", pairwise_losses.mse_loss, reduction="mean")
L1Loss = _loss("L1Loss", pairwise_losses.l1_loss, reduction="mean")
SmoothL1Loss = _loss("SmoothL1Loss", pairwise_losses.smooth_l1_loss, reduction="mean", beta=1.0)
HuberLoss = _loss("HuberLoss", pairwise_losses.huber_loss, reduction="mean", delta=1.0)
PoissonNLLLoss = _loss("PoissonNLLLoss", pairwise_losses.poisson_nll_loss, log_input=True, full=False, eps=1e-8,
                       reduction="mean")
GaussianNLLLoss = _loss("GaussianNLLLoss", pairwise_losses.gaussian_nll_loss, full=False, eps=1e-6, reduction="mean")
BCELoss = _loss("BCELoss", pairwise_losses.binary_cross_entropy, weight=None, reduction="mean")
BCEWithLogitsLoss = _loss("BCEWithLogitsLoss", pairwise_losses.binary_cross_entropy_with_logits, weight=None,
                          reduction="mean", pos_weight=None)
KLDivLoss = _loss("KLDivLoss", pairwise_losses.kl_div, reduction="mean", log_target=False)
SoftMarginLoss = _loss("SoftMarginLoss", pairwise_losses.soft_margin_loss, reduction="mean")
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", pairwise_losses.hinge_embedding_loss, margin=1.0, reduction="mean")
MarginRankingLoss = _loss("MarginRankingLoss", pairwise_losses.margin_ranking_loss, margin=0.0, reduction="mean")
TripletMarginLoss = _loss("TripletMarginLoss", pairwise_losses.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6,
                          swap=False, reduction="mean")
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", pairwise_losses.cosine_embedding_loss, margin=0.0, reduction="mean")
MultiMarginLoss = _loss("MultiMarginLoss", pairwise_losses.multi_margin_loss, p=1, margin=1.0, weight=None,
                        reduction="mean")
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", pairwise_losses.multilabel_margin_loss, reduction="mean")
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss", pairwise_losses.triplet_margin_with_distance_loss, distance_function=None,
    margin=1.0, swap=False, reduction="mean")
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", pairwise_losses.multilabel_soft_margin_loss, weight=None,
                                 reduction="mean")
CosineSimilarity = _loss("CosineSimilarity", pairwise_losses.cosine_similarity, axis=1, eps=1e-8)
PairwiseDistance = _loss("PairwiseDistance", pairwise_losses.pairwise_distance, p=2.0, eps=1e-6, keepdims=False)
