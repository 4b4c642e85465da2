"""What devices say to each other, as operators: each rank of a mesh runs a graph of its own, these join them.

    total = all_reduce(x, over=("data",))                          # the sum of everybody's x, for everybody
    whole = all_gather(x, axis=0, over=("data",), size=10)         # everybody's rows, one below the other
    mine = reduce_scatter(x, axis=0, over=("data",), size=5)       # my rows of the sum

`over` names axes of the mesh: the ranks that differ along these only.  Sizes are written down, since parts may be
uneven (as those of `numpy.array_split`) and each rank has a graph of its own.  They are host operators that ask the
communicator of the run (`tenon.ops.communicator`), with effects: all ranks must ask in one order.  The gradients are
those of the sum of what all ranks compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.graph.op import Op
from tenon.ops.communicator import REDUCTIONS, communicator, place
from tenon.ops.comparison import equal
from tenon.ops.define import check_kind, define
from tenon.ops.shape import cast
from tenon.types import TOKEN, Shape, TensorType, int64, normalize_axis

Types = tuple[TensorType, TensorType]
Over = tuple[str, ...]


# ---------------------------------------------------------------- what the operators share

def _result(name: str, x: TensorType, shape: Shape, op: str = "sum") -> Types:
    """The type of a result, and the token of the effect."""
    if op not in REDUCTIONS:
        raise ArgumentError(f"{name}: op={op!r} is unknown", hint=f"one of {', '.join(REDUCTIONS)}")
    check_kind(name, x.dtype, ("uifc" if op == "sum" else "buif") if name in SUMMING else "buifc")
    return x.with_shape(shape), TOKEN


def _of_places(name: str, x: TensorType, **numbers: Any) -> Types:
    """The type of an input, where places of a group are numbers."""
    for what, number in numbers.items():
        if not isinstance(number, int):
            raise ArgumentError(f"{name}: {what} must be a whole number, it is {number!r}")
    return _result(name, x, x.shape)


def _with(shape: Shape, axis: int, size: Any) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1:])


def canonical_attrs(x: TensorType, **attrs: Any) -> Mapping[str, Any]:
    """Axes are counted from the front, one name of a mesh axis is a tuple of one."""
    over, axes = attrs["over"], {k: v for k, v in attrs.items() if k in ("axis", "split", "concat")}
    over = (over,) if isinstance(over, str) else tuple(over)
    if not all(isinstance(name, str) for name in over) or len(set(over)) < len(over):
        raise ArgumentError(f"over={over!r} must name axes of the mesh, each once", hint='over=("data",)')
    return {**attrs, "over": over, **{k: normalize_axis(v, x.ndim, k) for k, v in axes.items()}}


def _collective(name: str, type: Callable[..., Types], ref: Callable[..., Any], vjp: Callable[..., Any], doc: str,
                examples: list[str]) -> Op:
    """One operator: its result, and the token that keeps effects in order."""
    return define(name, public=False, handles=True, effect=True, type=type, canonical=canonical_attrs, doc=doc,
                  ref=lambda x, **attrs: (ref(communicator(name), x, None, **attrs), _DONE),
                  into=lambda outputs, x, **attrs: ref(communicator(name), _apart(x, outputs[0]), outputs[0], **attrs),
                  vjp=lambda g, y, x, **attrs: (vjp(g[0], y[0], x, **attrs),), examples=examples)


def _apart(x: Any, out: Any) -> Any:
    """The input, in other memory than the result: others may read it while this rank writes."""
    return x.copy() if np.may_share_memory(x, out) else x


_DONE = np.zeros((), np.bool_)
SUMMING = ("all_reduce", "reduce_scatter")


# ---------------------------------------------------------------- the operators

def _all_reduce_vjp(g: Any, y: Any, x: Any, over: Over, op: str) -> Any:
    """Those who have the extreme share the gradient evenly."""
    total = all_reduce(g, over=over)
    if op == "sum":
        return total
    hit = cast(equal(x, y), dtype=g.dtype)
    return hit * total / all_reduce(hit, over=over)


all_reduce_op = _collective(
    "all_reduce",
    type=lambda x, *, over=("data",), op="sum": _result("all_reduce", x, x.shape, op),
    ref=lambda speaker, x, out, over, op: speaker.all_reduce(x, over, op, out), vjp=_all_reduce_vjp,
    doc="The sum (or max, min) of the ranks' inputs, element by element, on every rank.",
    examples=['all_reduce(f32[2, 3], over=("data",), op="sum") -> (f32[2, 3], token)'])

def together_type(*xs: TensorType, over: Over, op: str = "sum") -> tuple[TensorType, ...]:
    for x in xs:
        if x.dtype != xs[0].dtype:
            raise DTypeError(f"all_reduce_together: elements of one type are reduced together, not {xs[0]} and {x}")
    return (*(_result("all_reduce", x, x.shape, op)[0] for x in xs), TOKEN)


def _together_into(outputs: Any, *xs: Any, over: Over, op: str) -> None:
    flat = np.concatenate([x.reshape(-1) for x in xs])
    total, end = communicator("all_reduce_together").all_reduce(flat, over, op, np.empty_like(flat)), 0
    for x, out in zip(xs, outputs, strict=False):
        np.copyto(out, total[end:end + x.size].reshape(x.shape))
        end += x.size


def together_ref(*xs: Any, over: Over, op: str) -> tuple[Any, ...]:
    outputs = tuple(map(np.empty_like, xs))
    _together_into(outputs, *xs, over=over, op=op)
    return (*outputs, _DONE)


def _together_vjp(g: Any, y: Any, *xs: Any, over: Over, op: str) -> tuple[Any, ...]:
    return tuple(_all_reduce_vjp(*one, over, op) for one in zip(g[:-1], y[:-1], xs, strict=True))


all_reduce_together = define(
    "all_reduce_together", public=False, handles=True, effect=True, type=together_type, ref=together_ref,
    into=_together_into, vjp=_together_vjp, canonical=lambda *xs, over, op: canonical_attrs(TOKEN, over=over, op=op),
    doc="Several `all_reduce`s in one message: what the pass `merge_collectives` makes of small ones.",
    examples=['all_reduce_together(f32[2, 3], f32[4], over=("data",), op="sum") -> (f32[2, 3], f32[4], token)'])

all_gather_op = _collective(
    "all_gather",
    type=lambda x, *, axis, over, size: _result("all_gather", x, _with(x.shape, axis, size)),
    ref=lambda speaker, x, out, axis, over, size: speaker.all_gather(x, axis, over, size, out),
    vjp=lambda g, y, x, axis, over, size: reduce_scatter(g, axis=axis, over=over, size=x.shape[axis]),
    doc="The ranks' parts of an axis, joined to the whole one of `size` elements, on every rank.",
    examples=['all_gather(f32[2, 3], axis=0, over=("data",), size=4) -> (f32[4, 3], token)'])


def _reduce_scatter_vjp(g: Any, y: Any, x: Any, axis: int, over: Over, op: str, size: int) -> Any:
    whole = {"axis": axis, "over": over, "size": x.shape[axis]}
    if op == "sum":
        return all_gather(g, **whole)
    hit = cast(equal(x, all_gather(y, **whole)), dtype=g.dtype)
    return hit * all_gather(g, **whole) / all_reduce(hit, over=over)


reduce_scatter_op = _collective(
    "reduce_scatter",
    type=lambda x, *, axis, over, size, op="sum": _result("reduce_scatter", x, _with(x.shape, axis, size), op),
    ref=lambda speaker, x, out, axis, over, size, op: speaker.reduce_scatter(x, axis, over, op, size, out),
    vjp=_reduce_scatter_vjp,
    doc="A part of `size` elements, along an axis, of the sum (or max, min) of the ranks' inputs: each has its own.",
    examples=['reduce_scatter(f32[4, 3], axis=0, over=("data",), size=2, op="sum") -> (f32[2, 3], token)'])


def _all_to_all_type(x: TensorType, *, split: int, concat: int, over: Any, split_size: Any,
                     concat_size: Any) -> Types:
    if split == concat and x.shape[split] != concat_size:
        raise ShapeError(f"all_to_all: an axis of {x.shape[split]} elements that is split and joined keeps its size, "
                         f"concat_size={concat_size}")
    joined = _with(x.shape, split, split_size)
    return _result("all_to_all", x, _with(joined, concat, concat_size))


all_to_all_op = _collective(
    "all_to_all", type=_all_to_all_type,
    ref=lambda speaker, x, out, split, concat, over, split_size, concat_size:
        speaker.all_to_all(x, split, concat, over, split_size, concat_size, out),
    vjp=lambda g, y, x, split, concat, over, split_size, concat_size: all_to_all(
        g, split=concat, concat=split, over=over, split_size=x.shape[concat],
        concat_size=x.shape[split]) if split != concat else all_to_all(
        g, split=split, concat=split, over=over, split_size=split_size, concat_size=concat_size),
    doc="Part k of axis `split` goes to rank k; what comes from the ranks is joined along axis `concat`.  `split_size` "
        "is this rank's part of the one, `concat_size` the whole of the other.",
    examples=['all_to_all(f32[4, 3], split=0, concat=1, over=("data",), split_size=2, concat_size=6) '
              '-> (f32[2, 6], token)'])

collective_broadcast_op = _collective(
    "collective_broadcast",
    type=lambda x, *, over, root=0: _of_places("collective_broadcast", x, root=root),
    ref=lambda speaker, x, out, over, root: speaker.broadcast(x, over, root, out),
    vjp=lambda g, y, x, over, root: all_reduce(g, over=over) * cast(equal(collective_place(over=over), root),
                                                                   dtype=g.dtype),
    doc="The input of the rank at place `root` of its group, on every rank.",
    examples=['collective_broadcast(f32[2, 3], over=("data",), root=0) -> (f32[2, 3], token)'])

collective_permute_op = _collective(
    "collective_permute",
    type=lambda x, *, over, shift=1: _of_places("collective_permute", x, shift=shift),
    ref=lambda speaker, x, out, over, shift: speaker.permute(x, over, shift, out),
    vjp=lambda g, y, x, over, shift: collective_permute(g, over=over, shift=-shift),
    doc="The input of the rank `shift` places before, round the ring of the group.",
    examples=['collective_permute(f32[2, 3], over=("data",), shift=1) -> (f32[2, 3], token)',
              'collective_permute(f32[2, 3], over=("data",), shift=1.5) -> error'])


def _barrier_ref(*, over: Over) -> Any:
    communicator("collective_barrier").barrier(over)
    return _DONE


def _place_ref(*, over: Over) -> Any:
    return np.asarray(place(communicator("collective_place"), over), np.int64), _DONE


collective_barrier = define(
    "collective_barrier", public=False, effect=True, type=lambda *, over: TOKEN, ref=_barrier_ref,
    canonical=lambda over: canonical_attrs(TOKEN, over=over), doc="Every rank waits here for all others of its group.")
collective_place_op = define(
    "collective_place", public=False, effect=True, type=lambda *, over: (TensorType(int64, ()), TOKEN), ref=_place_ref,
    canonical=lambda over: canonical_attrs(TOKEN, over=over), doc="The place of the rank that runs in its group.")
COLLECTIVES = (all_reduce_op, all_gather_op, reduce_scatter_op, all_to_all_op, collective_broadcast_op,
               collective_permute_op)


# ---------------------------------------------------------------- as functions

def collective_place(*, over: Any) -> Any:
    """The place of the rank that runs in its group, an integer tensor."""
    return collective_place_op(over=over)[0]


def all_reduce(x: Any, *, over: Any = ("data",), op: str = "sum") -> Any:
    """The sum of the ranks' tensors, element by element, on every rank; or their largest, or smallest elements.

    `over` names axes of the mesh: the ranks that differ along these only take part.  The sum is made in the order of
    the ranks, so its bits are the same in every run and on every transport.
    """
    return all_reduce_op(x, over=over, op=op)[0]


def all_gather(x: Any, *, axis: int, over: Any, size: Any) -> Any:
    """The ranks' parts, joined along `axis` to the whole of `size` elements, on every rank."""
    return all_gather_op(x, axis=axis, over=over, size=size)[0]


def reduce_scatter(x: Any, *, axis: int, over: Any, size: Any, op: str = "sum") -> Any:
    """This rank's part, of `size` elements along `axis`, of the sum of the ranks' tensors."""
    return reduce_scatter_op(x, axis=axis, over=over, size=size, op=op)[0]


def all_to_all(x: Any, *, split: int, concat: int, over: Any, split_size: Any, concat_size: Any) -> Any:
    """Part k along `split` goes to rank k, and what comes from the ranks is joined along `concat`.

    `split_size` is the size of this rank's part of the first axis, `concat_size` that of the whole second one.
    """
    return all_to_all_op(x, split=split, concat=concat, over=over, split_size=split_size, concat_size=concat_size)[0]


def collective_broadcast(x: Any, *, over: Any, root: int = 0) -> Any:
    """The tensor of the rank at place `root` of its group, on every rank."""
    return collective_broadcast_op(x, over=over, root=root)[0]


def collective_permute(x: Any, *, over: Any, shift: int = 1) -> Any:
    """The tensor of the rank `shift` places before this one, round the ring of the group."""
    return collective_permute_op(x, over=over, shift=shift)[0]
