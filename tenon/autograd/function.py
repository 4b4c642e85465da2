"""`tn.autograd.function`: functions with a gradient of one's own, by PyTorch's names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tenon.capture.trace import Capture
from tenon.eager.grad_mode import is_grad_enabled, no_grad
from tenon.errors import GradientError
from tenon.graph.op import interpreter
from tenon.tensor import Tensor
from tenon.transforms.autograd import Function as Function
from tenon.transforms.autograd import FunctionContext as FunctionContext
from tenon.transforms.custom_gradient import custom_vjp

__all__ = ["Function", "FunctionContext", "FunctionCtx", "once_differentiable"]

FunctionCtx = FunctionContext


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A `backward` that records no gradient of itself; a second derivative raises GradientError.

    In compiled code it is recorded like any other `backward`.

    >>> class Square(tn.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     @tn.autograd.function.once_differentiable
    ...     def backward(ctx, g):
    ...         return g * 2 * ctx.saved_tensors[0]
    >>> tn.grad(Square.apply)(tn.tensor(3.0))
    tensor(6.)
    >>> tn.grad(tn.grad(Square.apply))(tn.tensor(3.0))
    Traceback (most recent call last):
    tenon.errors.GradientError: backward is once_differentiable, and a second derivative was asked for
    ...
    """
    @functools.wraps(fn)
    def backward(ctx: FunctionContext, *grads: Any) -> Any:
        if isinstance(interpreter(), Capture):
            return fn(ctx, *grads)
        with no_grad():
            found = fn(ctx, *grads)
        read = [x for x in (*grads, *ctx.saved_tensors) if isinstance(x, Tensor) and x.requires_grad]
        return _refusing(fn.__name__)(found, read) if is_grad_enabled() and read else found
    return backward


def _refusing(name: str) -> custom_vjp:
    """The first argument, as something that depends on the second and has no gradient."""
    def refuse(kept: None, g: Any) -> Any:
        raise GradientError(f"{name} is once_differentiable, and a second derivative was asked for",
                            hint="leave the decorator out where it is made of Tenon's operators")

    rule = custom_vjp(lambda found, read: found)
    rule.defvjp(lambda found, read: (found, None), refuse)
    return rule
