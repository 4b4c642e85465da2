"""Choices that have a gradient: `gumbel_softmax`."""

from __future__ import annotations

from typing import Any

from tenon.errors import ArgumentError
from tenon.ops.activations import softmax
from tenon.ops.bit_exact_math import portable_log
from tenon.ops.comparison import equal
from tenon.ops.creation import iota
from tenon.ops.reduction import argmax
from tenon.random import exponential
from tenon.types import normalize_axis


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """A draw of classes with the probabilities softmax(logits), as shares that have a gradient (Jang et al. 2016).

    The smaller `tau`, the closer are the shares to 0 and 1; with `hard` they are 0 and 1, with the gradient of those
    that are not.  `eps` is there for PyTorch's sake.

    >>> tn.nn.functional.gumbel_softmax(tn.zeros(2, 3), hard=True).sum(dim=-1)
    tensor([1., 1.])
    """
    if tau <= 0:
        raise ArgumentError(f"gumbel_softmax: tau must be above 0, got {tau}")
    axis = normalize_axis(dim, logits.ndim)
    noise = -portable_log(exponential(size=logits.shape, dtype=logits.dtype))
    soft = softmax((logits + noise) / tau, axis=axis)
    if not hard:
        return soft
    chosen = argmax(soft, axis=axis, keepdims=True)
    one = equal(iota(soft.shape[axis], axis, soft.ndim), chosen).astype(soft.dtype)
    return one - soft.detach() + soft
