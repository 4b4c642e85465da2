"""Padding as PyTorch says it: the last axis first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenon.errors import ArgumentError
from tenon.ops import repeating

__all__: list[str] = []


def pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """More elements around the last axes: (before, after) of the last, then of the one before it, and so on.

    >>> nn.functional.pad(tn.ones(1, 2), (1, 0))
    tensor([[0., 1., 1.]])
    """
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ArgumentError(f"pad: {tuple(pad)} is not a (before, after) pair for each of some of {input.ndim} axes")
    pairs = [(pad[k], pad[k + 1]) for k in range(0, len(pad), 2)]
    widths = [(0, 0)] * (input.ndim - len(pairs)) + pairs[::-1]
    return repeating.pad(input, widths, mode, value or 0)
