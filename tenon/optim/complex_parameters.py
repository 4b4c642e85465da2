"""A step of a complex parameter -> that of its real and imaginary parts, as PyTorch makes it.

Squares, signs and maxima of the gradient are those of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenon.ops.index_helpers import view_as_complex, view_as_real
from tenon.tensor import Tensor


def update_parts(update: Callable[..., None], p: Tensor, gradient: Any, slots: Mapping[str, Tensor],
                 *shared: Any) -> None:
    """Call `update` with pairs of numbers along a last axis, and keep what it made of them."""
    parts, kept = view_as_real(p), {name: view_as_real(x) for name, x in slots.items()}
    update(parts, view_as_real(gradient), kept, *shared)
    for whole, pairs in zip((p, *slots.values()), (parts, *kept.values()), strict=True):
        whole.assign(view_as_complex(pairs))
