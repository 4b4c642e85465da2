"""Losses."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon.onnx.operator_table import OperatorCall, operator


def _reduced(call: OperatorCall, log_probability: Any, target: Any, weight: Any) -> Any:
    """The negative log likelihood of classes on axis 1."""
    ignored, how = call.get("ignore_index"), call.get("reduction", "mean")
    target = tn.cast(target, tn.int64)
    place = target if ignored is None else tn.where(target == ignored, 0, target)
    place = tn.where(place < 0, place + log_probability.shape[1], place)
    chosen = tn.take_along_axis(log_probability, tn.expand_dims(place, 1), axis=1).squeeze(1)
    factor = tn.ones(target.shape, dtype=log_probability.dtype) if weight is None else tn.take(weight, place, axis=0)
    if ignored is not None:
        factor = tn.where(target == ignored, 0.0, factor)
    loss = -chosen * factor
    if how == "none":
        return loss
    return tn.sum(loss) if how == "sum" else tn.sum(loss) / tn.sum(factor)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: OperatorCall, x: Any, target: Any, weight: Any = None) -> Any:
    return _reduced(call, x, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(call: OperatorCall, x: Any, target: Any, weight: Any = None) -> Any:
    log_probability = tn.log_softmax(x, axis=1)
    return _reduced(call, log_probability, target, weight), log_probability
