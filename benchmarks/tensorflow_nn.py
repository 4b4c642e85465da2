"""As much of `nn` as the networks of `benchmarks.models` use, on TensorFlow, so that it runs the very same networks.

Pictures and filters lie with their channels last, as TensorFlow likes them on a processor; a step is one `tf.function`,
compiled by XLA where asked for.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf
import tensorflow.experimental.numpy as tnp

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

tnp.experimental_enable_numpy_behavior()        # x.reshape(...) and the like
tf.Tensor.swapaxes = tnp.swapaxes


class Linear(Matrix):
    def forward(self, x: Any) -> Any:
        return linear(x, self.weight) + self.bias


class Conv2d(Filters):
    def forward(self, x: Any) -> Any:
        same = self.stride == 1 and self.weight.shape[0] == 2 * self.padding + 1
        if self.padding and not same:
            x = tf.pad(x, [[0, 0], [self.padding] * 2, [self.padding] * 2, [0, 0]])
        y = tf.nn.conv2d(x, self.weight, self.stride, "SAME" if same else "VALID")
        return y if self.bias is None else tf.nn.bias_add(y, self.bias)


class BatchNorm2d(BatchStatistics):
    def forward(self, x: Any) -> Any:
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            x, self.weight, self.bias, self.running_mean, self.running_var, epsilon=1e-5, is_training=Module.training,
            exponential_avg_factor=0.1)
        if Module.training:
            self.running_mean.assign(mean)
            self.running_var.assign(variance)
        return y


class LayerNorm(Normalisation):
    def forward(self, x: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, self.bias, self.weight, 1e-5)


class Embedding(Table):
    def forward(self, ids: Any) -> Any:
        return tf.gather(self.weight, ids)


class MaxPool2d(Pool):
    def forward(self, x: Any) -> Any:
        if self.padding:
            x = tf.pad(x, [[0, 0], [self.padding] * 2, [self.padding] * 2, [0, 0]], constant_values=-math.inf)
        return tf.nn.max_pool2d(x, self.kernel, self.stride, "VALID")


class AdaptiveAvgPool2d(Module):
    def __init__(self, size: int):
        super().__init__()
        assert size == 1

    def forward(self, x: Any) -> Any:
        return tf.reduce_mean(x, [1, 2], keepdims=True)


class ReLU(Module):
    def forward(self, x: Any) -> Any:
        return tf.nn.relu(x)


class ReLU6(Module):
    def forward(self, x: Any) -> Any:
        return tf.nn.relu6(x)


class Flatten(Module):
    """In the order of channels first, which the weights of the next layer are in."""

    def forward(self, x: Any) -> Any:
        return tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [x.shape[0], -1])


class LSTM(Gates):
    """One layer over [length, batch, features], as a loop in the graph."""

    def forward(self, x: Any) -> Any:
        projected = linear(x, self.weight_ih_l0) + (self.bias_ih_l0 + self.bias_hh_l0)

        def step(state: Any, gates: Any) -> Any:
            hidden, cell = state
            i, f, g, o = tf.split(gates + linear(hidden, self.weight_hh_l0), 4, axis=-1)
            cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
            return tf.sigmoid(o) * tf.tanh(cell), cell
        start = tf.zeros((x.shape[1], self.weight_hh_l0.shape[1]))
        hidden, cell = tf.scan(step, projected, (start, start))
        return hidden, (hidden[-1], cell[-1])


def linear(x: Any, weight: Any) -> Any:
    rows = tf.reshape(x, [-1, x.shape[-1]])             # one product, whatever the number of axes
    return tf.reshape(tf.matmul(rows, weight, transpose_b=True), [*x.shape[:-1], weight.shape[0]])


def attention(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    scores = tf.matmul(q, k, transpose_b=True) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = tf.where(np.tri(scores.shape[-1], dtype=bool), scores, -math.inf)
    return tf.matmul(tf.nn.softmax(scores), v)


def cross_entropy(scores: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, scores))


functional = SimpleNamespace(relu=tf.nn.relu, gelu=tf.nn.gelu, linear=linear,
                             scaled_dot_product_attention=attention, cross_entropy=cross_entropy)


# ---------------------------------------------------------------- a run

def tensorflow_run(workload: Any, start: Arrays, data: tuple[np.ndarray, ...], xla: bool) -> Callable[[], float]:
    """One call is a training step, or an inference."""
    threads = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    Module.training = workload.optimizer is not None
    net = workload.network(sys.modules[__name__])
    load(net, {name: tf.Variable(channels_last(value)) for name, value in start.items()})
    x, y = data
    x, y = tf.constant(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x), tf.constant(y)
    step = tf.function(infer(net) if workload.optimizer is None else train(net, workload), jit_compile=xla)
    return lambda: float(step(x, y))


def channels_last(weight: np.ndarray) -> np.ndarray:
    """Filters [outputs, inputs, height, width] as [height, width, inputs, outputs]."""
    return np.ascontiguousarray(weight.transpose(2, 3, 1, 0)) if weight.ndim == 4 else weight


def infer(net: Module) -> Any:
    return lambda x, _: tf.reduce_sum(net(x))


def train(net: Module, workload: Any) -> Any:
    """Loss, gradients and the optimizer's update of the variables."""
    values, optimizers = parameters(net), Optimizers(tf.sqrt, tf.zeros)
    update = workload.optimizer(optimizers, None)
    slots = {name: tf.Variable(value) for name, value in optimizers.slots_of(values).items()}

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = net(x)
            loss = cross_entropy(tf.reshape(scores, [-1, scores.shape[-1]]), tf.reshape(y, [-1]))
        gradients = {name: tf.convert_to_tensor(gradient)
                     for name, gradient in zip(values, tape.gradient(loss, list(values.values())), strict=True)}
        new, kept = update(values, gradients, slots)
        for variables, numbers in (values, new), (slots, kept):
            for name, number in numbers.items():
                variables[name].assign(number)
        return loss
    return step
