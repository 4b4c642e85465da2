"""ATen's operators that read and write by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenon as tn
from tenon.dims.symbolic_dim import product
from tenon.ops.indexing import put, scatter_op
from tenon.ops.shape import inverse_permutation
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type, axis_of, filled, is_value
from tenon.types import broadcast_shapes

REDUCE = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def _index(at: AtenCall, x: Any, indices: Sequence[Any]) -> Any:
    if any(i is not None and i.dtype.kind == "b" for i in indices):
        raise UnmappedOperator("an index by a mask, whose size the data decide")
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(at: AtenCall, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False,
               unsafe: bool = False) -> Any:
    values = as_type(values, at.dtype)
    if any(i is not None and i.dtype.kind == "b" for i in indices):
        return _masked_put(x, indices, values, accumulate)
    axes = [k for k, i in enumerate(indices) if i is not None]
    others = [k for k in range(x.ndim) if k not in axes]
    shape = broadcast_shapes(*[indices[k].shape for k in axes])
    flat: Any = None
    for k in axes:
        place = _from_front(as_type(indices[k], tn.int64), x.shape[k])
        flat = place if flat is None else flat * x.shape[k] + place
    flat = tn.broadcast_to(flat, shape=shape)
    rows = tn.reshape(tn.permute(x, axes=(*axes, *others)),
                      (product([x.shape[k] for k in axes]), *[x.shape[k] for k in others]))
    updates = _updates(x, values, axes, others, shape)
    written = put(rows, flat, updates, axis=0, reduce="add" if accumulate else "set")
    order = (*axes, *others)
    return tn.permute(tn.reshape(written, tuple(x.shape[k] for k in order)), axes=inverse_permutation(order))


def _from_front(place: Any, size: Any) -> Any:
    return tn.where(tn.less(place, 0), tn.add(place, size), place)


def _updates(x: Any, values: Any, axes: list[int], others: list[int], shape: Any) -> Any:
    """The values as they are written: the axes of the indices first."""
    rest = tuple(x.shape[k] for k in others)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if together else 0
    whole = (*rest[:before], *shape, *rest[before:])
    values = tn.broadcast_to(values, shape=whole)
    front = tuple(range(before, before + len(shape)))
    return tn.permute(values, axes=(*front, *[k for k in range(len(whole)) if k not in front]))


def _masked_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    mask = indices[0]
    if len(indices) != 1 or product(values.shape) != 1:
        raise UnmappedOperator("values written by a mask")
    wide = tn.reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
    value = tn.reshape(values, ())
    return tn.where(wide, tn.add(x, value) if accumulate else value, x)


def _gather(at: AtenCall, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if x.ndim == 0:
        return tn.reshape(x, at.shape) if at.shape == () else tn.broadcast_to(x, shape=at.shape)
    if index.ndim == 0:
        index = tn.reshape(index, (1,))
        return tn.reshape(tn.gather(x, index, axis=0), ())
    return tn.gather(x, index, axis=axis_of(dim, x.ndim))


def _scatter(at: AtenCall, x: Any, dim: int, index: Any, source: Any, *, reduce: str = "set") -> Any:
    if x.ndim == 0:
        raise UnmappedOperator("scatter into a number")
    if is_value(source):
        source = as_type(source, at.dtype)
        source = source[tuple(slice(0, n) for n in index.shape)] if source.shape != index.shape else source
    else:
        source = filled(index.shape, source, at.dtype)
    return scatter_op(x, index, source, axis=axis_of(dim, x.ndim), reduce=REDUCE.get(reduce, reduce))


def _scatter_reduce(at: AtenCall, x: Any, dim: int, index: Any, source: Any, reduce: str, *,
                    include_self: bool = True) -> Any:
    if reduce not in REDUCE or not include_self:
        return tn.scatter_reduce(x, index, source, axis_of(dim, x.ndim), {**REDUCE, "mean": "mean"}[reduce],
                                 include_self)
    return _scatter(at, x, dim, index, source, reduce=reduce)


def _embedding(at: AtenCall, weight: Any, index: Any, *_: Any, **__: Any) -> Any:
    return tn.take(weight, index, axis=0)


def _index_select(at: AtenCall, x: Any, dim: int, index: Any) -> Any:
    if x.ndim == 0:
        return x
    return tn.take(x, tn.reshape(index, (-1,)) if index.ndim == 0 else index, axis=axis_of(dim, x.ndim))


def _index_add(at: AtenCall, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    source = as_type(source, at.dtype)
    source = source if alpha == 1 else tn.multiply(source, as_type(alpha, at.dtype))
    return put(x, index, source, axis=axis_of(dim, x.ndim), reduce="add")


def _index_reduce(at: AtenCall, x: Any, dim: int, index: Any, source: Any, reduce: str, *,
                  include_self: bool = True) -> Any:
    how = {**REDUCE, "mean": "mean"}[reduce]
    return tn.index_reduce(x, index, as_type(source, at.dtype), axis_of(dim, x.ndim), how, include_self)


def _put(at: AtenCall, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    index = _from_front(index, product(x.shape))
    return tn.put(x, index, as_type(source, at.dtype), accumulate)


def _searchsorted(at: AtenCall, edges: Any, x: Any, *, out_int32: bool = False, right: bool = False,
                  side: str | None = None, **_: Any) -> Any:
    if edges.ndim != 1 or not is_value(x):
        raise UnmappedOperator("a search in several rows")
    return as_type(tn.searchsorted(edges, x, side="right" if right or side == "right" else "left"), at.dtype)


def _histogram(at: AtenCall, x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many elements are in each of `bins` equal parts of a range; those outside of it, and NaN, are in none."""
    if min == max:
        raise UnmappedOperator("a histogram over the range of the data")
    wide = as_type(x, tn.float64 if at.dtype.bits == 64 else tn.float32)
    inside = tn.logical_and(tn.greater_equal(wide, min), tn.less_equal(wide, max))
    place = tn.floor(tn.multiply(tn.subtract(tn.where(inside, wide, min), min), bins / (max - min)))
    bin = tn.where(inside, tn.minimum(as_type(place, tn.int64), bins - 1), bins)
    flat = tn.reshape(bin, (-1,))
    counts = put(filled((bins + 1,), 0, tn.int64), flat, filled(flat.shape, 1, tn.int64), axis=0, reduce="add")
    return as_type(counts[:bins], at.dtype)


GATHERING: dict[str, Rule] = {
    "index": _index, "_unsafe_index": _index, "index_put": _index_put, "_unsafe_index_put": _index_put,
    "gather": _gather, "scatter": _scatter, "scatter_reduce": _scatter_reduce, "embedding": _embedding,
    "scatter_add": lambda at, x, dim, index, source: _scatter(at, x, dim, index, source, reduce="add"),
    "index_select": _index_select, "index_add": _index_add, "index_reduce": _index_reduce,
    "put": _put, "histc": _histogram, "searchsorted": _searchsorted,
    "masked_scatter": lambda at, x, *others: tn.masked_scatter(tn.broadcast_to(x, shape=at.shape), *others),
    "bucketize": lambda at, x, edges, **keywords: _searchsorted(at, edges, x, **keywords),
}
