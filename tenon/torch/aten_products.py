"""ATen's products: matrices, attention, convolutions and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenon as tn
from tenon.ops.attention import attention, attention_gradient
from tenon.ops.convolution import conv_input_grad, conv_weight_grad
from tenon.torch.aten_call import AtenCall, Rule, UnmappedOperator, as_type


def _matmul(at: AtenCall, x: Any, y: Any) -> Any:
    return tn.matmul(x, y)


def _added(at: AtenCall, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = tn.matmul(x, y)
    product = product if alpha == 1 else tn.multiply(product, as_type(alpha, at.dtype))
    if beta == 0:
        return product
    return tn.add(product, bias if beta == 1 else tn.multiply(bias, as_type(beta, at.dtype)))


def _linear(at: AtenCall, x: Any, weight: Any, bias: Any = None) -> Any:
    return tn.linear(x, weight, bias)


# ---------------------------------------------------------------- convolutions

def _steps(values: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(values) * count if len(values) == 1 else tuple(values)


def _pads(values: Sequence[int], count: int) -> tuple[tuple[int, int], ...]:
    return tuple((n, n) for n in _steps(values, count))


def _convolution(at: AtenCall, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
                 transposed: bool, output_padding: Any, groups: int) -> Any:
    count = weight.ndim - 2
    batched = x if x.ndim == weight.ndim else tn.expand_dims(x, 0)
    options: Any = {"stride": _steps(stride, count), "dilation": _steps(dilation, count), "groups": groups}
    if transposed:
        found = tn.conv_transpose(batched, weight, padding=_pads(padding, count),
                                  output_padding=_steps(output_padding, count), **options)
    else:
        found = tn.conv(batched, weight, padding=_pads(padding, count), **options)
    if bias is not None:
        found = tn.add(found, tn.reshape(bias, (bias.shape[0], *(1,) * count)))
    return found if x.ndim == weight.ndim else found[0]


def _convolution_backward(at: AtenCall, g: Any, x: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any,
                          dilation: Any, transposed: bool, output_padding: Any, groups: int,
                          wanted: Sequence[bool]) -> Any:
    """The gradients of input, weight and bias, where they are wanted."""
    count = weight.ndim - 2
    if x.ndim != weight.ndim:
        raise UnmappedOperator("the gradient of a convolution without a batch axis")
    options: Any = {"stride": _steps(stride, count), "padding": _pads(padding, count),
                    "dilation": _steps(dilation, count), "groups": groups}
    to_x = to_weight = to_bias = None
    if wanted[0]:
        to_x = tn.conv(g, weight, **options) if transposed else \
            conv_input_grad(g, weight, sizes=tuple(x.shape[2:]), **options)
    if wanted[1]:
        first, second = (g, x) if transposed else (x, g)
        to_weight = conv_weight_grad(first, second, kernel=tuple(weight.shape[2:]), **options)
    if wanted[2]:
        to_bias = tn.sum(g, axis=(0, *range(2, g.ndim)))
    return to_x, to_weight, to_bias


# ---------------------------------------------------------------- attention

def _scale(q: Any, scale: float | None) -> float:
    if scale is None and not isinstance(q.shape[-1], int):
        raise UnmappedOperator("attention over a size that is not known yet")
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _flash(at: AtenCall, q: Any, k: Any, v: Any, dropout_p: float = 0.0, is_causal: bool = False, *,
           attn_mask: Any = None, scale: float | None = None) -> Any:
    """The result, and the logarithms of the rows' sums."""
    if dropout_p:
        raise UnmappedOperator("attention with dropout")
    k, v = (_for_each_head(x, q) for x in (k, v))
    out, totals, _ = attention(q, k, v, _mask(attn_mask, q), is_causal=is_causal, scale=_scale(q, scale))
    return out, as_type(totals, at.types[1].dtype) if at.types[1] is not None else None


