"""Windows that slide over the last axes of a tensor: what convolution, pooling and unfold share.

    windows(x)        [..., *sizes] -> [..., *taps, *counts]      the element under each tap of each window
    add_windows(g)    the transpose of that: elements summed where windows overlap

In the graph stride and dilation are tuples and padding is a (low, high) pair an axis; a negative pad cuts elements off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tenon.dims.compare_sizes import hold_for_data_where_natural
from tenon.dims.symbolic_dim import Dim, product
from tenon.errors import ArgumentError, ShapeError
from tenon.graph.op import Op
from tenon.ops.define import define, function
from tenon.ops.shape import is_size, reshape_op
from tenon.types import DType, TensorType, bool_

Sizes = tuple[Dim, ...]
Steps = tuple[int, ...]
Pads = tuple[tuple[Dim, Dim], ...]


def per_axis(value: Any, count: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One number an axis, from a number or a sequence of them."""
    listed = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(listed) == 1 < count:
        listed *= count
    if len(listed) != count:
        raise ArgumentError(f"{what}={value!r} needs one number, or one for each of {count} axes")
    if any(isinstance(n, bool) or not hasattr(n, "__index__") for n in listed):
        raise ArgumentError(f"{what}={value!r} must be made of integers")
    if any(isinstance(n, int) and n < least for n in listed):
        raise ArgumentError(f"{what}={value!r} must be at least {least}")
    return tuple(n if isinstance(n, int) or hasattr(n, "terms") else int(n) for n in listed)


def pads(padding: Any, sizes: Sequence[Dim], kernel: Sequence[Dim], stride: Sequence[int],
         dilation: Sequence[int]) -> Pads:
    """The (low, high) pair of every axis, from a number, one an axis, pairs, "same" or "valid"."""
    if padding == "valid":
        return ((0, 0),) * len(sizes)
    if padding == "same":
        return tuple(map(_same, sizes, kernel, stride, dilation))
    if isinstance(padding, str):
        raise ArgumentError(f"padding={padding!r} is unknown", hint='it is a size, sizes, pairs, "same" or "valid"')
    if isinstance(padding, (tuple, list)) and padding and all(isinstance(p, (tuple, list)) for p in padding):
        if len(padding) != len(sizes) or any(len(p) != 2 for p in padding):
            raise ArgumentError(f"padding={padding!r} needs a (low, high) pair for each of {len(sizes)} axes")
        return tuple((low, high) for low, high in padding)
    return tuple((p, p) for p in per_axis(padding, len(sizes), "padding", 0))


