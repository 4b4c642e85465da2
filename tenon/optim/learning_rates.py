"""Schedules of the learning rate: step them once an epoch (or a batch), after the optimizer.

    schedule = optim.StepLR(opt, step_size=30)
    for epoch in range(90): ...; schedule.step()

A schedule computes a factor of the learning rate that the optimizer had at the start, as a function of the number of
steps; it sets a tensor, so a captured training step is not captured again.  Where another schedule, or the user, has
changed the rate, those that PyTorch lets act together (`scales`) change it by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenon.errors import ArgumentError
from tenon.ops.comparison import where
from tenon.optim.optimizer import Optimizer
from tenon.tensor import Tensor


class Schedule:
    """Base of schedules: `rate(base)` is the rate after `last_epoch` steps of a group that began at `base`.

    A schedule of one's own defines that, or `get_lr()` for all groups, as in PyTorch.

    >>> class Halving(optim.lr_scheduler.LRScheduler):
    ...     def get_lr(self):
    ...         return [base * 0.5 ** self.last_epoch for base in self.base_lrs]
    >>> opt = optim.SGD([nn.Parameter([1.0])], lr=0.5)
    >>> schedule = Halving(opt)
    >>> schedule.step(); schedule.get_last_lr()
    [0.25]
    """

    scales = False          # whether a rate that somebody else has set is scaled, not replaced
    eta_min: float = 0.0    # above which it is scaled
    leaps = False           # whether it does so at few epochs, one of which may be the first of a run that goes on

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"{type(self).__name__} schedules an optimizer, not {type(optimizer).__name__}")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        self.base_lrs = [group.setdefault("initial_lr", float(group["lr"].item())) for group in optimizer.param_groups]
        self.planned = list(self.base_lrs)      # the rates now if nobody else changes them
        self._step_count = 0
        if self.scales and last_epoch >= 0:
            self._go_on()
        else:
            self.step()

    def rate(self, base: float) -> float:
        """The learning rate now."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Go on by one, or to an epoch, and set the learning rates."""
        self._step_count += 1
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        rates = self.get_lr()
        if self.scales and epoch is None:
            before, self.planned = self.planned, rates
            rates = [_scaled(group["lr"], a, b, self.eta_min) for group, a, b in zip(
                self.optimizer.param_groups, before, rates, strict=True)]
        self._set(rates)

    def _go_on(self) -> None:
        """Begin after the epochs of a run before, whose rates the optimizer has: what scales them has done so."""
        self.planned = self.rates_from(self.base_lrs)
        if self.leaps:
            self.step()
            return
        self.last_epoch, self._step_count = self.last_epoch + 1, 1
        self.planned = self.rates_from(self.base_lrs)
        self.rates = [float(group["lr"].item()) for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The learning rate of each group now."""
        return self.rates_from(self.base_lrs)

    def rates_from(self, bases: Sequence[float]) -> list[float]:
        """The learning rate of each group now, of groups that began at `bases`."""
        return [self.rate(base) for base in bases]

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.rates = list(rates)

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group as set last."""
        return self.rates

    @property
    def _last_lr(self) -> list[float]:      # which PyTorch's users read and set in schedules of their own
        return self.rates

    @_last_lr.setter
    def _last_lr(self, rates: Sequence[float]) -> None:
        self.rates = list(rates)

    def state_dict(self) -> dict[str, Any]:
        """How far the schedule is."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs), "rates": list(self.get_last_lr())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        rates, last = _noted(self, state, ("base_lrs", "last_epoch"))
        if not isinstance(rates, (list, tuple)) or len(rates) != len(self.base_lrs) or not isinstance(last, int):
            raise ArgumentError(f"{type(self).__name__}.load_state_dict: {len(self.base_lrs)} learning rates and a "
                                f"number of steps were expected, not {rates!r} and {last!r}")
        self.base_lrs = list(rates)
        if self.scales:
            self.last_epoch = last
            self.planned = self.get_lr()
            self._set(_noted(self, state, ("rates",))[0] if "rates" in state else self.planned)
        else:
            self.last_epoch = last - 1
            self.step()


def _scaled(now: Tensor, before: float, rate: float, lowest: float) -> float:
    """The rate where it is `before` now; else scaled as from `before` to `rate`, both seen from the lowest."""
    gap = now * 0 + (before - lowest)
    scaled = lowest + (now - lowest) * ((rate - lowest) / where(gap == 0, 1.0, gap))
    found: float = where(now == before, rate, where(gap == 0, now + (rate - before), scaled)).item()
    return found


def _noted(schedule: Any, state: Any, names: Sequence[str]) -> list[Any]:
    """What a state says under these names, which are numbers or lists of numbers; raises ArgumentError otherwise."""
    found = [state.get(name) for name in names] if isinstance(state, Mapping) else []
    if not found or not all(_are_numbers(x) for x in found):
        raise ArgumentError(f"{type(schedule).__name__}.load_state_dict: the numbers {', '.join(names)} were expected, "
                            f"not {state!r}")
    return found


def _are_numbers(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return all(map(_are_numbers, x))
    return isinstance(x, (int, float)) and not isinstance(x, bool)


Factor = Callable[[int], float]


class LambdaLR(Schedule):
    """The learning rate times `lr_lambda(steps)`; a list has one function for each group of parameters."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1):
        self.lr_lambdas = of_groups(self, optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def rates_from(self, bases: Sequence[float]) -> list[float]:
        return [base * factor(self.last_epoch) for base, factor in zip(bases, self.lr_lambdas, strict=True)]


def of_groups(schedule: Schedule, optimizer: Optimizer, factor: Factor | Sequence[Factor]) -> list[Factor]:
    """A function for each group of parameters; raises ArgumentError for a list of another length."""
    count = len(optimizer.param_groups) if isinstance(optimizer, Optimizer) else 1
    found: list[Any] = list(factor) if isinstance(factor, (list, tuple)) else [factor] * count
    if len(found) != count:
        raise ArgumentError(f"{type(schedule).__name__}: {len(found)} functions for {count} groups of parameters")
    return found


class StepLR(Schedule):
    """Times gamma every `step_size` steps."""

    scales = leaps = True

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        if step_size < 1:
            raise ArgumentError(f"StepLR: step_size must be at least 1, got {step_size}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        return float(base * self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(Schedule):
    """Times gamma at each milestone."""

    scales = leaps = True

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        return float(base * self.gamma ** passed(self.milestones, self.last_epoch))


class ExponentialLR(Schedule):
    """Times gamma every step."""

    scales = True

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        return float(base * self.gamma ** self.last_epoch)


class ConstantLR(Schedule):
    """Times `factor` for the first `total_iters` steps."""

    scales = leaps = True

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        return base * self.factor if self.last_epoch < self.total_iters else base


def passed(milestones: Sequence[int], steps: int) -> int:
    """How many milestones this number of steps has reached; a captured loop goes through them."""
    count = 0
    for milestone in milestones:
        if steps >= milestone:
            count += 1
    return count


class LinearLR(Schedule):
    """A factor that goes evenly from `start_factor` to `end_factor` in `total_iters` steps: a warm-up."""

    scales = True

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1):
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        share = min(self.last_epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)


class PolynomialLR(Schedule):
    """Down to 0 in `total_iters` steps along a power."""

    scales = True

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        return float(base * (1 - min(self.last_epoch, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(Schedule):
    """Down to `eta_min` in `T_max` steps along a cosine, and up again."""

    scales = True

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2


class WarmupCosineLR(Schedule):
    """Up evenly from 0 in `warmup` steps, then down to `eta_min` along a cosine until `total` steps."""

    def __init__(self, optimizer: Optimizer, warmup: int, total: int, eta_min: float = 0.0, last_epoch: int = -1):
        if not 0 <= warmup < total:
            raise ArgumentError(f"WarmupCosineLR: warmup {warmup} must be less than total {total}")
        self.warmup, self.total, self.eta_min = warmup, total, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float) -> float:
        if self.last_epoch < self.warmup:
            return base * (self.last_epoch + 1) / self.warmup
        share = min(1.0, (self.last_epoch - self.warmup) / (self.total - self.warmup))
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * share)) / 2


class SequentialLR(Schedule):
    """One schedule after another, the next beginning at each milestone."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int],
                 last_epoch: int = -1):
        if len(schedulers) != len(milestones) + 1:
            raise ArgumentError(f"SequentialLR: {len(schedulers)} schedules need {len(schedulers) - 1} milestones, "
                                f"not {len(milestones)}")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: int | None = None) -> None:
        """Go on by one, or to an epoch, in the schedule whose turn it is."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        turn = self.turn
        schedule = self.schedulers[turn]
        schedule.last_epoch = self.last_epoch - (self.milestones[turn - 1] if turn else 0) - 1
        if schedule.last_epoch < 0:         # it begins at the rates of the start
            schedule.planned = list(schedule.base_lrs)
            schedule._set(schedule.base_lrs)
        schedule.step()

    @property
    def turn(self) -> int:
        """Which schedule sets the rates now."""
        return passed(self.milestones, self.last_epoch)

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group as the schedule whose turn it is set it."""
        return self.schedulers[self.turn].get_last_lr()


class ChainedScheduler(Schedule):
    """All of these schedules of one optimizer at every step, each on what those before it made of the rates.

    So their factors multiply.
    """

    scales = True

    def __init__(self, schedulers: Sequence[Schedule], optimizer: Optimizer | None = None):
        if not schedulers or any(x.optimizer is not schedulers[0].optimizer for x in schedulers):
            raise ArgumentError("ChainedScheduler: schedules of one optimizer are needed, at least one")
        self.schedulers = list(schedulers)
        for group in schedulers[0].optimizer.param_groups:
            group["lr"] = group["initial_lr"]       # each of them has made its first step alone
        super().__init__(schedulers[0].optimizer if optimizer is None else optimizer)

    def rates_from(self, bases: Sequence[float]) -> list[float]:
        """The learning rate of each group now, through all of them."""
        rates = list(bases)
        for schedule in self.schedulers:
            schedule.last_epoch = self.last_epoch
            rates = schedule.rates_from(rates)
        return rates


class ReduceLROnPlateau:
    """Times `factor` when the metric given to `step` has not improved for more than `patience` steps."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0, min_lr: float = 0.0,
                 eps: float = 1e-8):
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ArgumentError("ReduceLROnPlateau: mode is 'min' or 'max', threshold_mode 'rel' or 'abs'")
        if factor >= 1:
            raise ArgumentError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.min_lr = threshold, threshold_mode, cooldown, min_lr
        self.eps, self.last_epoch, self.bad, self.cooling = eps, 0, 0, 0
        self.best = math.inf if mode == "min" else -math.inf

    def step(self, metrics: Any, epoch: int | None = None) -> None:
        """Take note of the metric after an epoch."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.best, self.bad = (value, 0) if self._better(value) else (self.best, self.bad + 1)
        if self.cooling > 0:
            self.cooling, self.bad = self.cooling - 1, 0
        if self.bad > self.patience:
            self.cooling, self.bad = self.cooldown, 0
            for group in self.optimizer.param_groups:
                old = float(group["lr"].item())
                new = max(old * self.factor, self.min_lr)
                if old - new > self.eps:
                    group["lr"] = new

    @property
    def num_bad_epochs(self) -> int:
        """How many steps it is that the metric has not improved."""
        return self.bad

    @property
    def cooldown_counter(self) -> int:
        """How many steps are not counted yet."""
        return self.cooling

    def _better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1)     # as in PyTorch, also below 0
        return math.isinf(self.best) or sign * value < sign * self.best - margin

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group."""
        return [float(group["lr"].item()) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """How far it is."""
        return {name: getattr(self, name) for name in ("best", "bad", "cooling", "last_epoch")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        names = ("best", "bad", "cooling", "last_epoch")
        vars(self).update(zip(names, _noted(self, state, names), strict=True))
