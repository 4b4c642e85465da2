"""Muon: steps of matrices whose singular values are all about 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tenon.errors import ArgumentError
from tenon.ops.comparison import maximum
from tenon.ops.exponential import sqrt
from tenon.ops.matrix_products import matmul
from tenon.ops.reduction import sum_
from tenon.optim.optimizer import Optimizer, like
from tenon.optim.parameter_group import ParameterGroup
from tenon.tensor import Tensor
from tenon.types import bfloat16, float32

RATES = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """Momentum made orthogonal by Newton and Schulz's iteration, in bfloat16 (Jordan et al. 2024).

    For matrices only: AdamW for the others.  `adjust_lr_fn` says what the shape does to the rate: "original", or
    "match_rms_adamw", with which rates of AdamW fit.
    """

    slots = ("momentum_buffer",)

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None):
        super().__init__(params, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                         ns_coefficients=tuple(ns_coefficients), eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Also optimise these matrices, with options of their own; raises ArgumentError for other tensors."""
        super().add_param_group(group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2 or p.dtype.kind != "f":
                del self.param_groups[-1]
                raise ArgumentError(f"Muon: matrices of real numbers were expected, not {p.type}",
                                    hint="optim.AdamW for vectors and embeddings, and Muon for p.ndim == 2")

    def check(self, options: Mapping[str, Any]) -> None:
        super().check({name: x for name, x in options.items() if name not in ("adjust_lr_fn", "ns_coefficients")})
        if options["adjust_lr_fn"] not in RATES:
            raise ArgumentError(f"Muon: adjust_lr_fn is one of {RATES}, got {options['adjust_lr_fn']!r}")
        if len(options["ns_coefficients"]) != 3 or not 0 <= options["ns_steps"] < 100:
            raise ArgumentError("Muon: three ns_coefficients and ns_steps below 100 were expected, got "
                                f"{options['ns_coefficients']} and {options['ns_steps']}")

    def update(self, p: Tensor, g: Tensor, slots: Mapping[str, Tensor], group: ParameterGroup, shared: Any) -> None:
        kept, momentum, rate = slots["momentum_buffer"], group["momentum"], like(group.held("lr"), p)
        kept.assign(kept + (g - kept) * (1 - momentum))
        direction = g + (kept - g) * momentum if group["nesterov"] else kept
        step = _orthogonal(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        start = p * (1 - rate * group["weight_decay"])
        p.assign(start - step.astype(p.dtype) * (rate * _rate_factor(p, group["adjust_lr_fn"])))


def _rate_factor(p: Tensor, kind: str | None) -> float:
    rows, columns = (int(n) for n in p.shape)
    return 0.2 * math.sqrt(max(rows, columns)) if kind == "match_rms_adamw" else math.sqrt(max(1.0, rows / columns))


def _orthogonal(x: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """The matrix with nearly the same singular vectors and singular values from 0.5 to 1.5: a polynomial of fifth
    degree, again and again, of the smaller side's products."""
    of_x, of_cube, of_fifth = coefficients
    is_tall = x.shape[0] > x.shape[1]
    y = (x.T if is_tall else x).astype(bfloat16)
    wide = y.astype(float32)
    y = y / maximum(sqrt(sum_(wide * wide)), eps).astype(bfloat16)
    for _ in range(steps):
        square = matmul(y, y.T)
        y = _sum(y, of_x, _sum(square, of_cube, square, square, of_fifth), y)
    return y.T if is_tall else y


def _sum(x: Any, factor: float, a: Any, b: Any, scale: float = 1.0) -> Any:
    """x * factor + a @ b * scale, rounded once."""
    wide = [z.astype(float32) for z in (x, a, b)]
    return (wide[0] * factor + matmul(wide[1], wide[2]) * scale).astype(bfloat16)