def _same(size: Dim, kernel: Any, stride: int, dilation: int) -> tuple[Dim, Dim]:
    total: Any = dilation * (kernel - 1)
    if stride != 1:
        total = max(0, ((size + stride - 1) // stride - 1) * stride + total + 1 - size)
    return total // 2, total - total // 2


def window_counts(name: str, sizes: Sequence[Dim], kernel: Sequence[Dim], stride: Sequence[int], padding: Pads,
                  dilation: Sequence[int]) -> tuple[Dim, ...]:
    """How many windows fit along each axis; raises ShapeError where none does."""
    numbers = (*kernel, *stride, *dilation)
    if not all(map(is_size, (*numbers, *itertools.chain(*padding)))) or any(n < 1 for n in numbers if type(n) is int):
        raise ShapeError(f"{name}: kernel, stride and dilation must be at least 1: {kernel}, {stride}, {dilation}")
    counts: list[Dim] = []
    for axis, (n, k, s, (low, high), d) in enumerate(zip(sizes, kernel, stride, padding, dilation, strict=True)):
        room = n + low + high - d * (k - 1) - 1
        if isinstance(room, int) and room < 0:
            raise ShapeError(f"{name}: a window of {k} (dilation {d}) is longer than the padded input, "
                             f"{n} + {low} + {high} along axis {axis} of the sizes")
        hold_for_data_where_natural(room)
        counts.append(room // s + 1)
    return tuple(counts)


def padded(s: Any, x: Any, lead: tuple[Any, ...], p: Sequence[Any], k: Sequence[Any], stride: Sequence[int],
           padding: Pads, dilation: Sequence[int], fill: Any = 0, trail: tuple[Any, ...] = ()) -> Any:
    """The element of `x` under tap `k` of window `p`, or `fill` in the padding; `lead` and `trail` stand around it."""
    at = tuple(a * st + b * d - low if low != 0 else a * st + b * d
               for a, b, st, d, (low, _) in zip(p, k, stride, dilation, padding, strict=True))
    inside = None
    for q, n, (low, high) in zip(at, x.shape[len(lead):len(lead) + len(at)], padding, strict=True):
        for flag, condition in ((_positive(low), q >= 0), (_positive(high), q < n)):
            if flag:
                inside = condition if inside is None else inside & condition
    if inside is None:
        return x((*lead, *at, *trail))
    return s.when(inside, lambda: x((*lead, *at, *trail)), s.const(fill, x.dtype))


def over_windows(s: Any, q: Sequence[Any], kernel: Sequence[Dim], counts: Sequence[Dim], stride: Sequence[int],
                 padding: Pads, dilation: Sequence[int], value: Callable[[Any, Any], Any], dtype: DType,
                 extents: Sequence[Dim] = (), factor: Callable[[Any], Any] | None = None) -> Any:
    """The sum of `value(k, p) * factor(k)` over the windows p whose tap k is element q; over `extents`, first in k.

    Where no factor is read along the taps, only those that meet a window are gone through: every `stride`-th, from one
    that is computed.  Of windows that stand side by side there is just one, which is computed too.
    """
    axes = tuple(zip(counts, stride, dilation, kernel, strict=True))
    starts = [position + low if low != 0 else position for position, (low, _) in zip(q, padding, strict=True)]
    beside = all(d == 1 and n == st for _, st, d, n in axes)
    strided = [st > 1 and d == 1 and (beside or factor is None) for _, st, d, _ in axes]

    def one(numbers: tuple[Any, ...]) -> Any:
        inside, p, taps = s.const(True, bool_), [], []
        for start, k, leaps, (n, st, d, most) in zip(starts, numbers[len(extents):], strided, axes, strict=True):
            first = start - k * d
            tap = start % st + k * st if leaps else k
            if leaps:
                p.append(start // st - k)
            else:
                p.append(first if st == 1 else first // st)
            inside = inside & (p[-1] >= 0) & (p[-1] < n)
            if leaps and most % st:
                inside = inside & (tap < most)
            if st != 1 and not leaps:
                inside = inside & s.eq(first % st, 0)
            taps.append(tap)
        k = (*numbers[:len(extents)], *taps)
        found = s.when(inside, lambda: value(k, p), s.const(0, dtype))
        return found if factor is None else found * factor(k)

    met = [(n + st - 1) // st if leaps else n for leaps, (_, st, _, n) in zip(strided, axes, strict=True)]
    if not beside:
        return s.reduce("add", (*extents, *met), one)
    alone = (0,) * len(axes)
    return s.reduce("add", extents, lambda k: one((*k, *alone))) if extents else one(alone) + s.const(0, dtype)


def _positive(size: Dim) -> bool:
    return not isinstance(size, int) or size > 0


def window_view(x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Any, dilation: Sequence[int],
                fill: Any = 0) -> Any:
    """NumPy: a view of the padded array with the windows' counts and taps as last axes, [..., *P, *K]."""
    count = len(kernel)
    x = pad_or_cut(x, padding, fill)
    counts: Any = window_counts("windows", x.shape[x.ndim - count:], kernel, stride, ((0, 0),) * count, dilation)
    lead, steps = x.ndim - count, x.strides[x.ndim - count:]
    strides = (*x.strides[:lead], *(a * b for a, b in zip(steps, stride)), *(a * b for a, b in zip(steps, dilation)))
    return _strided(x, (*x.shape[:lead], *counts, *kernel), strides)


def _strided(x: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """NumPy: another view of the memory of an array; by the array's own class, in a tenth of the time, where it can."""
    if x.flags.c_contiguous and x.flags.writeable and x.dtype.kind in "biufc":
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def are_apart(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether no window reaches into another one."""
    return all(d == 1 and k <= s for k, s, d in zip(kernel, stride, dilation, strict=True))


def sum_windows(columns: Any, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Pads,
                dilation: Sequence[int]) -> Any:
    """NumPy: the sum of windows [..., *P, *K] where they overlap, without the padding: `window_view` transposed."""
    count = len(kernel)
    first = columns.ndim - 2 * count
    if are_apart(kernel, stride, dilation) and columns.size:
        out = _with_padding(columns, columns.shape[:first], sizes, padding)
        lead_steps, steps = out.strides[:first], out.strides[first:]
        beside = _strided(out, columns.shape, (*lead_steps, *(a * b for a, b in zip(steps, stride)), *steps))
        np.add(columns, beside, out=beside)     # as where they overlap: -0 is 0
        return pad_or_cut(out, tuple((-low, -high) for low, high in padding), 0)
    flat = columns.reshape(*columns.shape[:-count], product(kernel))     # -1 would be unknown for nothing
    return sum_taps(lambda k: flat[..., k], flat[..., 0], sizes, kernel, stride, padding, dilation)


def sum_taps(tap: Callable[[int], Any], like: Any, sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
             padding: Pads, dilation: Sequence[int]) -> Any:
    """NumPy: the same of what stands under each tap of all windows, arrays [..., *P] that are `like` this one."""
    first = like.ndim - len(kernel)
    out = _with_padding(like, like.shape[:first], sizes, padding)
    for number, k in enumerate(taps_of(kernel)):
        place: Any = tuple(slice(b * d, b * d + (p - 1) * s + 1, s)
                           for b, d, p, s in zip(k, dilation, like.shape[first:], stride))
        part = out[(..., *place)]
        np.add(part, tap(number), out=part)     # `out[...] += ` would copy the part to itself
    return pad_or_cut(out, tuple((-low, -high) for low, high in padding), 0)


def taps_of(kernel: Sequence[int]) -> Iterable[tuple[int, ...]]:
    """The indices of a window, in order; sooner than `np.ndindex`."""
    return itertools.product(*map(range, kernel))


def _with_padding(like: Any, lead: Sequence[int], sizes: Sequence[int], padding: Pads) -> Any:
    return np.zeros((*lead, *(n + low + high for n, (low, high) in zip(sizes, padding))), like.dtype)


def pad_or_cut(x: Any, padding: Any, fill: Any) -> Any:
    """NumPy: pad the last axes, or cut them where a pad is negative."""
    if any(p > 0 for pair in padding for p in pair):
        x = _padded(x, [(max(low, 0), max(high, 0)) for low, high in padding], fill)
    if any(p < 0 for pair in padding for p in pair):
        sizes = x.shape[x.ndim - len(padding):]
        x = x[(..., *(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(sizes, padding, strict=True)))]
    return x


def _padded(x: Any, padding: Sequence[Any], fill: Any) -> Any:
    """NumPy: what `np.pad` gives, which takes ten times as long for little data."""
    lead = x.ndim - len(padding)
    sizes = (n + low + high for n, (low, high) in zip(x.shape[lead:], padding, strict=True))
    out = np.full((*x.shape[:lead], *sizes), fill, x.dtype, "F" if x.flags.fnc else "C")
    place: Any = (..., *(slice(low, low + n) for n, (low, _) in zip(x.shape[lead:], padding, strict=True)))
    out[place] = x
    return out


def shown(x: Any) -> TensorType:
    """The type of a tensor or value, for messages."""
    return TensorType(x.dtype, x.shape)


# ---------------------------------------------------------------- the operators

def _windows_type(x: TensorType, *, kernel: Sizes, stride: Steps, padding: Pads, dilation: Steps) -> TensorType:
    lead = x.ndim - len(kernel)
    return x.with_shape((*x.shape[:lead], *kernel,
                         *window_counts("windows", x.shape[lead:], kernel, stride, padding, dilation)))


def _windows_compute(s: Any, i: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    lead, count = x.ndim - len(kernel), len(kernel)
    return padded(s, x, i[:lead], i[lead + count:], i[lead:lead + count], stride, padding, dilation)


def _windows_ref(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    view, count = window_view(x, kernel, stride, padding, dilation), len(kernel)
    lead = tuple(range(view.ndim - 2 * count))
    return view.transpose(*lead, *range(view.ndim - count, view.ndim), *range(len(lead), len(lead) + count))


windows: Op = define(
    "windows", public=False, type=_windows_type, ref=_windows_ref, compute=_windows_compute,
    vjp=lambda g, y, x, kernel, **attrs: (
        add_windows(g, sizes=x.shape[x.ndim - len(kernel):], kernel=kernel, **attrs),),
    batch="front",
    reads_part=True, doc="The element under each tap of each window over the last axes; 0 in the padding.",
    examples=["windows(f32[2, 7], kernel=(3,), stride=(2,), padding=((1, 0),), dilation=(1,)) -> f32[2, 3, 3]",
              "windows(f32[2, 5, 6], kernel=(2, 3), stride=(1, 1), padding=((0, 0), (1, 1)), dilation=(2, 1))"
              " -> f32[2, 2, 3, 3, 6]"])


def _add_windows_type(g: TensorType, *, sizes: Sizes, kernel: Sizes, stride: Steps, padding: Pads,
                      dilation: Steps) -> TensorType:
    x = g.with_shape((*g.shape[:g.ndim - 2 * len(kernel)], *sizes))
    expected = _windows_type(x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    if expected.shape != g.shape:
        raise ShapeError(f"add_windows: windows over sizes {list(sizes)} are {expected}, not {g}")
    return x


def _add_windows_compute(s: Any, i: Any, g: Any, sizes: Any, kernel: Any, stride: Any, padding: Any,
                         dilation: Any) -> Any:
    lead, count = len(i) - len(kernel), len(kernel)
    return over_windows(s, i[lead:], kernel, g.shape[g.ndim - count:], stride, padding, dilation,
                        lambda k, p: g((*i[:lead], *k, *p)), g.dtype)


def _add_windows_ref(g: Any, sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    count, lead = len(kernel), range(g.ndim - 2 * len(kernel))
    columns = g.transpose(*lead, *range(g.ndim - count, g.ndim), *range(len(lead), len(lead) + count))
    return sum_windows(columns, sizes, kernel, stride, padding, dilation)


add_windows: Op = define(
    "add_windows", public=False, type=_add_windows_type, ref=_add_windows_ref, compute=_add_windows_compute,
    vjp=lambda h, y, g, sizes, **attrs: (windows(h, **attrs),),
    batch="front", doc="The elements of windows summed where the windows overlap: the transpose of `windows`.",
    examples=["add_windows(f32[2, 3, 3], sizes=(7,), kernel=(3,), stride=(2,), padding=((1, 0),), dilation=(1,))"
              " -> f32[2, 7]"])


def window_attrs(kernel: Any, stride: Any, padding: Any, dilation: Any, sizes: Sequence[Dim]) -> dict[str, Any]:
    """The one form of a window's attributes over axes of these sizes; the stride is the kernel where it is None."""
    count = len(sizes)
    kernel = per_axis(kernel, count, "kernel")
    stride = per_axis(kernel if stride is None else stride, count, "stride")
    dilation = per_axis(dilation, count, "dilation")
    return {"kernel": kernel, "stride": stride, "padding": pads(padding, sizes, kernel, stride, dilation),
            "dilation": dilation}


@function
def unfold(x: Any, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The windows of x [N, C, *sizes] as columns [N, C * taps, windows]: im2col.

    >>> tn.unfold(tn.arange(4).reshape(1, 1, 4), 2)
    tensor([[[0, 1, 2],
             [1, 2, 3]]])
    """
    if x.ndim < 3:
        raise ShapeError(f"unfold: {shown(x)} is not [N, C, *sizes]")
    attrs = window_attrs(kernel, stride, padding, dilation, x.shape[2:])
    found = windows(x, **attrs)
    taps = x.shape[1] * int(np.prod(attrs["kernel"]))
    return reshape_op(found, shape=(x.shape[0], taps, product(found.shape[2 + len(attrs["kernel"]):])))


@function
def fold(x: Any, sizes: Any, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The sum of columns [N, C * taps, windows] where their windows overlap in an output of these sizes: col2im.

    >>> tn.ones((1, 2, 3)).fold((4,), 2)
    tensor([[[1., 2., 2., 1.]]])
    """
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,) * len(per_axis(kernel, 2, "kernel"))
    attrs = window_attrs(kernel, stride, padding, dilation, sizes)
    counts: Any = window_counts("fold", sizes, **attrs)
    taps = int(np.prod(attrs["kernel"]))
    if x.ndim != 3 or x.shape[1] % taps or x.shape[2] != np.prod(counts):
        raise ShapeError(f"fold: {shown(x)} is not [N, C * {taps}, {np.prod(counts)}]")
    columns = reshape_op(x, shape=(x.shape[0], x.shape[1] // taps, *attrs["kernel"], *counts))
    return add_windows(columns, sizes=sizes, **attrs)
