"""Activations computed again in the backward pass, as PyTorch calls it: `checkpoint(function, *args)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import transforms

__all__ = ["checkpoint"]


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, **named: Any) -> Any:
    """`function(*args)`; what its gradient needs is computed again in the backward pass.

    >>> from tenon.utils.checkpoint import checkpoint
    >>> x = tn.ones(2, requires_grad=True)
    >>> checkpoint(lambda x: (x * x).sum(), x, use_reentrant=False).backward()
    >>> x.grad
    tensor([2., 2.])
    """
    return transforms.checkpoint(function)(*args, **named)
