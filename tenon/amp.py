"""`tn.amp`: PyTorch's names for mixed precision: `autocast`, and `GradScaler`, which keeps small gradients from 0."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any

from tenon.autocast import autocast, autocast_is, autocasting
from tenon.capture.cond_switch import cond
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.ops.comparison import isfinite, logical_and, logical_not, where
from tenon.tensor import Tensor, tensor
from tenon.types import float64, int32

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def custom_fwd(fwd: Any = None, *, device_type: Any = "cuda", cast_inputs: Any = None) -> Any:
    """A decorator of `forward` of an `autograd.Function`; with `cast_inputs` it is given these types, under autocast.

    Then products in it stay in that type; else they are what autocast says.
    """
    if fwd is None:
        return lambda fwd: custom_fwd(fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def forward(ctx: Any, *args: Any, **named: Any) -> Any:
        ctx.narrow = autocasting() if cast_inputs is None else None
        if cast_inputs is None or autocasting() is None:
            return fwd(ctx, *args, **named)
        with autocast_is(None):
            return fwd(ctx, *(_cast(x, cast_inputs) for x in args),
                       **{name: _cast(x, cast_inputs) for name, x in named.items()})
    return forward


def custom_bwd(bwd: Any = None, *, device_type: Any = "cuda") -> Any:
    """A decorator of `backward`, which computes in the types that `forward` computed in."""
    if bwd is None:
        return custom_bwd

    @wraps(bwd)
    def backward(ctx: Any, *gradients: Any) -> Any:
        with autocast_is(ctx.narrow):
            return bwd(ctx, *gradients)
    return backward


def _cast(x: Any, dtype: Any) -> Any:
    return x.to(dtype) if isinstance(x, Tensor) and x.dtype.is_floating and x.dtype is not float64 else x


def is_autocast_available(device_type: str) -> bool:
    """Whether there is an autocast of this device: the CPU's."""
    return device_type == "cpu"


class GradScaler:
    """A loss times a large factor, so that small gradients are no zeros in float16; steps with infinities are left out.

    `scale(loss).backward()`, `step(optimizer)`, `update()`.  It is off for the device "cuda", the default, as it is in
    PyTorch where there is no GPU; then everything is done as without it.

    >>> scaler = tn.amp.GradScaler("cpu", init_scale=8.0)
    >>> scaler.scale(tn.tensor(2.0))
    tensor(16.)
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0 ** 16, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True):
        if growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise ArgumentError(f"GradScaler: growth_factor={growth_factor} must be above 1, "
                                f"backoff_factor={backoff_factor} between 0 and 1")
        self._enabled = enabled and str(device).split(":")[0] != "cuda"
        self._growth, self._backoff, self._interval = growth_factor, backoff_factor, growth_interval
        self._scale, self._steps = tensor(float(init_scale)), tensor(0, int32)
        self._finite: dict[int, Any] = {}       # of optimizers whose gradients are as they were

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """A tensor, or a list or tuple of them, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(x) for x in outputs)
        return outputs * self._scale.astype(outputs.dtype)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the factor, to clip them; raises ArgumentError for the second time in a step."""
        if not self._enabled:
            return
        if id(optimizer) in self._finite:
            raise ArgumentError("GradScaler.unscale_: it was called for this optimizer since the last update()")
        finite: Any = tensor(True)
        with no_grad():
            for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
                p.grad = p.grad / self._scale.astype(p.grad.dtype)
                finite = logical_and(finite, isfinite(p.grad).all())
        self._finite[id(optimizer)] = finite

    def step(self, optimizer: Any, *args: Any, **options: Any) -> Any:
        """`optimizer.step()`, unless a gradient is infinite or not a number."""
        if not self._enabled:
            return optimizer.step(*args, **options)
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        with no_grad():
            cond(self._finite[id(optimizer)], lambda: optimizer.step(*args, **options), lambda: None)
        return None

    def update(self, new_scale: Any = None) -> None:
        """A smaller factor where a step was left out, a larger one after many that were not."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale.assign(new_scale)
        elif self._finite:
            finite: Any = tensor(True)
            for each in self._finite.values():
                finite = logical_and(finite, each)
            steps = where(finite, self._steps + 1, 0)
            grows = steps == self._interval
            factor = where(logical_not(finite), self._backoff, where(grows, self._growth, 1.0))
            self._scale.assign(self._scale * factor)
            self._steps.assign(where(grows, 0, steps))
        self._finite.clear()

    def get_scale(self) -> float:
        """The factor."""
        return float(self._scale) if self._enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        """What goes into a checkpoint, with PyTorch's names."""
        return {"scale": self.get_scale(), "growth_factor": self._growth, "backoff_factor": self._backoff,
                "growth_interval": self._interval, "_growth_tracker": int(self._steps)} if self._enabled else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        if self._enabled:
            self._scale.assign(tensor(float(state["scale"])))
            self._steps.assign(tensor(int(state["_growth_tracker"]), int32))
            self._growth, self._backoff = state["growth_factor"], state["backoff_factor"]
            self._interval = state["growth_interval"]
