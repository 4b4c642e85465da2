"""The training steps of `benchmarks.models` in JAX: one jitted function from parameters and state to the next ones.

Parameters are a dictionary under PyTorch's names, so that all libraries start from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models import Run, Workload, adam, adamw, inputs, momentum, weights

Parameters = dict[str, Any]


def linear(p: Parameters, name: str, x: Any) -> Any:
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def mlp(p: Parameters, x: Any) -> Any:
    return linear(p, "4", jax.nn.relu(linear(p, "2", jax.nn.relu(linear(p, "0", x)))))


def layer_norm(p: Parameters, name: str, x: Any) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]


def gpt(p: Parameters, ids: Any, heads: int = 6) -> Any:
    n, t = ids.shape
    x = p["tokens.weight"][ids] + p["positions.weight"][:t]
    hidden = jnp.tril(jnp.ones((t, t), bool))
    for k in range(sum(name.endswith("qkv.weight") for name in p)):
        block = f"blocks.{k}."
        qkv = linear(p, block + "qkv", layer_norm(p, block + "norm1", x)).reshape(n, t, 3, heads, -1)
        q, key, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        scores = jnp.where(hidden, q @ key.transpose(0, 1, 3, 2) / q.shape[-1]**0.5, -jnp.inf)
        mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(n, t, -1)
        x = x + linear(p, block + "project", mixed)
        wide = jax.nn.gelu(linear(p, block + "widen", layer_norm(p, block + "norm2", x)), approximate=False)
        x = x + linear(p, block + "narrow", wide)
    return layer_norm(p, "norm", x) @ p["tokens.weight"].T


def convolution(p: Parameters, name: str, norm: str, x: Any, stride: int = 1) -> Any:
    """Without bias, and normalised over the batch."""
    w = p[name + ".weight"]
    pad = w.shape[-1] // 2
    y = jax.lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)
    mean, variance = y.mean((0, 2, 3), keepdims=True), y.var((0, 2, 3), keepdims=True)
    scale, shift = (p[f"{norm}.{part}"][:, None, None] for part in ("weight", "bias"))
    return (y - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def resnet18(p: Parameters, x: Any) -> Any:
    x = jax.nn.relu(convolution(p, "0", "1", x))
    for k in range(3, 11):
        stride = 2 if k in (5, 7, 9) else 1
        y = jax.nn.relu(convolution(p, f"{k}.main.0", f"{k}.main.1", x, stride))
        y = convolution(p, f"{k}.main.3", f"{k}.main.4", y)
        short = convolution(p, f"{k}.shortcut.0", f"{k}.shortcut.1", x, stride) if stride > 1 else x
        x = jax.nn.relu(y + short)
    return linear(p, "13", x.mean((2, 3)))


NETWORKS: dict[str, Callable[[Parameters, Any], Any]] = {"mlp": mlp, "gpt": gpt, "resnet18": resnet18}


def jax_run(workload: Workload) -> Run:
    """One call is a training step in JAX; returns the loss.  Raises KeyError for a network that is not written here."""
    network = NETWORKS[workload.name]
    given = {name: jnp.asarray(x) for name, x in weights(workload).items() if "running" not in name and x.ndim}
    x, y = (jnp.asarray(a) for a in inputs(workload))

    def loss_of(p: Parameters, x: Any, y: Any) -> Any:
        scores = network(p, x)
        chosen = jax.nn.log_softmax(scores.reshape(-1, scores.shape[-1]))
        return -jnp.take_along_axis(chosen, y.reshape(-1, 1), axis=1).mean()

    def step(p: Parameters, state: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
        return loss, *UPDATES[workload.optimizer](p, gradients, state)

    zeros = jax.tree.map(jnp.zeros_like, given)
    held = [given, (zeros, jax.tree.map(jnp.zeros_like, given), jnp.zeros(()))]
    compiled = jax.jit(step, donate_argnums=(0, 1))

    def run() -> float:
        loss, held[0], held[1] = compiled(held[0], held[1], x, y)
        return float(np.asarray(loss))
    return run


def _adam(p: Parameters, g: Parameters, state: Any, rate: float = 1e-3, decay: float = 0.0) -> Any:
    first, second, count = state
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, g)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, g)

    def update(p: Any, m: Any, v: Any) -> Any:
        return p * (1 - rate * decay) - rate * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
    return jax.tree.map(update, p, first, second), (first, second, count)


def _momentum(p: Parameters, g: Parameters, state: Any) -> Any:
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, state[0], g)
    return jax.tree.map(lambda p, v: p - 0.01 * v, p, velocity), (velocity, *state[1:])


UPDATES: dict[Any, Callable[..., Any]] = {
    adam: _adam, adamw: lambda p, g, s: _adam(p, g, s, 3e-4, 0.01), momentum: _momentum}
