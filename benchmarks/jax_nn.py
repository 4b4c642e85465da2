"""As much of `nn` as the networks of `benchmarks.models` use, on JAX, so that JAX runs the very same networks.

What a network computes is written the way JAX's own libraries write it, and compiled by `jax.jit`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.modules import (
    Arrays,
    BatchStatistics,
    Filters,
    Gates,
    Matrix,
    Module,
    ModuleList,
    Normalisation,
    Optimizers,
    Pool,
    Sequential,
    Table,
    load,
    parameters,
)

__all__ = ["ModuleList", "Sequential"]          # for the networks, beside what stands here


class Linear(Matrix):
    def forward(self, x: Any) -> Any:
        return linear(x, self.weight) + self.bias


class Conv2d(Filters):
    def forward(self, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, self.weight, (self.stride,) * 2, ((self.padding,) * 2,) * 2,
                                         dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=self.groups)
        return y if self.bias is None else y + self.bias[None, :, None, None]


class BatchNorm2d(BatchStatistics):
    def forward(self, x: Any) -> Any:
        mean, variance = self.running_mean, self.running_var
        if Module.training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
            count = x.size // x.shape[1]
            self.running_mean = 0.9 * self.running_mean + 0.1 * jax.lax.stop_gradient(mean)
            self.running_var = 0.9 * self.running_var + 0.1 * jax.lax.stop_gradient(variance) * count / (count - 1)
        scale = self.weight * jax.lax.rsqrt(variance + 1e-5)
        return (x - mean[None, :, None, None]) * scale[None, :, None, None] + self.bias[None, :, None, None]


class LayerNorm(Normalisation):
    def forward(self, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * self.weight + self.bias


class GroupNorm(Normalisation):
    def __init__(self, groups: int, channels: int):
        super().__init__(channels)
        self.groups = groups

    def forward(self, x: Any) -> Any:
        grouped = x.reshape(x.shape[0], self.groups, -1)
        mean, variance = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
        normal = ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


class Embedding(Table):
    def forward(self, ids: Any) -> Any:
        return jnp.take(self.weight, ids, axis=0)


class MaxPool2d(Pool):
    def forward(self, x: Any) -> Any:
        window, strides = (1, 1, self.kernel, self.kernel), (1, 1, self.stride, self.stride)
        padding = ((0, 0), (0, 0), (self.padding,) * 2, (self.padding,) * 2)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, padding)


class AdaptiveAvgPool2d(Module):
    def __init__(self, size: int):
        super().__init__()
        assert size == 1

    def forward(self, x: Any) -> Any:
        return x.mean((2, 3), keepdims=True)


class ReLU(Module):
    def forward(self, x: Any) -> Any:
        return jax.nn.relu(x)


class ReLU6(Module):
    def forward(self, x: Any) -> Any:
        return jax.nn.relu6(x)


class SiLU(Module):
    def forward(self, x: Any) -> Any:
        return jax.nn.silu(x)


class Identity(Module):
    def forward(self, x: Any) -> Any:
        return x


class Flatten(Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)


class LSTM(Gates):
    """One layer over [length, batch, features], as a scan."""

    def forward(self, x: Any) -> Any:
        projected = linear(x, self.weight_ih_l0) + (self.bias_ih_l0 + self.bias_hh_l0)

        def step(state: Any, gates: Any) -> Any:
            hidden, cell = state
            i, f, g, o = jnp.split(gates + linear(hidden, self.weight_hh_l0), 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden
        start = jnp.zeros((x.shape[1], self.weight_hh_l0.shape[1]), x.dtype)
        state, hidden = jax.lax.scan(step, (start, start), projected)
        return hidden, state


def linear(x: Any, weight: Any) -> Any:
    return x @ weight.T


def attention(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    """Softmax of scaled products, as XLA is given it by JAX's own libraries."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def cross_entropy(scores: Any, targets: Any) -> Any:
    logs = jax.nn.log_softmax(scores, axis=-1)
    return -jnp.take_along_axis(logs, targets[:, None], axis=-1).mean()


def mse_loss(x: Any, y: Any) -> Any:
    return ((x - y)**2).mean()


def interpolate(x: Any, scale_factor: int, mode: str) -> Any:
    assert mode == "nearest"
    return x.repeat(scale_factor, 2).repeat(scale_factor, 3)


functional = SimpleNamespace(relu=jax.nn.relu, silu=jax.nn.silu, gelu=lambda x: jax.nn.gelu(x, approximate=False),
                             linear=linear, scaled_dot_product_attention=attention, cross_entropy=cross_entropy,
                             mse_loss=mse_loss, interpolate=interpolate)


# ---------------------------------------------------------------- a run

def jax_run(workload: Any, start: Arrays, data: tuple[np.ndarray, ...]) -> Callable[[], float]:
    """One call is a training step, or an inference; the state of a step is given to the next one."""
    net = workload.network(sys.modules[__name__])
    load(net, {name: jnp.asarray(value) for name, value in start.items()})
    x, y = (jnp.asarray(a) for a in data)
    Module.training = workload.optimizer is not None
    if workload.optimizer is None:
        values = parameters(net) | parameters(net, True)

        @jax.jit
        def infer(values: Arrays, x: Any) -> Any:
            load(net, values)
            return net(x).sum()
        return lambda: float(infer(values, x))
    optimizers = Optimizers(jnp.sqrt, jnp.zeros)
    update = workload.optimizer(optimizers, None)

    def loss(values: Arrays, buffers: Arrays, x: Any, y: Any) -> Any:
        load(net, values | buffers)
        scores = net(x)
        return cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1)), parameters(net, True)

    def train(state: Any, x: Any, y: Any) -> Any:
        values, buffers, slots = state
        (found, buffers), gradients = jax.value_and_grad(loss, has_aux=True)(values, buffers, x, y)
        values, slots = update(values, gradients, slots)
        return (values, buffers, slots), found
    step = jax.jit(train, donate_argnums=0)
    values = parameters(net)
    state = [(values, parameters(net, True), optimizers.slots_of(values))]

    def run() -> float:
        state[0], found = step(state[0], x, y)
        return float(found)
    return run
