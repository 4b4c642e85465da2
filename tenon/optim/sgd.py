"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenon.errors import ArgumentError
from tenon.ops.define import remembering
from tenon.optim.optimizer import Optimizer, like, running
from tenon.optim.parameter_group import ParameterGroup
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

    def prepare(self, group: ParameterGroup) -> Any:
        """What the first step does not damp."""
        return 1 - (group["step"] > 1).astype("float64") * group["dampening"] if group["dampening"] else None

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        kept = list(slots.values())
        new = _moved(p, g, kept, shared, group.held("lr"), group["weight_decay"], group["momentum"], group["nesterov"])
        for x, value in zip([*kept, p], new, strict=True):
            x.assign(value)


@remembering
def _moved(p: Any, g: Any, kept: Sequence[Any], undamped: Any, rate: Any, decay: float, momentum: float,
           nesterov: bool) -> list[Any]:
    """The new momentum, where one is kept, and the new parameter."""
    if decay:
        g = g + p * decay
    buffers = [running(x, momentum, g if undamped is None else g * like(undamped, p)) for x in kept]
    for buffer in buffers:
        g = g + buffer * momentum if nesterov else buffer
    return [*buffers, p - g * like(rate, p)]
