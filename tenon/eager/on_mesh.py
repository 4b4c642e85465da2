"""Tensors that lie in parts on the devices of a mesh: what holds the parts, and what an eager call does with them.

Compiled functions with a mesh compute on the parts.  An eager call does where it is elementwise and all is split alike;
any other joins them first, which needs all in this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenon.devices import HOST, Device
from tenon.eager.dispatch import Eager, TensorInterpreter, eager
from tenon.eager.grad_mode import is_grad_enabled
from tenon.errors import GradientError
from tenon.graph.op import Op, using_default
from tenon.sharding.sharded_array import ShardedArray, split_array
from tenon.sharding.sharding import Sharding
from tenon.tensor import Tensor
from tenon.tensor_state import Elsewhere, Payload


class OnMesh(Elsewhere):
    """The payload of a tensor in parts."""

    __slots__ = ("dtype", "parts", "shape")

    def __init__(self, parts: ShardedArray):
        self.parts, self.shape, self.dtype = parts, parts.shape, parts.dtype

    @property
    def device(self) -> Device:
        """Where the elements are: on the devices of a mesh, which are threads of this one, or other processes."""
        return HOST

    @property
    def layout(self) -> Sharding:
        """How the elements are split."""
        return self.parts.sharding

    def with_elements(self, array: np.ndarray) -> OnMesh:
        """Other elements, split so."""
        return OnMesh(split_array(array, self.parts.sharding, self.parts.shards))

    @property
    def is_here(self) -> bool:
        """Whether all parts are in this process."""
        return self.parts.is_here

    @property
    def told(self) -> str:
        """What is written of it beside the elements: how they are split."""
        return f"split={self.parts.sharding.spec!r}"

    def elements(self) -> np.ndarray:
        """All parts, joined.  Raises CommunicationError where some are in other processes."""
        return self.parts.full()

    @property
    def interpreter(self) -> TensorInterpreter:
        """Who evaluates operators on such tensors."""
        return JOINING


class Joining(Eager):
    """Evaluates operators on tensors in parts, once these are joined."""

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The output tensors of `op`, whole."""
        if is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad and isinstance(x.payload, OnMesh)
                                     for x in inputs):
            raise GradientError(f"{op.name}: gradients of tensors in parts are computed by compiled functions",
                                hint="@tn.jit(mesh=mesh) over the whole step; or a block of tn.no_grad()")
        with using_default():
            if op.elementwise and (sharding := common_sharding(inputs)) is not None:
                return by_part(op, inputs, attrs, sharding)
            return eager.apply(op, tuple(map(joined, inputs)), attrs)

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        with using_default():
            return eager.evaluate(op, tuple(map(joined, inputs)), attrs)


JOINING = Joining()


def common_sharding(inputs: Sequence[Any]) -> Sharding | None:
    """How all tensors among the inputs are split that are no single number; None where they are not split alike."""
    tensors = [x for x in inputs if isinstance(x, Tensor) and x.ndim]
    found = {(x.shape, x.payload.parts.sharding if isinstance(x.payload, OnMesh) else None) for x in tensors}
    return next(iter(found))[1] if len(found) == 1 else None


def by_part(op: Op, inputs: Sequence[Any], attrs: dict[str, Any], sharding: Sharding) -> Any:
    """The output of an elementwise operator, made of the parts that are in this process."""
    whole = next(parts for x in inputs if isinstance(parts := _parts(x), ShardedArray))
    made = {rank: eager.apply(op, tuple(_part(x, rank) for x in inputs), attrs) for rank in whole.shards}
    first = next(iter(made.values()))
    shards = {rank: x.numpy() for rank, x in made.items()}
    return Tensor(OnMesh(ShardedArray(whole.shape, first.dtype, sharding, shards)))


def _parts(x: Any) -> Any:
    return x.payload.parts if isinstance(x, Tensor) and isinstance(x.payload, OnMesh) else None


def _part(x: Any, rank: int) -> Any:
    parts = _parts(x)
    return x if parts is None else Tensor(parts.shards[rank])


def joined(x: Any) -> Any:
    """A tensor that was in parts, whole; anything else as it is."""
    return Tensor(x.payload.elements()) if isinstance(x, Tensor) and isinstance(x.payload, OnMesh) else x


def parts_of(payload: Any) -> Any:
    """The parts of a payload, or its array."""
    return payload.parts if isinstance(payload, OnMesh) else \
        payload.elements() if isinstance(payload, Elsewhere) else payload
