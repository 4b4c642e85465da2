"""How a PyTorch tensor lies in memory -> how Tenon sees it there without a copy: axes in order, repeated ones once.

Tenon's programs read and write elements in order.  A tensor whose axes lie in another order is handed over in that
order, and permuted inside of the graph, where it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tenon as tn
from tenon.records import dataclass
from tenon.types import Shape


@dataclass(frozen=True)
class MemoryOrder:
    """The sizes of a tensor, its axes from the outermost in memory to the innermost, those along which one repeats."""

    shape: Shape
    order: tuple[int, ...]
    repeated: frozenset[int] = frozenset()

    @cached_property
    def stored(self) -> Shape:
        """The shape of what is in memory."""
        return tuple(1 if k in self.repeated else self.shape[k] for k in self.order)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the elements lie in the order of the axes."""
        return not self.repeated and self.order == tuple(range(len(self.shape)))

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How far apart elements lie along each axis."""
        found, step = [0] * len(self.shape), 1
        for k in reversed(self.order):
            found[k] = 0 if k in self.repeated else step
            step *= 1 if k in self.repeated else max(1, int(self.shape[k]))
        return tuple(found)

    def seen(self, stored: Any) -> Any:
        """The tensor, of what is in memory."""
        if self.is_plain:
            return stored
        back = tuple(self.order.index(k) for k in range(len(self.order)))
        turned = tn.permute(stored, axes=back)
        return tn.broadcast_to(turned, shape=self.shape) if self.repeated else turned

    def laid(self, value: Any) -> Any:
        """What is to be in memory, of the tensor."""
        if self.is_plain:
            return value
        once = value[tuple(slice(0, 1) if k in self.repeated else slice(None) for k in range(len(self.shape)))] \
            if self.repeated else value
        return tn.permute(once, axes=self.order)


def of_sizes(order: MemoryOrder, sizes: Shape) -> MemoryOrder:
    """The same order of a tensor whose sizes are known by now."""
    return MemoryOrder(tuple(sizes), order.order, order.repeated)


def in_the_order_of_axes(shape: Shape) -> MemoryOrder:
    """The order of a tensor whose last axis is the innermost in memory."""
    return MemoryOrder(shape, tuple(range(len(shape))))


def order_of(shape: Shape, strides: Sequence[Any]) -> MemoryOrder:
    """The order of a tensor with these strides; the plain one where there are gaps, or elements lie over each other."""
    plain = in_the_order_of_axes(tuple(shape))
    if fits(plain, strides):
        return plain
    try:
        repeated = frozenset(k for k, step in enumerate(strides) if _is(step, 0) and not _is(shape[k], 1))
        known = all(isinstance(step, int) for step in strides)
        ones = [k for k in range(len(shape)) if _is(shape[k], 1)]       # whose strides say nothing: outermost
        inner = tuple(sorted({*range(len(shape))} - {*ones, *repeated}, key=lambda k: (-strides[k], k))) if known \
            else _descending(shape, strides, {*repeated, *ones})
        order = (*ones, *inner, *sorted(repeated))
    except ValueError:
        return plain
    found = MemoryOrder(tuple(shape), order, repeated)
    return found if fits(found, strides) else plain


def _descending(shape: Shape, strides: Sequence[Any], without: set[int]) -> tuple[int, ...]:
    """The other axes by strides that are not all known yet: each is the product of the sizes of the axes within."""
    step: Any = 1
    left, order = [k for k in range(len(shape)) if k not in without], list[int]()
    while left:
        k = next((k for k in reversed(left) if _is(strides[k], step)), None)
        if k is None:
            raise ValueError("gaps")
        left.remove(k)
        order.append(k)
        step = step * shape[k]
    return tuple(reversed(order))


def _is(size: Any, other: Any) -> bool:
    """Whether two sizes are known to be the same."""
    if isinstance(size, int) and isinstance(other, int):
        return size == other
    return str(size) == str(other)


def fits(found: MemoryOrder, strides: Sequence[Any]) -> bool:
    """Whether a tensor in this order has these strides, where axes are longer than 1."""
    step: Any = 1
    for k in reversed(found.order):
        if k in found.repeated:
            continue
        if not _is(found.shape[k], 1) and not _is(strides[k], step):
            return False
        step = step * found.shape[k]
    return True
