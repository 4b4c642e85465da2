"""Activations, norms, products, convolutions and windows as ONNX has them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.graph.ir import Node, Value
from tenon.onnx.graph_writer import Writer, rule
from tenon.onnx.known_values import UnsupportedError
from tenon.onnx.rules.elementwise_rules import result_dtype


@rule("softmax")
def softmax(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Softmax", x, axis=node.attrs["axis"])


@rule("log_softmax")
def log_softmax(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("LogSoftmax", x, axis=node.attrs["axis"])


@rule("gelu", 20)
def gelu(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Gelu", x, approximate=node.attrs["approximate"])


@rule("leaky_relu")
def leaky_relu(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("LeakyRelu", x, alpha=float(node.attrs["negative_slope"]))


@rule("elu")
def elu(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Elu", x, alpha=float(node.attrs["alpha"]))


@rule("layer_norm", 17)
def layer_norm(w: Writer, node: Node, x: list[str]) -> Any:
    value, a = node.inputs[0], node.attrs
    assert isinstance(value, Value)
    weight = x[1] if len(x) > 1 and x[1] else \
        w.emit("Expand", [w.scalar(1, value.dtype), w.shape(value.shape[value.ndim - a["count"]:])])
    return w.emit("LayerNormalization", [x[0], weight, *[b for b in x[2:3] if b]], axis=-a["count"],
                  epsilon=float(a["eps"]))


@rule("batch_norm")
def batch_norm(w: Writer, node: Node, x: list[str]) -> Any:
    mean = node.inputs[1]
    assert isinstance(mean, Value)
    weight, bias = ([*x[3:], "", ""])[:2]
    weight = weight or w.emit("Expand", [w.scalar(1, mean.dtype), w.shape(mean.shape)])
    bias = bias or w.emit("Expand", [w.scalar(0, mean.dtype), w.shape(mean.shape)])
    return w.emit("BatchNormalization", [x[0], weight, bias, x[1], x[2]], epsilon=float(node.attrs["eps"]))


@rule("linear")
def linear(w: Writer, node: Node, x: list[str]) -> Any:
    y = w.emit("MatMul", [x[0], w.emit("Transpose", [x[1]], perm=[1, 0])])
    return w.emit("Add", [y, x[2]]) if len(x) > 2 and x[2] else y


def _windows(node: Node) -> dict[str, Any]:
    """How windows move, as ONNX writes it."""
    a, pads = node.attrs, [pair[side] for side in (0, 1) for pair in node.attrs["padding"]]
    if any(p < 0 for p in pads):
        raise UnsupportedError("export: negative padding is not supported", where=node.loc)
    return {"strides": list(a["stride"]), "pads": pads, "dilations": list(a["dilation"])}


@rule("conv")
def conv(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Conv", x, group=node.attrs["groups"], **_windows(node))


@rule("conv_input_grad")
def conv_input_grad(w: Writer, node: Node, x: list[str]) -> Any:
    """The transposed convolution, cut or continued with zeros to the sizes that it has."""
    a, (g, weight) = node.attrs, node.inputs
    assert isinstance(g, Value) and isinstance(weight, Value)
    y = w.emit("ConvTranspose", x, strides=list(a["stride"]), dilations=list(a["dilation"]), group=a["groups"])
    pairs = [(0, 0), (0, 0)]
    for n, k, s, d, out, (low, _) in zip(g.shape[2:], weight.shape[2:], a["stride"], a["dilation"], a["sizes"],
                                         a["padding"], strict=True):
        full: Any = (n - 1) * s + d * (k - 1) + 1
        pairs.append((-low, out - full + low))
    if all(p == (0, 0) for p in pairs):
        return y
    return w.emit("Pad", [y, w.shape([p[0] for p in pairs] + [p[1] for p in pairs]), w.scalar(0, result_dtype(node))])


@rule("max_pool_op")
def max_pool(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("MaxPool", x, kernel_shape=list(node.attrs["kernel"]), **_windows(node))


@rule("windows")
def windows(w: Writer, node: Node, x: list[str]) -> Any:
    """The elements under each tap: a slice a tap, side by side."""
    a, value, out = node.attrs, node.inputs[0], node.outputs[0]
    assert isinstance(value, Value)
    count, lead = len(a["kernel"]), value.ndim - len(a["kernel"])
    if math.prod(a["kernel"]) > 256:
        raise UnsupportedError(f"export: windows of {a['kernel']} are not supported", where=node.loc)
    given, (low, high) = x[0], zip(*a["padding"], strict=True)
    if any((*low, *high)):
        given = w.emit("Pad", [given, w.ints([0] * lead + [*low] + [0] * lead + [*high]), w.scalar(0, value.dtype)])
    axes, steps = w.ints(range(lead, value.ndim)), w.ints(a["stride"])
    slices = []
    for tap in np.ndindex(*a["kernel"]):
        begin = [t * d for t, d in zip(tap, a["dilation"], strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, out.shape[lead + count:], a["stride"], strict=True)]
        part = w.emit("Slice", [given, w.ints(begin), w.shape(end), axes, steps])
        slices.append(w.emit("Unsqueeze", [part, w.ints([lead])]))
    return w.emit("Reshape", [w.emit("Concat", slices, axis=lead), w.shape(out.shape)])
