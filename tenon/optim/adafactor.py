"""Adafactor, which keeps little of a matrix: mean squares of its rows and of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon.array_api import finfo
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.ops.comparison import maximum
from tenon.ops.creation import zeros_like
from tenon.ops.exponential import sqrt
from tenon.ops.reduction import mean, sum_
from tenon.optim.optimizer import Optimizer, like
from tenon.optim.parameter_group import ParameterGroup
from tenon.tensor import Tensor


class Adafactor(Optimizer):
    """Adam's scale from the mean squares of rows and columns, and steps as large as the parameter (Shazeer 2018).

    `lr` is the most that a step may be of a parameter's size.  `eps` are the least mean square, by default that of the
    element type, and the least size of a parameter; `d` is how large a scaled gradient may be.  Of a vector `row_var`
    has all mean squares, and `col_var` nothing.
    """

    slots = ("row_var", "col_var")

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, beta2_decay: float = -0.8,
                 eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0,
                 maximize: bool = False):
        super().__init__(params, lr=lr, beta2_decay=beta2_decay, eps=tuple(eps), d=d, weight_decay=weight_decay,
                         maximize=maximize)

    def check(self, options: Mapping[str, Any]) -> None:
        super().check({name: value for name, value in options.items() if name != "eps"})
        eps = options["eps"]
        if len(eps) != 2 or eps[1] is None or any(x is not None and x < 0 for x in eps):
            raise ArgumentError(f"Adafactor: eps are two numbers, none below 0, the first may be None; got {eps}")
        if options["beta2_decay"] > 0 or options["d"] < 1:
            raise ArgumentError("Adafactor: beta2_decay must be at most 0, and d at least 1; got "
                                f"{options['beta2_decay']} and {options['d']}")

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Also optimise these parameters, with options of their own."""
        super().add_param_group(group)
        new = self.param_groups[-1]
        if any(p.dtype.is_complex for p in new["params"]):
            del self.param_groups[-1]
            raise ArgumentError("Adafactor: parameters of real numbers were expected, not complex ones")
        with no_grad():
            kept = [_zeros_of_rows_and_columns(p) for p in new["params"]]
        for k, name in enumerate(self.slots):
            new.slots[name] = [both[k] for both in kept]

    def prepare(self, group: ParameterGroup) -> Any:
        """The largest step, as a part of a parameter, and the share of the newest squares in their means."""
        step = group["step"].astype("float64")
        return -maximum(-group["lr"], -1 / sqrt(step)), step ** group["beta2_decay"]

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        rate, share = (like(x, p) for x in shared)
        least, least_size = group["eps"]
        least = finfo(p.dtype).eps if least is None else least
        start = p * (1 - like(group.held("lr"), p) * group["weight_decay"]) if group["weight_decay"] else p
        scaled = g / sqrt(maximum(_mean_squares(g, slots, share, least), least * least))
        size = maximum(_size(p), least_size) * rate
        p.assign(start - scaled * (size / maximum(_size(scaled) / group["d"], 1.0)))


def _zeros_of_rows_and_columns(p: Tensor) -> tuple[Any, Any]:
    nothing = zeros_like(p)
    if p.ndim < 2:
        return nothing, nothing.reshape(-1)[:0]
    return sum_(nothing, axis=-1, keepdims=True), sum_(nothing, axis=-2, keepdims=True)


def _mean_squares(g: Any, slots: Mapping[str, Tensor], share: Any, least: float) -> Any:
    """Of every element, from those of its row and its column, which are brought up to date."""
    rows, columns, square = slots["row_var"], slots["col_var"], g * g
    if g.ndim < 2:
        rows.assign(rows + (square - rows) * share)
        return rows
    for kept, axis in ((rows, -1), (columns, -2)):
        kept.assign(kept + (mean(square, axis=axis, keepdims=True) - kept) * share)
    return rows * columns / maximum(mean(rows, axis=-2, keepdims=True), least)


def _size(x: Any) -> Any:
    """The root of the mean square."""
    return sqrt(mean(x * x))
