"""Collectives on a batch: between devices for each example; or between the examples, where the batch is a mesh axis.

    tn.vmap(f, mesh_axis="data")(x)         # the examples are the ranks along "data"

So what is written for a mesh runs on one device, and can be compared with it.  Parts are even, since examples are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.errors import ArgumentError
from tenon.graph.op import Op
from tenon.ops.batching import Arguments, as_tensor
from tenon.ops.batching import split as split_axis
from tenon.ops.collectives import (
    all_gather_op,
    all_reduce_op,
    all_to_all_op,
    collective_broadcast_op,
    collective_permute_op,
    collective_place_op,
    reduce_scatter_op,
)
from tenon.ops.creation import arange
from tenon.ops.reduction import max_, min_, sum_
from tenon.ops.repeating import roll
from tenon.ops.shape import permute, reshape_op
from tenon.transforms.vmap_control_flow import spread_out

AXES = ("axis", "split", "concat")


def on_a_batch(op: Op, a: Arguments, /, **attrs: Any) -> Any:
    """A collective on examples; those along the mesh axis that the batch is are its ranks."""
    name = a.level.mesh_axis
    if name is None or name not in attrs["over"]:
        return op(*a.all_whole(), **{k: v + 1 if k in AXES else v for k, v in attrs.items()})
    others = tuple(x for x in attrs["over"] if x != name)
    if others and op is not all_reduce_op:
        raise ArgumentError(f"{op.name}: over={attrs['over']!r} names the axis {name!r} of tn.vmap and others",
                            hint="call it for each of them")
    x = a.whole(0) if a.inputs else None
    found = BETWEEN_EXAMPLES[op](x, a.size, **{k: v for k, v in attrs.items() if k != "over"})
    if others:
        found = all_reduce_op(found, over=others, op=attrs["op"])[0]
    return found, found         # in the place of the token, which nobody reads


def reduced(x: Any, size: Any, op: str) -> Any:
    return spread_out({"sum": sum_, "max": max_, "min": min_}[op](x, axis=0), size)


def gathered(x: Any, count: Any, /, axis: int, size: Any) -> Any:
    check_even("all_gather", x.shape[axis + 1] * count, size)
    return spread_out(joined(x, 0, axis + 1), count)


def scattered(x: Any, count: Any, /, axis: int, op: str, size: Any) -> Any:
    check_even("reduce_scatter", x.shape[axis + 1], size * count)
    total = {"sum": sum_, "max": max_, "min": min_}[op](x, axis=0)
    return split_axis(total, axis, count)


def exchanged(x: Any, count: Any, split: int, concat: int, split_size: Any, concat_size: Any) -> Any:
    """[from, ..., to and part, ..., concat, ...] -> [to, ..., part, ..., from and concat, ...]"""
    check_even("all_to_all", x.shape[split + 1], split_size * count)
    check_even("all_to_all", x.shape[concat + 1] * (1 if split == concat else count), concat_size)
    return joined(split_axis(x, split + 1, count), 1, concat + 2)


def joined(x: Any, outer: int, inner: int) -> Any:
    """The axis `outer` made one with `inner`, as its slower part."""
    order = [k for k in range(x.ndim) if k != outer]
    order.insert(inner - 1, outer)
    moved, place = permute(x, axes=tuple(order)), inner - 1
    shape = moved.shape
    return reshape_op(moved, shape=(*shape[:place], shape[place] * shape[place + 1], *shape[place + 2:]))


def check_even(name: str, found: Any, expected: Any) -> None:
    """Raise ArgumentError where the parts of the examples do not make up the whole."""
    if found != expected:
        raise ArgumentError(f"{name}: the parts of the examples have {found} elements, not {expected}",
                            hint="examples of tn.vmap have parts of one size")


def of_one(x: Any, size: Any, root: int) -> Any:
    if not 0 <= root < int(size):
        raise ArgumentError(f"collective_broadcast: root={root} is no place among {size} examples")
    return spread_out(x[root], size)


BETWEEN_EXAMPLES: dict[Op, Callable[..., Any]] = {
    all_reduce_op: reduced, all_gather_op: gathered, reduce_scatter_op: scattered, all_to_all_op: exchanged,
    collective_broadcast_op: of_one, collective_permute_op: lambda x, size, shift: roll(x, shift, 0),
    collective_place_op: lambda x, size: as_tensor(arange(size))}
COLLECTIVE: dict[Op, Callable[..., Any]] = dict.fromkeys(BETWEEN_EXAMPLES, on_a_batch)
