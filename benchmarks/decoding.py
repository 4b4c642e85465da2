"""Greedy decoding by a GPT with a cache of keys and values, one loop in the graph, beside other libraries.

    python -m benchmarks.decoding [--layers 6] [--width 384] [--tokens 144]

Every turn is one token: what its layers need of the tokens before lies in caches [layers, tokens, heads, width of one].
PyTorch runs the same turns from Python.  The limit is how fast memory gives the weights, all of them for every token.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.machine import bandwidth
from benchmarks.peers import able
from benchmarks.timing import compare, use_one_core
from tenon.config import config

Run = Callable[[], Any]
Runs = dict[str, Run]
Weights = dict[str, np.ndarray]
PROMPT, TOKENS = 16, 144


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 6), ("width", 384), ("heads", 6), ("vocabulary", 256), ("tokens", TOKENS)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--seconds", type=float, default=6.0)
    given = options.parse_args(arguments)
    use_one_core()
    times = compare(runs(given.layers, given.width, given.heads, given.vocabulary, given.tokens), given.seconds)
    moved = 4 * given.width * (12 * given.layers * given.width + given.vocabulary)
    read = bandwidth("read", moved, config().threads)
    print(f"limit      {1e3 * given.tokens * moved / read:9.2f} ms  for {moved / 1e6:.1f} MB of weights a token, "
          f"read at {read / 1e9:.1f} GB/s")
    for name, seconds in times.items():
        print(f"{name:10} {1e3 * seconds:9.2f} ms  {given.tokens / seconds:7.0f} tokens/s"
              f"   {seconds / times['tenon']:.2f} of Tenon's time")


def runs(layers: int, width: int, heads: int, vocabulary: int, tokens: int) -> Runs:
    """Tenon and the libraries that are installed; all find the same tokens."""
    given = problem(layers, width, heads, vocabulary, tokens)
    found = {name: make(*given) for name, make in MAKE.items() if able(name)}
    expected = found["tenon"]()
    for other in found.values():
        np.testing.assert_array_equal(other(), expected)
    return found


def problem(layers: int = 6, width: int = 384, heads: int = 6, vocabulary: int = 256,
            tokens: int = TOKENS) -> tuple[Weights, np.ndarray, tuple[int, ...]]:
    """Weights by name, tokens of which the first are the prompt, and the shape of a cache."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / shape[-1]**0.5).astype(np.float32)
    weights = {"table": weight(vocabulary, width) * 4, "places": weight(tokens, width)}
    for layer in range(layers):
        weights |= {f"qkv{layer}": weight(3 * width, width), f"out{layer}": weight(width, width),
                    f"widen{layer}": weight(4 * width, width), f"narrow{layer}": weight(width, 4 * width)}
    prompt = random.integers(0, vocabulary, tokens).astype(np.int32)
    return weights, prompt, (layers, tokens, heads, width // heads)


def turn(of: Any, put: Any, weights: Any, prompt: Any, shape: tuple[int, ...], t: Any, state: Any) -> Any:
    """One token in, one token out; `of` is the namespace of a library, `put` its assignment of a row."""
    layers, tokens, heads, size = shape
    token, chosen, keys, values = state
    x = weights["table"][token] + weights["places"][t]
    seen = of.arange(tokens) <= t
    for layer in range(layers):
        qkv = (weights[f"qkv{layer}"] @ norm(of, x)).reshape(3, heads, size)
        q, k, v = (qkv[i] for i in range(3))
        keys, values = put(keys, (layer, t), k), put(values, (layer, t), v)
        scores = of.where(seen, of.einsum("hd,thd->ht", q, keys[layer]) / size**0.5, -1e9)
        e = of.exp(scores - of.amax(scores, 1)[:, None])
        mixed = of.einsum("ht,thd->hd", e / of.sum(e, 1)[:, None], values[layer])
        x = x + weights[f"out{layer}"] @ mixed.reshape(heads * size)
        hidden = weights[f"widen{layer}"] @ norm(of, x)
        x = x + weights[f"narrow{layer}"] @ of.maximum(hidden, of.zeros_like(hidden))
    best = of.argmax(weights["table"] @ norm(of, x))
    following = of.where(t + 1 < PROMPT, prompt[t], best)
    return following, put(chosen, t, following), keys, values


def norm(of: Any, x: Any) -> Any:
    centred = x - of.mean(x)
    return centred / of.sqrt(of.mean(centred * centred) + 1e-5)


def _tenon(weights: Weights, prompt: np.ndarray, shape: tuple[int, ...]) -> Run:
    def put(x: Any, at: Any, row: Any) -> Any:
        x[at] = row
        return x

    @tn.jit
    def decode(weights: Any, prompt: Any) -> Any:
        state = tn.asarray(1), tn.zeros(shape[1], dtype=tn.int64), tn.zeros(shape), tn.zeros(shape)
        return tn.fori_loop(0, shape[1], lambda t, state: turn(tn, put, weights, prompt, shape, t, state), state)[1]
    given = {name: tn.asarray(x) for name, x in weights.items()}, tn.asarray(prompt.astype(np.int64))
    return lambda: decode(*given).numpy()


def _jax(weights: Weights, prompt: np.ndarray, shape: tuple[int, ...]) -> Run:
    import jax
    import jax.numpy as jnp

    @jax.jit
    def decode(weights: Any, prompt: Any) -> Any:
        state = jnp.int32(1), jnp.zeros(shape[1], jnp.int32), jnp.zeros(shape), jnp.zeros(shape)

        def step(t: Any, state: Any) -> Any:
            following, *others = turn(jnp, lambda x, at, row: x.at[at].set(row), weights, prompt, shape, t, state)
            return following.astype(jnp.int32), *others
        return jax.lax.fori_loop(0, shape[1], step, state)[1]
    given = {name: jnp.asarray(x) for name, x in weights.items()}, jnp.asarray(prompt)
    return lambda: np.asarray(decode(*given))


def _torch(weights: Weights, prompt: np.ndarray, shape: tuple[int, ...]) -> Run:
    import torch

    torch.set_num_threads(config().threads)
    given, numbers = {name: torch.from_numpy(x) for name, x in weights.items()}, torch.from_numpy(prompt).long()

    def put(x: Any, at: Any, row: Any) -> Any:
        x[at] = row
        return x

    def decode() -> Any:
        state: Any = torch.tensor(1), torch.zeros(shape[1], dtype=torch.int64), torch.zeros(shape), torch.zeros(shape)
        with torch.no_grad():
            for t in range(shape[1]):
                state = turn(torch, put, given, numbers, shape, torch.tensor(t), state)
        return state[1].numpy()
    return decode


def _xla(weights: Weights, prompt: np.ndarray, shape: tuple[int, ...]) -> Run:
    import benchmarks.tensorflow_nn as loaded
    tf, tnp = loaded.tf, loaded.tnp

    @tf.function(jit_compile=True)
    def decode(weights: Any, prompt: Any) -> Any:
        def put(x: Any, at: Any, row: Any) -> Any:
            return tf.tensor_scatter_nd_update(x, [at if isinstance(at, tuple) else (at,)], [row])

        def step(t: Any, *state: Any) -> Any:
            following, *others = turn(tnp, put, weights, prompt, shape, t, state)
            return t + 1, tf.cast(following, tf.int32), *others
        state = tf.constant(0), tf.constant(1), tf.zeros(shape[1], tf.int32), tf.zeros(shape), tf.zeros(shape)
        return tf.while_loop(lambda t, *_: t < shape[1], step, state)[2]
    given = {name: tf.constant(x) for name, x in weights.items()}, tf.constant(prompt)
    return lambda: decode(*given).numpy()


MAKE: dict[str, Callable[[Weights, np.ndarray, tuple[int, ...]], Run]] = {
    "tenon": _tenon, "jax": _jax, "xla": _xla, "torch": _torch}


if __name__ == "__main__":
    main()
