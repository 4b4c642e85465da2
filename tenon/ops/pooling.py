"""Pooling: the maximum, the mean or a norm of windows over the last axes of x [N, C, *sizes]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.build import literal
from tenon.graph.op import Op
from tenon.ops.comparison import equal, where
from tenon.ops.creation import arange
from tenon.ops.define import check_kind, define, layer_function
from tenon.ops.shape import full_op, ravel, reshape_op, unravel
from tenon.ops.shape_generic_programs import pool_sizes
from tenon.ops.slice_pad_concat import concat_op
from tenon.ops.splitting import narrow
from tenon.ops.unpooling import adaptive_maxima
from tenon.ops.windows import (
    Pads,
    Sizes,
    Steps,
    are_apart,
    over_windows,
    padded,
    per_axis,
    shown,
    sum_taps,
    sum_windows,
    taps_of,
    window_attrs,
    window_counts,
    window_view,
    windows,
)
from tenon.types import DType, TensorType, int32, int64

# ---------------------------------------------------------------- maximum

def _pool_attrs(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> dict[str, Any]:
    return window_attrs(kernel, stride, padding, dilation, x.shape[x.ndim - len(kernel):])


def _max_pool_type(x: TensorType, *, kernel: Sizes, stride: Any = None, padding: Any = 0,
                   dilation: Any = 1) -> TensorType:
    check_kind("max_pool", x.dtype, "buif")
    lead = x.ndim - len(kernel)
    counts = window_counts("max_pool", x.shape[lead:], kernel, stride, padding, dilation)
    return x.with_shape((*x.shape[:lead], *counts))


def lowest(dtype: DType) -> Any:
    """The least value of a type: what a maximum starts from."""
    if dtype.kind == "f":
        return -np.inf
    return False if dtype.kind == "b" else int(np.iinfo(dtype.numpy).min)


def _extreme(s: Any, i: Any, kind: str, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """The maximum of a window, or the number of the tap that has it."""
    lead, p = i[:x.ndim - len(kernel)], i[x.ndim - len(kernel):]
    return s.reduce(kind, kernel, lambda k: padded(s, x, lead, p, k, stride, padding, dilation, lowest(x.dtype)))


def _max_pool_compute(s: Any, i: Any, x: Any, **attrs: Any) -> Any:
    return _extreme(s, i, "max", x, **attrs)


def _first_element(maximum: Any, minimum: Any, p: Sequence[Any], kernel: Sizes, stride: Steps, padding: Pads,
                   dilation: Steps) -> Any:
    """The number of the first tap of window p that lies on an element, and not in the padding."""
    taps = [minimum(maximum(a * -st + (low + d - 1), 0) // d, k - 1)
            for a, k, st, d, (low, _) in zip(p, kernel, stride, dilation, padding, strict=True)]
    return ravel(taps, kernel)


def _has_start(padding: Pads) -> bool:
    """Whether there may be padding in front of the elements."""
    return any(not isinstance(low, int) or low > 0 for low, _ in padding)


def _winner(s: Any, i: Any, x: Any, kernel: Any, padding: Any, **attrs: Any) -> Any:
    """The number of the tap that has the maximum.  Padding ties with elements of the least value, and never wins."""
    found = _extreme(s, i, "argmax", x, kernel=kernel, padding=padding, **attrs)
    if not _has_start(padding):
        return found
    first = _first_element(s.maximum, s.minimum, i[x.ndim - len(kernel):], kernel, padding=padding, **attrs)
    return s.select(s.eq(found, 0), first, found)


def _taps_compute(s: Any, i: Any, x: Any, **attrs: Any) -> Any:
    return s.cast(_winner(s, i, x, **attrs), int32)


def _positions_compute(s: Any, i: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    found = _winner(s, i, x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    p = i[x.ndim - len(kernel):]
    at = [a * st + b * d - low for a, b, st, d, (low, _)
          in zip(p, unravel(found, kernel), stride, dilation, padding, strict=True)]
    return ravel(at, x.shape[x.ndim - len(kernel):])


def _max_pool_ref(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    view = window_view(x, kernel, stride, padding, dilation, lowest_of(x))
    first, *others = taps_of(kernel)
    out = view[(..., *first)].copy()
    for k in others:
        np.maximum(out, view[(..., *k)], out=out)
    return out


def lowest_of(x: Any) -> Any:
    """NumPy: the least value of the array's type."""
    return -np.inf if x.dtype.kind in "fV" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min


