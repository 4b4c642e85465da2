"""One step of recurrent networks: rnn_cell, lstm_cell, gru_cell, with PyTorch's weights and order of gates."""

from __future__ import annotations

from typing import Any

from tenon.errors import ArgumentError, ShapeError
from tenon.graph.promotion import floating
from tenon.ops.activations import relu
from tenon.ops.define import composite
from tenon.ops.exponential import sigmoid
from tenon.ops.projections import linear
from tenon.ops.trigonometric import tanh


def _check(name: str, gates: int, x: Any, h: Any, w_ih: Any, w_hh: Any) -> None:
    size = h.shape[-1]
    if w_ih.shape != (gates * size, x.shape[-1]) or w_hh.shape != (gates * size, size):
        raise ShapeError(f"{name}: input {x.type} and state {h.type} need weights [{gates * size}, {x.shape[-1]}] and "
                         f"[{gates * size}, {size}], they are {w_ih.type} and {w_hh.type}")
    if x.shape[:-1] != h.shape[:-1]:
        raise ShapeError(f"{name}: the batch sizes of input {x.type} and state {h.type} differ")


def _parts(gates: Any, count: int) -> list[Any]:
    size = gates.shape[-1] // count
    return [gates[..., k * size:(k + 1) * size] for k in range(count)]


@composite(promote=floating, examples=[
    "rnn_cell(f32[2, 3], f32[2, 4], f32[4, 3], f32[4, 4], f32[4], f32[4], nonlinearity='tanh') -> f32[2, 4]",
    "rnn_cell(f32[2, 3], f32[2, 4], f32[4, 3], f32[4, 4], nonlinearity='relu') -> f32[2, 4]",
    "rnn_cell(f32[2, 3], f32[2, 4], f32[4, 4], f32[4, 4], nonlinearity='tanh') -> error"])
def rnn_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, *,
             nonlinearity: str = "tanh") -> Any:
    """The next state: tanh (or relu) of w_ih @ x + b_ih + w_hh @ h + b_hh."""
    _check("rnn_cell", 1, x, h, w_ih, w_hh)
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f"rnn_cell: nonlinearity must be 'tanh' or 'relu', not {nonlinearity!r}")
    total = linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh)
    return tanh(total) if nonlinearity == "tanh" else relu(total)


@composite(promote=floating, examples=[
    "lstm_cell(f32[2, 3], f32[2, 4], f32[2, 4], f32[16, 3], f32[16, 4], f32[16], f32[16]) -> f32[2, 4], f32[2, 4]",
    "lstm_cell(f32[2, 3], f32[2, 4], f32[2, 4], f32[16, 3], f32[16, 4]) -> f32[2, 4], f32[2, 4]"])
def lstm_cell(x: Any, h: Any, c: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """The next hidden and cell state of a long short-term memory; gates in the order input, forget, cell, output."""
    _check("lstm_cell", 4, x, h, w_ih, w_hh)
    i, f, g, o = _parts(linear(x, w_ih, b_ih) + linear(h, w_hh, b_hh), 4)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


@composite(promote=floating, examples=[
    "gru_cell(f32[2, 3], f32[2, 4], f32[12, 3], f32[12, 4], f32[12], f32[12]) -> f32[2, 4]",
    "gru_cell(f32[2, 3], f32[2, 4], f32[12, 3], f32[12, 4]) -> f32[2, 4]"])
def gru_cell(x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """The next state of a gated recurrent unit; gates in the order reset, update, new."""
    _check("gru_cell", 3, x, h, w_ih, w_hh)
    xr, xz, xn = _parts(linear(x, w_ih, b_ih), 3)
    hr, hz, hn = _parts(linear(h, w_hh, b_hh), 3)
    z, n = sigmoid(xz + hz), tanh(xn + sigmoid(xr + hr) * hn)
    return n + z * (h - n)
