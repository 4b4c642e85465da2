"""Optimizers as operators: the new tensors, then the new state."""

from __future__ import annotations

from typing import Any

import tenon as tn
from tenon.onnx.operator_table import TRAINING, OperatorCall, operator


def _by_tensor(args: Any, kinds: int) -> list[tuple[Any, ...]]:
    """All tensors, then all gradients, ... -> what belongs to one tensor."""
    count = len(args) // kinds
    return [tuple(args[k + j * count] for j in range(kinds)) for k in range(count)]


def _in_order(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(row[j] for j in range(len(rows[0])) for row in rows)


@operator("Adagrad", domain=TRAINING)
def adagrad(call: OperatorCall, rate: Any, step: Any, *args: Any) -> Any:
    rate = rate / (1 + tn.cast(step, rate.dtype) * call.get("decay_factor", 0.0))
    rows = []
    for x, gradient, squares in _by_tensor(args, 3):
        gradient = gradient + call.get("norm_coefficient", 0.0) * x
        squares = squares + gradient * gradient
        rows.append((x - rate * gradient / (tn.sqrt(squares) + call.get("epsilon", 1e-6)), squares))
    return _in_order(rows)


@operator("Adam", domain=TRAINING)
def adam(call: OperatorCall, rate: Any, step: Any, *args: Any) -> Any:
    alpha, beta = call.get("alpha", 0.9), call.get("beta", 0.999)
    turn = tn.cast(step, rate.dtype)
    corrected = tn.where(turn > 0, rate * tn.sqrt(1 - beta ** turn) / tn.where(turn > 0, 1 - alpha ** turn, 1.0), rate)
    rows = []
    for x, gradient, mean, squares in _by_tensor(args, 4):
        gradient = gradient + call.get("norm_coefficient", 0.0) * x
        mean = alpha * mean + (1 - alpha) * gradient
        squares = beta * squares + (1 - beta) * gradient * gradient
        new = x - corrected * mean / (tn.sqrt(squares) + call.get("epsilon", 1e-6))
        rows.append((new * (1 - call.get("norm_coefficient_post", 0.0)), mean, squares))
    return _in_order(rows)


@operator("Momentum", domain=TRAINING)
def momentum(call: OperatorCall, rate: Any, step: Any, *args: Any) -> Any:
    alpha, beta, nesterov = call.need("alpha"), call.need("beta"), call.need("mode") == "nesterov"
    rows = []
    for x, gradient, velocity in _by_tensor(args, 3):
        gradient = gradient + call.get("norm_coefficient", 0.0) * x
        velocity = alpha * velocity + tn.where(step > 0, beta, 1.0) * gradient
        rows.append((x - rate * (gradient + alpha * velocity if nesterov else velocity), velocity))
    return _in_order(rows)
