"""What a transform of a distribution is, and transforms made of others: the inverse, the composition, ..."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.constraints import Constraint
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.creation import zeros
from tenon.ops.joining_and_axes import reshape
from tenon.ops.reduction import sum_
from tenon.types import Shape


def summed(x: Any, axes: int) -> Any:
    """The sum over so many last axes."""
    return sum_(x, axis=tuple(range(-axes, 0))) if axes else x


class Transform:
    """A function of a tensor with an inverse, `transform.inv`; a subclass defines `_call`, `_inverse` and
    `log_abs_det_jacobian(x, y)`."""

    __slots__ = ()              # may be a base beside nn.Module
    bijective = True
    domain: Constraint = constraints.real
    codomain: Constraint = constraints.real
    sign: Any = 1               # -1 where the function falls

    def __init__(self, cache_size: int = 0):
        """Nothing is kept, whatever the size."""

    def __call__(self, x: Any) -> Any:
        return self._call(x)

    @property
    def inv(self) -> Transform:
        """The transform from what this one gives to what it takes."""
        return _InverseTransform(self)

    @property
    def event_dim(self) -> int:
        """How many axes at the end belong together."""
        return max(self.domain.event_dim, self.codomain.event_dim)

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same: nothing is kept."""
        return self

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """The logarithm of the size of the slope at x, where y is; axes of an event are summed."""
        raise ArgumentError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of what it gives for a shape of what it takes."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of what it takes for a shape of what it gives."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, forward: Transform):
        self.forward = forward
        self.bijective, self.sign = forward.bijective, forward.sign
        self.domain, self.codomain = forward.codomain, forward.domain

    @property
    def inv(self) -> Transform:
        return self.forward

    def _call(self, x: Any) -> Any:
        return self.forward._inverse(x)

    def _inverse(self, y: Any) -> Any:
        return self.forward(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self.forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Shape:
        return self.forward.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.forward.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{self.forward}.inv"


# ---------------------------------------------------------------- of transforms

class IndependentTransform(Transform):
    """Another one whose events have more axes."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective, self.sign = base_transform.bijective, base_transform.sign
        self.domain, self.codomain = (constraints.independent(x, reinterpreted_batch_ndims)
                                      for x in (base_transform.domain, base_transform.codomain))

    def _call(self, x: Any) -> Any:
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return summed(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Shape) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Events of one shape in another."""

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0):
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        self.domain, self.codomain = (constraints.independent(constraints.real, len(x)) for x in (in_shape, out_shape))

    def _call(self, x: Any) -> Any:
        return reshape(x, self.forward_shape(tuple(x.shape)))

    def _inverse(self, y: Any) -> Any:
        return reshape(y, self.inverse_shape(tuple(y.shape)))

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return zeros(x.shape[:x.ndim - len(self.in_shape)], dtype=x.dtype)

    def forward_shape(self, shape: Shape) -> Shape:
        return self._changed(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self._changed(shape, self.out_shape, self.in_shape)

    @staticmethod
    def _changed(shape: Shape, given: Shape, wanted: Shape) -> Shape:
        batch = len(shape) - len(given)
        if batch < 0 or tuple(shape[batch:]) != given:
            raise ShapeError(f"ReshapeTransform: events of shape {list(given)} were expected, not {list(shape)}")
        return (*shape[:batch], *wanted)


class ComposeTransform(Transform):
    """Functions one after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        self.parts = list(parts)
        self.bijective = all(part.bijective for part in self.parts)
        taken = given = 0           # axes of an event before and after all of them
        for part in reversed(self.parts):
            taken = max(taken + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        for part in self.parts:
            given = max(given + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        if self.parts:
            first, last = self.parts[0].domain, self.parts[-1].codomain
            self.domain = constraints.independent(first, taken - first.event_dim)
            self.codomain = constraints.independent(last, given - last.event_dim)

    @property
    def sign(self) -> Any:
        """The product of those of the parts."""
        return prod(part.sign for part in self.parts)

    def _call(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Any) -> Any:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        total, axes = x * 0 if not self.parts else 0.0, self.domain.event_dim
        for part in self.parts:
            there = part(x)
            total = total + summed(part.log_abs_det_jacobian(x, there), axes - part.domain.event_dim)
            axes += part.codomain.event_dim - part.domain.event_dim
            x = there
        return total

    def forward_shape(self, shape: Shape) -> Shape:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts})"


identity_transform = ComposeTransform([])
