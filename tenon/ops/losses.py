"""Losses: cross_entropy, mse_loss ...  Each takes reduction="mean", "sum" or "none"."""

from __future__ import annotations

from typing import Any

from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.promotion import Kinds, floating, separate
from tenon.ops.activations import log_softmax, softmax
from tenon.ops.comparison import equal, less, not_equal, where
from tenon.ops.creation import as_number, iota
from tenon.ops.define import canonical_axis, composite
from tenon.ops.exponential import exp, log
from tenon.ops.indexing import take, take_along_axis
from tenon.ops.shape import cast, reshape_op

SCORES_AND_CLASSES = ((-2.0, 2.0), (0.0, 2.0), (0.5, 2.0))     # for the test data of examples with 3 classes


def reduced(name: str, loss: Any, reduction: str) -> Any:
    """The loss as its mean, its sum, or as it is."""
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"{name}: reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def classes_first(kinds: Kinds) -> tuple[Any, ...]:
    """Scores become floats; integer targets keep their type, others and the weight get that of the scores."""
    scores = floating(kinds[:1])[0]
    target = separate(kinds[1:2])[0]
    return (scores, target if target is None or target.kind in "biu" else scores,
            *(None if kind is None else scores for kind in kinds[2:]))


# ---------------------------------------------------------------- classification

def _rows_vjp(g: Any, y: Any, x: Any, target: Any, axis: int) -> tuple[Any, None]:
    p = softmax(x, axis=axis)
    hit = equal(iota(x.shape[axis], axis, x.ndim), with_axis(target, axis))
    return with_axis(g, axis) * where(hit, p - 1, p), None


@composite(autocast="wide", public=False, promote=classes_first, domain=SCORES_AND_CLASSES, canonical=canonical_axis,
           vjp=_rows_vjp,
           batch="axis", examples=["softmax_cross_entropy(f32[2, 3], i64[2], axis=1) -> f32[2]"])
def softmax_cross_entropy(x: Any, target: Any, *, axis: int) -> Any:
    """-log_softmax(x)[target] along an axis; its gradient is softmax(x) minus 1 at the target."""
    shifted = x - x.max(axis=axis, keepdims=True)
    chosen = take_along_axis(shifted, with_axis(target, axis), axis=axis)
    return reshape_op(log(exp(shifted).sum(axis=axis, keepdims=True)) - chosen, shape=target.shape)


