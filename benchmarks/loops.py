"""Loops in the graph: nanoseconds a turn of small ones, milliseconds of larger ones, against JAX's and PyTorch's.

    OPENBLAS_NUM_THREADS=1 TENON_THREADS=1 python -m benchmarks.loops

PyTorch has no loop in the graph: its rows are loops of Python, and its library's LSTM.
"""
import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.timing import compare, installed, row, use_one_core
from tenon.config import config
from tenon.ops.recurrent import lstm_cell

if config().threads == 1:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

Runs = dict[str, Callable[[], object]]
TURNS = 20_000


def main(arguments: list[str] | None = None) -> None:
    """Print one line for each loop."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=2.0)
    seconds = options.parse_args(arguments).seconds
    use_one_core()
    for label, runs, turns in (("Newton, 16 wide", newton_runs(16), TURNS), ("Newton, scalar", newton_runs(0), TURNS),
                               ("greedy decoding, 120 tokens", decoding_runs(120, 256, 128), 1),
                               ("LSTM 64 x 32 x 256, forward + backward", lstm_runs(64, 32, 256), 1)):
        times = {name: time / turns for name, time in compare(runs, seconds).items()}
        print(row(label, times) if turns == 1 else nanoseconds(label, times), flush=True)


def nanoseconds(label: str, times: dict[str, float]) -> str:
    """One line of times a turn."""
    first, *others = times
    return f"{label:24} " + "   ".join([f"{name} {time * 1e9:7.1f} ns a turn" for name, time in times.items()]
                                       + [f"{first}/{name} {times[first] / times[name]:.2f}" for name in others])


# ---------------------------------------------------------------- square roots until they change no more

def newton_runs(size: int) -> Runs:
    """x = (x + a / x) / 2, so many times, in each library."""
    makers = {"Tenon": newton_of_tenon} | ({"JAX": newton_of_jax} if installed("jax") else {})
    runs = {name: make(size) for name, make in makers.items()}
    for run in runs.values():
        np.testing.assert_allclose(run(), np.sqrt(_squares(size)), rtol=1e-6)  # type: ignore[arg-type]
    return runs


def _squares(size: int) -> Any:
    return np.linspace(1, 9, size, dtype=np.float32) if size else np.float32(2.0)


def newton_of_tenon(size: int) -> Callable[[], object]:
    """The condition reads x too, as one that looks for convergence does."""
    @tn.jit
    def roots(a: Any, turns: Any) -> Any:
        def more(state: Any) -> Any:
            x, left = state
            return (left > 0) & (x.max() < 1e6)

        def step(state: Any) -> Any:
            x, left = state
            return 0.5 * (x + a / x), left - 1
        return tn.while_loop(more, step, (a, turns))[0]
    a, turns = tn.asarray(_squares(size)), tn.asarray(TURNS)
    return lambda: roots(a, turns).numpy()


def newton_of_jax(size: int) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def roots(a: Any, turns: Any) -> Any:
        return jax.lax.while_loop(lambda s: (s[1] > 0) & (jnp.max(s[0]) < 1e6),
                                  lambda s: (0.5 * (s[0] + a / s[0]), s[1] - 1), (a, turns))[0]
    a = jnp.asarray(_squares(size))
    return lambda: np.asarray(roots(a, TURNS))


# ---------------------------------------------------------------- greedy decoding

def decoding_runs(length: int, vocabulary: int, width: int) -> Runs:
    """The tokens that a layer of attention with a cache of keys and values finds most likely, one after the other."""
    random = np.random.default_rng(0)
    table, *square = ((random.normal(size=(n, width)) * 3 / width ** 0.5).astype(np.float32)
                      for n in (vocabulary, width, width, width, width))

    def decode(of: Any, loop: Any, put: Any, table: Any, q: Any, k: Any, v: Any, out: Any) -> Any:
        """`of` is the namespace of a framework, `loop` its loop, `put` its assignment of a row."""
        def turn(t: Any, state: Any) -> Any:
            token, tokens, keys, values = state
            x = table[token][None]
            keys, values = put(keys, t, (x @ k)[0]), put(values, t, (x @ v)[0])
            scores = of.where(of.arange(length)[None] <= t, (x @ q) @ keys.T / width ** 0.5, -1e9)
            weights = of.exp(scores - of.max(scores))
            x = of.tanh(weights / of.sum(weights) @ values @ out) + 0.1 * x
            token = of.argmax((x @ table.T)[0])
            return token, put(tokens, t, token), keys, values
        return loop(turn, (of.asarray(1), of.zeros(length, dtype=of.int32), of.zeros((length, width), dtype=of.float32),
                           of.zeros((length, width), dtype=of.float32)))[1]

    def put(x: Any, t: Any, row: Any) -> Any:
        x[t] = row
        return x

    ours = tn.jit(lambda *weights: decode(tn, lambda turn, state: tn.fori_loop(0, length, turn, state), put, *weights))
    inputs = tuple(map(tn.asarray, (table, *square)))
    runs: Runs = {"Tenon": lambda: ours(*inputs).numpy()}
    if installed("jax"):
        runs["JAX"] = _jax_decoding(decode, length, (table, *square))
    if installed("torch"):
        import torch

        torch.set_num_threads(config().threads)
        weights = tuple(map(torch.from_numpy, (table, *square)))

        def python_loop(turn: Any, state: Any) -> Any:
            for t in range(length):
                state = turn(t, state)
            return state
        runs["PyTorch loop"] = lambda: decode(torch, python_loop, put, *weights).numpy()
    first, *others = runs.values()
    for other in others:
        np.testing.assert_array_equal(first(), other())  # type: ignore[arg-type]
    return runs


def _jax_decoding(decode: Any, length: int, weights: tuple[np.ndarray, ...]) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    theirs = jax.jit(lambda *weights: decode(jnp, lambda turn, state: jax.lax.fori_loop(0, length, turn, state),
                                             lambda x, t, row: x.at[t].set(row), *weights))
    inputs = tuple(map(jnp.asarray, weights))
    return lambda: np.asarray(theirs(*inputs))


# ---------------------------------------------------------------- a recurrent network

def lstm_runs(length: int, batch: int, hidden: int) -> Runs:
    """The sum of all states of an LSTM, and its gradients by input, weights and biases."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return (random.uniform(-1, 1, shape) / np.sqrt(hidden)).astype(np.float32)
    x = random.normal(size=(length, batch, hidden)).astype(np.float32)
    weights = weight(4 * hidden, hidden), weight(4 * hidden, hidden), weight(4 * hidden), weight(4 * hidden)
    runs: Runs = {"Tenon": _tenon_lstm(x, weights)}
    if installed("jax"):
        runs["JAX"] = _jax_lstm(x, weights)
    if installed("torch"):
        runs["PyTorch library"], runs["PyTorch loop"] = _torch_lstm(x, weights)
    first, *others = runs.values()
    for other in others:
        for ours, theirs in zip(first(), other(), strict=True):  # type: ignore[call-overload]
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-2)
    return runs


