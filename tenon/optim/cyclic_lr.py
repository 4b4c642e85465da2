"""Schedules that go up and down, the momentum the other way, and those that begin anew or act together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tenon.errors import ArgumentError
from tenon.optim.learning_rates import Factor, Schedule, of_groups
from tenon.optim.optimizer import Optimizer


class MomentumSchedule(Schedule):
    """Base of schedules that set the momentum too: `momentum`, or the first of `betas`, as the optimizer has it."""

    def __init__(self, optimizer: Optimizer, cycle_momentum: bool, last_epoch: int):
        self.cycle_momentum = cycle_momentum
        known = optimizer.defaults if isinstance(optimizer, Optimizer) else ("momentum",)
        if cycle_momentum and not {"momentum", "betas"}.intersection(known):
            raise ArgumentError(f"{type(self).__name__}: {type(optimizer).__name__} has no momentum to change",
                                hint="cycle_momentum=False")
        super().__init__(optimizer, last_epoch)

    def momenta(self) -> list[float]:
        """The momentum of each group now."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go on by one, or to an epoch, and set the learning rates, and the momenta."""
        super().step(epoch)
        if self.cycle_momentum:
            for group, momentum in zip(self.optimizer.param_groups, self.momenta(), strict=True):
                self.optimizer.set_momentum(group, momentum)


class OneCycleLR(MomentumSchedule):
    """Up from max_lr / div_factor to max_lr, then down to that start divided by final_div_factor (Smith 2018).

    It has `total_steps`, or `epochs * steps_per_epoch`; `pct_start` of them go up.  The momentum goes from
    `max_momentum` down to `base_momentum` and up again.  `three_phase` goes down to the start first, as fast as up.
    Rates and momenta may be lists with one entry a group.
    """

    def __init__(self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
                 cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95,
                 div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ArgumentError("OneCycleLR: total_steps is needed, or epochs and steps_per_epoch")
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(f"OneCycleLR: anneal_strategy must be 'cos' or 'linear', not {anneal_strategy!r}")
        if not 0 <= pct_start <= 1:
            raise ArgumentError(f"OneCycleLR: pct_start must lie in [0, 1], got {pct_start}")
        self.total_steps = (epochs or 0) * (steps_per_epoch or 0) if total_steps is None else total_steps
        self.anneal_strategy = anneal_strategy
        rates, low, high = (for_groups(optimizer, "OneCycleLR", x) for x in (max_lr, base_momentum, max_momentum))
        starts = [rate / div_factor for rate in rates]
        middle = [2 * pct_start * self.total_steps - 2] if three_phase else []
        self.ends = [0.0, pct_start * self.total_steps - 1, *middle, self.total_steps - 1.0]
        self.corners = [[start, rate, *[start] * three_phase, start / final_div_factor]
                        for start, rate in zip(starts, rates, strict=True)]
        self.momentum_corners = [[b, a, b, *[b] * three_phase] for a, b in zip(low, high, strict=True)]
        super().__init__(optimizer, cycle_momentum, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch > self.total_steps:       # a step behind the last batch is taken, as by PyTorch
            raise ArgumentError(f"OneCycleLR: step {self.last_epoch} of a cycle of {self.total_steps} steps")
        return [self._along(corners) for corners in self.corners]

    def momenta(self) -> list[float]:
        return [self._along(corners) for corners in self.momentum_corners]

    def _along(self, corners: Sequence[float]) -> float:
        """Where the line through these values, at the ends of the phases, is now."""
        phases = zip(pairwise(self.ends), pairwise(corners), strict=True)
        first, last, start, end = next(((a, b, x, y) for (a, b), (x, y) in phases
                                        if self.last_epoch <= b or b == self.ends[-1]))
        share = (self.last_epoch - first) / (last - first) if last > first else 1.0
        share = share if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * share)) / 2
        return start + (end - start) * share


