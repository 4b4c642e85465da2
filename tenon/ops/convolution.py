"""Convolution over any number of axes, and its two gradients: three bilinear operators that are each other's gradients.

    conv(x, w)                y[n, o, p] = sum over c, k   of x[n, c, p * stride + k * dilation - low] * w[o, c, k]
    conv_input_grad(g, w)     the same sum spread to x: convolution transposed
    conv_weight_grad(x, g)    the same sum spread to w

x is [N, C, *sizes], w is [O, C / groups, *kernel].  In the graph stride and dilation are tuples and padding is a
(low, high) pair an axis; a negative pad cuts elements off, which is how `output_padding` is said.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import index
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.arithmetic import add
from tenon.ops.batching import Arguments, merge, split
from tenon.ops.complex_parts import conj
from tenon.ops.define import check_kind, composite, define, layer_function
from tenon.ops.shape import reshape_op
from tenon.ops.shape_generic_programs import convolution_sizes
from tenon.ops.windows import (
    Pads,
    Sizes,
    Steps,
    over_windows,
    padded,
    pads,
    per_axis,
    shown,
    sum_windows,
    window_counts,
    window_view,
)
from tenon.types import TensorType


def _conv_attrs(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> dict[str, Any]:
    count = x.ndim - 2
    if count < 1 or w.ndim != x.ndim:
        raise ShapeError(f"conv: the input {shown(x)} and the kernel {shown(w)} need one rank of at least 3: "
                         "[N, C, *sizes] and [O, C / groups, *kernel]")
    stride, dilation = per_axis(stride, count, "stride"), per_axis(dilation, count, "dilation")
    return {"stride": stride, "dilation": dilation, "groups": index(groups),
            "padding": pads(padding, x.shape[2:], w.shape[2:], stride, dilation)}


def conv_type(x: TensorType, w: TensorType, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
               groups: int = 1) -> TensorType:
    check_kind("conv", x.dtype, "uifc")
    if x.shape[1] != w.shape[1] * groups:
        raise ShapeError(f"conv: {x} has {x.shape[1]} channels, the kernel {w} with groups={groups} takes "
                         f"{w.shape[1] * groups}", hint="the kernel is [out channels, in channels / groups, *kernel]")
    if groups < 1 or w.shape[0] % groups != 0:
        raise ShapeError(f"conv: {w.shape[0]} output channels do not divide into {groups} groups")
    sizes = window_counts("conv", x.shape[2:], w.shape[2:], stride, padding, dilation)
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *sizes))


def _conv_compute(s: Any, i: Any, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    n, o, *p = i
    first = 0 if groups == 1 else o // (w.shape[0] // groups) * w.shape[1]

    def term(k: tuple[Any, ...]) -> Any:
        return padded(s, x, (n, first + k[0]), p, k[1:], stride, padding, dilation) * w((o, *k))
    return s.reduce("add", w.shape[1:], term)


def conv_ref(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    columns, sizes = _columns(x, w.shape[2:], stride, padding, dilation, groups)
    out = w.reshape(groups, w.shape[0] // groups, columns.shape[1]) @ columns
    return np.ascontiguousarray(out.reshape(w.shape[0], x.shape[0], *sizes).swapaxes(0, 1))


def _conv_batch(op: Op, a: Arguments, groups: int, **attrs: Any) -> Any:
    """Examples that share the kernel are more of the batch that the operator has; others are groups of channels."""
    x, w = a.inputs
    if not a.batched[1]:
        return split(op(merge(x, 0), w, groups=groups, **attrs), 0, a.size)
    x, w = a.whole(0), a.whole(1)
    return split(op(merge(x, 1), merge(w, 0), groups=groups * a.size, **attrs), 1, a.size)


conv: Op = define(
    "conv", type=conv_type, canonical=_conv_attrs, ref=conv_ref, compute=_conv_compute, promote=same,
    autocast="narrow",
    vjp=lambda g, y, x, w, **attrs: (lambda: conv_input_grad(g, conj(w), sizes=x.shape[2:], **attrs),
                                     lambda: conv_weight_grad(conj(x), g, kernel=w.shape[2:], **attrs)),
    batch=_conv_batch,
    multiply_adds=lambda x, w, y: prod(y) * prod(w[1:]), numpy_work=1, any_sizes=convolution_sizes(
        lambda types, attrs: (types[0].shape, types[1].shape), lambda x, w, y, attrs: ((x, w), attrs)),
    method=False,
    doc="The convolution of x [N, C, *sizes] with w [O, C / groups, *kernel] (the kernel is not flipped, as in all "
        "deep learning).  `padding` is a size, one an axis, a (low, high) pair an axis, \"same\" or \"valid\".",
    examples=["conv(f32[2, 3, 8], f32[4, 3, 3]) -> f32[2, 4, 6]",
              "conv(f32[2, 4, 7, 6], f32[6, 2, 3, 2], stride=(2, 1), padding=((1, 2), (0, 1)), dilation=(1, 2), "
              "groups=2) -> f32[2, 6, 4, 5]",
              "conv(f32[1, 2, 4, 4, 4], f32[3, 2, 2, 2, 2]) -> f32[1, 3, 3, 3, 3]",
              "conv(f32[1, 2, 5], f32[3, 4, 3]) -> error", "conv(f32[1, 2, 5], f32[3, 2, 7]) -> error"])


# ---------------------------------------------------------------- the gradient with respect to the input

def _input_grad_type(g: TensorType, w: TensorType, *, sizes: Sizes, stride: Steps, padding: Pads,
                     dilation: Steps, groups: int) -> TensorType:
    x = TensorType(g.dtype, (g.shape[0], w.shape[1] * groups, *sizes))
    expected = conv_type(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if expected.shape != g.shape:
        raise ShapeError(f"conv_input_grad: {x} convolved with {w} is {expected}, the gradient is {g}")
    return x


def _input_grad_compute(s: Any, i: Any, g: Any, w: Any, sizes: Any, stride: Any, padding: Any, dilation: Any,
                        groups: int) -> Any:
    n, c, *q = i
    outputs, channels = w.shape[0] // groups, w.shape[1]
    first, inner = (0, c) if groups == 1 else (c // channels * outputs, c % channels)

    return over_windows(s, q, w.shape[2:], g.shape[2:], stride, padding, dilation,
                        lambda k, p: g((n, first + k[0], *p)), g.dtype, (outputs,),
                        lambda k: w((first + k[0], inner, *k[1:])))


def _input_grad_ref(g: Any, w: Any, sizes: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    (batch, outputs, *counts), kernel = g.shape, w.shape[2:]
    columns = w.reshape(groups, outputs // groups, prod(w.shape[1:])).swapaxes(1, 2) @ _by_groups(g, groups)
    columns = columns.reshape(groups * w.shape[1], *kernel, batch, *counts)
    ahead = 1 + len(kernel)
    columns = columns.transpose(ahead, 0, *range(ahead + 1, columns.ndim), *range(1, ahead))    # [N, C, *P, *K]
    return sum_windows(columns, sizes, kernel, stride, padding, dilation)


def _by_groups(g: Any, groups: int) -> Any:
    """NumPy: what convolutions give, [N, O, *P], as matrices [groups, O / groups, N * P]."""
    batch, outputs, *counts = g.shape
    split = g.reshape(batch, groups, outputs // groups, *counts)
    return np.moveaxis(split, 0, 2).reshape(groups, outputs // groups, batch * prod(counts))


conv_input_grad: Op = define(
    "conv_input_grad", public=False, type=_input_grad_type, ref=_input_grad_ref, compute=_input_grad_compute,
    promote=same, autocast="narrow",
    vjp=lambda h, y, g, w, sizes, **attrs: (lambda: conv(h, conj(w), **attrs),
                                            lambda: conv_weight_grad(h, conj(g), kernel=w.shape[2:], **attrs)),
    batch=_conv_batch,
    multiply_adds=lambda g, w, x: prod(g) * prod(w[1:]), numpy_work=1, any_sizes=convolution_sizes(
        lambda types, attrs: ((types[0].shape[0], types[1].shape[1] * attrs["groups"], *attrs["sizes"]),
                              types[1].shape),
        lambda x, w, y, attrs: ((y, w), {**attrs, "sizes": tuple(x[2:])})),
    doc="The gradient of conv with respect to its input of these sizes; also the transposed convolution.",
    examples=["conv_input_grad(f32[2, 4, 6], f32[4, 3, 3], sizes=(8,), stride=(1,), padding=((0, 0),), "
              "dilation=(1,), groups=1) -> f32[2, 3, 8]",
              "conv_input_grad(f32[2, 6, 4, 5], f32[6, 2, 3, 2], sizes=(7, 6), stride=(2, 1), "
              "padding=((1, 2), (0, 1)), dilation=(1, 2), groups=2) -> f32[2, 4, 7, 6]"])


# ---------------------------------------------------------------- the gradient with respect to the kernel

def _weight_grad_type(x: TensorType, g: TensorType, *, kernel: Sizes, stride: Steps, padding: Pads, dilation: Steps,
                      groups: int) -> TensorType:
    w = TensorType(x.dtype, (g.shape[1], x.shape[1] // groups, *kernel))
    expected = conv_type(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    if expected.shape != g.shape:
        raise ShapeError(f"conv_weight_grad: {x} convolved with {w} is {expected}, the gradient is {g}")
    return w


def _weight_grad_compute(s: Any, i: Any, x: Any, g: Any, kernel: Any, stride: Any, padding: Any, dilation: Any,
                         groups: int) -> Any:
    o, c, *k = i
    channel = c if groups == 1 else o // (g.shape[1] // groups) * (x.shape[1] // groups) + c

    def term(np_: tuple[Any, ...]) -> Any:
        n, *p = np_
        return padded(s, x, (n, channel), p, k, stride, padding, dilation) * g((n, o, *p))
    return s.reduce("add", (g.shape[0], *g.shape[2:]), term)


def _weight_grad_ref(x: Any, g: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    columns, _ = _columns(x, kernel, stride, padding, dilation, groups)
    out = _by_groups(g, groups) @ columns.swapaxes(1, 2)
    return out.reshape(g.shape[1], x.shape[1] // groups, *kernel)


def _weight_grad_batch(op: Op, a: Arguments, groups: int, **attrs: Any) -> Any:
    """Every example is a group of channels."""
    x, g = a.whole(0), a.whole(1)
    return split(op(merge(x, 1), merge(g, 1), groups=groups * a.size, **attrs), 0, a.size)


conv_weight_grad: Op = define(
    "conv_weight_grad", public=False, type=_weight_grad_type, ref=_weight_grad_ref, compute=_weight_grad_compute,
    promote=same,
    vjp=lambda h, y, x, g, kernel, **attrs: (lambda: conv_input_grad(conj(g), h, sizes=x.shape[2:], **attrs),
                                             lambda: conv(conj(x), h, **attrs)),
    batch=_weight_grad_batch,
    multiply_adds=lambda x, g, w: prod(g) * prod(w[1:]), numpy_work=1, any_sizes=convolution_sizes(
        lambda types, attrs: (types[0].shape,
                              (types[1].shape[1], types[0].shape[1] // attrs["groups"], *attrs["kernel"])),
        lambda x, w, y, attrs: ((x, y), attrs)),
    doc="The gradient of conv with respect to its kernel of these sizes.",
    examples=["conv_weight_grad(f32[2, 3, 8], f32[2, 4, 6], kernel=(3,), stride=(1,), padding=((0, 0),), "
              "dilation=(1,), groups=1) -> f32[4, 3, 3]",
              "conv_weight_grad(f32[2, 4, 7, 6], f32[2, 6, 4, 5], kernel=(3, 2), stride=(2, 1), "
              "padding=((1, 2), (0, 1)), dilation=(1, 2), groups=2) -> f32[6, 2, 3, 2]"])


# ---------------------------------------------------------------- what users call

def _convolution(count: int) -> None:
    def direct(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
               groups: int = 1) -> Any:
        return _batched(name, count, x, bias, lambda x: conv(
            x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups))

    def transposed(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                   groups: int = 1, dilation: Any = 1) -> Any:
        return _batched(name_transposed, count, x, bias, lambda x: conv_transpose(
            x, weight, stride=stride, padding=padding, output_padding=output_padding, groups=groups, dilation=dilation))
    name, name_transposed = f"conv{count}d", f"conv_transpose{count}d"
    sizes = ", ".join("DHW"[3 - count:])
    direct.__name__, transposed.__name__ = name, name_transposed
    direct.__doc__ = f"""The convolution of x [N, C, {sizes}] with weight [O, C / groups, ...], plus a bias.

    `padding` is a size, one an axis, (low, high) pairs, "same" or "valid".
    """
    transposed.__doc__ = f"""The transposed convolution of x [N, C, {sizes}] with weight [C, O / groups, ...].

    It is the gradient of a convolution, plus a bias; `output_padding` makes the result longer at its end.
    """
    layer_function(direct)
    layer_function(transposed)


@layer_function
def conv_transpose(x: Any, weight: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                   dilation: Any = 1) -> Any:
    """The transposed convolution of x [N, C, *sizes] with weight [C, O / groups, *kernel].

    >>> tn.conv_transpose(tn.ones((1, 1, 3)), tn.ones((1, 1, 2)), stride=2)
    tensor([[[1., 1., 1., 1., 1., 1.]]])
    """
    count = x.ndim - 2
    if count < 1 or weight.ndim != x.ndim:
        raise ShapeError(f"conv_transpose: the input {shown(x)} and the kernel {shown(weight)} need one "
                         "rank of at least 3")
    if x.shape[1] != weight.shape[0] or x.shape[1] % groups:
        raise ShapeError(f"conv_transpose: {shown(x)} has {x.shape[1]} channels, the kernel {shown(weight)} takes "
                         f"{weight.shape[0]} in {groups} groups")
    stride, dilation = per_axis(stride, count, "stride"), per_axis(dilation, count, "dilation")
    more = per_axis(output_padding, count, "output_padding", 0)
    if any(m >= max(a, b) for m, a, b in zip(more, stride, dilation, strict=True) if m):
        raise ArgumentError(f"conv_transpose: output_padding {more} must be smaller than stride or dilation")
    if padding == "same":
        raise ArgumentError('conv_transpose: padding="same" has no one meaning here', hint="give the sizes")
    low_high = pads(padding, x.shape[2:], weight.shape[2:], stride, dilation)
    cut = tuple((low, high - m) for (low, high), m in zip(low_high, more, strict=True))
    sizes = tuple((n - 1) * s - low - high + d * (k - 1) + 1 for n, k, s, d, (low, high)
                  in zip(x.shape[2:], weight.shape[2:], stride, dilation, cut, strict=True))
    if any(isinstance(n, int) and n < 1 for n in sizes):
        raise ShapeError(f"conv_transpose: the result of {shown(x)} would have sizes {list(sizes)}")
    return conv_input_grad(x, weight, sizes=sizes, stride=stride, padding=cut, dilation=dilation, groups=groups)


@composite(public=False, promote=same, autocast="narrow",
           examples=["add_to_channels(f32[2, 3, 5], f32[3]) -> f32[2, 3, 5]"])
def add_to_channels(x: Any, bias: Any) -> Any:
    """x [N, C, ...] plus one number for each channel."""
    return add(x, reshape_op(bias, shape=(x.shape[1], *[1] * (x.ndim - 2))))


def _batched(name: str, count: int, x: Any, bias: Any, apply: Callable[[Any], Any]) -> Any:
    """`apply` on x with a batch axis, plus the bias; without a batch axis where x has none."""
    if x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"{name}: the input {shown(x)} is not [N, C, ...] with {count} axes of sizes, nor that "
                         "without N")
    out = apply(x if x.ndim == count + 2 else reshape_op(x, shape=(1, *x.shape)))
    if bias is not None:
        if bias.shape != (out.shape[1],):
            raise ShapeError(f"{name}: the bias {shown(bias)} is not one number for each of {out.shape[1]} channels")
        out = add_to_channels(out, bias)
    return out if x.ndim == count + 2 else reshape_op(out, shape=out.shape[1:])


def _columns(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[Any, tuple[int, ...]]:
    """NumPy: the windows of x as matrices [groups, C / groups * K, N * P], and their counts P.

    What lies side by side in x mostly does in a row of these, so that they are copied row by row.
    """
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    view, ahead = window_view(split, kernel, stride, padding, dilation), 3 + len(kernel)
    counts = view.shape[3:ahead]
    view = view.transpose(1, 2, *range(ahead, view.ndim), 0, *range(3, ahead))
    return view.reshape(groups, split.shape[2] * prod(kernel), x.shape[0] * prod(counts)), counts


for _count in (1, 2, 3):
    _convolution(_count)