def _tenon_lstm(x: np.ndarray, weights: tuple[np.ndarray, ...]) -> Callable[[], object]:
    def total(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = lstm_cell(x, *state, w_ih, w_hh, b_ih, b_hh)
            return (h, c), h
        zero = tn.zeros((x.shape[1], x.shape[2]))
        return tn.scan(step, (zero, zero), x)[1].sum()

    gradient = tn.jit(tn.grad(total, argnums=(0, 1, 2, 3, 4)))
    inputs = tuple(tn.asarray(a) for a in (x, *weights))
    return lambda: [g.numpy() for g in gradient(*inputs)]


def _jax_lstm(x: np.ndarray, weights: tuple[np.ndarray, ...]) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    def total(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h
        zero = jnp.zeros((x.shape[1], x.shape[2]))
        return jax.lax.scan(step, (zero, zero), x)[1].sum()

    gradient = jax.jit(jax.grad(total, argnums=(0, 1, 2, 3, 4)))
    inputs = tuple(map(jnp.asarray, (x, *weights)))
    return lambda: [np.asarray(g) for g in gradient(*inputs)]


def _torch_lstm(x: np.ndarray, weights: tuple[np.ndarray, ...]) -> tuple[Callable[[], object], Callable[[], object]]:
    import torch

    torch.set_num_threads(config().threads)
    hidden = x.shape[2]
    library = torch.nn.LSTM(hidden, hidden)
    cell = torch.nn.LSTMCell(hidden, hidden)
    inputs = torch.from_numpy(x.copy()).requires_grad_()
    for module, suffix in ((library, "_l0"), (cell, "")):
        for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
            getattr(module, name + suffix).data.copy_(torch.from_numpy(value))

    def of_library() -> object:
        out = library(inputs)[0].sum()
        return [g.numpy() for g in torch.autograd.grad(out, [inputs, *library.parameters()])]

    def of_loop() -> object:
        h = c = torch.zeros(x.shape[1], hidden)
        states = []
        for one in inputs:
            h, c = cell(one, (h, c))
            states.append(h)
        return [g.numpy() for g in torch.autograd.grad(torch.stack(states).sum(), [inputs, *cell.parameters()])]
    return of_library, of_loop


if __name__ == "__main__":
    main()
