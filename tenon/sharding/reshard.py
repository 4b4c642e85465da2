"""From one sharding of a value to another: which moves, what they cost, and the nodes of a rank that make them.

    slice     keep this rank's part of an axis                    free
    mask      keep the value on the first rank, zeros elsewhere   free: a value becomes a sum of parts
    reduce    all_reduce: parts are added up, on every rank
    scatter   reduce_scatter: the same, each rank gets its part
    gather    all_gather: the parts of an axis, joined
    exchange  all_to_all: an axis is joined, another one split over the same mesh axes

Axes of several digits are reshaped to an axis a digit first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tenon.graph.build import Builder, literal
from tenon.graph.ir import Literal, Node, Value
from tenon.graph.op import OPS
from tenon.records import dataclass
from tenon.sharding.axis_layout import Digit, Layout, ValueSharding, local_shape, numbers_of
from tenon.sharding.mesh import MICRO_AXIS, Mesh
from tenon.sharding.sharding import Axes, part_bounds
from tenon.types import bool_

ACROSS_MICRO_AXIS = 10**6        # times as dear as between devices: one would have to wait for all others
REDUCTION = {"add": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class ReshardMove:
    """One step: along one digit of a value, but for a sum, over some axes of the mesh."""

    kind: str
    over: Axes
    axis: int = 0
    other: int = 0              # of an exchange: the axis that is joined
    combine: str = "add"


@dataclass(frozen=True)
class ReshardStage:
    """Moves between shardings whose digits are the same; `sizes` are those of all digits."""

    sizes: tuple[int, ...]
    before: tuple[Axes, ...]    # of each digit
    moves: tuple[ReshardMove, ...]


# ---------------------------------------------------------------- which moves

@lru_cache(maxsize=8192)
def stages_between(source: ValueSharding, target: ValueSharding, shape: tuple[int, ...],
                   mesh: Mesh) -> tuple[ReshardStage, ...]:
    """The moves that make the target of the source."""
    if source == target:
        return ()
    sources: list[tuple[Digit, ...]] = []
    targets: list[tuple[Digit, ...]] = []
    for a, b, n in zip(source.layouts, target.layouts, shape, strict=True):
        pair = _aligned(a, b, n, mesh)
        if pair is None:
            middle = ValueSharding(tuple(() if _aligned(*three, mesh) is None else three[0] for three in zip(
                source.layouts, target.layouts, shape, strict=True)), source.partial, source.combine)
            return (*stages_between(source, middle, shape, mesh), *stages_between(middle, target, shape, mesh))
        sources.append(pair[0])
        targets.append(pair[1])
    before = tuple(axes for digits in sources for _, axes in digits)
    after = tuple(axes for digits in targets for _, axes in digits)
    sizes = tuple(size for digits in sources for size, _ in digits)
    return (ReshardStage(sizes, before, _moves(sizes, before, after, source, target, mesh)),)


def _aligned(a: Layout, b: Layout, size: int, mesh: Mesh) -> tuple[tuple[Digit, ...], tuple[Digit, ...]] | None:
    """Both layouts of an axis in digits of the same sizes, if there are such."""
    if not a and not b:
        return ((size, ()),), ((size, ()),)
    for x, y, swapped in ((a, b, False), (b, a, True)):
        refined = _refined(x, tuple(n for n, _ in y), mesh)
        if refined is not None:
            return (y, refined) if swapped else (refined, y)
    return None


def _refined(layout: Layout, sizes: tuple[int, ...], mesh: Mesh) -> tuple[Digit, ...] | None:
    """A layout in digits of these sizes."""
    if not layout:
        return tuple((size, ()) for size in sizes)
    left, found = list(layout), []
    for size in sizes:
        if not left:
            return None
        n, axes = left.pop(0)
        if n == size:
            found.append((n, axes))
        elif 0 < size < n and n % size == 0 and size % mesh.parts(axes) == 0:
            found.append((size, axes))
            left.insert(0, (n // size, ()))
        else:
            return None
    return None if left else tuple(found)


def _moves(sizes: Sequence[int], before: Sequence[Axes], after: Sequence[Axes], source: ValueSharding,
           target: ValueSharding, mesh: Mesh) -> tuple[ReshardMove, ...]:
    now, found = list(before), []
    kept = source.partial if source.combine == target.combine else ()      # a largest part is no term of a sum
    pending = [name for name in source.partial if name not in target.partial or name not in kept]
    masked = tuple(name for name in target.partial if name not in kept)

    def extends(k: int) -> Axes | None:
        """What still splits digit `k`, where nothing has to be joined before."""
        short, long = now[k], after[k]
        even = not short or sizes[k] % mesh.parts(long) == 0
        return long[len(short):] if short != long and long[:len(short)] == short and even else None

    def slices() -> None:
        for k in range(len(sizes)):
            more = extends(k)
            busy = {name for axes in now for name in axes}.union(pending)
            if more and busy.isdisjoint(more):
                found.append(ReshardMove("slice", more, k))
                now[k] = after[k]
    slices()
    for k in range(len(sizes)):
        more = extends(k)
        if more and set(more) <= set(pending):
            found.append(ReshardMove("scatter", more, k, combine=source.combine))
            now[k] = after[k]
            pending = [name for name in pending if name not in more]
    if pending:
        found.append(ReshardMove("reduce", tuple(pending), combine=source.combine))
        pending = []
    slices()
    for k in range(len(sizes)):
        joined = now[k]
        other = next((j for j in range(len(sizes)) if j != k and joined and not after[k] and not now[j]
                      and after[j] == joined), None)
        if other is not None:
            found.append(ReshardMove("exchange", joined, other, k))
            now[k], now[other] = (), joined
    for k in range(len(sizes)):
        if now[k] != after[k] and extends(k) is None:
            kept = _common(now[k], after[k]) if sizes[k] % mesh.parts(now[k]) == 0 else ()
            kept = kept if sizes[k] % mesh.parts(after[k]) == 0 else ()
            found.append(ReshardMove("gather", now[k][len(kept):], k))
            now[k] = kept
    slices()
    assert now == list(after), f"{source} to {target} leaves {now}"
    return (*found, ReshardMove("mask", masked)) if masked else tuple(found)


def _common(a: Axes, b: Axes) -> Axes:
    count = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return a[:count]


# ---------------------------------------------------------------- what they cost

def _size(size: int, axes: Axes, mesh: Mesh, rank: int) -> int:
    start, stop = part_bounds(size, mesh.parts(axes), mesh.place(rank, axes))
    return stop - start


def _after(now: list[Axes], move: ReshardMove) -> None:
    """Let `now` be what splits the digits after a move."""
    if move.kind in ("slice", "scatter"):
        now[move.axis] = now[move.axis] + move.over
    elif move.kind == "gather":
        now[move.axis] = now[move.axis][:len(now[move.axis]) - len(move.over)]
    elif move.kind == "exchange":
        now[move.axis], now[move.other] = move.over, ()


def elements_sent(stage: ReshardStage, mesh: Mesh, rank: int = 0) -> list[tuple[ReshardMove, int]]:
    """How many elements each collective has to move: what a rank sends where the algorithm is the best there is."""
    now, found = list(stage.before), []
    for move in stage.moves:
        count = math.prod(_size(n, axes, mesh, rank) for n, axes in zip(stage.sizes, now, strict=True))
        _after(now, move)
        if move.kind == "gather":
            count = math.prod(_size(n, axes, mesh, rank) for n, axes in zip(stage.sizes, now, strict=True))
        if move.kind not in ("slice", "mask"):
            parts = mesh.parts(move.over)
            found.append((move, (2 if move.kind == "reduce" else 1) * count * (parts - 1) // parts))
    return found


@lru_cache(maxsize=8192)
def cost_of(source: ValueSharding, target: ValueSharding, shape: tuple[int, ...], mesh: Mesh) -> int:
    """The elements that a rank sends for a value of this shape to change its sharding."""
    return sum(count * (ACROSS_MICRO_AXIS if MICRO_AXIS in move.over and move.kind != "reduce" else 1)
               for stage in stages_between(source, target, shape, mesh) for move, count in elements_sent(stage, mesh))


# ---------------------------------------------------------------- the nodes

def emit_moves(builder: Builder, x: Value, source: ValueSharding, target: ValueSharding, shape: tuple[int, ...],
               mesh: Mesh, rank: int) -> Value:
    """What a rank has of a value, changed to another sharding."""
    for stage in stages_between(source, target, shape, mesh):
        now = list(stage.before)
        x = _reshaped(builder, x, tuple(_size(n, a, mesh, rank) for n, a in zip(stage.sizes, now, strict=True)))
        for move in stage.moves:
            _after(now, move)
            x = _emit(builder, x, move, stage.sizes, now, mesh, rank)
    return _reshaped(builder, x, local_shape(target, shape, mesh, rank))


def _reshaped(builder: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    return x if x.shape == shape else builder.emit(OPS["reshape"], (x,), {"shape": shape})


def _emit(builder: Builder, x: Value, move: ReshardMove, sizes: Sequence[int], now: Sequence[Axes], mesh: Mesh,
          rank: int) -> Value:
    size = _size(sizes[move.axis], now[move.axis], mesh, rank) if sizes else 0
    op = REDUCTION["max" if x.dtype is bool_ else move.combine]     # bool adds up by `or`
    if move.kind == "slice":
        return _slice(builder, x, move.axis, part_bounds(numbers_of(x)[move.axis], mesh.parts(move.over),
                                                         mesh.place(rank, move.over)))
    if move.kind == "mask":
        if mesh.place(rank, move.over) == 0 or is_zero(x):
            return x
        # Zeros that still depend on the value: ranks order and merge collectives by what depends on what, all alike.
        found: Value = builder.emit(OPS["where"], (literal(False, bool_), x, literal(0, x.dtype)), {})
        return found
    attrs: dict[str, Any] = {"over": move.over}
    if move.kind == "reduce":
        return _first(builder, "all_reduce", x, {**attrs, "op": op})
    if move.kind == "gather":
        return _first(builder, "all_gather", x, {**attrs, "axis": move.axis, "size": size})
    if move.kind == "scatter":
        return _first(builder, "reduce_scatter", x, {**attrs, "axis": move.axis, "size": size, "op": op})
    whole = _size(sizes[move.other], now[move.other], mesh, rank)
    return _first(builder, "all_to_all", x, {**attrs, "split": move.axis, "concat": move.other, "split_size": size,
                                             "concat_size": whole})


def is_zero(x: Value) -> bool:
    """Whether every element is known to be zero."""
    node = x.node
    while node is not None and node.op.moves in ("view", "part"):
        source = node.inputs[0]
        node = source.node if isinstance(source, Value) else None
    fill = node.inputs[0] if node is not None and node.op.name == "full_op" else None
    if node is not None and node.op.name == "where":        # of a mask
        chosen, _, fill = node.inputs
        fill = fill if isinstance(chosen, Literal) and not chosen.value else None
    return isinstance(fill, Literal) and fill.value == 0


def _first(builder: Builder, name: str, x: Value, attrs: dict[str, Any]) -> Value:
    out: Value = builder.emit(OPS[name], (x,), attrs)[0]
    return out


def _slice(builder: Builder, x: Value, axis: int, bounds: tuple[int, int]) -> Value:
    if x.node is not None and _repeats(x.node, axis):       # made once more, smaller: the same on all ranks
        shape = tuple(bounds[1] - bounds[0] if k == axis else n for k, n in enumerate(x.shape))
        again: Value = builder.emit(x.node.op, x.node.inputs, {**x.node.attrs, "shape": shape})
        return again
    start = tuple(bounds[0] if k == axis else 0 for k in range(x.ndim))
    stop = tuple(bounds[1] if k == axis else n for k, n in enumerate(x.shape))
    out: Value = builder.emit(OPS["slice"], (x,), {"start": start, "stop": stop, "step": (1,) * x.ndim})
    return out


def _repeats(node: Node, axis: int) -> bool:
    """Whether a node makes an axis along which all elements are the same."""
    if node.op.name == "full_op":
        return True
    if node.op.name != "broadcast_to" or not isinstance(source := node.inputs[0], Value):
        return False
    place = axis - (node.output.ndim - source.ndim)
    return place < 0 or source.shape[place] == 1
