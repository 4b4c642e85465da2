"""Optimizers that scale, sign or average: RMSprop, Adagrad, Adadelta, Lion, Rprop, ASGD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.ops.arithmetic import sign
from tenon.ops.comparison import clip, maximum, where
from tenon.ops.creation import full_like
from tenon.ops.exponential import sqrt
from tenon.optim.optimizer import Optimizer, like, running
from tenon.optim.parameter_group import ParameterGroup
from tenon.tensor import Tensor


def decayed(p: Tensor, g: Tensor, group: ParameterGroup) -> Any:
    """The gradient with weight decay added."""
    return g + p * group["weight_decay"] if group["weight_decay"] else g


class RMSprop(Optimizer):
    """The gradient divided by the root of its running mean square; `centered` takes off the squared running mean."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, maximize: bool = False):
        super().__init__(params, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
                         centered=centered, maximize=maximize)

    def slots_for(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("square_avg", *["momentum_buffer"] * bool(options["momentum"]), *["grad_avg"] * options["centered"])

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        g, alpha, square = decayed(p, g, group), group["alpha"], slots["square_avg"]
        square.assign(running(square, alpha, g * g * (1 - alpha)))
        spread: Any = square
        if group["centered"]:
            mean = slots["grad_avg"]
            mean.assign(running(mean, alpha, g * (1 - alpha)))
            spread = square - mean * mean
        move = g / (sqrt(spread) + group["eps"])
        if group["momentum"]:
            buffer = slots["momentum_buffer"]
            buffer.assign(running(buffer, group["momentum"], move))
            move = buffer
        p.assign(p - move * like(group.held("lr"), p))


class Adagrad(Optimizer):
    """The gradient divided by the root of the sum of all its squares (Duchi et al. 2011)."""

    slots = ("sum",)

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
                 initial_accumulator_value: float = 0.0, eps: float = 1e-10, maximize: bool = False):
        super().__init__(params, lr=lr, lr_decay=lr_decay, weight_decay=weight_decay,
                         initial_accumulator_value=initial_accumulator_value, eps=eps, maximize=maximize)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Also optimise these parameters, with options of their own."""
        super().add_param_group(group)
        new = self.param_groups[-1]
        first = new["initial_accumulator_value"]
        with no_grad():
            for total in new.slots["sum"]:
                total.assign(full_like(total, complex(first, first) if total.dtype.is_complex else first))

    def prepare(self, group: ParameterGroup) -> Any:
        """The learning rate, decayed by the steps taken."""
        if not group["lr_decay"]:
            return group["lr"]
        return group["lr"] / (1 + (group["step"].astype("float64") - 1) * group["lr_decay"])

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        g, total = decayed(p, g, group), slots["sum"]
        total.assign(total + g * g)
        p.assign(p - g * like(shared, p) / (sqrt(total) + group["eps"]))


class Adadelta(Optimizer):
    """Steps in the units of the parameter: the gradient times the root of the ratio of two running mean squares."""

    slots = ("square_avg", "acc_delta")

    def __init__(self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6,
                 weight_decay: float = 0.0, maximize: bool = False):
        super().__init__(params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        g, rho, eps = decayed(p, g, group), group["rho"], group["eps"]
        square, moved = slots["square_avg"], slots["acc_delta"]
        square.assign(running(square, rho, g * g * (1 - rho)))
        delta = g * sqrt(moved + eps) / sqrt(square + eps)
        moved.assign(running(moved, rho, delta * delta * (1 - rho)))
        p.assign(p - delta * like(group.held("lr"), p))


class Lion(Optimizer):
    """The sign of a running mean of the gradient (Chen et al. 2023), with decoupled weight decay."""

    slots = ("exp_avg",)

    def __init__(self, params: Iterable[Any], lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99),
                 weight_decay: float = 0.0, maximize: bool = False):
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize)

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        (beta1, beta2), mean, rate = group["betas"], slots["exp_avg"], like(group.held("lr"), p)
        start = p * (1 - rate * group["weight_decay"]) if group["weight_decay"] else p
        p.assign(start - sign(mean * beta1 + g * (1 - beta1)) * rate)
        mean.assign(running(mean, beta2, g * (1 - beta2)))


class Rprop(Optimizer):
    """Steps of a size of their own for each element, which grows while the sign of its gradient stays.

    The size is multiplied by the second of `etas`, or by the first where the sign turned: there nothing moves.
    """

    slots = ("prev", "step_size")

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
                 step_sizes: tuple[float, float] = (1e-6, 50.0), maximize: bool = False):
        super().__init__(params, lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize)

    def prepare(self, group: ParameterGroup) -> Any:
        """The size of the first step, and whether this is it: a schedule may have changed the rate by now."""
        return group["lr"], group["step"] == 1

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        (less, more), (least, most), size = group["etas"], group["step_sizes"], slots["step_size"]
        rate, first = shared
        same, before = g * slots["prev"], where(first, like(rate, p), size)
        size.assign(clip(where(same > 0, before * more, where(same < 0, before * less, before)), least, most))
        g = where(same < 0, 0, g)
        p.assign(p - sign(g) * size)
        slots["prev"].assign(g)


class ASGD(Optimizer):
    """Gradient descent with steps that shrink; `ax` of a parameter's state is its mean over the steps after `t0`."""

    slots = ("ax",)
    counts = (("eta", 0.0),)
    not_kept = ("mu",)

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75,
                 t0: float = 1e6, weight_decay: float = 0.0, maximize: bool = False):
        super().__init__(params, lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize)

    def prepare(self, group: ParameterGroup) -> Any:
        """The size of this step, and the share of the new parameter in the mean.

        As PyTorch's, the size was settled by the step before: a new rate is felt one step later.
        """
        step, lr = group["step"].astype("float64"), group["lr"]
        size = where(step > 1, group["eta"], lr)
        group.held("eta").assign(lr / (1 + step * group["lambd"] * lr) ** group["alpha"])
        return size, 1 / maximum(step - 1 - group["t0"], 1.0)

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        rate, share = (like(x, p) for x in shared)
        g, mean = decayed(p, g, group), slots["ax"]
        new = p * (1 - rate * group["lambd"]) - g * rate
        p.assign(new)
        mean.assign(mean + (new - mean) * share)