def _for_each_head(x: Any, q: Any) -> Any:
    """Keys or values, where each of their heads serves several of the queries, once for each of these."""
    heads, each = x.shape[1], _sharing(x, q)
    if each == 1:
        return x
    apart = tn.broadcast_to(tn.expand_dims(x, 2), shape=(x.shape[0], heads, each, *x.shape[2:]))
    return tn.reshape(apart, (x.shape[0], heads * each, *x.shape[2:]))


def _sharing(x: Any, q: Any) -> Any:
    """How many heads of the queries one of keys or values serves."""
    return 1 if q.shape[1] == x.shape[1] else q.shape[1] // x.shape[1]


def _of_all_heads(gradient: Any, x: Any, q: Any) -> Any:
    """The gradient of keys or values: the sum over the heads of queries that each serves."""
    each = _sharing(x, q)
    if each == 1:
        return gradient
    return tn.sum(tn.reshape(gradient, (x.shape[0], x.shape[1], each, *x.shape[2:])), axis=2)


def _mask(mask: Any, q: Any) -> Any:
    return mask if mask is None or mask.dtype.kind == "b" else as_type(mask, q.dtype)


def _flash_backward(at: AtenCall, g: Any, q: Any, k: Any, v: Any, out: Any, totals: Any, dropout_p: float,
                    is_causal: bool, *, attn_mask: Any = None, scale: float | None = None) -> Any:
    if dropout_p:
        raise UnmappedOperator("attention with dropout")
    wide = tn.float32 if q.dtype.bits < 32 else q.dtype
    along = tn.sum(tn.multiply(as_type(g, wide), as_type(out, wide)), axis=-1)
    keys, values = (_for_each_head(x, q) for x in (k, v))
    to_q, to_k, to_v = attention_gradient(g, along, as_type(totals, wide), q, keys, values, _mask(attn_mask, q),
                                          is_causal=is_causal, scale=_scale(q, scale))
    return to_q, _of_all_heads(to_k, k, q), _of_all_heads(to_v, v, q)


def _addbmm(at: AtenCall, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return tn.addbmm(x, a, b, beta, alpha)


def _trilinear(at: AtenCall, x: Any, y: Any, z: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any,
               unroll_dim: int = 1) -> Any:
    """The sum over axes of a product of three, each with axes of one element where it is told."""
    found: Any = None
    for factor, axes in ((x, expand1), (y, expand2), (z, expand3)):
        for axis in sorted(axes):
            factor = tn.expand_dims(factor, axis)
        found = factor if found is None else tn.multiply(found, factor)
    return tn.sum(found, axis=tuple(sumdim)) if sumdim else found


def _grouped(at: AtenCall, x: Any, y: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if bias is not None:
        raise UnmappedOperator("a bias of each group")
    return tn.grouped_mm(x, y, offs=offs)


def _grouped_backward(at: AtenCall, x: Any, weight: Any, offs: Any, g: Any) -> Any:
    turned_x, turned_weight = tn.matrix_transpose(x), tn.matrix_transpose(weight)
    return tn.grouped_mm(g, turned_weight, offs=offs), tn.grouped_mm(turned_x, g, offs=offs)


CONTRACTIONS: dict[str, Rule] = {
    "_grouped_mm": _grouped, "transformers.grouped_mm_fallback": _grouped,
    "transformers.grouped_mm_fallback_backward": _grouped_backward,
    "mm": _matmul, "bmm": _matmul, "mv": _matmul, "dot": _matmul, "matmul": _matmul, "addmm": _added,
    "baddbmm": _added, "addmv": _added, "linear": _linear, "addbmm": _addbmm, "_trilinear": _trilinear,
    "_cdist_forward": lambda at, x, y, p=2.0, *_: tn.cdist(x, y, float(p)),
    "_pdist_forward": lambda at, x, p=2.0: tn.pdist(x, float(p)), "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _flash,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _flash_backward,
}
