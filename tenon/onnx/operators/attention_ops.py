"""Attention, rotary embeddings and linear attention."""

from __future__ import annotations

import math
from typing import Any

import tenon as tn
from tenon.onnx.evaluate_plan import call_function
from tenon.onnx.function_bodies import body_of
from tenon.onnx.known_values import as_tensor
from tenon.onnx.operator_table import OperatorCall, operator

ALONE = ("softcap", "qk_matmul_output_mode", "softmax_precision")       # attributes that only the full body serves


@operator("Attention", raw=True)
def attention(call: OperatorCall, *args: Any) -> Any:
    """The usual cases are Tenon's own operator; others are what the standard says attention is made of."""
    given = [*args, *[None] * (7 - len(args))]
    q, k, v, mask, past_k, past_v, lengths = given
    wide = call.get("left_window_size", -1) < 0 and call.get("right_window_size", -1) < 0
    usual = wide and lengths is None and not any(call.get(name) for name in ALONE) and len(call.step.outputs) < 4 \
        and not (call.get("is_causal", 0) and (past_k is not None or mask is not None))
    q, k, v = map(as_tensor, (q, k, v))
    if not usual or (mask is not None and as_tensor(mask).shape[-1] != k.shape[-2 if k.ndim == 4 else 1]
                     + (0 if past_k is None else as_tensor(past_k).shape[2])) or q.dtype is tn.float16:
        return _by_the_body(call, args)
    flat = q.ndim == 3
    if flat:
        q, k, v = (_heads(x, call.need(n)) for x, n in ((q, "q_num_heads"), (k, "kv_num_heads"), (v, "kv_num_heads")))
    if past_k is not None:
        k, v = tn.concat([as_tensor(past_k), k], axis=2), tn.concat([as_tensor(past_v), v], axis=2)
    y = tn.scaled_dot_product_attention(
        q, k, v, None if mask is None else as_tensor(mask), is_causal=bool(call.get("is_causal", 0)),
        scale=call.get("scale") or 1 / math.sqrt(q.shape[-1]), enable_gqa=q.shape[1] != k.shape[1])
    if flat:
        y = tn.permute(y, (0, 2, 1, 3)).reshape(y.shape[0], y.shape[2], -1)
    return y, k, v


def _by_the_body(call: OperatorCall, args: Any) -> Any:
    body = body_of(call, list(args))
    if body is None:
        raise call.unsupported("this kind of attention")
    return call_function(body, list(args), call.attributes, call.scope)


def _heads(x: Any, count: int) -> Any:
    """[N, T, H * D] -> [N, H, T, D]."""
    return tn.permute(x.reshape(x.shape[0], x.shape[1], count, -1), (0, 2, 1, 3))


@operator("RotaryEmbedding")
def rotary_embedding(call: OperatorCall, x: Any, cos: Any, sin: Any, places: Any = None) -> Any:
    """Pairs of numbers turned by angles that grow with the position."""
    flat = x.ndim == 3
    y = x.reshape(x.shape[0], x.shape[1], call.need("num_heads"), -1) if flat else tn.permute(x, (0, 2, 1, 3))
    turned = call.get("rotary_embedding_dim", 0) or y.shape[-1]
    cos, sin = (c if places is None else tn.take(c, places, axis=0) for c in (cos, sin))
    cos, sin = (tn.expand_dims(c, 2) for c in (cos, sin))
    part, rest = y[..., :turned], y[..., turned:]
    if call.get("interleaved", 0):
        a, b = part[..., 0::2], part[..., 1::2]
        new = tn.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(*part.shape)
    else:
        a, b = part[..., :turned // 2], part[..., turned // 2:]
        new = tn.concat([a * cos - b * sin, b * cos + a * sin], axis=-1)
    y = tn.concat([new, rest], axis=-1) if rest.shape[-1] else new
    return y.reshape(*x.shape) if flat else tn.permute(y, (0, 2, 1, 3))


@operator("LinearAttention")
def linear_attention(call: OperatorCall, q: Any, k: Any, v: Any, past: Any = None, decay: Any = None,
                     beta: Any = None) -> Any:
    """A state of keys by values that each token decays, corrects and reads."""
    heads, kv_heads = call.need("q_num_heads"), call.need("kv_num_heads")
    own, wide = q.dtype, tn.float64 if q.dtype is tn.float64 else tn.float32
    q, k, v = (tn.cast(_heads(x, n), wide) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
    n, _, steps, depth = q.shape
    state = tn.zeros((n, kv_heads, depth, v.shape[-1]), dtype=wide) if past is None else tn.cast(past, wide)
    scale, rule = call.get("scale") or 1 / math.sqrt(depth), call.get("update_rule", "gated_delta")
    rows: list[Any] = [tn.moveaxis(x, 2, 0) for x in (q, k, v)]
    rows.append(_per_head(decay, kv_heads, depth, wide) if "gated" in rule else None)
    rows.append(_per_head(beta, kv_heads, 1, wide) if "delta" in rule else None)
    names = [j for j, x in enumerate(rows) if x is not None]

    def iteration(state: Any, given: Any) -> Any:
        row: list[Any] = [None] * 5
        for j, x in zip(names, given):
            row[j] = x
        qt, kt, vt, gt, bt = row
        state = state if gt is None else state * tn.exp(tn.expand_dims(gt, -1))
        if bt is not None:
            vt = bt * (vt - tn.sum(state * tn.expand_dims(kt, -1), axis=-2))
        state = state + tn.expand_dims(kt, -1) * tn.expand_dims(vt, -2)
        read = state if heads == kv_heads else tn.repeat_interleave(state, heads // kv_heads, axis=1)
        return state, scale * tn.sum(tn.expand_dims(qt, -1) * read, axis=-2)
    last, outs = tn.scan(iteration, state, tuple(rows[j] for j in names))
    y = tn.permute(outs, (1, 0, 2, 3)).reshape(n, steps, -1)
    return tn.cast(y, own), tn.cast(last, own if past is None else past.dtype)


def _per_head(x: Any, heads: int, depth: int, dtype: Any) -> Any:
    """[N, T, 1], [N, T, H] or [N, T, H * D] -> [T, N, 1 or H, 1 or D]."""
    y = x.reshape(x.shape[0], x.shape[1], heads if x.shape[2] % heads == 0 else 1, -1)
    return tn.cast(tn.moveaxis(y, 1, 0), dtype)
