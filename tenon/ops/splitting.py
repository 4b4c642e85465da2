"""Functions that cut tensors: split, chunk, unstack, select.  Made of slices, they leave no node of their own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tenon.dims.compare_sizes import hold_for_data_where_natural
from tenon.dims.symbolic_dim import Dim
from tenon.errors import ArgumentError, ShapeError
from tenon.ops.comparison import where
from tenon.ops.define import aliases, function, is_computed, lift
from tenon.ops.joining_and_axes import replaced
from tenon.ops.shape import as_dim, reshape_op
from tenon.ops.slice_pad_concat import slice_op
from tenon.types import normalize_axis


def narrow(x: Any, axis: int, start: Dim, stop: Dim, step: int = 1) -> Any:
    """The positions start, start + step ... before stop along one axis."""
    return slice_op(x, start=replaced((0,) * x.ndim, axis, start), stop=replaced(x.shape, axis, stop),
                    step=replaced((1,) * x.ndim, axis, step))


def _cut(x: Any, axis: int, ends: Sequence[Dim]) -> tuple[Any, ...]:
    return tuple(narrow(x, axis, a, b) for a, b in itertools.pairwise(map(as_dim, ends)))


@function
def split(x: Any, sections: Any = None, axis: int = 0, *, split_size: Any = None) -> tuple[Any, ...]:
    """Cut into so many equal pieces, or at a list of positions, as NumPy does; or, as PyTorch does, by `split_size`.

    That is the size of all pieces, of which the last may be smaller, or a list with the size of each.

    >>> [part.shape for part in tn.zeros(6, 2).split(3)], [part.shape for part in tn.zeros(6).split([1, 4])]
    ([(2, 2), (2, 2), (2, 2)], [(1,), (3,), (2,)])
    >>> [part.shape for part in tn.zeros(5).split(split_size=2)]
    [(2,), (2,), (1,)]

    Raises ShapeError where the size does not divide; `tensor_split` allows it, `split_with_sizes` takes sizes.
    """
    x, axis = lift(x), normalize_axis(axis, x.ndim)
    if (sections is None) == (split_size is None):
        raise ArgumentError("split: either sections or a split_size is needed")
    if isinstance(split_size, (list, tuple)):
        return split_with_sizes(x, split_size, axis)
    if split_size is not None:
        if split_size < 1:
            raise ArgumentError(f"split: pieces of at least one element are needed, got split_size={split_size}")
        return _cut(x, axis, [*range(0, max(x.shape[axis], 1), split_size), x.shape[axis]])
    sections = as_dim(sections)
    if isinstance(sections, int) and (sections < 1 or x.shape[axis] % sections != 0):
        raise ShapeError(f"split: axis {axis} of {x.type} does not divide into {sections} equal pieces",
                         hint="x.tensor_split(n) makes pieces that differ by one, x.chunk(n) a smaller last one")
    return tensor_split(x, sections, axis)


@function
def tensor_split(x: Any, sections: Any, axis: int = 0) -> tuple[Any, ...]:
    """Cut into so many pieces, whose sizes differ by one at most, or at a list of positions."""
    x = lift(x)
    axis, sections = normalize_axis(axis, x.ndim), as_dim(sections)
    size = x.shape[axis]
    if not isinstance(sections, int):
        cuts = [_position(k, size) for k in sections]
        return tuple(narrow(x, axis, a, b if not (isinstance(a, int) and isinstance(b, int)) else max(a, b))
                     for a, b in zip([0, *cuts], [*cuts, size], strict=True))
    if sections < 1:
        raise ArgumentError(f"tensor_split: at least one piece is needed, got {sections}")
    size = _number_unless_it_divides(size, sections)
    each, larger = size // sections, size % sections
    return _cut(x, axis, [each * k + min(k, larger) for k in range(sections + 1)])


def _number_unless_it_divides(size: Dim, sections: int) -> Any:
    """The size; as a number where a symbol does not say what is left over, on which the pieces' sizes depend."""
    return size if isinstance(size % sections, int) else int(size)


