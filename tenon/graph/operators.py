"""Methods and Python operators that eager tensors and graph values share.

The methods are not written here: `install` fills them in from the operator definitions (`tenon.ops.methods`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenon.migration_hints import present


class Operators:
    """Base of `Tensor` and `Value`: `x + y`, `x @ y`, `x[i]`, `x.sum(axis=0)` are operator calls."""

    __slots__ = ()
    __array_priority__ = 1000  # NumPy arrays leave mixed operations to us
    __hash__ = object.__hash__
    shape: Any
    dtype: Any

    def __dir__(self) -> list[str]:
        return present(self, super().__dir__())

    def is_like(self, other: Any) -> bool:
        """Whether the other one has the same shape and element type."""
        return bool(self.shape == other.shape and self.dtype is other.dtype)


class Traced(Operators):
    """Base of `Value` and what stands for one: type checkers take every operator for a method of it."""

    __slots__ = ()

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __getitem__(self, key: Any) -> Any: ...


def install(methods: Mapping[str, Any]) -> None:
    """Give every tensor and value these methods."""
    for name, method in methods.items():
        setattr(Operators, name, method)