def with_axis(x: Any, axis: int) -> Any:
    """`x` with a new axis of size 1."""
    return reshape_op(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def _check_classes(name: str, x: Any, target: Any, weight: Any) -> int:
    """The axis of the classes; raises where shapes or types do not fit."""
    if x.ndim == 0:
        raise ShapeError(f"{name}: the scores must have an axis of classes, they are {x.type}")
    axis = 1 if x.ndim > 1 else 0
    expected = (*x.shape[:axis], *x.shape[axis + 1:])
    if target.dtype.kind == "b":
        raise DTypeError(f"{name}: class indices must be integers, the target is {target.type}")
    if target.dtype.kind in "iu" and target.shape == x.shape != expected:
        raise DTypeError(f"{name}: a target with a number for every class must be floating, this one is {target.type}",
                         hint="target.astype(x.dtype)")
    wanted = expected if target.dtype.kind in "iu" else x.shape
    if target.shape != wanted:
        word = "class indices" if target.dtype.kind in "iu" else "class probabilities"
        raise ShapeError(f"{name}: scores {x.type} need {word} of shape {list(wanted)}, the target is {target.type}",
                         hint="targets must be integers to be class indices" if target.shape == expected else None)
    if weight is not None and weight.shape != (x.shape[axis],):
        raise ShapeError(f"{name}: scores {x.type} need a weight of shape [{x.shape[axis]}], it is {weight.type}")
    return axis


def _safe(target: Any, classes: Any, ignore_index: int) -> tuple[Any, Any]:
    """Indices without the ignored ones, the other negatives out of range; and where they count."""
    counts = not_equal(target, ignore_index)
    return where(counts, no_negatives(target, classes), 0), counts


def no_negatives(target: Any, classes: Any) -> Any:
    """Class indices, of which negative ones count from no end, but are out of range."""
    signed = isinstance(classes, int) and target.dtype.kind == "i"
    return where(less(target, 0), classes, target) if signed else target


def _averaged(loss: Any, weights: Any, reduction: str) -> Any:
    return loss.sum() / weights.sum() if reduction == "mean" else reduced("", loss, reduction)


def _weights_of_classes(x: Any, safe: Any, counts: Any, weight: Any) -> Any:
    """That of each target's class; 0, whatever stands there, where a target does not count."""
    return cast(counts, dtype=x.dtype) if weight is None else where(counts, take(weight, safe, axis=0), 0)


@composite(autocast="wide", promote=classes_first, domain=SCORES_AND_CLASSES, method=False, examples=[
    "cross_entropy(f32[4, 3], i64[4], None, ignore_index=-100, reduction='mean', label_smoothing=0.0) -> f32",
    "cross_entropy(f32[4, 3, 2], i64[4, 2], f32[3], ignore_index=1, reduction='none', label_smoothing=0.1)"
    " -> f32[4, 2]",
    "cross_entropy(f32[4, 3], f32[4, 3], None, ignore_index=-100, reduction='sum', label_smoothing=0.1) -> f32",
    "cross_entropy(f32[4, 3], i64[3], None, ignore_index=-100, reduction='mean', label_smoothing=0.0) -> error"])
def cross_entropy(x: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Any:
    """Minus the logarithm of the probability that softmax(x) gives to the target.

    `x` [N, classes, ...] or [classes] holds scores; `target` holds class indices [N, ...], or probabilities with the
    shape of `x`.  "mean" divides by the summed weights of the targets that are not `ignore_index`.

    >>> tn.cross_entropy(tn.tensor([[2.0, 0.0], [0.0, 2.0]]), tn.tensor([0, 0]))
    tensor(1.1269)
    """
    reduced("cross_entropy", None, "none" if reduction in ("mean", "sum") else reduction)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing must lie between 0 and 1, got {label_smoothing}")
    axis = _check_classes("cross_entropy", x, target, weight)
    classes = as_number(x.shape[axis], x.dtype)
    per_class = None if weight is None else reshape_op(weight, shape=(-1, *(1,) * (x.ndim - axis - 1)))
    if target.dtype.kind not in "iu":
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / classes
        each = log_softmax(x, axis=axis) * target
        loss = -(each if per_class is None else each * per_class).sum(axis=axis)
        if reduction != "mean":
            return reduced("cross_entropy", loss, reduction)
        return loss.mean() if axis else loss
    safe, counts = _safe(target, x.shape[axis], ignore_index)
    weights, loss = _weights_of_classes(x, safe, counts, weight), softmax_cross_entropy(x, safe, axis=axis)
    loss = where(counts, loss if weight is None else loss * weights, 0)
    if label_smoothing:
        each = log_softmax(x, axis=axis)
        even = -(each if per_class is None else each * per_class).sum(axis=axis)
        loss = loss * (1 - label_smoothing) + where(counts, even, 0) * (label_smoothing / classes)
    return _averaged(loss, weights, reduction)


@composite(autocast="wide", promote=classes_first, domain=SCORES_AND_CLASSES, method=False, examples=[
    "nll_loss(f32[4, 3], i64[4], None, ignore_index=-100, reduction='mean') -> f32",
    "nll_loss(f32[4, 3, 2], i64[4, 2], f32[3], ignore_index=1, reduction='none') -> f32[4, 2]",
    "nll_loss(f32[4, 3], f32[4], None, ignore_index=-100, reduction='mean') -> error"])
def nll_loss(x: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """Minus the log probability `x` [N, classes, ...] at the class indices `target` [N, ...]."""
    reduced("nll_loss", None, "none" if reduction in ("mean", "sum") else reduction)
    if target.dtype.kind not in "iu":
        raise DTypeError(f"nll_loss: the target must hold class indices, it is {target.type}")
    axis = _check_classes("nll_loss", x, target, weight)
    safe, counts = _safe(target, x.shape[axis], ignore_index)
    weights = _weights_of_classes(x, safe, counts, weight)
    loss = -reshape_op(take_along_axis(x, with_axis(safe, axis), axis=axis), shape=safe.shape)
    loss = loss if weight is None else loss * weights
    return _averaged(where(counts, loss, 0), weights, reduction)
