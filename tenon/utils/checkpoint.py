"""Activations computed again in the backward pass, as PyTorch calls it: `checkpoint(function, *args)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import transforms

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, **named: Any) -> Any:
    """`function(*args)`; what its gradient needs is computed again in the backward pass.

    >>> from tenon.utils.checkpoint import checkpoint
    >>> x = tn.ones(2, requires_grad=True)
    >>> checkpoint(lambda x: (x * x).sum(), x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2., 2.])
    """
    return transforms.checkpoint(function)(*args, **named)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None) -> Any:
    """Functions one after another, in so many parts, of which all but the last are computed again for the gradient.

    >>> from tenon.utils.checkpoint import checkpoint_sequential
    >>> checkpoint_sequential(nn.Sequential(nn.ReLU(), nn.Tanh(), nn.ReLU()), 2, tn.zeros(2))
    tensor([0., 0.])
    """
    every = list(functions)
    size = len(every) // segments
    for k in range(segments - 1):
        input = checkpoint(_in_turn(every[k * size:(k + 1) * size]), input)
    return _in_turn(every[(segments - 1) * size:])(input)


def _in_turn(functions: list[Callable[..., Any]]) -> Callable[..., Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x
    return run