def _position(k: Any, size: Dim) -> Dim:
    k = int(k) if hasattr(k, "item") else k
    wrapped = k + size if isinstance(k, int) and k < 0 else k
    return min(max(wrapped, 0), size) if isinstance(size, int) and isinstance(wrapped, int) else wrapped


@function
def split_with_sizes(x: Any, sizes: Sequence[Any], axis: int = 0) -> tuple[Any, ...]:
    """Cut into pieces of these sizes, which add up to the axis."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    ends: list[Dim] = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    if ends[-1] != x.shape[axis]:
        raise ShapeError(f"split_with_sizes: {list(sizes)} add up to {ends[-1]}, axis {axis} of {x.type} does not")
    return _cut(x, axis, ends)


@function
def chunk(x: Any, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    """Cut into at most so many pieces of one size; the last may be smaller, as in PyTorch."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    if chunks < 1:
        raise ArgumentError(f"chunk: at least one piece is needed, got {chunks}")
    size = x.shape[axis]
    if size == 0:
        return (x,) * chunks
    each = (size + chunks - 1) // chunks
    starts = itertools.takewhile(lambda start: start < size, (each * k for k in range(chunks)))
    return _cut(x, axis, [*starts, size])


@function
def hsplit(x: Any, sections: Any) -> tuple[Any, ...]:
    """`split` of the second axis; of the only axis of a vector.

    >>> [part.shape for part in tn.hsplit(tn.zeros(2, 4), 2)]
    [(2, 2), (2, 2)]
    """
    x = _of_axes("hsplit", lift(x), 1)
    return split(x, sections, min(1, x.ndim - 1))


@function
def vsplit(x: Any, sections: Any) -> tuple[Any, ...]:
    """`split` of the first axis of a matrix, or of more axes."""
    return split(_of_axes("vsplit", lift(x), 2), sections, 0)


@function
def dsplit(x: Any, sections: Any) -> tuple[Any, ...]:
    """`split` of the third axis."""
    return split(_of_axes("dsplit", lift(x), 3), sections, 2)


def _of_axes(name: str, x: Any, least: int) -> Any:
    if x.ndim < least:
        raise ShapeError(f"{name}: at least {least} axes were expected, the tensor is {x.type}")
    return x


@function
def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The tensors that lie along an axis, which they no longer have."""
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    return tuple(select(x, axis, k) for k in range(int(x.shape[axis])))


@function
def select(x: Any, axis: Any, index: Any = None, *, default: Any = 0) -> Any:
    """The tensor at one position of an axis, which it no longer has; a negative index counts from the end.

    Of two lists it is NumPy's `select(conditions, choices, default=0)`: from the choice whose condition holds first.

    >>> x = tn.tensor([1, 2, 3])
    >>> x.select(0, -1), tn.select([x > 2, x > 1], [x, -x], 9)
    (tensor(3), tensor([ 9, -2,  3]))
    """
    if isinstance(x, (list, tuple)) and isinstance(axis, (list, tuple)):
        return _first_that_holds(x, axis, default if index is None else index)
    if index is None:
        raise ArgumentError("select: an index is missing", hint="x.select(axis, index)")
    x = lift(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(index, int) and isinstance(size, int):
        index = normalize_axis(index, size, f"select: the index into axis {axis}") if size else index
    elif isinstance(index, int) and index < 0:
        index = size + index
    index = index.as_size() if is_computed(index) else as_dim(index)
    hold_for_data_where_natural(index, size - 1 - index)
    return reshape_op(narrow(x, axis, index, index + 1), shape=replaced(x.shape, axis))


def _first_that_holds(conditions: Sequence[Any], choices: Sequence[Any], default: Any) -> Any:
    if len(conditions) != len(choices) or not conditions:
        raise ArgumentError(f"select: {len(conditions)} conditions for {len(choices)} choices")
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        default = where(condition, choice, default)
    return default


aliases(unbind=unstack, array_split=tensor_split)
