"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon.errors import ArgumentError
from tenon.optim.optimizer import Group, Optimizer, like, running
from tenon.tensor import Tensor


class SGD(Optimizer):
    """p -= lr * g, with momentum, dampening, Nesterov's look-ahead and weight decay as in PyTorch."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, maximize: bool = False):
        super().__init__(params, lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                         nesterov=nesterov, maximize=maximize)

    def check(self, options: Mapping[str, Any]) -> None:
        super().check(options)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ArgumentError("SGD: nesterov needs a momentum and no dampening")

    def slots_for(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("momentum_buffer",) if options["momentum"] else ()

    def prepare(self, group: Group) -> Any:
        """What the first step does not damp."""
        return 1 - (group["step"] > 1).astype("float64") * group["dampening"] if group["dampening"] else None

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: Group, shared: Any) -> None:
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        if group["momentum"]:
            buffer = slots["momentum_buffer"]
            buffer.assign(running(buffer, group["momentum"], g if shared is None else g * like(shared, p)))
            g = g + buffer * group["momentum"] if group["nesterov"] else buffer
        p.assign(p - g * like(group["lr"], p))
