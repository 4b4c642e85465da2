"""Recurrent layers: RNN, LSTM, GRU over sequences, several layers deep, in both directions; and their cells."""

from __future__ import annotations

from typing import Any

from tenon.autocast import autocasting
from tenon.capture.while_scan import scan
from tenon.errors import ArgumentError, ShapeError
from tenon.nn import init
from tenon.nn.module import Module, Parameter
from tenon.nn.packed_sequences import PackedSequence
from tenon.ops.comparison import where
from tenon.ops.creation import empty, zeros
from tenon.ops.joining_and_axes import concat, stack, swapaxes
from tenon.ops.linear_layers import linear
from tenon.ops.recurrent import gru_cell, gru_gates, lstm_cell, lstm_gates, rnn_cell, rnn_gate
from tenon.random import dropout

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]


def _weights(module: Module, suffix: str, gates: int, inputs: int, hidden: int, bias: bool, dtype: Any,
             projected: int = 0) -> None:
    """weight_ih, weight_hh and, if wanted, bias_ih, bias_hh and weight_hr of a cell, uniform within 1/sqrt(hidden)."""
    shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates * hidden, inputs),
                                          "weight_hh": (gates * hidden, projected or hidden)}
    if bias:
        shapes |= {"bias_ih": (gates * hidden,), "bias_hh": (gates * hidden,)}
    if projected:
        shapes["weight_hr"] = projected, hidden
    for name, shape in shapes.items():
        setattr(module, name + suffix, init.uniform_within_(Parameter(empty(shape, dtype=dtype)), hidden))


class _Uniform(Module):
    """Parameters that start uniform within 1/sqrt(hidden_size)."""

    hidden_size: int

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for p in self.parameters(recurse=False):
            init.uniform_within_(p, self.hidden_size)