def _taps_ref(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    view, (first, *others) = window_view(x, kernel, stride, padding, dilation, lowest_of(x)), taps_of(kernel)
    best = view[(..., *first)].copy()
    flat = np.zeros(best.shape, np.int32)
    for number, k in enumerate(others, 1):
        element = view[(..., *k)].copy()                    # side by side, since it is read twice
        np.putmask(flat, ~(element <= best) & (best == best), number)       # NaN is largest, the first wins
        np.maximum(best, element, out=best)
    if _has_start(padding):
        counts = np.indices(best.shape, sparse=True)[best.ndim - len(kernel):]
        start = _first_element(np.maximum, np.minimum, counts, kernel, stride, padding, dilation)
        flat = np.where(flat == 0, start, flat).astype(np.int32)
    return flat


def _positions_ref(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    flat, count = _taps_ref(x, kernel, stride, padding, dilation), len(kernel)
    taps: Any = np.unravel_index(flat, kernel)
    counts: Any = np.indices(flat.shape, sparse=True)[flat.ndim - count:]
    at = tuple(p * s + k * d - low
               for p, k, s, d, (low, _) in zip(counts, taps, stride, dilation, padding, strict=True))
    return ravel(at, x.shape[x.ndim - count:]).astype(np.int64)


def _pool_work(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    return 4 * int(inputs[0].size)


def _adds_nothing(attrs: Mapping[str, Any]) -> bool:
    return are_apart(attrs["kernel"], attrs["stride"], attrs["dilation"])


max_pool_op: Op = define(
    "max_pool_op", public=False, type=_max_pool_type, canonical=_pool_attrs, ref=_max_pool_ref,
    compute=_max_pool_compute,
    vjp=lambda g, y, x, kernel, **attrs: (
        max_pool_grad(g, max_pool_taps(x, kernel=kernel, **attrs), sizes=x.shape[x.ndim - len(kernel):],
                      kernel=kernel, **attrs),),
    batch="front",
    exact=True, numpy_work=_pool_work, any_sizes=pool_sizes, reads_part=True,
    doc="The largest element of each window over the last axes; padding never wins.",
    examples=["max_pool_op(f32[2, 7], kernel=(3,), stride=(2,), padding=((1, 0),), dilation=(1,)) -> f32[2, 3]",
              "max_pool_op(f32[2, 5, 6], kernel=(2, 3), stride=(1, 1), padding=((0, 0), (1, 1)), dilation=(2, 1))"
              " -> f32[2, 3, 6]",
              "max_pool_op(f32[2, 2], kernel=(3,), stride=(1,), padding=((0, 0),), dilation=(1,)) -> error"])

def _with_dtype(dtype: DType) -> Callable[..., TensorType]:
    """The type of the pooled tensor with other elements."""
    def rule(x: TensorType, *, kernel: Sizes, stride: Steps, padding: Pads, dilation: Steps) -> TensorType:
        return _max_pool_type(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation).with_dtype(dtype)
    return rule


max_pool_taps: Op = define(
    "max_pool_taps", public=False, canonical=_pool_attrs, ref=_taps_ref, compute=_taps_compute,
    type=_with_dtype(int32),
    batch="front",
    exact=True, numpy_work=_pool_work, any_sizes=pool_sizes,
    doc="The number of the tap under which each window has its largest element; the first of equals.",
    examples=["max_pool_taps(f32[2, 7], kernel=(3,), stride=(2,), padding=((1, 0),), dilation=(1,)) -> i32[2, 3]",
              "max_pool_taps(f32[2, 5, 6], kernel=(2, 3), stride=(1, 1), padding=((0, 0), (1, 1)), dilation=(2, 1))"
              " -> i32[2, 3, 6]"])

max_pool_positions: Op = define(
    "max_pool_positions", public=False, canonical=_pool_attrs, ref=_positions_ref, compute=_positions_compute,
    type=_with_dtype(int64),
    batch="front",
    exact=True, numpy_work=_pool_work, any_sizes=pool_sizes,
    doc="Where the largest element of each window stands among the sizes, in row-major order; the first of equals.",
    examples=["max_pool_positions(f32[2, 7], kernel=(3,), stride=(2,), padding=((1, 0),), dilation=(1,)) -> i64[2, 3]",
              "max_pool_positions(f32[2, 5, 6], kernel=(2, 3), stride=(1, 1), padding=((0, 0), (1, 1)), "
              "dilation=(2, 1)) -> i64[2, 3, 6]"])


def _max_pool_grad_type(g: TensorType, taps: TensorType, *, sizes: Sizes, kernel: Sizes, stride: Steps, padding: Pads,
                        dilation: Steps) -> TensorType:
    if taps.shape != g.shape or taps.dtype is not int32:
        raise ShapeError(f"max_pool_grad: the gradient is {g}, the taps are {taps}")
    x = g.with_shape((*g.shape[:g.ndim - len(kernel)], *sizes))
    expected = _max_pool_type(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    if expected != g:
        raise ShapeError(f"max_pool_grad: windows over sizes {list(sizes)} are {expected}, not {g}")
    return x


def _max_pool_grad_compute(s: Any, i: Any, g: Any, taps: Any, sizes: Any, kernel: Any, stride: Any, padding: Any,
                           dilation: Any) -> Any:
    lead, q = i[:len(i) - len(kernel)], i[len(i) - len(kernel):]

    def won(k: Any, p: Any) -> Any:
        here = s.cast(ravel(k, kernel), int32)
        return s.select(s.eq(taps((*lead, *p)), here), g((*lead, *p)), s.const(0, g.dtype))
    return over_windows(s, q, kernel, g.shape[len(lead):], stride, padding, dilation, won, g.dtype)


def _max_pool_grad_ref(g: Any, taps: Any, sizes: Any, kernel: Any, **attrs: Any) -> Any:
    zero = np.zeros((), g.dtype)
    if are_apart(kernel, attrs["stride"], attrs["dilation"]):
        here = taps[..., None] == np.arange(int(np.prod(kernel)), dtype=taps.dtype)
        return sum_windows(np.where(here, g[..., None], zero).reshape(*g.shape, *kernel), sizes, kernel, **attrs)
    return sum_taps(lambda tap: np.where(taps == tap, g, zero), g, sizes, kernel, **attrs)


max_pool_grad: Op = define(
    "max_pool_grad", public=False, ref=_max_pool_grad_ref, compute=_max_pool_grad_compute, type=_max_pool_grad_type,
    vjp=lambda h, y, g, taps, sizes, **attrs: (under_taps(h, taps, attrs), None),
    batch="front",
    exact=_adds_nothing, numpy_work=_pool_work, any_sizes=pool_sizes,
    doc="The gradient of each window given to the element under the tap that won.",
    domain=((-2, 2), (0, 2)),
    examples=["max_pool_grad(f32[2, 1], i32[2, 1], sizes=(4,), kernel=(3,), stride=(3,), padding=((0, 0),), "
              "dilation=(1,)) -> f32[2, 4]"])


def under_taps(x: Any, taps: Any, attrs: dict[str, Any]) -> Any:
    """The element of x under one tap of each window: its number, [..., *counts]."""
    axes, total = len(attrs["kernel"]), int(np.prod(attrs["kernel"]))
    lead, counts = taps.shape[:taps.ndim - axes], taps.shape[taps.ndim - axes:]
    all_taps = reshape_op(windows(x, **attrs), shape=(*lead, total, *counts))
    number = reshape_op(arange(total, dtype=int32), shape=(total, *(1,) * axes))
    here = equal(number, reshape_op(taps, shape=(*lead, 1, *counts)))
    return where(here, all_taps, 0.0).sum(axis=len(lead))


# ---------------------------------------------------------------- what users call

def spatial_sizes(name: str, x: Any, count: int | None) -> tuple[Dim, ...]:
    """The sizes that are pooled: those of the last `count` axes, or all but batch and channel."""
    count = x.ndim - 2 if count is None else count
    if count < 1 or x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"{name}: {shown(x)} is not [N, C, *sizes] with {max(count, 1)} axes of sizes")
    return tuple(x.shape[x.ndim - count:])


def _attributes(name: str, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
                count: int | None) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """The attributes with `ceil_mode` said as padding at the end, and how much of that it is."""
    sizes = spatial_sizes(name, x, count)
    attrs = window_attrs(kernel, stride, padding, dilation, sizes)
    for (low, high), k, d in zip(attrs["padding"], attrs["kernel"], attrs["dilation"], strict=True):
        largest = max((p for p in (low, high) if isinstance(p, int)), default=0)
        if largest > (d * (k - 1) + 1) // 2 and padding != "same":
            raise ArgumentError(f"{name}: padding {low, high} is more than half the window {k}")
    if not ceil_mode:
        return attrs, (0,) * len(sizes)
    extra: list[Any] = []
    for n, k, s, d, (low, high) in zip(sizes, attrs["kernel"], attrs["stride"], attrs["dilation"], attrs["padding"],
                                       strict=True):
        counts: Any = (n + low + high - d * (k - 1) - 1 + s - 1) // s + 1
        if (counts - 1) * s >= n + low:             # the last window would lie in the padding alone
            counts = counts - 1
        missing: Any = (counts - 1) * s + d * (k - 1) + 1 - n - low - high
        extra.append(missing if missing > 0 else 0)
    attrs["padding"] = tuple((low, high + more) for (low, high), more in zip(attrs["padding"], extra, strict=True))
    return attrs, tuple(extra)


@layer_function
def max_pool(x: Any, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
             return_indices: bool = False, count: int | None = None) -> Any | tuple[Any, Any]:
    """The largest element of each window of x [N, C, *sizes]; the stride is the kernel unless given.

    `return_indices` adds where it stands among the sizes, in row-major order.  `count` is the number of axes of sizes.

    >>> tn.max_pool(tn.tensor([[[1.0, 5.0, 2.0, 3.0]]]), 2)
    tensor([[[5., 3.]]])
    """
    attrs, _ = _attributes("max_pool", x, kernel, stride, padding, dilation, ceil_mode, count)
    out = max_pool_op(x, **attrs)
    return (out, max_pool_positions(x, **attrs)) if return_indices else out


@layer_function
def avg_pool(x: Any, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: int | None = None, count: int | None = None) -> Any:
    """The mean of each window of x [N, C, *sizes]; padding counts as zeros unless `count_include_pad=False`.

    >>> tn.avg_pool(tn.tensor([[[1.0, 5.0, 2.0, 4.0]]]), 2)
    tensor([[[3., 3.]]])
    """
    attrs, extra = _attributes("avg_pool", x, kernel, stride, padding, 1, ceil_mode, count)
    axes = len(attrs["kernel"])
    total = window_sum(x, attrs)
    if divisor_override is not None:
        return total / divisor_override
    if all(e == 0 for e in extra) and (count_include_pad or all(p == (0, 0) for p in attrs["padding"])):
        return total / int(np.prod(attrs["kernel"]))
    sizes = x.shape[x.ndim - axes:]
    pairs = attrs["padding"]
    if count_include_pad:       # windows count the stated padding, but not what ceil_mode added
        sizes = tuple(n + low + high - more for n, (low, high), more in zip(sizes, pairs, extra, strict=True))
        pairs = tuple((0, more) for more in extra)
    ones = full_op(literal(1, x.dtype), shape=sizes)
    return total / window_sum(ones, {**attrs, "padding": pairs})


@layer_function
def lp_pool(x: Any, norm_type: float, kernel: Any, stride: Any = None, ceil_mode: bool = False,
            count: int | None = None) -> Any:
    """The p-norm of each window: (sum of x ** p) ** (1 / p); where the sum is 0, so is the derivative.

    A window that `ceil_mode` lets reach beyond the end counts as a whole one of the same mean, as PyTorch has it.

    >>> tn.lp_pool1d(tn.tensor([[[1.0, 2.0, 3.0]]]), 1, 2, ceil_mode=True)
    tensor([[[3., 6.]]])
    """
    attrs, extra = _attributes("lp_pool", x, kernel, stride, 0, 1, ceil_mode, count)
    powers = x ** norm_type
    if not all(e == 0 for e in extra):
        total = avg_pool(powers, kernel, stride, 0, ceil_mode, count=count) * int(np.prod(attrs["kernel"]))
    else:
        total = window_sum(powers, attrs)
    none = total == 0
    return where(none, 0, where(none, 1, total) ** (1.0 / norm_type))


def window_sum(x: Any, attrs: dict[str, Any]) -> Any:
    """The sum of each window over the last axes; one window that is all of them needs no view of windows."""
    axes = len(attrs["kernel"])
    last = tuple(range(x.ndim - axes, x.ndim))
    if _is_all(x.shape[x.ndim - axes:], **attrs):
        return x.sum(axis=last, keepdims=True)
    return windows(x, **attrs).sum(axis=last)


def _is_all(sizes: Sequence[Any], kernel: Any, stride: Any, padding: Any, dilation: Any) -> bool:
    """Whether there is one window, of all elements."""
    return all(type(n) is int and n == k and pads == (0, 0) and apart == 1
               for n, k, pads, apart in zip(sizes, kernel, padding, dilation, strict=True))


def _names(count: int) -> None:
    def max_pool_nd(x: Any, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
                    ceil_mode: bool = False, return_indices: bool = False) -> Any | tuple[Any, Any]:
        return max_pool(x, kernel, stride, padding, dilation, ceil_mode, return_indices, count)

    def avg_pool_nd(x: Any, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                    count_include_pad: bool = True, divisor_override: int | None = None) -> Any:
        return avg_pool(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, count)

    def adaptive_avg_pool_nd(x: Any, output_size: Any) -> Any:
        return adaptive_avg_pool(x, output_size, count)

    def adaptive_max_pool_nd(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        return adaptive_max_pool(x, output_size, count, return_indices)

    def lp_pool_nd(x: Any, norm_type: float, kernel: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
        return lp_pool(x, norm_type, kernel, stride, ceil_mode, count)
    for fn, base in ((max_pool_nd, max_pool), (avg_pool_nd, avg_pool), (adaptive_avg_pool_nd, adaptive_avg_pool),
                     (adaptive_max_pool_nd, adaptive_max_pool), (lp_pool_nd, lp_pool)):
        fn.__name__ = f"{base.__name__}{count}d"
        fn.__doc__ = f"`{base.__name__}` over {count} axes of sizes, with or without a batch axis."
        layer_function(fn)


# ---------------------------------------------------------------- windows that divide an axis into a given number

def _runs(size: int, count: int) -> list[tuple[int, int, int, int]]:
    """`count` windows over an axis as runs of equally long and distant ones: (start, stop, kernel, stride) of each.

    >>> _runs(13, 7)
    [(0, 2, 2, 1), (1, 12, 3, 2), (11, 13, 2, 1)]
    """
    windows = [(k * size // count, -(-(k + 1) * size // count)) for k in range(count)]
    found: list[list[tuple[int, int]]] = []
    for start, stop in windows:
        run = found[-1] if found else []
        step = start - run[-1][0] if run else 0
        alike = run and stop - run[-1][1] == step and step > 0 and (len(run) == 1 or run[-1][0] - run[-2][0] == step)
        if alike:
            run.append((start, stop))
        else:
            found.append([(start, stop)])
    return [(run[0][0], run[-1][1], run[0][1] - run[0][0], run[1][0] - run[0][0] if len(run) > 1 else 1)
            for run in found]


def _adaptive(name: str, x: Any, output_size: Any, count: int | None, pool: Callable[..., Any]) -> Any:
    """The pool of windows that divide the sizes; where they differ, run by run."""
    sizes, wanted = _wanted(name, x, output_size, count)
    if all(n % w == 0 for n, w in zip(sizes, wanted, strict=True)):
        kernel = tuple(n // w for n, w in zip(sizes, wanted, strict=True))
        return pool(x, kernel, count=len(sizes))
    for axis in reversed(range(len(sizes))):            # the first of equal elements, row after row, is the largest
        x = _along(x, axis, len(sizes), _runs(int(sizes[axis]), int(wanted[axis])), pool)
    return x


def _wanted(name: str, x: Any, output_size: Any, count: int | None) -> tuple[Any, Any]:
    """The sizes of x, and those of the output: None keeps one."""
    sizes = spatial_sizes(name, x, count)
    listed = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * len(sizes)
    wanted = tuple(n if w is None else w for n, w in zip(sizes, listed, strict=True))
    return sizes, per_axis(wanted, len(sizes), "output_size")


def _along(x: Any, axis: int, count: int, runs: Sequence[tuple[int, int, int, int]], pool: Callable[..., Any]) -> Any:
    """The pool of runs of windows along one of the last `count` axes."""
    place, ones, parts = x.ndim - count + axis, (1,) * count, []
    for start, stop, kernel, stride in runs:
        sizes, steps = (ones[:axis] + (n,) + ones[axis + 1:] for n in (kernel, stride))
        parts.append(pool(narrow(x, place, start, stop), sizes, steps, count=count))
    return parts[0] if len(parts) == 1 else concat_op(*parts, axis=place)


@layer_function
def adaptive_avg_pool(x: Any, output_size: Any, count: int | None = None) -> Any:
    """The mean over windows that divide the sizes of x [N, C, *sizes] as evenly as can be into `output_size`.

    >>> tn.adaptive_avg_pool(tn.tensor([[[1.0, 2.0, 3.0]]]), 2)
    tensor([[[1.5, 2.5]]])
    """
    return _adaptive("adaptive_avg_pool", x, output_size, count, avg_pool)


@layer_function
def adaptive_max_pool(x: Any, output_size: Any, count: int | None = None, return_indices: bool = False) -> Any:
    """The maximum over windows that divide the sizes of x [N, C, *sizes] as evenly as can be into `output_size`.

    `return_indices` adds where it stands among the sizes, in row-major order.
    """
    if not return_indices:
        return _adaptive("adaptive_max_pool", x, output_size, count, max_pool)
    return adaptive_maxima(x, _wanted("adaptive_max_pool", x, output_size, count)[1])


for _count in (1, 2, 3):
    _names(_count)
