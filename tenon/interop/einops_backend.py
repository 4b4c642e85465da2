"""Tenon as a backend of einops, whose functions take tensors then; imported once both are there, in either order.

Every operation is one of Tenon's, so gradients and captured graphs go through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend

from tenon.ops import PUBLIC
from tenon.tensor import Tensor, asarray


class TenonBackend(AbstractBackend):    # type: ignore[misc]
    """What einops asks of a backend, in Tenon's operators."""

    framework_name = "tenon"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Whether einops should hand this to Tenon."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Any:
        return asarray(x)

    def to_numpy(self, x: Any) -> Any:
        return x.numpy()

    def arange(self, start: int, stop: int) -> Any:
        return PUBLIC["arange"](start, stop)

    def transpose(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: Sequence[Any]) -> Any:
        return PUBLIC["stack"](list(tensors))

    def add_axis(self, x: Any, new_position: int) -> Any:
        return x.expand_dims(new_position)

    def tile(self, x: Any, repeats: Sequence[int]) -> Any:
        return x.tile(tuple(repeats))

    def concat(self, tensors: Sequence[Any], axis: int) -> Any:
        return PUBLIC["concat"](list(tensors), axis=axis)

    def is_float_type(self, x: Any) -> bool:
        return bool(x.dtype.is_differentiable)

    def einsum(self, pattern: str, *x: Any) -> Any:
        return PUBLIC["einsum"](pattern, *x)