class CyclicLR(MomentumSchedule):
    """Up from base_lr to max_lr in `step_size_up` steps, down in `step_size_down`, again and again (Smith 2017).

    `mode` is "triangular", "triangular2" (each cycle half as high as the last) or "exp_range" (gamma ** steps as high);
    or `scale_fn` gives the height by the number of the cycle, or of the step: `scale_mode` "cycle" or "iterations".
    The momentum goes from `max_momentum` down to `base_momentum` and up again.
    """

    def __init__(self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
                 step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
                 scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
                 cycle_momentum: bool = True, base_momentum: Any = 0.8, max_momentum: Any = 0.9, last_epoch: int = -1):
        heights: dict[str, Callable[[float], float]] = {
            "triangular": lambda cycle: 1.0, "triangular2": lambda cycle: 0.5 ** (cycle - 1),
            "exp_range": lambda steps: gamma ** steps}
        if scale_fn is None and mode not in heights:
            raise ArgumentError(f"CyclicLR: mode must be one of {', '.join(heights)}, not {mode!r}")
        if scale_mode not in ("cycle", "iterations"):
            raise ArgumentError(f"CyclicLR: scale_mode must be 'cycle' or 'iterations', not {scale_mode!r}")
        self.up, self.down = step_size_up, step_size_up if step_size_down is None else step_size_down
        self.height = heights[mode] if scale_fn is None else scale_fn
        self.by_cycle = scale_mode == "cycle" if scale_fn is not None else mode != "exp_range"
        self.low, self.high, self.least, self.most = (
            for_groups(optimizer, "CyclicLR", x) for x in (base_lr, max_lr, base_momentum, max_momentum))
        super().__init__(optimizer, cycle_momentum, last_epoch)

    @property
    def share(self) -> float:
        """How much of the way up is gone now."""
        cycle, along = divmod(self.last_epoch, self.up + self.down)
        way = along / self.up if along <= self.up else (self.up + self.down - along) / self.down
        return way * self.height(cycle + 1 if self.by_cycle else self.last_epoch)

    def get_lr(self) -> list[float]:
        return [low + (high - low) * self.share for low, high in zip(self.low, self.high, strict=True)]

    def momenta(self) -> list[float]:
        return [most - (most - least) * self.share for least, most in zip(self.least, self.most, strict=True)]


class CosineAnnealingWarmRestarts(Schedule):
    """Down to `eta_min` along a cosine in `T_0` steps, then from the start again, each time `T_mult` times as long.

    SGDR (Loshchilov and Hutter 2016).
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        if T_0 <= 0 or T_mult < 1:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: T_0 must be above 0 and T_mult at least 1, "
                                f"got {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        along, length = self.last_epoch, self.T_0
        while along >= length:
            along, length = along - length, length * self.T_mult
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * along / length)) / 2


class MultiplicativeLR(Schedule):
    """The learning rate before times `lr_lambda(steps)`; a list has one function for each group of parameters."""

    scales = True

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1):
        self.lr_lambdas, self.counted = of_groups(self, optimizer, lr_lambda), 0
        self.factors = [1.0] * len(self.lr_lambdas)         # of so many steps
        super().__init__(optimizer, last_epoch)

    def rates_from(self, bases: Sequence[float]) -> list[float]:
        if self.last_epoch == self.counted + 1:
            self.factors = [x * f(self.last_epoch) for x, f in zip(self.factors, self.lr_lambdas, strict=True)]
        elif self.last_epoch != self.counted:
            self.factors = [math.prod(f(k) for k in range(1, self.last_epoch + 1)) for f in self.lr_lambdas]
        self.counted = self.last_epoch
        return [base * factor for base, factor in zip(bases, self.factors, strict=True)]


def for_groups(optimizer: Optimizer, name: str, value: Any) -> list[float]:
    """A number for each group of the optimizer; raises ArgumentError for a list of another length."""
    count = len(optimizer.param_groups) if isinstance(optimizer, Optimizer) else 1
    found = [float(x) for x in value] if isinstance(value, (list, tuple)) else [float(value)] * count
    if len(found) != count:
        raise ArgumentError(f"{name}: {len(found)} values for {count} groups of parameters: {value!r}")
    return found
