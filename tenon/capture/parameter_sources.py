"""Where the parameters of a captured graph come from: arguments, tensors from outside, and gradients of these.

A later call reads the same places (Dynamo calls them sources).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.graph.ir import Value
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState, in_memory
from tenon.types import DType, TensorType, as_dtype


@dataclass(frozen=True)
class Argument:
    """A parameter of the graph that is leaf `position` of the call's arguments."""

    position: int


@dataclass(frozen=True, eq=False)
class Held:
    """A parameter of the graph that is a tensor (or array) found outside the arguments, by identity."""

    holder: Tensor | np.ndarray
    own: bool = False       # an array that only the capture has


@dataclass(frozen=True)
class GradientOf:
    """A parameter of the graph that is the `.grad` of another source."""

    source: Argument | Held


Source = Argument | Held | GradientOf


@dataclass(eq=False)
class OutsideTensor:
    """An outside tensor during a capture: where it comes from, how it began, and its state as the program sees it."""

    tensor: Tensor
    source: Source
    start: Value
    start_grad: Tensor | None
    state: TensorState
    asked: bool = False         # whether the program asked for the gradient that it began with
    renewed: bool = False       # whether it has another one in all calls, without that

    @property
    def assigned(self) -> bool:
        """Whether the program gave the tensor new elements."""
        return self.state.payload is not self.start

    @property
    def without_grad(self) -> bool | None:
        """Whether it begins with no gradient; None where that makes no difference."""
        renewed = self.renewed and isinstance(self.state.grad, Tensor) and self.start_grad is None
        left_alone = not (self.asked or self.renewed or self.grad_changed)
        return None if renewed or left_alone else self.tensor.own.grad is None

    @property
    def grad_changed(self) -> bool:
        """Whether the program gave the tensor a new `.grad`, or changed the old one."""
        grad = self.state.grad
        return grad is not self.start_grad or (grad is not None and grad.own.payload is not self._start_grad_payload)

    def __post_init__(self) -> None:
        self._start_grad_payload = None if self.start_grad is None else self.start_grad.own.payload


SIZES = frozenset(("shape", "size", "count", "num_classes"))     # attributes that are sizes


def array_at(source: Source, leaves: Sequence[Any]) -> Any:
    """The array that a source is in a call with these leaves."""
    holder: Any = source.source if isinstance(source, GradientOf) else source
    holder = leaves[holder.position] if isinstance(holder, Argument) else holder.holder
    holder = holder.own.grad if isinstance(source, GradientOf) else holder
    return np.asarray(in_memory(holder.own.payload) if isinstance(holder, Tensor) else getattr(holder, "value", holder))


def type_of_state(state: TensorState) -> TensorType:
    """The type of a tensor in this state."""
    dtype = state.payload.dtype
    return TensorType(dtype if isinstance(dtype, DType) else as_dtype(dtype), state.payload.shape)
