"""Losses that compare numbers with numbers: squares, absolute values, likelihoods, divergences, margins."""

from __future__ import annotations

import math
from typing import Any

from tenon.dims.symbolic_dim import product
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.promotion import Kinds, floating
from tenon.ops.activations import logsigmoid, relu, softplus
from tenon.ops.arithmetic import abs_, sign
from tenon.ops.barrier import stop_gradient
from tenon.ops.comparison import clip, equal, greater, less, maximum, minimum, where
from tenon.ops.creation import iota
from tenon.ops.cumulative import cummin_op
from tenon.ops.define import composite, layer_function
from tenon.ops.exponential import exp, log, log1p, xlogy
from tenon.ops.indexing import take, take_along_axis
from tenon.ops.losses import no_negatives, reduced, with_axis
from tenon.ops.reduction import norm, sum_
from tenon.ops.shape import broadcast_to, sum_to
from tenon.ops.upcast_narrow import rounded_gradient, rounded_once
from tenon.types import float16

TARGET = ((-2.0, 2.0), (0.1, 0.9), (0.5, 2.0), (0.5, 2.0))      # test data: scores, then probabilities, then weights
PROBABILITIES = ((0.1, 0.9), (0.1, 0.9), (0.5, 2.0))


def _same_shape(name: str, x: Any, target: Any) -> None:
    if x.shape != target.shape:
        raise ShapeError(f"{name}: the prediction {x.type} and the target {target.type} differ in shape",
                         hint="they would broadcast against each other, which is rarely meant; reshape one of them")


def _weighted(name: str, loss: Any, weight: Any, reduction: str) -> Any:
    """The loss, each element of it times its weight; as a mean, that of the weights."""
    if weight is None:
        return reduced(name, loss, reduction)
    if weight.shape != loss.shape:
        raise ShapeError(f"{name}: the weight {weight.type} and the prediction {loss.type} differ in shape")
    total = reduced(name, loss * weight, "sum" if reduction == "mean" else reduction)
    return total / sum_(weight) if reduction == "mean" else total


# ---------------------------------------------------------------- regression

@composite(autocast="wide", promote=floating,
           method=False, examples=["mse_loss(f32[2, 3], f32[2, 3], reduction='mean') -> f32",
                                       "mse_loss(f32[2, 3], f32[2, 3], reduction='none') -> f32[2, 3]",
                                       "mse_loss(f32[2, 3], f32[2, 3], f32[2, 3], reduction='mean') -> f32",
                                       "mse_loss(f32[2, 3], f32[2, 1], reduction='mean') -> error"])
