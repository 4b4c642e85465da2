"""Scores of very many classes in clusters, by how frequent they are (Grave et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenon.errors import ArgumentError, ShapeError
from tenon.nn.containers import ModuleList, Sequential
from tenon.nn.linear import Linear
from tenon.nn.module import Module
from tenon.ops.activations import log_softmax
from tenon.ops.define import lift
from tenon.ops.indexing import gather
from tenon.ops.joining_and_axes import concat, expand_dims

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class ScoresAndLoss(NamedTuple):
    """What `AdaptiveLogSoftmaxWithLoss` returns: the log probability of each target, and minus their mean."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """The loss of x [N, in_features] for targets [N]: classes below the first cutoff have scores of their own.

    The others stand in clusters between cutoffs, each with a score among those; within a cluster they are told apart
    by fewer features, `div_value` times fewer from cluster to cluster.

    >>> nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[4, 10])(tn.ones(3, 8), tn.tensor([1, 5, 15])).output.shape
    (3,)
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
                 head_bias: bool = False, device: Any = None, dtype: Any = "float32"):
        cuts = list(cutoffs)
        if not cuts or cuts != sorted(set(cuts)) or cuts[0] <= 0 or cuts[-1] >= n_classes:
            raise ArgumentError(f"AdaptiveLogSoftmaxWithLoss: cutoffs must rise from above 0 to below {n_classes}, "
                                f"not {cuts}")
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs, self.head_bias = [*cuts, n_classes], head_bias
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList([Sequential(
            Linear(in_features, width, bias=False, device=device, dtype=dtype),
            Linear(width, self.cutoffs[k + 1] - self.cutoffs[k], bias=False, device=device, dtype=dtype))
            for k in range(self.n_clusters) for width in [int(in_features // div_value ** (k + 1))]])

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for layer in (self.head, *(layer for pair in self.tail for layer in pair)):
            layer.reset_parameters()

    def forward(self, input: Any, target: Any) -> ScoresAndLoss:
        x, target = lift(input), lift(target)
        if x.ndim == 1 and target.ndim == 0:
            one = self.forward(expand_dims(x, 0), expand_dims(target, 0))
            return ScoresAndLoss(one.output[0], one.loss)
        if x.ndim != 2 or target.shape != x.shape[:1]:
            raise ShapeError(f"AdaptiveLogSoftmaxWithLoss: {x.type} and targets {target.type} do not fit")
        scores = gather(self.log_prob(x), expand_dims(target, 1), axis=1)[:, 0]
        return ScoresAndLoss(scores, -scores.mean())

    def log_prob(self, input: Any) -> Any:
        """The log probabilities of all classes, [N, n_classes]."""
        head = log_softmax(self.head(input), axis=1)
        tails = [log_softmax(pair(input), axis=1) + head[:, k:k + 1]
                 for k, pair in enumerate(self.tail, self.shortlist_size)]
        return concat([head[:, :self.shortlist_size], *tails], axis=1)

    def predict(self, input: Any) -> Any:
        """The most probable class of each row."""
        return self.log_prob(input).argmax(axis=1)
