"""One step of recurrent networks: rnn_cell, lstm_cell, gru_cell, with PyTorch's weights and order of gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.promotion import floating
from tenon.ops.activations import relu
from tenon.ops.define import composite, define
from tenon.ops.exponential import sigmoid
from tenon.ops.linear_layers import linear
from tenon.ops.shape import reshape_op
from tenon.ops.slice_pad_concat import concat_op
from tenon.ops.trigonometric import tanh
from tenon.types import TensorType, normalize_axis


def _check(name: str, gates: int, x: Any, h: Any, w_ih: Any, w_hh: Any) -> None:
    size = h.shape[-1]
    if w_ih.shape != (gates * size, x.shape[-1]) or w_hh.shape != (gates * size, size):
        raise ShapeError(f"{name}: input {x.type} and state {h.type} need weights [{gates * size}, {x.shape[-1]}] and "
                         f"[{gates * size}, {size}], they are {w_ih.type} and {w_hh.type}")
    if x.shape[:-1] != h.shape[:-1]:
        raise ShapeError(f"{name}: the batch sizes of input {x.type} and state {h.type} differ")


def _parts(name: str, gates: Any, count: int, state: Any) -> list[Any]:
    size = state.shape[-1] if state.ndim and gates.ndim else 0
    if not gates.ndim or gates.shape[-1] != count * size:
        raise ShapeError(f"{name}: a state {state.type} needs sums of width {count * size}, not {gates.type}")
    return [gates[..., k * size:(k + 1) * size] for k in range(count)]


@composite(public=False, promote=floating, autocast="wide",
           examples=["lstm_gates(f32[2, 16], f32[2, 4]) -> f32[2, 4], f32[2, 4]",
                     "lstm_gates(f32[2, 18], f32[2, 4]) -> error"])
def lstm_gates(gates: Any, c: Any) -> Any:
    """The next hidden and cell state from the sums that enter the gates."""
    i, f, g, o = _parts("lstm_gates", gates, 4, c)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


@composite(public=False, promote=floating, autocast="wide",
           examples=["gru_gates(f32[2, 12], f32[2, 12], f32[2, 4]) -> f32[2, 4]",
                     "gru_gates(f32[2, 12], f32[2, 16], f32[2, 4]) -> error"])
def gru_gates(from_x: Any, from_h: Any, h: Any) -> Any:
    """The next state from what the input and the state contribute to the gates."""
    (xr, xz, xn), (hr, hz, hn) = (_parts("gru_gates", x, 3, h) for x in (from_x, from_h))
    z, n = sigmoid(xz + hz), tanh(xn + sigmoid(xr + hr) * hn)
    return n + z * (h - n)


@composite(public=False, promote=floating, autocast="wide",
           examples=["rnn_gate(f32[2, 4], f32[2, 4], nonlinearity='relu') -> f32[2, 4]"])
def rnn_gate(from_x: Any, from_h: Any, *, nonlinearity: str) -> Any:
    """The next state of an RNN, from what the input and the state give."""
    total = from_x + from_h
    return tanh(total) if nonlinearity == "tanh" else relu(total)


@composite(promote=floating, method=False, examples=[
    "rnn_cell(f32[2, 3], f32[2, 4], f32[4, 3], f32[4, 4], f32[4], f32[4], nonlinearity='tanh') -> f32[2, 4]",
    "rnn_cell(f32[2, 3], f32[2, 4], f32[4, 3], f32[4, 4], nonlinearity='relu') -> f32[2, 4]",
    "rnn_cell(f32[2, 3], f32[2, 4], f32[4, 4], f32[4, 4], nonlinearity='tanh') -> error"])
def rnn_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, *,
             nonlinearity: str = "tanh") -> Any:
    """The next state: tanh (or relu) of w_ih @ x + b_ih + w_hh @ h + b_hh."""
    _check("rnn_cell", 1, x, h, w_ih, w_hh)
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f"rnn_cell: nonlinearity must be 'tanh' or 'relu', not {nonlinearity!r}")
    return rnn_gate(linear(x, w_ih, b_ih), linear(h, w_hh, b_hh), nonlinearity=nonlinearity)


@composite(promote=floating, method=False, examples=[
    "lstm_cell(f32[2, 3], f32[2, 4], f32[2, 4], f32[16, 3], f32[16, 4], f32[16], f32[16]) -> f32[2, 4], f32[2, 4]",
    "lstm_cell(f32[2, 3], f32[2, 4], f32[2, 4], f32[16, 3], f32[16, 4]) -> f32[2, 4], f32[2, 4]"])
def lstm_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """The next hidden and cell state of a long short-term memory; gates in the order input, forget, cell, output."""
    _check("lstm_cell", 4, x, h, w_ih, w_hh)
    return lstm_gates(linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh), c)


@composite(promote=floating, method=False, examples=[
    "gru_cell(f32[2, 3], f32[2, 4], f32[12, 3], f32[12, 4], f32[12], f32[12]) -> f32[2, 4]",
    "gru_cell(f32[2, 3], f32[2, 4], f32[12, 3], f32[12, 4]) -> f32[2, 4]"])
def gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """The next state of a gated recurrent unit; gates in the order reset, update, new."""
    _check("gru_cell", 3, x, h, w_ih, w_hh)
    return gru_gates(linear(x, w_ih, b_ih), linear(h, w_hh, b_hh), h)


# ---------------------------------------------------------------- sequences as steps

MAX_STEPS = 1 << 20


def _unstack_type(x: TensorType, *, axis: int) -> tuple[TensorType, ...]:
    if normalize_axis(axis, x.ndim) != axis or not 0 < x.shape[axis] <= MAX_STEPS:
        raise ShapeError(f"steps: {x} has no axis {axis} of 1 to {MAX_STEPS} slices")
    return (x.with_shape((*x.shape[:axis], *x.shape[axis + 1:])),) * int(x.shape[axis])


def _unstack_vjp(g: Any, y: Any, x: Any, axis: int) -> tuple[Any]:
    parts = g if isinstance(g, tuple) else (g,)
    return (concat_op(*(reshape_op(p, shape=(*p.shape[:axis], 1, *p.shape[axis:])) for p in parts), axis=axis),)


def _unstack_ref(x: Any, axis: int) -> Any:
    parts = tuple(np.moveaxis(x, axis, 0))
    return parts if len(parts) > 1 else parts[0]


steps_op = define(
    "steps", public=False, type=_unstack_type, ref=_unstack_ref, vjp=_unstack_vjp,
    compute=lambda s, i, x, axis: tuple(x((*i[:axis], k, *i[axis:])) for k in range(int(x.shape[axis]))),
    batch="axis", doc="The slices along an axis, one output each, so that the gradient is put together once.",
    examples=["steps(f32[2, 3], axis=0) -> f32[3], f32[3]"])


def steps(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices of `x` along an axis; its size must be known."""
    if x.shape[axis] == 0:
        return ()
    out = steps_op(x, axis=axis)
    return out if isinstance(out, tuple) else (out,)
