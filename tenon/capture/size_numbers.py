"""The numbers behind symbolic sizes, such as `len(x)` and `x.shape[0] * 0.5`: inputs that are axes of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tenon.dims.size_assumptions import told_by
from tenon.dims.symbolic_dim import Dim, SymbolicDim, evaluate, symbols
from tenon.types import TensorType


class SizeNumbers:
    """Those of one capture; `read` are its numbers that are sizes themselves, each with its type and tensor."""

    def __init__(self, read: Mapping[Any, tuple[Any, TensorType, Any]]):
        self.inputs: dict[int, Dim] = {}        # what the inputs with these indices are
        self.make: Callable[[str], tuple[Dim, Any]] | None = None       # an input, and the size that tells a symbol
        self._read = read
        self._behind: dict[str, Any] = {}       # symbols

    def behind(self, dim: SymbolicDim) -> Any:
        """The number behind a size, read off the arguments in every call."""
        for name in symbols(dim) - self._behind.keys():
            self._behind[name] = self._symbol(name)
        if dim.terms == (((name := next(iter(symbols(dim))),), 1),):
            return self._behind[name]
        return evaluate(dim, self._behind)

    def under(self, x: Any) -> Dim:
        """A size with all the symbols that a number depends on; 0 where it depends on none."""
        return sum([self.inputs[k] for k in x.roots if k in self.inputs], start=0)

    def _symbol(self, name: str) -> Any:
        known: Iterator[tuple[Dim, Any]] = ((type.shape[0], x) for x, type, _ in self._read.values() if type.shape)
        dim, found = next((one for one in known if told_by(one[0]) == name), None) or self._input(name)
        low, step = evaluate(dim, {name: 0}), evaluate(dim, {name: 1}) - evaluate(dim, {name: 0})
        return found if (low, step) == (0, 1) else (found - low) // step

    def _input(self, name: str) -> tuple[Dim, Any]:
        assert self.make is not None
        dim, found = self.make(name)
        self.inputs[found.index] = dim
        return dim, found
