"""ATen's operators that arrange elements: views, which are values here like any other, joins, cuts, and new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tenon as tn
from tenon.ops.bit_views import bits_as
from tenon.ops.indexing import put
from tenon.ops.shape import inverse_permutation
from tenon.ops.slicing import slice_update
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type, axis_of, filled

# ---------------------------------------------------------------- one tensor, seen another way


def _reshape(at: AtenCall, x: Any, *_: Any, **__: Any) -> Any:
    return tn.reshape(x, at.shape)


def _view(at: AtenCall, x: Any, shape: Any) -> Any:
    """Another shape, or the bits as another type."""
    return bits_as(x, at.dtype) if isinstance(shape, torch.dtype) else tn.reshape(x, at.shape)


def _permute(at: AtenCall, x: Any, dims: Sequence[int]) -> Any:
    return tn.permute(x, axes=tuple(axis_of(d, x.ndim) for d in dims))


def _transpose(at: AtenCall, x: Any, first: int, second: int) -> Any:
    return x if x.ndim == 0 else tn.swapaxes(x, first, second)


def _expand(at: AtenCall, x: Any, sizes: Sequence[Any], **_: Any) -> Any:
    return tn.broadcast_to(x, shape=at.shape)


def _bounds(x: Any, dim: int, start: Any, end: Any) -> tuple[Any, Any]:
    """Where a slice begins and ends, within the axis."""
    size = x.shape[dim]
    low, high = (default if bound is None else size if bound is not None and _is_beyond(bound) else bound
                 for bound, default in ((start, 0), (end, size)))
    low, high = (bound + size if bound < 0 else bound for bound in (low, high))
    low = 0 if low < 0 else size if low > size else low
    high = low if high < low else size if high > size else high
    return low, high


def _is_beyond(bound: Any) -> bool:
    return isinstance(bound, int) and bound >= 2 ** 62


def _slice(at: AtenCall, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    dim = axis_of(dim, x.ndim)
    low, high = _bounds(x, dim, start, end)
    return x[(slice(None),) * dim + (slice(low, high, step),)]


def _narrow(at: AtenCall, x: Any, dim: int, start: Any, length: Any) -> Any:
    start = start + x.shape[axis_of(dim, x.ndim)] if start < 0 else start
    return _slice(at, x, dim, start, start + length)


def _select(at: AtenCall, x: Any, dim: int, index: Any) -> Any:
    dim = axis_of(dim, x.ndim)
    return x[(slice(None),) * dim + (index,)]


def _flip(at: AtenCall, x: Any, dims: Sequence[int]) -> Any:
    return tn.flip(x, axis=tuple(axis_of(d, x.ndim) for d in dims)) if dims else x


def _roll(at: AtenCall, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    return tn.roll(x, tuple(shifts), tuple(dims)) if dims else tn.roll(x, *shifts)


def _repeat(at: AtenCall, x: Any, repeats: Sequence[Any]) -> Any:
    return tn.tile(x, tuple(repeats))


def _diagonal(at: AtenCall, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return tn.diagonal(x, offset, dim1, dim2)


def _as_strided(at: AtenCall, x: Any, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Any:
    memory, _ = _in_memory_order(at, x)
    return tn.reshape(tn.take(memory, _positions(size, stride, offset), axis=0), at.shape)


def _as_strided_scatter(at: AtenCall, x: Any, source: Any, size: Sequence[Any], stride: Sequence[Any],
                        offset: Any = None) -> Any:
    memory, order = _in_memory_order(at, x)
    written = put(memory, _positions(size, stride, offset), tn.reshape(as_type(source, at.dtype), (-1,)), axis=0,
                  reduce="set")
    return tn.permute(tn.reshape(written, tuple(x.shape[k] for k in order)), axes=inverse_permutation(order))


def _positions(size: Sequence[Any], stride: Sequence[Any], offset: Any) -> Any:
    """Where in memory the elements of a view are, one after the other."""
    place: Any = tn.full(tuple(size), offset or 0, dtype=tn.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        place = place + tn.reshape(tn.arange(0, n) * step, (n, *(1,) * (len(size) - axis - 1)))
    return tn.reshape(place, (-1,))


def _in_memory_order(at: AtenCall, x: Any) -> tuple[Any, tuple[int, ...]]:
    """The elements in the order in which PyTorch has them in memory, and the axes in that order."""
    fake = at.arguments[0]
    order = tuple(sorted(range(x.ndim), key=lambda k: (-fake.stride(k), k)))
    dense, step = True, 1
    for k in reversed(order):
        dense, step = dense and (fake.shape[k] == 1 or fake.stride(k) == step), step * fake.shape[k]
    if not dense or fake.storage_offset():
        raise UnmappedOperator("a view of memory that is not all elements in order")
    return tn.reshape(tn.permute(x, axes=order), (-1,)), order


def _unfold(at: AtenCall, x: Any, dim: int, size: int, step: int) -> Any:
    if x.ndim == 0:
        raise UnmappedOperator("windows of a number")
    return tn.sliding_window(x, size, step, axis=axis_of(dim, x.ndim))


# ---------------------------------------------------------------- joins and cuts

def _cat(at: AtenCall, tensors: Sequence[Any], dim: int = 0) -> Any:
    wanted = len(at.shape)
    parts = [as_type(x, at.dtype) for x in tensors if x.ndim == wanted]     # an empty vector joins anything
    return tn.concat(parts, axis=axis_of(dim, wanted))


def _split(at: AtenCall, x: Any, sizes: Sequence[Any], dim: int = 0) -> Any:
    start: Any = 0
    dim, parts = axis_of(dim, x.ndim), []
    for type in at.types:
        assert type is not None
        size = type.shape[dim]
        parts.append(_slice(at, x, dim, start, start + size))
        start = start + size
    return tuple(parts)


def _unbind(at: AtenCall, x: Any, dim: int = 0) -> Any:
    return tuple(_select(at, x, dim, k) for k in range(len(at.types)))


def _pad(at: AtenCall, x: Any, pad: Sequence[Any], value: Any = 0) -> Any:
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    width = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    cuts = tuple(slice(-low if low < 0 else 0, n + high if high < 0 else n)
                 for n, (low, high) in zip(x.shape, width, strict=True))
    x = x[cuts] if any(low < 0 or high < 0 for low, high in width) else x
    grown = [(low if low > 0 else 0, high if high > 0 else 0) for low, high in width]
    return tn.pad(x, grown, constant_values=as_type(value, at.dtype)) if grown else x


def _slice_scatter(at: AtenCall, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None,
                   step: int = 1) -> Any:
    dim = axis_of(dim, x.ndim)
    low, _ = _bounds(x, dim, start, end)
    starts, steps = ([other] * dim + [own] + [other] * (x.ndim - dim - 1) for own, other in ((low, 0), (step, 1)))
    source = as_type(source, at.dtype)
    return slice_update(x, source, start=tuple(starts), step=tuple(steps)) if _some(source) else x


def _some(x: Any) -> bool:
    return not any(isinstance(n, int) and n == 0 for n in x.shape)


def _select_scatter(at: AtenCall, x: Any, source: Any, dim: int, index: Any) -> Any:
    dim = axis_of(dim, x.ndim)
    index = index + x.shape[dim] if index < 0 else index
    return _slice_scatter(at, x, tn.expand_dims(source, dim), dim, index, index + 1)


def _triangle(keep_below: bool) -> Rule:
    def rule(at: AtenCall, x: Any, diagonal: int = 0) -> Any:
        rows, columns = (tn.arange(0, n) for n in x.shape[-2:])
        distance = columns - tn.expand_dims(rows, -1)
        keep = distance <= diagonal if keep_below else distance >= diagonal
        return tn.where(keep, x, as_type(0, at.dtype))
    return rule


# ---------------------------------------------------------------- new tensors

def _full(at: AtenCall, size: Sequence[Any], value: Any, **_: Any) -> Any:
    return filled(at.shape, value, at.dtype)


def _new(value: Any) -> Rule:
    """A tensor of one number, whatever the arguments say of its shape."""
    return lambda at, *_, **__: filled(at.shape, value, at.dtype)


def _arange(at: AtenCall, *bounds: Any, **_: Any) -> Any:
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], (*bounds, 1)[2])
    if at.dtype.kind == "f" and at.dtype.bits < 32:
        raise UnmappedOperator("a range of short numbers")
    from_zero = tn.arange(0, at.shape[0], dtype=at.dtype)
    scaled = from_zero if step == 1 else from_zero * as_type(step, at.dtype)
    return scaled if start == 0 else scaled + as_type(start, at.dtype)


def _iota(at: AtenCall, length: Any, *, start: Any, step: Any, **_: Any) -> Any:
    return _arange(at, start, start + length * step, step)


def _eye(at: AtenCall, *_: Any, **__: Any) -> Any:
    return tn.eye(*at.shape, dtype=at.dtype)


def _triangle_places(function: Any) -> Rule:
    def rule(at: AtenCall, rows: int, columns: int, offset: int = 0, **_: Any) -> Any:
        if not (isinstance(rows, int) and isinstance(columns, int)):
            raise UnmappedOperator("a triangle of a size that is not known yet")
        return as_type(tn.stack(function(rows, columns, offset)), at.dtype)
    return rule


def _full_like(at: AtenCall, x: Any, value: Any, **_: Any) -> Any:
    return filled(at.shape, value, at.dtype)


def _scalar_tensor(at: AtenCall, value: Any, **_: Any) -> Any:
    return filled((), value, at.dtype)



_PLAIN: dict[str, Rule] = {
    **dict.fromkeys(("reshape", "_unsafe_view", "unsqueeze", "squeeze", "_reshape_alias", "flatten"), _reshape),
    "view": _view, "permute": _permute, "transpose": _transpose,
    "t": lambda at, x: _transpose(at, x, 0, 1) if x.ndim == 2 else x,
    "expand": _expand, "slice": _slice, "select": _select, "flip": _flip, "roll": _roll, "repeat": _repeat,
    "unfold": _unfold, "diagonal": _diagonal, "as_strided": _as_strided, "as_strided_scatter": _as_strided_scatter,
    "cat": _cat, "split": _split, "split_with_sizes": _split, "unbind": _unbind, "constant_pad_nd": _pad,
    "slice_scatter": _slice_scatter, "select_scatter": _select_scatter, "tril": _triangle(True),
    "triu": _triangle(False),
    "stack": lambda at, tensors, dim=0: tn.stack([as_type(x, at.dtype) for x in tensors], axis=dim),
    "diagonal_scatter": lambda at, x, source, *where: tn.diagonal_scatter(x, as_type(source, at.dtype), *where),
    "full": _full, "full_like": _full_like, "new_full": lambda at, x, size, value, **_: _full(at, size, value),
    "scalar_tensor": _scalar_tensor, "_efficientzerotensor": _new(0),
    **dict.fromkeys(("empty", "zeros", "empty_like", "zeros_like", "new_zeros", "new_empty", "empty_permuted",
                     "empty_strided", "new_empty_strided"), _new(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _new(1)),
    "arange": _arange, "prims.iota": _iota, "eye": _eye,
    "tril_indices": _triangle_places(tn.tril_indices), "triu_indices": _triangle_places(tn.triu_indices),
}

# What PyTorch calls a copy of a view is, of values, the view.
VIEWS: dict[str, Rule] = {**_PLAIN, "narrow_copy": _narrow, **{f"{name}_copy": _PLAIN[name] for name in (
    "view", "unsqueeze", "squeeze", "permute", "transpose", "t", "expand", "slice", "select", "unfold", "diagonal",
    "as_strided", "split", "split_with_sizes", "unbind")}}
