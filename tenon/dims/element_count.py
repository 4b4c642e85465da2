"""`x.size`: the number of elements of a tensor, which can be called for its shape, as PyTorch's users do."""

from __future__ import annotations

from typing import Any

from tenon.dims.symbolic_dim import Dim, SymbolicDim, product
from tenon.errors import ArgumentError


class Size(int):
    """How many elements a tensor has; called, as PyTorch's users do, it is the tensor's shape, or the size of an axis.

    >>> x = tn.zeros(2, 3)
    >>> x.size, x.size(), x.size(0)
    (6, (2, 3), 2)
    """

    axes: tuple[Dim, ...]

    def __call__(self, axis: int | None = None, *, dim: int | None = None) -> Any:
        axis = dim if axis is None else axis
        if axis is not None and not -len(self.axes) <= axis < len(self.axes):
            raise ArgumentError(f"size: axis {axis} is out of range for a tensor of {len(self.axes)} axes")
        return self.axes if axis is None else self.axes[axis]

    def __reduce__(self) -> Any:
        return int, (int(self),)


class SymbolicSize(SymbolicDim):
    """The same where sizes are symbols."""

    axes: tuple[Dim, ...]
    __call__ = Size.__call__


def size_of(shape: tuple[Dim, ...]) -> Dim:
    """The number of elements of a shape, which can be asked for the shape too."""
    total = product(shape)
    found: Any = SymbolicSize(total.terms) if type(total) is SymbolicDim else Size(total)
    found.__dict__["axes"] = shape
    size: Dim = found
    return size
