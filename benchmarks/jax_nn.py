"""As much of `nn` as the networks of `benchmarks.models` use, on JAX, so that JAX runs the very same networks.

A module holds arrays; `parameters(net)` takes them out by PyTorch's names, `loaded(net, values)` puts others in, traced
ones included.  What a network computes is written the way JAX's own libraries write it, and compiled by `jax.jit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = dict[str, Any]


class Module:
    """Arrays and modules as attributes; a call is `forward`."""

    training = True

    def __init__(self) -> None:
        self.buffers: tuple[str, ...] = ()      # attributes that are no parameters

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def named(self, prefix: str = "") -> Iterator[tuple[Module, str, str]]:
        """(module, attribute, full name) of every array."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield from value.named(f"{prefix}{name}.")
            elif isinstance(value, (np.ndarray, jax.Array)):
                yield self, name, prefix + name


def parameters(net: Module, buffers: bool = False) -> Arrays:
    """The arrays that are trained, or those that are not."""
    return {full: getattr(module, name) for module, name, full in net.named() if (name in module.buffers) == buffers}


def load(net: Module, values: Arrays) -> None:
    """Put arrays in by name."""
    for module, name, full in list(net.named()):
        if full in values:
            setattr(module, name, values[full])


class Sequential(Module):
    def __init__(self, *layers: Any):
        super().__init__()
        self.count = len(layers)
        for k, layer in enumerate(layers):
            setattr(self, str(k), layer)

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(k)) for k in range(self.count))

    def forward(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x


class ModuleList(Sequential):
    def __init__(self, layers: list[Any]):
        super().__init__(*layers)


class Linear(Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.bias = np.zeros((outputs, inputs), np.float32), np.zeros(outputs, np.float32)

    def forward(self, x: Any) -> Any:
        return linear(x, self.weight) + self.bias


class Conv2d(Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0, bias: bool = True):
        super().__init__()
        self.weight = np.zeros((outputs, inputs, kernel, kernel), np.float32)
        self.bias = np.zeros(outputs, np.float32) if bias else None
        self.stride, self.padding = stride, padding

    def forward(self, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(x, self.weight, (self.stride,) * 2, ((self.padding,) * 2,) * 2,
                                         dimension_numbers=("NCHW", "OIHW", "NCHW"))
        return y if self.bias is None else y + self.bias[None, :, None, None]


class BatchNorm2d(Module):
    def __init__(self, channels: int):
        super().__init__()
        self.weight, self.bias = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        self.running_mean, self.running_var = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        self.buffers = ("running_mean", "running_var")

    def forward(self, x: Any) -> Any:
        mean, variance = self.running_mean, self.running_var
        if Module.training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
            count = x.size // x.shape[1]
            self.running_mean = 0.9 * self.running_mean + 0.1 * jax.lax.stop_gradient(mean)
            self.running_var = 0.9 * self.running_var + 0.1 * jax.lax.stop_gradient(variance) * count / (count - 1)
        scale = self.weight * jax.lax.rsqrt(variance + 1e-5)
        return (x - mean[None, :, None, None]) * scale[None, :, None, None] + self.bias[None, :, None, None]


class LayerNorm(Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight, self.bias = np.ones(width, np.float32), np.zeros(width, np.float32)

    def forward(self, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * self.weight + self.bias


class Embedding(Module):
    def __init__(self, count: int, width: int):
        super().__init__()
        self.weight = np.zeros((count, width), np.float32)

    def forward(self, ids: Any) -> Any:
        return jnp.take(self.weight, ids, axis=0)


class MaxPool2d(Module):
    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0):
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride or kernel, padding

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


class Flatten(Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)


class LSTM(Module):
    """One layer over [length, batch, features], as a scan."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.weight_ih_l0 = np.zeros((4 * hidden, inputs), np.float32)
        self.weight_hh_l0 = np.zeros((4 * hidden, hidden), np.float32)
        self.bias_ih_l0, self.bias_hh_l0 = np.zeros(4 * hidden, np.float32), np.zeros(4 * hidden, np.float32)

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


functional = SimpleNamespace(relu=jax.nn.relu, gelu=lambda x: jax.nn.gelu(x, approximate=False), linear=linear,
                             scaled_dot_product_attention=attention, cross_entropy=cross_entropy)


# ---------------------------------------------------------------- optimizers

Update = Callable[[Arrays, Arrays, Arrays], tuple[Arrays, Arrays]]      # (parameters, gradients, slots) -> both new


def adam(values: Arrays, gradients: Arrays, slots: Arrays, lr: float, decay: float = 0.0) -> tuple[Arrays, Arrays]:
    """Adam, with decoupled weight decay."""
    count = slots.get("count", 0) + 1
    new, kept = {}, {"count": count}
    for name, value in values.items():
        gradient = gradients[name]
        first = 0.9 * slots[f"{name}.first"] + 0.1 * gradient
        second = 0.999 * slots[f"{name}.second"] + 0.001 * gradient * gradient
        step = (first / (1 - 0.9**count)) / (jnp.sqrt(second / (1 - 0.999**count)) + 1e-8)
        new[name] = value * (1 - lr * decay) - lr * step
        kept |= {f"{name}.first": first, f"{name}.second": second}
    return new, kept


def sgd(values: Arrays, gradients: Arrays, slots: Arrays, lr: float) -> tuple[Arrays, Arrays]:
    """SGD with momentum 0.9; the first step starts from nothing, which gives the same numbers."""
    kept = {f"{name}.first": 0.9 * slots[f"{name}.first"] + gradients[name] for name in values}
    return {name: value - lr * kept[f"{name}.first"] for name, value in values.items()}, kept


def slots_of(values: Arrays) -> Arrays:
    """The start of what an optimizer keeps."""
    found = {f"{name}.{slot}": jnp.zeros_like(value) for name, value in values.items() for slot in ("first", "second")}
    return found | {"count": jnp.zeros(())}


class Optimizers:
    """`optim` of a workload: constructors that give the update rule."""

    @staticmethod
    def Adam(_: Any, lr: float) -> Update:
        return lambda v, g, s: adam(v, g, s, lr)

    @staticmethod
    def AdamW(_: Any, lr: float) -> Update:
        return lambda v, g, s: adam(v, g, s, lr, 0.01)

    @staticmethod
    def SGD(_: Any, lr: float, momentum: float) -> Update:
        return lambda v, g, s: sgd(v, g, s, lr)



# ---------------------------------------------------------------- a run

def jax_run(workload: Any, start: Arrays, data: tuple[np.ndarray, ...]) -> Callable[[], float]:
    """One call is a training step, or an inference; the state of a step is given to the next one."""
    import sys

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
    update = workload.optimizer(Optimizers, None)

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
    state = [(values, parameters(net, True), slots_of(values))]

    def run() -> float:
        state[0], found = step(state[0], x, y)
        return float(found)
    return run
