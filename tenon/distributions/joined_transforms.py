"""Transforms side by side: each has its own part of an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tenon.distributions import constraints
from tenon.distributions.transform import Transform, summed
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.joining_and_axes import concat, stack
from tenon.ops.shape import broadcast_to
from tenon.ops.splitting import split_with_sizes, unstack

__all__ = ["CatTransform", "StackTransform"]


class _Joined(Transform):
    """What a tensor is cut into along an axis, and what is joined again."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0):
        self.transforms, self.dim = list(tseq), dim
        if not self.transforms or not all(isinstance(part, Transform) for part in self.transforms):
            raise ArgumentError(f"{type(self).__name__}: a list of transforms was expected, not {tseq!r:.80}")
        self.bijective = all(part.bijective for part in self.transforms)
        self.domain = self._set([part.domain for part in self.transforms])
        self.codomain = self._set([part.codomain for part in self.transforms])

    def _set(self, kinds: Sequence[constraints.Constraint]) -> constraints.Constraint:
        """Tensors whose parts are each in a set."""
        axes = max(kind.event_dim for kind in kinds)
        whole = [constraints.independent(kind, axes - kind.event_dim) for kind in kinds]

        def holds(x: Any) -> Any:
            found = [kind.check(part) for kind, part in zip(whole, self._parts(x), strict=True)]
            return self._of_events(found, x.ndim, axes, lambda a, b: a & b)
        return constraints.Constraint(f"{type(self).__name__[:-9].lower()}({kinds}, dim={self.dim})", holds, axes)

    def _of_events(self, found: Sequence[Any], ndim: int, axes: int, both: Callable[[Any, Any], Any]) -> Any:
        """What was found of each part, whose events have so many axes: joined, or one if the axis is theirs."""
        raise NotImplementedError

    def _parts(self, x: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _join(self, parts: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _call(self, x: Any) -> Any:
        return self._join([own(part) for own, part in zip(self.transforms, self._parts(x), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._join([own.inv(part) for own, part in zip(self.transforms, self._parts(y), strict=True)])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        slopes = [summed(broadcast_to(own.log_abs_det_jacobian(a, b), a.shape[:a.ndim - own.domain.event_dim]),
                         self.event_dim - own.event_dim)
                  for own, a, b in zip(self.transforms, self._parts(x), self._parts(y), strict=True)]
        return self._of_events(slopes, x.ndim, self.event_dim, lambda a, b: a + b)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transforms}, dim={self.dim})"


class CatTransform(_Joined):
    """Transforms of parts of an axis, which are as long as `lengths` say, 1 by default.

    >>> d = tn.distributions
    >>> d.CatTransform([d.ExpTransform(), d.identity_transform], lengths=[1, 2])(tn.zeros(3))
    tensor([1., 0., 0.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
                 cache_size: int = 0):
        self.lengths = [1] * len(tseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(tseq):
            raise ArgumentError(f"CatTransform: {len(tseq)} transforms, and lengths of {len(self.lengths)}")
        super().__init__(tseq, dim)

    @property
    def length(self) -> int:
        """How long the axis is."""
        return sum(self.lengths)

    def _parts(self, x: Any) -> Sequence[Any]:
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] != self.length:
            raise ShapeError(f"CatTransform: an axis {self.dim} of length {self.length} was expected, not {x.type}")
        found: Sequence[Any] = split_with_sizes(x, self.lengths, axis=self.dim)
        return found

    def _join(self, parts: Sequence[Any]) -> Any:
        return concat(parts, axis=self.dim)

    def _of_events(self, found: Sequence[Any], ndim: int, axes: int, both: Callable[[Any, Any], Any]) -> Any:
        axis = (self.dim - ndim if self.dim >= 0 else self.dim) + axes
        return concat(found, axis=axis) if axis < 0 else reduce(both, found)


class StackTransform(_Joined):
    """A transform for each place along an axis.

    >>> d = tn.distributions
    >>> d.StackTransform([d.ExpTransform(), d.identity_transform])(tn.zeros(2))
    tensor([1., 0.])
    """

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        super().__init__(tseq, dim)
        if -self.event_dim <= dim < 0:
            raise ArgumentError(f"StackTransform: the axis {dim} lies in the {self.event_dim} last ones of an event",
                                hint="an axis before them, or one counted from the front")

    def _parts(self, x: Any) -> Sequence[Any]:
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] != len(self.transforms):
            raise ShapeError(f"StackTransform: an axis {self.dim} of length {len(self.transforms)} was expected, not "
                             f"{x.type}")
        found: Sequence[Any] = unstack(x, axis=self.dim)
        return found

    def _join(self, parts: Sequence[Any]) -> Any:
        return stack(parts, axis=self.dim)

    def _of_events(self, found: Sequence[Any], ndim: int, axes: int, both: Callable[[Any, Any], Any]) -> Any:
        return stack(found, axis=self.dim if self.dim >= 0 else self.dim + axes)
