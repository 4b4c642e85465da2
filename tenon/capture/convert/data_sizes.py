"""Sizes that the data decide: a number that the graph computes, where a size is wanted -> a symbol, and back.

    x[mask]             argwhere(mask, size=data_0) -> i64[data_0, 1]: the operator says how many there are
    tn.zeros(n)         counted(n, size=data_1) -> bool[data_1]: makes the number a size
    y.shape[0] / 2      dimension(size=data_0): the size as a number, which is what users see of it

A question about such a size is answered from the call at hand, as are those about other sizes; what follows from the
answer is a condition that is asked again when the graph runs, and where it does not hold the call runs eagerly.  Sizes
that have to be equal are spelled alike, in a capture that begins anew (`told`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.capture.code_monitor import UnsafeCall
from tenon.capture.runtime_numbers import RuntimeNumber, strong
from tenon.dims.size_assumptions import learn
from tenon.dims.symbolic_dim import (
    BY_DATA,
    SMALLEST_SYMBOLIC_SIZE,
    Dim,
    SymbolicDim,
    bounds,
    is_by_data,
    substitute,
    symbol,
)
from tenon.errors import user_location
from tenon.graph.interpret import concrete, concrete_type, evaluate_op, running
from tenon.graph.ir import Input, Literal, Value
from tenon.graph.op import Op
from tenon.ops.searching import counted
from tenon.ops.shape import dimension
from tenon.types import int64

ARITHMETIC: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y}


class DataSizes:
    """Those of one capture.  `told` says what some of them are known to be."""

    def __init__(self, told: Mapping[str, Dim], sizes: Mapping[str, int], array_of: Callable[[Value], Any]):
        self.told, self.sizes, self.array_of = told, dict(sizes), array_of
        self.count = 0
        self.made_by: dict[str, Value] = {}         # the value whose shape tells a size
        self.of_numbers: dict[Value, Dim] = {}
        self.counted: dict[Any, tuple[Value, ...]] = {}     # numbers that are sizes
        self._arrays: dict[Value, Any] = {}

    def fresh(self) -> Dim:
        """A size that is not known yet."""
        name = f"{BY_DATA}{self.count}"
        self.count += 1
        return self._known(symbol(name))

    def _known(self, dim: Dim) -> Dim:
        while (new := substitute(dim, self.told)) is not dim and str(new) != str(dim):
            dim = new
        return dim

    def note(self, op: Op, inputs: Sequence[Any], outputs: tuple[Value, ...]) -> None:
        """These values were made by an operator that says their size."""
        if op is counted:
            self.counted[inputs[0]] = outputs
        for x in outputs:
            for dim in x.shape:
                if isinstance(dim, SymbolicDim) and is_by_data(dim):
                    self.made_by.setdefault(str(dim), x)

    # ------------------------------------------------------------ numbers

    def size_of(self, number: RuntimeNumber) -> Dim:
        """The size that a whole number is; a negative one lets the call run eagerly."""
        value = number.payload
        assert isinstance(value, Value)
        if value not in self.of_numbers:
            known = self.expression(value)
            low = None if known is None else bounds(known)[0]
            if known is None or low is None or low < 0:
                known = counted(strong(number)).shape[0]
            self.of_numbers[value] = known
        return self.of_numbers[value]

    def expression(self, value: Any) -> Dim | None:
        """The size that a value is, as far as it is made of sizes and whole numbers."""
        if isinstance(value, Literal):
            return value.value if type(value.value) is int else None
        node = value.node
        if value in self.of_numbers or node is None or value.dtype is not int64:
            return self.of_numbers.get(value)
        if node.op is dimension:
            size: Dim = node.attrs["size"]
            return size
        if node.op.name not in ARITHMETIC:
            return None
        left, right = map(self.expression, node.inputs)
        return None if left is None or right is None else ARITHMETIC[node.op.name](left, right)

    # ------------------------------------------------------------ in the call at hand

    def look_up(self, name: str) -> int:
        """What a size is in this call; the least that it may be where that cannot be told."""
        if name not in self.sizes and (value := self.made_by.get(name)) is not None:
            try:
                self._evaluate(value)
            except Exception:       # it raises in this call, as the function will
                return SMALLEST_SYMBOLIC_SIZE
        return self.sizes.get(name, SMALLEST_SYMBOLIC_SIZE)

    def _evaluate(self, value: Value) -> None:
        node = value.node
        assert node is not None
        nodes = _above(value)
        for x in {x for n in nodes for x in n.uses() if x.node is None}:
            self._arrays[x] = self.array_of(x)
        for n in nodes:
            if n.output not in self._arrays:
                inputs = [self._input(x) for x in n.inputs]
                sizes = self.sizes
                types = None if n.op.data_dependent else [concrete_type(x.type, sizes) for x in n.outputs]
                attrs = {"size": None} if n.op.data_dependent else concrete(n.attrs, sizes)
                with running(sizes):
                    made = evaluate_op(n.op, inputs, attrs, types)
                self._arrays.update(zip(n.outputs, made, strict=True))
                for x, array in zip(n.outputs, made, strict=True):
                    for dim, size in zip(x.shape, array.shape, strict=True):
                        learn(dim, size, self.sizes)

    def _input(self, x: Input) -> Any:
        if x is None:
            return None
        return np.asarray(x.value, x.dtype.numpy) if isinstance(x, Literal) else self._arrays[x]


def _above(value: Value) -> list[Any]:
    """The nodes that a value is computed from, in order."""
    found: dict[Any, None] = {}
    pending = [value]
    while pending:
        node = pending.pop().node
        if node is not None and node not in found:
            found[node] = None
            pending += node.uses()
    return sorted(found, key=lambda node: node.output.number)


def refusal(dim: Dim) -> UnsafeCall:
    """What ends a capture in which Python needs a size that is known when the graph runs."""
    return UnsafeCall("Python needs a size that is only known when the graph runs", where=user_location(),
                      hint="sizes that the data decide can be computed with, compared, and be sizes of other tensors")
