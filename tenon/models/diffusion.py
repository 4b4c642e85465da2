"""Pictures drawn by a diffusion model, out of noise: the loop is one loop of one graph.

J. Song et al., "Denoising diffusion implicit models", 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.capture.while_scan import scan
from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError
from tenon.jit import jit
from tenon.ops.creation import zeros_like
from tenon.ops.exponential import sqrt
from tenon.random import randn_like
from tenon.records import dataclass
from tenon.tensor import tensor
from tenon.types import float32, int64


@dataclass(frozen=True)
class NoiseSchedule:
    """How much noise there is at each of the times of the training: fields of diffusers' schedulers."""

    num_train_timesteps: int = 1000
    beta_start: float = 0.0001
    beta_end: float = 0.02
    beta_schedule: str = "linear"
    prediction_type: str = "epsilon"        # of the noise; "sample": of the picture; "v_prediction": of both
    clip_sample: bool = True

    def kept(self) -> np.ndarray:
        """At each time, the share of the picture's variance."""
        start, end, count = self.beta_start, self.beta_end, self.num_train_timesteps
        if self.beta_schedule == "linear":
            betas = np.linspace(start, end, count, dtype=np.float32)
        elif self.beta_schedule == "scaled_linear":
            betas = np.linspace(start ** 0.5, end ** 0.5, count, dtype=np.float32) ** 2
        else:
            raise ArgumentError(f"NoiseSchedule: beta_schedule={self.beta_schedule!r}",
                                hint="'linear' or 'scaled_linear'")
        found: np.ndarray = np.cumprod(1 - betas, dtype=np.float32)
        return found

    def times(self, steps: int) -> np.ndarray:
        """The times that are visited, from much noise to none; raises ArgumentError for more than there are."""
        if not 1 <= steps <= self.num_train_timesteps:
            raise ArgumentError(f"{steps} steps through {self.num_train_timesteps} times")
        found: np.ndarray = np.arange(steps)[::-1] * (self.num_train_timesteps // steps)
        return found


def sample(model: Any, noise: Any, steps: int = 50, schedule: NoiseSchedule | None = None, eta: float = 0.0) -> Any:
    """The pictures that `model(x, time)` sees in noise [N, C, H, W], in so many steps.

    With `eta` above 0 new noise is added in each step, as much as in the training at 1.

    >>> tn.models.sample(lambda x, time: x * 0.1, tn.ones(1, 1, 2, 2), steps=5).shape
    (1, 1, 2, 2)
    """
    schedule = NoiseSchedule() if schedule is None else schedule
    if schedule.prediction_type not in ("epsilon", "sample", "v_prediction"):
        raise ArgumentError(f"sample: prediction_type={schedule.prediction_type!r}",
                            hint="'epsilon', 'sample' or 'v_prediction'")
    times, kept = schedule.times(steps), schedule.kept()
    before = times - schedule.num_train_timesteps // steps
    now, then = kept[times], np.where(before >= 0, kept[before], np.float32(1))
    with no_grad():
        return _drawn(model, noise, tensor(times, int64), tensor(now, float32), tensor(then, float32), schedule,
                      float(eta))


@jit
def _drawn(model: Any, noise: Any, times: Any, now: Any, then: Any, schedule: NoiseSchedule, eta: float) -> Any:
    def step(x: Any, at: tuple[Any, Any, Any]) -> Any:
        time, share, next_share = at
        picture, seen = both(model(x, time), x, share, schedule.prediction_type)
        if schedule.clip_sample:
            picture = picture.clip(-1.0, 1.0)
        spread = eta * sqrt((1 - next_share) / (1 - share) * (1 - share / next_share)) if eta else zeros_like(share)
        x = sqrt(next_share) * picture + sqrt(1 - next_share - spread * spread) * seen
        return (x + spread * randn_like(x) if eta else x), None
    return scan(step, noise, (times, now, then))[0]


def both(output: Any, x: Any, share: Any, kind: str) -> tuple[Any, Any]:
    """The picture and the noise that x is made of, by what the model says of it."""
    clear, hidden = sqrt(share), sqrt(1 - share)
    if kind == "epsilon":
        return (x - hidden * output) / clear, output
    if kind == "sample":
        return output, (x - clear * output) / hidden
    return clear * x - hidden * output, clear * output + hidden * x
