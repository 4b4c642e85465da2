"""Adam and its relatives: AdamW, SparseAdam, Adamax, NAdam, RAdam."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenon.ops.arithmetic import abs_
from tenon.ops.comparison import maximum, where
from tenon.ops.define import remembering
from tenon.ops.exponential import sqrt
from tenon.ops.reduction import any_
from tenon.ops.shape import cast
from tenon.optim.optimizer import Optimizer, like, running
from tenon.optim.parameter_group import ParameterGroup
from tenon.tensor import Tensor
from tenon.types import float64


class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square (Kingma and Ba 2014).

    `weight_decay` is added to the gradient; AdamW takes it from the parameter instead.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, maximize: bool = False, *,
                 decoupled_weight_decay: bool = False):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                         maximize=maximize, decoupled_weight_decay=decoupled_weight_decay)

    def slots_for(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if options["amsgrad"] else []))

    def prepare(self, group: ParameterGroup) -> Any:
        """The step size, and what the root is multiplied with: corrections for the means' start at zero."""
        return _corrections(group["lr"], group["step"], *group["betas"])

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        kept, decay = list(slots.values()), group["weight_decay"]
        rate = group.held("lr") if decay and group["decoupled_weight_decay"] else None
        new = _moved(p, g, kept, shared, group["betas"], group["eps"], decay, rate)
        for x, value in zip([*kept, p], new, strict=True):
            x.assign(value)


@remembering
def _corrections(rate: Any, step: Any, beta1: float, beta2: float) -> tuple[Any, Any]:
    step = cast(step, dtype=float64)
    return rate / (1 - beta1 ** step), 1 / sqrt(1 - beta2 ** step)


@remembering
def _moved(p: Any, g: Any, kept: Sequence[Any], shared: Sequence[Any], betas: tuple[float, float], eps: float,
           decay: float, rate: Any) -> list[Any]:
    """The new mean, mean square and, where it is among those kept, largest mean square; the new parameter."""
    (mean, square, *largest), (beta1, beta2), start = kept, betas, p
    if rate is not None:
        start = p * like(1 - rate * decay, p)
    elif decay:
        g = g + p * decay
    mean = running(mean, beta1, g * (1 - beta1))
    square = running(square, beta2, g * g * (1 - beta2))
    largest = [maximum(x, square) for x in largest]
    size, correction = (like(x, p) for x in shared)
    new = start - size * mean / (sqrt(largest[0] if largest else square) * correction + eps)
    return [mean, square, *largest, new]


class AdamW(Adam):
    """Adam with weight decay taken from the parameter, not added to the gradient (Loshchilov and Hutter 2017)."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, maximize: bool = False):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize, decoupled_weight_decay=True)


class SparseAdam(Adam):
    """Adam for embeddings: rows of a parameter whose gradient is 0 are left as they are, with what is kept of them."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, maximize: bool = False):
        super().__init__(params, lr, betas, eps, maximize=maximize)

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        kept = list(slots.values())
        size, correction = shared       # its epsilon is added to the root as it is, not to the corrected one
        used = any_(g != 0, axis=tuple(range(1, g.ndim)), keepdims=True)
        new = _moved(p, g, kept, (size / correction, correction * 0 + 1), group["betas"], group["eps"], 0.0, None)
        for x, value in zip([*kept, p], new, strict=True):
            x.assign(where(used, value, x))


class Adamax(Optimizer):
    """Adam with the largest recent gradient in place of the mean square (Kingma and Ba 2014)."""

    slots = ("exp_avg", "exp_inf")

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, maximize: bool = False):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def prepare(self, group: ParameterGroup) -> Any:
        """The step size, corrected for the mean's start at zero."""
        return group["lr"] / (1 - group["betas"][0] ** group["step"].astype("float64"))

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        (beta1, beta2), mean, largest = group["betas"], slots["exp_avg"], slots["exp_inf"]
        if group["weight_decay"]:
            g = g + p * group["weight_decay"]
        mean.assign(running(mean, beta1, g * (1 - beta1)))
        largest.assign(maximum(largest * beta2, abs_(g) + group["eps"]))
        p.assign(p - like(shared, p) * mean / largest)


class NAdam(Optimizer):
    """Adam with Nesterov's look-ahead (Dozat 2016)."""

    slots = ("exp_avg", "exp_avg_sq")
    counts = (("mu_product", 1.0),)

    def __init__(self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum_decay: float = 4e-3,
                 decoupled_weight_decay: bool = False, maximize: bool = False):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                         decoupled_weight_decay=decoupled_weight_decay, maximize=maximize)

    def prepare(self, group: ParameterGroup) -> Any:
        """The factors of gradient and mean in the step, and the correction of the mean square."""
        (beta1, beta2), decay, step = group["betas"], group["momentum_decay"], group["step"].astype("float64")
        mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** ((step + ahead) * decay)) for ahead in (0, 1))
        group.held("mu_product").assign(group["mu_product"] * mu)
        product = group["mu_product"]
        return (group["lr"] * (1 - mu) / (1 - product), group["lr"] * mu_next / (1 - product * mu_next),
                1 - beta2 ** step)

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        (beta1, beta2), mean, square = group["betas"], slots["exp_avg"], slots["exp_avg_sq"]
        start, g = _start_and_slope(p, g, group)
        mean.assign(running(mean, beta1, g * (1 - beta1)))
        square.assign(running(square, beta2, g * g * (1 - beta2)))
        of_g, of_mean, correction = (like(x, p) for x in shared)
        p.assign(start - (g * of_g + mean * of_mean) / (sqrt(square / correction) + group["eps"]))


class RAdam(Optimizer):
    """Adam that does not scale its first steps, whose mean square is not known well enough (Liu et al. 2019)."""

    slots = ("exp_avg", "exp_avg_sq")

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, decoupled_weight_decay: bool = False,
                 maximize: bool = False):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                         decoupled_weight_decay=decoupled_weight_decay, maximize=maximize)

    def prepare(self, group: ParameterGroup) -> Any:
        """The step size; what the scaled step is multiplied with; whether steps are scaled."""
        (beta1, beta2), step = group["betas"], group["step"].astype("float64")
        longest, left = 2 / (1 - beta2) - 1, beta2 ** step
        length = longest - 2 * step * left / (1 - left)
        scaled = length > 5
        sound = where(scaled, length, 6.0)
        factor = sqrt((sound - 4) * (sound - 2) * longest / ((longest - 4) * (longest - 2) * sound)) * sqrt(1 - left)
        return group["lr"] / (1 - beta1 ** step), factor, scaled

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        (beta1, beta2), mean, square = group["betas"], slots["exp_avg"], slots["exp_avg_sq"]
        start, g = _start_and_slope(p, g, group)
        mean.assign(running(mean, beta1, g * (1 - beta1)))
        square.assign(running(square, beta2, g * g * (1 - beta2)))
        size, factor, scaled = shared
        p.assign(start - like(size, p) * mean * where(scaled, like(factor, p) / (sqrt(square) + group["eps"]), 1.0))


def _start_and_slope(p: Tensor, g: Tensor, group: ParameterGroup) -> tuple[Any, Any]:
    """Where the step starts, and its gradient: weight decay shrinks the one (AdamW's) or adds to the other."""
    if not group["weight_decay"]:
        return p, g
    if group["decoupled_weight_decay"]:
        return p * like(1 - group.held("lr") * group["weight_decay"], p), g
    return p, g + p * group["weight_decay"]
