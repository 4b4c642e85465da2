"""RNN, GRU and LSTM: one direction at a time, as a scan along the sequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import tenon as tn
from tenon.onnx.operator_table import OperatorCall, operator

Activation = Callable[[Any, Any, Any], Any]
ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda x, a, b: tn.relu(x), "tanh": lambda x, a, b: tn.tanh(x), "sigmoid": lambda x, a, b: tn.sigmoid(x),
    "affine": lambda x, a, b: _or(a, 1.0) * x + _or(b, 0.0),
    "leakyrelu": lambda x, a, b: tn.leaky_relu(x, _or(a, 0.01)),
    "thresholdedrelu": lambda x, a, b: tn.where(x > _or(a, 1.0), x, 0.0),
    "scaledtanh": lambda x, a, b: _or(a, 1.0) * tn.tanh(_or(b, 1.0) * x),
    "hardsigmoid": lambda x, a, b: tn.clip(_or(a, 0.2) * x + _or(b, 0.5), 0.0, 1.0),
    "elu": lambda x, a, b: tn.elu(x, alpha=_or(a, 1.0)), "softsign": lambda x, a, b: tn.softsign(x),
    "softplus": lambda x, a, b: tn.softplus(x),
}


def _or(x: Any, default: float) -> float:
    return default if x is None else float(x)


def _activations(call: OperatorCall, default: list[str], directions: int) -> list[list[Callable[[Any], Any]]]:
    """The functions of each direction."""
    names = call.get("activations") or default * directions
    alphas, betas = list(call.get("activation_alpha", [])), list(call.get("activation_beta", []))
    found: list[Callable[[Any], Any]] = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise call.unsupported(f"the activation {name}")
        takes = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        a = alphas.pop(0) if takes and alphas else None
        b = betas.pop(0) if name.lower() in ("affine", "scaledtanh", "hardsigmoid") and betas else None
        found.append(partial(_applied, ACTIVATIONS[name.lower()], a, b))
    count = len(default)
    return [found[k * count:(k + 1) * count] for k in range(directions)]


def _applied(function: Activation, a: Any, b: Any, x: Any) -> Any:
    return function(x, a, b)


def _clipped(call: OperatorCall) -> Callable[[Any], Any]:
    limit = call.get("clip")
    return (lambda x: x) if limit is None else (lambda x: tn.clip(x, -limit, limit))


Cell = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]


def _run(call: OperatorCall, x: Any, w: Any, lengths: Any, states: list[Any], default: list[str],
         make: Callable[[int, list[Any]], tuple[Callable[[Any], Any], Cell]]) -> tuple[Any, ...]:
    """Y and the last states; `make` gives what is computed for all of the sequence at once, and a step."""
    batch_first, direction = call.get("layout", 0), call.get("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    x = tn.swapaxes(x, 0, 1) if batch_first else x
    hidden = call.get("hidden_size") or w.shape[1]
    states = [tn.zeros((count, x.shape[1], hidden), dtype=x.dtype) if s is None
              else tn.swapaxes(s, 0, 1) if batch_first else s for s in states]
    functions = _activations(call, default, count)
    outs, lasts = [], []
    for k in range(count):
        before, step = make(k, functions[k])
        back = direction == "reverse" or k == 1
        rows, last = _along(before(x), step, tuple(s[k] for s in states), lengths, back)
        outs.append(rows)
        lasts.append(last)
    y = tn.stack(outs, axis=1)                                      # [T, D, N, H]
    finals = [tn.stack(s, axis=0) for s in zip(*lasts)]
    if batch_first:
        return tn.permute(y, (2, 0, 1, 3)), *[tn.swapaxes(s, 0, 1) for s in finals]
    return y, *finals


def _along(rows: Any, step: Cell, states: tuple[Any, ...], lengths: Any, back: bool) -> tuple[Any, tuple[Any, ...]]:
    """What a cell gives along the first axis; examples that are shorter stop where they end."""
    total = rows.shape[0]

    def iteration(states: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
        row, k = given
        new = step(row, states)
        if lengths is None:
            return new, new[0]
        goes_on = tn.expand_dims(k < lengths, -1)
        kept = tuple(tn.where(goes_on, n, s) for n, s in zip(new, states))
        return kept, tn.where(goes_on, new[0], 0.0)
    last, outs = tn.scan(iteration, states, (rows, tn.arange(total)), reverse=back)
    return outs, last


def _biases(b: Any, k: int, size: int) -> tuple[Any, Any]:
    """Those of the input and of the state."""
    return (None, None) if b is None else (b[k][:size], b[k][size:])


def _projected(x: Any, w: Any, bias: Any) -> Any:
    y = tn.matmul(x, w.mT)
    return y if bias is None else y + bias


@operator("RNN")
def rnn(call: OperatorCall, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, initial: Any = None) -> Any:
    clip, hidden = _clipped(call), r.shape[2]

    def make(k: int, functions: list[Any]) -> Any:
        input_bias, state_bias = _biases(b, k, hidden)

        def step(row: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            return (functions[0](clip(row + _projected(states[0], r[k], state_bias))),)
        return lambda x: _projected(x, w[k], input_bias), step
    return _run(call, x, r, lengths, [initial], ["Tanh"], make)


@operator("GRU")
def gru(call: OperatorCall, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, initial: Any = None) -> Any:
    """Gates in the order update, reset, hidden."""
    clip, hidden, before_reset = _clipped(call), r.shape[2], call.get("linear_before_reset", 0)

    def make(k: int, functions: list[Any]) -> Any:
        f, g = functions
        input_bias, state_bias = _biases(b, k, 3 * hidden)
        gates_bias = None if state_bias is None else state_bias[:2 * hidden]
        hidden_bias = None if state_bias is None else state_bias[2 * hidden:]

        def step(row: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            h = states[0]
            gates = f(clip(row[:, :2 * hidden] + _projected(h, r[k][:2 * hidden], gates_bias)))
            z, reset = gates[:, :hidden], gates[:, hidden:]
            if before_reset:
                from_h = reset * _projected(h, r[k][2 * hidden:], hidden_bias)
            else:
                from_h = _projected(reset * h, r[k][2 * hidden:], hidden_bias)
            n = g(clip(row[:, 2 * hidden:] + from_h))
            return ((1 - z) * n + z * h,)
        return lambda x: _projected(x, w[k], input_bias), step
    return _run(call, x, r, lengths, [initial], ["Sigmoid", "Tanh"], make)


@operator("LSTM")
def lstm(call: OperatorCall, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, initial_h: Any = None,
         initial_c: Any = None, peepholes: Any = None) -> Any:
    """Gates in the order input, output, forget, cell; a peephole lets a gate see the cell."""
    clip, hidden, coupled = _clipped(call), r.shape[2], call.get("input_forget", 0)

    def make(k: int, functions: list[Any]) -> Any:
        f, g, h_of = functions
        input_bias, state_bias = _biases(b, k, 4 * hidden)
        peep = [0.0, 0.0, 0.0] if peepholes is None else [peepholes[k][j * hidden:(j + 1) * hidden] for j in range(3)]

        def step(row: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            h, c = states
            gates = row + _projected(h, r[k], state_bias)
            i, o, forget, cell = [gates[:, j * hidden:(j + 1) * hidden] for j in range(4)]
            seen = peepholes is not None
            i = f(clip(i + peep[0] * c if seen else i))
            forget = 1 - i if coupled else f(clip(forget + peep[2] * c if seen else forget))
            new = forget * c + i * g(clip(cell))
            o = f(clip(o + peep[1] * new if seen else o))
            return o * h_of(new), new
        return lambda x: _projected(x, w[k], input_bias), step
    return _run(call, x, r, lengths, [initial_h, initial_c], ["Sigmoid", "Tanh", "Tanh"], make)