@rounded_once
def mse_loss(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """The squared difference; the mean with `weight` is the sum divided by that of the weights.

    >>> tn.mse_loss(tn.tensor([1.0, 2.0]), tn.tensor([0.0, 0.0]))
    tensor(2.5)
    """
    _same_shape("mse_loss", x, target)
    difference = x - target
    return _weighted("mse_loss", difference * difference, weight, reduction)


@composite(autocast="wide", promote=floating,
           method=False, examples=["l1_loss(f32[2, 3], f32[2, 3], reduction='sum') -> f32"])
def l1_loss(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """The absolute difference; the mean with `weight` is the sum divided by that of the weights."""
    _same_shape("l1_loss", x, target)
    return _weighted("l1_loss", abs_(x - target), weight, reduction)


@composite(autocast="wide", promote=floating,
           method=False, examples=["smooth_l1_loss(f32[2, 3], f32[2, 3], reduction='mean', beta=0.5) -> f32"])
@rounded_once
def smooth_l1_loss(x: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0) -> Any:
    """difference**2 / (2 * beta) where it is below beta, else |difference| - beta / 2."""
    _same_shape("smooth_l1_loss", x, target)
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    size = abs_(x - target)
    near = minimum(size, beta)
    return reduced("smooth_l1_loss", near / beta * (size - 0.5 * near) if beta else size, reduction)


@composite(autocast="wide", promote=floating,
           method=False, examples=["huber_loss(f32[2, 3], f32[2, 3], reduction='mean', delta=0.5) -> f32"])
@rounded_once
def huber_loss(x: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0) -> Any:
    """difference**2 / 2 where it is below delta, else delta * (|difference| - delta / 2)."""
    _same_shape("huber_loss", x, target)
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be positive, got {delta}")
    size = abs_(x - target)
    near = minimum(size, delta)
    return reduced("huber_loss", near * (size - 0.5 * near), reduction)


@composite(autocast="wide", promote=floating, domain=((-2.0, 2.0), (0.5, 2.0)), method=False, examples=[
    "poisson_nll_loss(f32[2, 3], f32[2, 3], log_input=True, full=False, eps=1e-08, reduction='mean') -> f32",
    "poisson_nll_loss(f32[2, 3], f32[2, 3], log_input=True, full=True, eps=1e-08, reduction='sum') -> f32"])
@rounded_once
def poisson_nll_loss(x: Any, target: Any, *, log_input: bool = True, full: bool = False, eps: float = 1e-8,
                     reduction: str = "mean") -> Any:
    """Minus the log likelihood of counts under Poisson distributions of these (log) rates.

    `full` adds Stirling's approximation of the term that depends on the target alone.
    """
    loss = exp(x) - target * x if log_input else x - target * log(x + eps)
    if full:
        stirling = target * log(target) - target + log(target * (2 * math.pi)) * 0.5
        loss = loss + where(greater(target, 1), stirling, 0)
    return reduced("poisson_nll_loss", loss, reduction)


@composite(autocast="wide", promote=floating, domain=((-2.0, 2.0), (-2.0, 2.0), (0.5, 2.0)), method=False, examples=[
    "gaussian_nll_loss(f32[2, 3], f32[2, 3], f32[2, 3], full=True, eps=1e-06, reduction='mean') -> f32",
    "gaussian_nll_loss(f32[2, 3], f32[2, 3], f32[2, 1], full=False, eps=1e-06, reduction='none') -> f32[2, 3]"])
@rounded_once
def gaussian_nll_loss(x: Any, target: Any, variance: Any, *, full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> Any:
    """Minus the log likelihood of the target under normal distributions with mean x and these variances."""
    if variance.ndim == x.ndim - 1:
        variance = with_axis(variance, variance.ndim)
    variance = where(less(variance, eps), variance - stop_gradient(variance) + eps, variance)     # as PyTorch's slope
    difference = x - target
    loss = (log(variance) + difference * difference / variance) * 0.5
    return reduced("gaussian_nll_loss", loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


# ---------------------------------------------------------------- probabilities

MIN_LOGARITHM = -100.0
MIN_VARIANCE = 1e-12        # of a probability, p * (1 - p), that a slope is divided by, as PyTorch has it


def _bernoulli_losses(x: Any, target: Any) -> Any:
    return -(target * maximum(log(x), MIN_LOGARITHM) + (1 - target) * maximum(log1p(-x), MIN_LOGARITHM))


@rounded_gradient
def _bernoulli_vjp(g: Any, y: Any, x: Any, target: Any, weight: Any = None, *, reduction: str) -> tuple[Any, ...]:
    """The slope is finite where a probability is 0 or 1, whose logarithm has none: a sigmoid of 40 in float32."""
    each = {"mean": lambda: g / product(x.shape), "sum": lambda: g, "none": lambda: g}[reduction]()
    weighed = each if weight is None else each * weight
    least = MIN_VARIANCE if x.dtype is not float16 else 2.0 ** -24

    def to_target() -> Any:
        return weighed * (maximum(log1p(-x), MIN_LOGARITHM) - maximum(log(x), MIN_LOGARITHM))

    def to_weight() -> Any:
        return sum_to(broadcast_to(each * _bernoulli_losses(x, target), shape=x.shape), weight.shape)
    return (weighed * (x - target) / maximum(x * (1 - x), least), to_target, None if weight is None else to_weight)


@composite(autocast="wide", promote=floating, domain=PROBABILITIES, method=False, vjp=_bernoulli_vjp, examples=[
    "binary_cross_entropy(f32[2, 3], f32[2, 3], f32[3], reduction='mean') -> f32",
    "binary_cross_entropy(f32[2, 3], f32[2, 3], reduction='none') -> f32[2, 3]"])
@rounded_once
def binary_cross_entropy(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """Minus the log likelihood of `target` under probabilities x, whose logarithms are taken to be at least -100."""
    _same_shape("binary_cross_entropy", x, target)
    loss = _bernoulli_losses(x, target)
    return reduced("binary_cross_entropy", loss if weight is None else loss * weight, reduction)


def _logistic_losses(x: Any, target: Any, pos_weight: Any = None) -> Any:
    """Minus the log likelihood of `target` under sigmoid(x); the slope has no difference of numbers near 1."""
    positive = target if pos_weight is None else pos_weight * target
    return -(positive * logsigmoid(x) + (1 - target) * logsigmoid(-x))


@composite(autocast="wide", promote=floating, domain=TARGET, method=False, examples=[
    "binary_cross_entropy_with_logits(f32[2, 3], f32[2, 3], f32[3], f32[3], reduction='mean') -> f32",
    "binary_cross_entropy_with_logits(f32[2, 3], f32[2, 3], None, f32[3], reduction='sum') -> f32",
    "binary_cross_entropy_with_logits(f32[2, 3], f32[2, 3], reduction='none') -> f32[2, 3]"])
@rounded_once
def binary_cross_entropy_with_logits(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, *,
                                     reduction: str = "mean") -> Any:
    """Binary cross entropy of sigmoid(x), without overflow; `pos_weight` weighs the positive part."""
    _same_shape("binary_cross_entropy_with_logits", x, target)
    loss = _logistic_losses(x, target, pos_weight)
    return reduced("binary_cross_entropy_with_logits", loss if weight is None else loss * weight, reduction)


@composite(autocast="wide", promote=floating, domain=((-2.0, 0.0), (0.1, 0.9)), method=False, examples=[
    "kl_div(f32[2, 3], f32[2, 3], reduction='batchmean', log_target=False) -> f32",
    "kl_div(f32[2, 3], f32[2, 3], reduction='none', log_target=True) -> f32[2, 3]"])
@rounded_once
def kl_div(x: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Any:
    """The divergence of log probabilities x from target probabilities (or their logarithms).

    "batchmean" divides by the batch size: the definition; "mean" divides by the number of elements.
    """
    loss = exp(target) * (target - x) if log_target else xlogy(target, target) - target * x
    if reduction == "batchmean":
        return loss.sum(axis=tuple(range(1, x.ndim))).mean() if x.ndim else loss
    return reduced("kl_div", loss, reduction)


# ---------------------------------------------------------------- distances and margins

def _one_axis(*types: Any, axis: int, **rest: Any) -> dict[str, Any]:
    return {"axis": axis, **rest}


@composite(autocast="wide", promote=floating, canonical=_one_axis, method=False, examples=[
    "cosine_similarity(f32[2, 3], f32[2, 3], axis=1, eps=1e-08) -> f32[2]",
    "cosine_similarity(f32[2, 3], f32[1, 3], axis=-1, eps=1e-08) -> f32[2]"])
def cosine_similarity(x: Any, y: Any, *, axis: int = 1, eps: float = 1e-8) -> Any:
    """The cosine of the angle between x and y along an axis."""
    def direction(v: Any) -> Any:
        return v / maximum(norm(v, 2.0, axis, keepdims=True), eps)
    return (direction(x) * direction(y)).sum(axis=axis)         # a product of two lengths might overflow


@layer_function
def pairwise_distance(x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False) -> Any:
    """The p-norm of x - y + eps along the last axis."""
    return norm(x - y + eps, p, -1, keepdims)


@composite(autocast="wide", promote=floating,
           method=False, examples=["soft_margin_loss(f32[2, 3], f32[2, 3], reduction='mean') -> f32"])
@rounded_once
def soft_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """log(1 + exp(-target * x)) for targets of 1 and -1."""
    return reduced("soft_margin_loss", softplus(-target * x, threshold=math.inf), reduction)


@composite(autocast="wide", promote=floating,
           method=False, examples=["hinge_embedding_loss(f32[2, 3], f32[2, 3], margin=1.0, reduction='mean') -> f32"])
def hinge_embedding_loss(x: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """x where the target is 1, max(0, margin - x) where it is -1."""
    loss = where(equal(target, 1), 0, clip(margin - x, 0)) + where(equal(target, -1), 0, x)
    return reduced("hinge_embedding_loss", loss, reduction)


@composite(autocast="wide", promote=floating,
           method=False, examples=["margin_ranking_loss(f32[4], f32[4], f32[4], margin=0.5, reduction='mean') -> f32"])
def margin_ranking_loss(x: Any, y: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """max(0, -target * (x - y) + margin): x should be larger where the target is 1, smaller where it is -1."""
    return reduced("margin_ranking_loss", clip(-target * (x - y) + margin, 0), reduction)


@composite(autocast="wide", promote=floating, examples=[
    "triplet_margin_loss(f32[2, 3], f32[2, 3], f32[2, 3], margin=1.0, p=2.0, eps=1e-06, swap=True, reduction='mean')"
    " -> f32"])
def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, *, margin: float = 1.0, p: float = 2.0,
                        eps: float = 1e-6, swap: bool = False, reduction: str = "mean") -> Any:
    """max(0, distance to positive - distance to negative + margin); `swap` also takes positive to negative."""
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced("triplet_margin_loss", clip(near - far + margin, 0), reduction)


@composite(autocast="wide", promote=floating, method=False, examples=[
    "cosine_embedding_loss(f32[2, 3], f32[2, 3], f32[2], margin=0.1, reduction='mean') -> f32"])
def cosine_embedding_loss(x: Any, y: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """1 - cosine where the target is 1, max(0, cosine - margin) where it is -1."""
    tiny = 1e-12
    squares = ((x * x).sum(axis=-1) + tiny) * ((y * y).sum(axis=-1) + tiny)
    cosine = (x * y).sum(axis=-1) * squares ** -0.5
    loss = where(equal(target, 1), 1 - cosine, 0) + where(equal(target, -1), clip(cosine - margin, 0), 0)
    return reduced("cosine_embedding_loss", loss, reduction)


def _scores_and_classes(kinds: Kinds) -> tuple[Any, ...]:
    scores = floating(kinds[:1])[0]
    return scores, kinds[1], *(None if kind is None else scores for kind in kinds[2:])


@composite(autocast="wide", promote=_scores_and_classes, domain=((-2.0, 2.0), (0.0, 2.0), (0.5, 2.0)),
           method=False, examples=[
    "multi_margin_loss(f32[4, 3], i64[4], f32[3], p=2, margin=1.0, reduction='mean') -> f32",
    "multi_margin_loss(f32[4, 3], i64[4], p=1, margin=0.5, reduction='none') -> f32[4]"])
def multi_margin_loss(x: Any, target: Any, weight: Any = None, *, p: int = 1, margin: float = 1.0,
                      reduction: str = "mean") -> Any:
    """The mean over the other classes of max(0, margin - x[target] + x[class]) ** p."""
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: p must be 1 or 2, got {p}")
    classes = x.shape[-1]
    column = with_axis(no_negatives(target, classes), target.ndim)
    gap = relu(margin - take_along_axis(x, column, axis=-1) + x)
    gap = gap * gap if p == 2 else gap
    gap = gap if weight is None else gap * take(weight, column, axis=0)
    others = where(equal(iota(classes, x.ndim - 1, x.ndim), column), 0, gap)
    return reduced("multi_margin_loss", others.sum(axis=-1) / classes, reduction)


@composite(autocast="wide", promote=floating, domain=TARGET, method=False, examples=[
    "multilabel_soft_margin_loss(f32[2, 3], f32[2, 3], f32[3], reduction='mean') -> f32",
    "multilabel_soft_margin_loss(f32[2, 3], f32[2, 3], reduction='none') -> f32[2]"])
@rounded_once
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """The mean over classes of the binary cross entropy of sigmoid(x)."""
    _same_shape("multilabel_soft_margin_loss", x, target)
    loss = _logistic_losses(x, target)
    loss = loss if weight is None else loss * weight
    return reduced("multilabel_soft_margin_loss", loss.mean(axis=-1), reduction)


def _scores_and_listed(kinds: Kinds) -> tuple[Any, ...]:
    return floating(kinds[:1])[0], kinds[1]


@composite(autocast="wide", promote=_scores_and_listed, domain=((-2.0, 2.0), (0.0, 2.0)), method=False, examples=[
    "multilabel_margin_loss(f32[4, 3], i64[4, 3], reduction='mean') -> f32",
    "multilabel_margin_loss(f32[3], i64[3], reduction='none') -> f32"])
def multilabel_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The mean over classes of all max(0, 1 - x[target] + x[other]).

    A row of `target` lists its classes; those from the first -1 on do not count.
    """
    _same_shape("multilabel_margin_loss", x, target)
    last = x.ndim
    over = equal(cummin_op(sign(target), axis=last - 1)[0], -1)
    listed = where(over, 0, target)
    hit = where(with_axis(over, last), False, equal(with_axis(listed, last), iota(x.shape[-1], last, last + 1)))
    gap = relu(1 - with_axis(take_along_axis(x, listed, axis=-1), last) + with_axis(x, last - 1))
    apart = where(with_axis(over, last), 0, where(hit.any(axis=last - 1, keepdims=True), 0, gap))
    return reduced("multilabel_margin_loss", apart.sum(axis=(-2, -1)) / x.shape[-1], reduction)


@layer_function
def triplet_margin_with_distance_loss(anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> Any:
    """`triplet_margin_loss` with another distance, a function of two tensors; None is `pairwise_distance`.

    >>> x = tn.tensor([[0.0, 1.0]])
    >>> tn.triplet_margin_with_distance_loss(x, x + 1, x, distance_function=lambda a, b: (a - b).abs().sum(axis=-1))
    tensor(3.)
    """
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced("triplet_margin_with_distance_loss", clip(near - far + margin, 0), reduction)
