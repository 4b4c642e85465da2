"""Limits on gradients before a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tenon.eager.grad_mode import no_grad
from tenon.errors import ArgumentError, GradientError
from tenon.ops.arithmetic import abs_
from tenon.ops.comparison import clip, isfinite, minimum
from tenon.ops.complex_parts import conj, real
from tenon.ops.creation import zeros
from tenon.ops.exponential import sqrt
from tenon.ops.joining_and_axes import stack
from tenon.tensor import Tensor


def clip_grad_norm(parameters: Any, max_norm: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Any:
    """Scale all gradients down so that their norm, taken together, is at most `max_norm`; returns the norm before.

    With `error_if_nonfinite` raises GradientError for a norm that is NaN or infinite.

    >>> p = nn.Parameter([0.0]); p.grad = tn.tensor([5.0])
    >>> optim.clip_grad_norm([p], 1.0), p.grad
    (tensor(5.), tensor([1.]))
    """
    with no_grad():
        listed = list(_listed(parameters))
        total = get_total_norm([p.grad for p in listed], norm_type, error_if_nonfinite)
        clip_grads_with_norm(listed, max_norm, total)
        return total


def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Any:
    """The norm of all elements of tensors, taken together; None among them is nothing.

    >>> nn.utils.get_total_norm([tn.tensor([3.0]), tn.tensor([4.0])])
    tensor(5.)
    """
    found = [x for x in ([tensors] if isinstance(tensors, Tensor) else tensors) if x is not None]
    with no_grad():
        total = _norm(found, norm_type) if found else zeros(())
    if error_if_nonfinite and not bool(isfinite(total)):
        raise GradientError(f"the norm of the gradients is {float(total)}",
                            hint="error_if_nonfinite=False scales by it all the same")
    return total


def clip_grads_with_norm(parameters: Any, max_norm: Any, total_norm: Any, foreach: bool | None = None) -> None:
    """Scale all gradients down as far as a norm that is known is above `max_norm`."""
    with no_grad():
        scale = minimum(max_norm / (total_norm + 1e-6), 1.0)
        for p in _listed(parameters):
            if (g := p.grad) is not None:
                p.grad = g * scale.astype(g.dtype).to_device(g.device)


def clip_grad_value(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Cut every element of the gradients to lie within `clip_value` of 0."""
    with no_grad():
        for p in _listed(parameters):
            if p.grad is not None:
                p.grad = clip(p.grad, -clip_value, clip_value)


def _listed(parameters: Any) -> Iterable[Tensor]:
    if isinstance(parameters, Tensor):
        return [parameters]
    if not isinstance(parameters, Iterable):
        raise ArgumentError(f"parameters were expected, not {type(parameters).__name__}",
                            hint="give model.parameters()" if hasattr(parameters, "parameters") else None)
    found = list(parameters)
    wrong = next((x for x in found if not isinstance(x, Tensor)), None)
    if wrong is not None:
        raise ArgumentError(f"parameters are tensors, not {type(wrong).__name__}")
    return found


def _norm(gradients: list[Any], p: float) -> Any:
    where = gradients[0].device
    if p == math.inf:
        return stack([abs_(g).max().to_device(where) for g in gradients]).max()
    if p == 2:
        return sqrt(sum(real(g * conj(g)).sum().to_device(where) for g in gradients))
    return sum((abs_(g) ** p).sum().to_device(where) for g in gradients) ** (1 / p)
