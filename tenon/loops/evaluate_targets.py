"""Targets run on NumPy arrays, all values of the indices at once: what a nest must store, without its loops.

    evaluate_targets(targets, memory, sizes)        # memory: buffer -> its elements, flat

Every index has an axis of its own, so a sub-expression is an array that is as long as 1 along what it does not depend
on, and a reduction shortens the axes of its indices to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import evaluate
from tenon.errors import failed_check
from tenon.loops.expressions import (
    Binary,
    BitsOf,
    Buffer,
    Call,
    Cast,
    CheckedIndex,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    SizeOf,
    identity,
)
from tenon.loops.loop_interpreter import COMBINE, ELEMENTWISE, FUNCTIONS, converted, wide
from tenon.loops.store_target import StoreTarget, levels
from tenon.loops.traversal import walk
from tenon.records import dataclass, field

MAX_ELEMENTS = 1 << 20      # of an array


class TooLarge(Exception):
    """The targets have more elements than are looked at."""


def evaluate_targets(targets: Sequence[StoreTarget], memory: MutableMapping[Buffer, np.ndarray],
                     sizes: Mapping[str, int]) -> None:
    """Store what the targets say, after what they read of each other."""
    level = levels(targets)
    with np.errstate(all="ignore"):
        for target in sorted(targets, key=lambda t: level[t]):
            _store(target, memory, sizes)


def _store(target: StoreTarget, memory: MutableMapping[Buffer, np.ndarray], sizes: Mapping[str, int]) -> None:
    if target.chunk is not None:
        raise TooLarge("sums along the rows of a product depend on how these are cut")
    if target.combine is None:
        _Points(target, memory, sizes).store(target)
        return
    start = identity(target.combine, target.buffer.type.dtype).value
    points = _Points(target, memory, sizes)
    offsets, values = points.stored(target)
    memory[target.buffer][offsets] = start
    for offset, value in zip(offsets.tolist(), values, strict=True):
        memory[target.buffer][offset] = COMBINE[target.combine](memory[target.buffer][offset], value)


@dataclass
class _Points:
    """All values of the indices of a target."""

    target: StoreTarget
    memory: Mapping[Buffer, np.ndarray]
    sizes: Mapping[str, int]
    known: dict[Expr, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x = self.target
        inner = [k for part in walk(x.value, x.offset) if isinstance(part, Reduce) for k in part.indices]
        self.axes = {index: k for k, index in enumerate(dict.fromkeys((*x.indices, *inner)))}

    def store(self, target: StoreTarget) -> None:
        offsets, values = self.stored(target)
        self.memory[target.buffer][offsets] = values

    def stored(self, target: StoreTarget) -> tuple[np.ndarray, np.ndarray]:
        """(where, what) of all elements, in the order of the loops."""
        shape = [evaluate(i.extent, self.sizes) if i in target.indices else 1 for i in self.axes]
        if math.prod(shape) > MAX_ELEMENTS:
            raise TooLarge(str(shape))
        inside = self.where(target.indices, target.iterations())
        pairs = [np.broadcast_to(x, shape)[np.broadcast_to(inside, shape)]
                 for x in (self.value(target.offset), self.value(target.value))]
        self.look(target.buffer, pairs[0])
        return pairs[0], pairs[1].astype(target.buffer.type.dtype.numpy)

    def where(self, indices: Sequence[Index], extents: Sequence[Expr]) -> Any:
        """Which values of indices are below how far their loops run."""
        found: Any = np.ones((1,) * len(self.axes), bool)
        for index, extent in zip(indices, extents, strict=True):
            found = found & (self.value(index) < self.value(extent))
        return found

    def look(self, buffer: Buffer, offsets: np.ndarray) -> None:
        inside = (offsets >= 0) & (offsets < self.memory[buffer].size)
        assert inside.all(), f"{buffer.name}[{offsets[~inside][0]}] is outside of {self.memory[buffer].size} elements"

    def value(self, root: Expr) -> Any:
        """The values of an expression; of one that two expressions share, once."""
        for x in walk(root):
            if x not in self.known:
                self.known[x] = self.compute(x)
        return self.known[root]

    def compute(self, x: Expr) -> Any:
        parts = [self.known[child] for child in x.children()]
        match x:
            case Const(value=value, dtype=dtype):
                return self.scalar(wide(dtype).type(value))
            case SizeOf(dim=dim):
                return self.scalar(np.int64(evaluate(dim, self.sizes)))
            case Index(extent=extent):
                shape = [1] * len(self.axes)
                shape[self.axes[x]] = -1
                return np.arange(evaluate(extent, self.sizes)).reshape(shape)
            case Load(buffer=buffer, dtype=dtype):
                return self.load(buffer, *parts).astype(wide(dtype))
            case Binary(op=op):
                self.fits(*parts)
                return ELEMENTWISE[op](*parts)
            case Call(name=name, dtype=dtype):
                self.fits(*parts)
                return np.asarray(FUNCTIONS[name](*parts)).astype(wide(dtype))
            case Select():
                self.fits(*parts)
                return np.where(*parts)
            case Cast(dtype=dtype):
                return converted(parts[0], dtype)
            case BitsOf(x=inner, dtype=dtype):
                return np.ascontiguousarray(parts[0].astype(inner.dtype.numpy)).view(dtype.numpy).astype(wide(dtype))
            case CheckedIndex():
                return self.checked(x, *parts)
            case Reduce():
                return self.reduced(x, *parts)
        raise TooLarge(f"{type(x).__name__} is no part of a target")

    def scalar(self, value: Any) -> np.ndarray:
        return np.full((1,) * len(self.axes), value)

    def fits(self, *parts: np.ndarray) -> None:
        """Refuse what is too large before it is made."""
        if math.prod(np.broadcast_shapes(*(part.shape for part in parts))) > MAX_ELEMENTS:
            raise TooLarge

    def load(self, buffer: Buffer, offsets: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        held = self.memory[buffer]
        if mask is None:
            mask = np.ones_like(offsets, bool)      # where a loop ends before its index does, anything may be read
        self.fits(offsets, mask)
        if not held.size:
            return np.zeros(np.broadcast_shapes(offsets.shape, mask.shape), held.dtype)
        read: np.ndarray = held[np.clip(offsets, 0, held.size - 1)]
        return np.where(mask, read, held.dtype.type(0))

    def checked(self, x: CheckedIndex, given: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        size = evaluate(x.size, self.sizes)
        inside = (given >= (-size if x.wraps else 0)) & (given < size)
        bad = ~inside if mask is None else ~inside & mask
        if bad.any():
            raise failed_check(x.operator, int(np.broadcast_to(given, bad.shape)[bad][0]), size, x.where)
        return np.where(inside, np.where(given < 0, given + size, given), 0)

    def reduced(self, x: Reduce, body: np.ndarray, *extents: np.ndarray) -> np.ndarray:
        """The body combined along the axes of the indices; NumPy adds up pairs of halves, which rounds less."""
        axes = tuple(self.axes[k] for k in x.indices)
        shape = list(np.broadcast_shapes(body.shape, *(n.shape for n in extents)))
        for k in x.indices:
            shape[self.axes[k]] = evaluate(k.extent, self.sizes)
        if math.prod(shape) > MAX_ELEMENTS:
            raise TooLarge(str(shape))
        inside = np.broadcast_to(self.where(x.indices, x.extents), shape)
        nothing = wide(x.dtype).type(identity(x.kind, x.dtype).value)
        values = np.where(inside, np.broadcast_to(body, shape), nothing)
        found = COMBINE[x.kind].reduce(values, axis=axes, keepdims=True, initial=nothing)
        return np.asarray(found).astype(wide(x.dtype))