class _Recurrent(_Uniform):
    """Runs cells over sequences [L, N, input_size], or [N, L, input_size] with `batch_first`, or [L, input_size].

    Returns the states of the last layer at every step [L, N, directions * hidden_size], and the last states of all
    layers [layers * directions, N, hidden_size].  `dropout` applies between layers, in training.
    Of a `PackedSequence` the outputs are one too, and the last states are those of each sequence's own last step.
    """

    gates = 1
    states = 1

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: Any = "float32"):
        if proj_size and (self.states == 1 or not 0 < proj_size < hidden_size):
            raise ArgumentError(f"{type(self).__name__}: proj_size={proj_size}, which only an LSTM has, must be below "
                                f"hidden_size={hidden_size}")
        if hidden_size < 1 or num_layers < 1:
            raise ArgumentError(f"{type(self).__name__}: hidden_size and num_layers must be at least 1")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.proj_size = proj_size
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[:directions]:
                inputs = input_size if layer == 0 else directions * (proj_size or hidden_size)
                _weights(self, f"_l{layer}{suffix}", self.gates, inputs, hidden_size, bias, dtype, proj_size)
        self._place(device)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each direction of each layer."""
        found: dict[str, list[Parameter]] = {}
        for name, p in self.named_parameters(recurse=False):
            found.setdefault(name.partition("_l")[2], []).append(p)
        return list(found.values())

    def flatten_parameters(self) -> None:
        """Nothing: the parameters need not lie beside each other."""

    def step(self, from_x: Any, from_h: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        """The next states of a cell."""
        raise NotImplementedError

    def forward(self, x: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(x, PackedSequence):
            seen, last = self._layers(self._checked(x.padded), hx, False, x.mask(3))
            return PackedSequence.of(seen, x.lengths, x.sorts), last
        self._checked(x)
        alone = x.ndim == 2
        x = x[:, None] if alone else swapaxes(x, 0, 1) if self.batch_first else x
        out, last = self._layers(x, hx, alone, None)
        return out[:, 0] if alone else swapaxes(out, 0, 1) if self.batch_first else out, last

    def _checked(self, x: Any) -> Any:
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(f"{type(self).__name__}: sequences of {self.input_size} features are [L, N, features], "
                             f"[N, L, features] with batch_first, or [L, features]; the input is {x.type}")
        return x

    def _layers(self, x: Any, hx: Any, alone: bool, there: Any) -> tuple[Any, Any]:
        """All layers over [L, N, features]; `there` [L, N, 1] says which sequences have a step."""
        first = self._initial(x, hx, alone)
        last: list[tuple[Any, ...]] = []
        directions = ("", "_reverse") if self.bidirectional else ("",)
        for layer in range(self.num_layers):
            outputs = []
            for suffix in directions:
                start = tuple(part[len(last)] for part in first)
                seen, final = self._run(x, start, f"_l{layer}{suffix}", bool(suffix), there)
                outputs.append(seen)
                last.append(final)
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
            if layer < self.num_layers - 1:
                x = dropout(x, self.dropout, self.training)
        finals = [stack(parts) for parts in zip(*last)]
        finals = [final[:, 0] for final in finals] if alone else finals
        return x, finals[0] if self.states == 1 else tuple(finals)

    def _initial(self, x: Any, hx: Any, alone: bool) -> list[Any]:
        """The first states [layers * directions, N, hidden_size], zero unless given."""
        rows = self.num_layers * (2 if self.bidirectional else 1), x.shape[1]
        shapes = [(*rows, self.proj_size or self.hidden_size), (*rows, self.hidden_size)][:self.states]
        if hx is None:
            held = next(self.parameters()).dtype if autocasting() else x.dtype      # in which states come out
            return [zeros(shape, dtype=held, device=x.device) for shape in shapes]
        given = [hx] if self.states == 1 else list(hx)
        given = [h[:, None] for h in given] if alone else given
        for h, shape in zip(given, shapes):
            if h.shape != shape:
                raise ShapeError(f"{type(self).__name__}: the first state must be {list(shape)}, it is {h.type}")
        return given

    def _run(self, x: Any, states: tuple[Any, ...], suffix: str, backwards: bool,
             there: Any) -> tuple[Any, tuple[Any, ...]]:
        """One direction of one layer: the states at every step, and the last ones."""
        w_ih, w_hh = (getattr(self, name + suffix) for name in ("weight_ih", "weight_hh"))
        b_ih, b_hh = (getattr(self, name + suffix) if self.bias else None for name in ("bias_ih", "bias_hh"))
        projection = getattr(self, f"weight_hr{suffix}") if self.proj_size else None

        def iteration(states: tuple[Any, ...], from_x: Any) -> Any:
            states = self.step(from_x, linear(states[0], w_hh, b_hh), states)
            if projection is not None:
                states = (linear(states[0], projection), *states[1:])
            return states, states[0]

        def iteration_where(states: tuple[Any, ...], step: tuple[Any, Any]) -> Any:
            new, _ = iteration(states, step[0])
            new = tuple(where(step[1], after, before) for after, before in zip(new, states))
            return new, where(step[1], new[0], 0.0)
        products = linear(x, w_ih, b_ih)        # one product for all inputs
        last, seen = (scan(iteration, states, products, reverse=backwards) if there is None else
                      scan(iteration_where, states, (products, there), reverse=backwards))
        return seen, last

    def extra_repr(self) -> str:
        extra = [f"num_layers={self.num_layers}"] * (self.num_layers > 1) + ["bidirectional"] * self.bidirectional
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *extra])


class RNN(_Recurrent):
    __doc__ = _Recurrent.__doc__

    def __init__(self, *values: Any, nonlinearity: str = "tanh", **options: Any):
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNN: nonlinearity must be 'tanh' or 'relu', not {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        super().__init__(*values, **options)

    def step(self, from_x: Any, from_h: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        return (rnn_gate(from_x, from_h, nonlinearity=self.nonlinearity),)


class LSTM(_Recurrent):
    __doc__ = (_Recurrent.__doc__ or "") + """
    States are pairs: hidden and cell state.  With `proj_size` hidden states, and so outputs, are projected to it.

    >>> out, (h, c) = nn.LSTM(3, 4, batch_first=True)(tn.randn(2, 5, 3))
    >>> out.shape, h.shape, c.shape
    ((2, 5, 4), (1, 2, 4), (1, 2, 4))
    """
    gates = 4
    states = 2

    def step(self, from_x: Any, from_h: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        out: tuple[Any, ...] = lstm_gates(from_x + from_h, states[1])
        return out


class GRU(_Recurrent):
    __doc__ = _Recurrent.__doc__
    gates = 3

    def step(self, from_x: Any, from_h: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        return (gru_gates(from_x, from_h, states[0]),)


class _Cell(_Uniform):
    """One step for inputs [N, input_size] or [input_size]; returns the next state, zero states unless given."""

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: Any = "float32"):
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        _weights(self, "", self.gates, input_size, hidden_size, bias, dtype)
        self._place(device)

    def _parameters_of_cell(self) -> list[Any]:
        biases = [self.bias_ih, self.bias_hh] if self.bias else [None, None]
        return [self.weight_ih, self.weight_hh, *biases]

    def _zeros(self, x: Any) -> Any:
        return zeros((*x.shape[:-1], self.hidden_size), dtype=x.dtype, device=x.device)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(_Cell):
    __doc__ = _Cell.__doc__

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 device: Any = None, dtype: Any = "float32"):
        super().__init__(input_size, hidden_size, bias, dtype=dtype)
        self.nonlinearity = nonlinearity
        self._place(device)

    def forward(self, x: Any, hx: Any = None) -> Any:
        state = self._zeros(x) if hx is None else hx
        return rnn_cell(x, state, *self._parameters_of_cell(), nonlinearity=self.nonlinearity)


class LSTMCell(_Cell):
    __doc__ = _Cell.__doc__
    gates = 4

    def forward(self, x: Any, hx: Any = None) -> Any:
        h, c = (self._zeros(x), self._zeros(x)) if hx is None else hx
        return lstm_cell(x, h, c, *self._parameters_of_cell())


class GRUCell(_Cell):
    __doc__ = _Cell.__doc__
    gates = 3

    def forward(self, x: Any, hx: Any = None) -> Any:
        return gru_cell(x, self._zeros(x) if hx is None else hx, *self._parameters_of_cell())


RNNBase, RNNCellBase = _Recurrent, _Cell
