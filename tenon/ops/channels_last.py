"""Convolutions whose channels are last, in memory as in the shape: networks in use are made of them (`channels_last`).

    conv_channels_last(x, w)         y[n, p, o] = sum over k, c of x[n, p * stride + k * dilation - low, c] * w[o, c, k]
    conv_weight_grad_last(x, g)      w[o, k, c] = sum over n, p of x[n, p * stride + k * dilation - low, c] * g[n, p, o]
    depthwise_channels_last(x, w)    y[n, p, c] = sum over k    of x[n, p * stride + k * dilation - low, c] * w[k, c]
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tenon.errors import ShapeError
from tenon.graph.op import Op
from tenon.graph.promotion import same
from tenon.ops.complex_parts import conj
from tenon.ops.convolution import conv_input_grad, conv_ref, conv_type, conv_weight_grad
from tenon.ops.define import check_kind, define
from tenon.ops.shape import permute, reshape_op
from tenon.ops.windows import Pads, Sizes, Steps, padded, window_counts
from tenon.types import TensorType


def last(x: Any) -> Any:
    """[N, C, *sizes] -> [N, *sizes, C]"""
    return permute(x, axes=(0, *range(2, x.ndim), 1))


def first(x: Any) -> Any:
    """[N, *sizes, C] -> [N, C, *sizes]"""
    return permute(x, axes=(0, x.ndim - 1, *range(1, x.ndim - 1)))


def _last_type(x: TensorType, w: TensorType, *, stride: Steps, padding: Pads, dilation: Steps) -> TensorType:
    found = conv_type(x.with_shape((x.shape[0], x.shape[-1], *x.shape[1:-1])), w, stride=stride, padding=padding,
                       dilation=dilation)
    return found.with_shape((found.shape[0], *found.shape[2:], found.shape[1]))


def _last_compute(s: Any, i: Any, x: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    n, *p, o = i

    def term(k: tuple[Any, ...]) -> Any:
        *taps, c = k
        return padded(s, x, (n,), p, taps, stride, padding, dilation, trail=(c,)) * w((o, c, *taps))
    return s.reduce("add", (*w.shape[2:], w.shape[1]), term)


def _last_ref(x: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return np.moveaxis(conv_ref(np.moveaxis(x, -1, 1), w, stride, padding, dilation, 1), 1, -1)


conv_channels_last: Op = define(
    "conv_channels_last", public=False, type=_last_type, ref=_last_ref, compute=_last_compute, promote=same,
    autocast="narrow",
    vjp=lambda g, y, x, w, **attrs: (
        lambda: last(conv_input_grad(first(g), conj(w), sizes=x.shape[1:-1], groups=1, **attrs)),
        lambda: conv_weight_grad(first(conj(x)), first(g), kernel=w.shape[2:], groups=1, **attrs)),
    multiply_adds=lambda *shapes: prod(shapes[-1]) * prod(shapes[1][1:]),
    doc="The convolution of x [N, *sizes, C] with w [O, C, *kernel], with its channels last too: [N, *sizes, O].",
    examples=["conv_channels_last(f32[2, 8, 3], f32[4, 3, 3], stride=(1,), padding=((0, 0),), dilation=(1,)) "
              "-> f32[2, 6, 4]",
              "conv_channels_last(f32[2, 7, 6, 3], f32[5, 3, 3, 2], stride=(2, 1), padding=((1, 2), (0, 1)), "
              "dilation=(1, 2)) -> f32[2, 4, 5, 5]"])


def _weight_grad_type(x: TensorType, g: TensorType, *, kernel: Sizes, stride: Steps, padding: Pads,
                      dilation: Steps) -> TensorType:
    w = TensorType(x.dtype, (g.shape[-1], x.shape[-1], *kernel))
    expected = _last_type(x, w, stride=stride, padding=padding, dilation=dilation)
    if expected.shape != g.shape:
        raise ShapeError(f"conv_weight_grad_last: {x} convolved with {w} is {expected}, the gradient is {g}")
    return TensorType(x.dtype, (g.shape[-1], *kernel, x.shape[-1]))


def _weight_grad_compute(s: Any, i: Any, x: Any, g: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    o, *k, c = i

    def term(np_: tuple[Any, ...]) -> Any:
        n, *p = np_
        return padded(s, x, (n,), p, k, stride, padding, dilation, trail=(c,)) * g((n, *p, o))
    return s.reduce("add", g.shape[:-1], term)


def _weight_grad_ref(x: Any, g: Any, kernel: Any, **attrs: Any) -> Any:
    assert conv_weight_grad.ref is not None
    found = conv_weight_grad.ref(np.moveaxis(x, -1, 1), np.moveaxis(g, -1, 1), kernel=kernel, groups=1, **attrs)
    return np.moveaxis(found, 1, -1)


conv_weight_grad_last: Op = define(
    "conv_weight_grad_last", public=False, type=_weight_grad_type, ref=_weight_grad_ref, compute=_weight_grad_compute,
    promote=same,
    vjp=lambda h, y, x, g, kernel, **attrs: (
        lambda: last(conv_input_grad(first(conj(g)), first(h), sizes=x.shape[1:-1], groups=1, **attrs)),
        lambda: conv_channels_last(conj(x), first(h), **attrs)),
    multiply_adds=lambda *shapes: prod(shapes[1]) * prod(shapes[-1][1:]),
    doc="The gradient of conv_channels_last with respect to its kernel of these sizes, channels last: [O, *kernel, C].",
    examples=["conv_weight_grad_last(f32[2, 8, 3], f32[2, 6, 4], kernel=(3,), stride=(1,), padding=((0, 0),), "
              "dilation=(1,)) -> f32[4, 3, 3]",
              "conv_weight_grad_last(f32[2, 7, 6, 3], f32[2, 4, 5, 5], kernel=(3, 2), stride=(2, 1), "
              "padding=((1, 2), (0, 1)), dilation=(1, 2)) -> f32[5, 3, 2, 3]"])


# ---------------------------------------------------------------- of every channel by itself

def taps_last(w: Any) -> Any:
    """[*kernel, C] -> [C, 1, *kernel]"""
    taps = permute(w, axes=(w.ndim - 1, *range(w.ndim - 1)))
    return reshape_op(taps, shape=(taps.shape[0], 1, *taps.shape[1:]))


def taps_first(w: Any) -> Any:
    """[C, 1, *kernel] -> [*kernel, C]"""
    taps = reshape_op(w, shape=(w.shape[0], *w.shape[2:]))
    return permute(taps, axes=(*range(1, taps.ndim), 0))


def _depthwise_type(x: TensorType, w: TensorType, *, stride: Steps, padding: Pads, dilation: Steps) -> TensorType:
    check_kind("depthwise_channels_last", x.dtype, "uifc")
    if x.ndim != w.ndim + 1 or x.shape[-1] != w.shape[-1]:
        raise ShapeError(f"depthwise_channels_last: {x} is not [N, *sizes, C] for the kernel {w}, [*kernel, C]")
    counts = window_counts("depthwise_channels_last", x.shape[1:-1], w.shape[:-1], stride, padding, dilation)
    return x.with_shape((x.shape[0], *counts, x.shape[-1]))


def _depthwise_compute(s: Any, i: Any, x: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    n, *p, c = i
    return s.reduce("add", w.shape[:-1], lambda k: padded(
        s, x, (n,), p, k, stride, padding, dilation, trail=(c,)) * w((*k, c)))


def _depthwise_ref(x: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    kernel = np.moveaxis(w, -1, 0)[:, np.newaxis]
    return np.moveaxis(conv_ref(np.moveaxis(x, -1, 1), kernel, stride, padding, dilation, w.shape[-1]), 1, -1)


depthwise_channels_last: Op = define(
    "depthwise_channels_last", public=False, type=_depthwise_type, ref=_depthwise_ref, compute=_depthwise_compute,
    promote=same, autocast="narrow",
    vjp=lambda g, y, x, w, **attrs: (
        lambda: last(conv_input_grad(first(g), conj(taps_last(w)), sizes=x.shape[1:-1], groups=w.shape[-1], **attrs)),
        lambda: taps_first(conv_weight_grad(first(conj(x)), first(g), kernel=w.shape[:-1], groups=w.shape[-1],
                                            **attrs))),
    multiply_adds=lambda *shapes: prod(shapes[-1]) * prod(shapes[1][:-1]),
    doc="The convolution of every channel of x [N, *sizes, C] with its own kernel of w [*kernel, C].",
    examples=["depthwise_channels_last(f32[2, 8, 3], f32[3, 3], stride=(1,), padding=((0, 0),), dilation=(1,)) "
              "-> f32[2, 6, 3]",
              "depthwise_channels_last(f32[2, 7, 6, 5], f32[3, 2, 5], stride=(2, 1), padding=((1, 2), (0, 1)), "
              "dilation=(1, 2)) -> f32[2, 4, 5, 5]",
              "depthwise_channels_last(f32[2, 8, 3], f32[3, 4], stride=(1,), padding=((0, 0),), dilation=(1,)) "
              "-> error"])
