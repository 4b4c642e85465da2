"""What Tenon's operators are in ONNX: one rule each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenon.graph.interpret import evaluate_op
from tenon.graph.ir import Node, Value
from tenon.onnx.graph_writer import Writer, element_number, rule, value_info
from tenon.onnx.known_values import UnsupportedError
from tenon.types import TensorType, bool_, float32, int64

SAME = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "abs": "Abs", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign", "erf": "Erf",
    "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign", "reciprocal": "Reciprocal", "isnan": "IsNaN",
    "isinf": "IsInf", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not",
    "equal": "Equal", "greater": "Greater", "less": "Less", "where": "Where", "matmul": "MatMul", "det": "Det",
    "copy": "Identity", "stop_gradient": "Identity", "positive": "Identity", "recomputed": "Identity",
}
SINCE = {"greater_equal": (16, "GreaterOrEqual"), "less_equal": (16, "LessOrEqual"), "mish": (18, "Mish"),
         "bitwise_and": (18, "BitwiseAnd"), "bitwise_or": (18, "BitwiseOr"), "bitwise_xor": (18, "BitwiseXor"),
         "bitwise_invert": (18, "BitwiseNot"), "hardswish": (14, "HardSwish")}


def _enter(name: str, op_type: str, since: int = 13) -> None:
    @rule(name, since)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return w.emit(op_type, x)


for _name, _op_type in SAME.items():
    _enter(_name, _op_type)
for _name, (_since, _op_type) in SINCE.items():
    _enter(_name, _op_type, _since)


def _dtype(node: Node) -> Any:
    return node.outputs[0].dtype


# What is a few operators of ONNX.
FORMULAS: dict[str, Callable[[Writer, Any, list[str]], Any]] = {
    "square": lambda w, d, x: w.emit("Mul", [x[0], x[0]]),
    "rsqrt": lambda w, d, x: w.emit("Reciprocal", [w.emit("Sqrt", x)]),
    "exp2": lambda w, d, x: w.emit("Pow", [w.scalar(2, d), x[0]]),
    "expm1": lambda w, d, x: w.emit("Sub", [w.emit("Exp", x), w.scalar(1, d)]),
    "log1p": lambda w, d, x: w.emit("Log", [w.emit("Add", [x[0], w.scalar(1, d)])]),
    "log2": lambda w, d, x: w.emit("Mul", [w.emit("Log", x), w.scalar(1 / math.log(2), d)]),
    "log10": lambda w, d, x: w.emit("Mul", [w.emit("Log", x), w.scalar(1 / math.log(10), d)]),
    "erfc": lambda w, d, x: w.emit("Sub", [w.scalar(1, d), w.emit("Erf", x)]),
    "trunc": lambda w, d, x: w.emit("Mul", [w.emit("Sign", x), w.emit("Floor", [w.emit("Abs", x)])]),
    "power": lambda w, d, x: w.emit("Pow", x),
    "scaled": lambda w, d, x: w.emit("Add", [w.emit("Mul", x[:2]), x[2]]),
    "add_to_channels": lambda w, d, x: w.emit("Add", x),
    "not_equal": lambda w, d, x: w.emit("Not", [w.emit("Equal", x)]),
    "isfinite": lambda w, d, x: w.emit("Not", [w.emit("Or", [w.emit("IsNaN", x), w.emit("IsInf", x)])]),
    "isposinf": lambda w, d, x: w.emit("IsInf", x, detect_negative=0),
    "isneginf": lambda w, d, x: w.emit("IsInf", x, detect_positive=0),
    "logaddexp": lambda w, d, x: w.emit("Add", [w.emit("Max", x), w.emit("Softplus", [w.emit("Neg", [w.emit(
        "Abs", [w.emit("Sub", x)])])])]),
    "hypot": lambda w, d, x: w.emit("Sqrt", [w.emit("Add", [w.emit("Mul", [a, a]) for a in x])]),
    "normal_cdf": lambda w, d, x: w.emit("Mul", [w.scalar(0.5, d), w.emit("Add", [w.scalar(1, d), w.emit("Erf", [w.emit(
        "Mul", [x[0], w.scalar(math.sqrt(0.5), d)])])])]),
}


def _enter_formula(name: str, formula: Callable[[Writer, Any, list[str]], Any]) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return formula(w, _dtype(node), x)


for _name, _formula in FORMULAS.items():
    if _name != "add_to_channels":
        _enter_formula(_name, _formula)


def _extreme(name: str, op_type: str) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        if _dtype(node) is bool_:
            return w.emit("Or" if op_type == "Max" else "And", x)
        return w.emit(op_type, x)


_extreme("maximum", "Max")
_extreme("minimum", "Min")


@rule("remainder")
def remainder(w: Writer, node: Node, x: list[str]) -> Any:
    if not _dtype(node).is_floating:
        return w.emit("Mod", x)
    return w.emit("Sub", [x[0], w.emit("Mul", [w.emit("Floor", [w.emit("Div", x)]), x[1]])])


@rule("fmod")
def fmod(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Mod", x, fmod=1)


@rule("floor_divide")
def floor_divide(w: Writer, node: Node, x: list[str]) -> Any:
    """ONNX divides integers towards zero: one less where what is left has another sign than the divisor."""
    dtype = _dtype(node)
    if dtype.is_floating:
        return w.emit("Floor", [w.emit("Div", x)])
    exact = w.emit("Sub", [x[0], w.emit("Mod", x)])
    return w.emit("Div", [exact, x[1]])


@rule("clip")
def clip(w: Writer, node: Node, x: list[str]) -> Any:
    found = x[0]
    if x[1]:
        found = w.emit("Max", [found, x[1]])
    return w.emit("Min", [found, x[2]]) if len(x) > 2 and x[2] else found


@rule("cast")
def cast(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Cast", x, to=element_number(_dtype(node)))


def _cast(w: Writer, name: str, before: Any, after: Any) -> str:
    return name if before is after else str(w.emit("Cast", [name], to=element_number(after)))


# ---------------------------------------------------------------- shapes

@rule("reshape")
def reshape(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Reshape", [x[0], w.shape(node.outputs[0].shape)], allowzero=1 if w.opset >= 14 else None)


@rule("broadcast_to")
def broadcast_to(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Expand", [x[0], w.shape(node.outputs[0].shape)])


@rule("full_op")
def full(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Expand", [x[0], w.shape(node.outputs[0].shape)])


@rule("constant")
def constant(w: Writer, node: Node, x: list[str]) -> Any:
    array, = evaluate_op(node.op, [], node.attrs)
    return w.constant(array)


@rule("permute")
def permute(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Transpose", x, perm=list(node.attrs["axes"]))


@rule("concat")
def concat(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Concat", x, axis=node.attrs["axis"])


@rule("slice")
def slices(w: Writer, node: Node, x: list[str]) -> Any:
    a, (value,) = node.attrs, node.inputs
    assert isinstance(value, Value)
    begin, end, by = [], [], []
    for n, start, stop, step in zip(value.shape, a["start"], a["stop"], a["step"], strict=True):
        by.append(1 if step is None else step)
        begin.append((0 if by[-1] > 0 else n - 1) if start is None else start)
        far = n if by[-1] > 0 else -(2 ** 62)
        end.append(far if stop is None or (by[-1] < 0 and isinstance(stop, int) and stop < 0) else stop)
    return w.emit("Slice", [x[0], w.shape(begin), w.shape(end), w.ints(range(len(by))), w.ints(by)])


@rule("pad")
def pad(w: Writer, node: Node, x: list[str]) -> Any:
    a = node.attrs
    if any(a.get("interior") or ()):
        raise UnsupportedError("export: padding between elements is not supported", where=node.loc)
    if _dtype(node) is bool_:
        wide = w.emit("Pad", [_cast(w, x[0], bool_, float32), w.shape([*a["low"], *a["high"]]),
                              _cast(w, x[1], bool_, float32)])
        return _cast(w, wide, float32, bool_)
    return w.emit("Pad", [x[0], w.shape([*a["low"], *a["high"]]), x[1]])


@rule("arange")
def arange(w: Writer, node: Node, x: list[str]) -> Any:
    a = node.attrs
    count = w.emit("Squeeze", [w.size(a["size"])])
    whole = w.emit("Range", [w.scalar(0, int64), count, w.scalar(1, int64)])
    found = _cast(w, whole, int64, a["dtype"])

    def number(size: Any) -> str:
        if isinstance(size, (int, float)):
            return w.scalar(size, a["dtype"])
        return _cast(w, w.emit("Squeeze", [w.size(size)]), int64, a["dtype"])
    if a["step"] != 1:
        found = w.emit("Mul", [found, number(a["step"])])
    return found if isinstance(a["start"], (int, float)) and a["start"] == 0 else \
        w.emit("Add", [found, number(a["start"])])


@rule("dimension")
def dimension(w: Writer, node: Node, x: list[str]) -> Any:
    return _cast(w, w.emit("Squeeze", [w.size(node.attrs["size"])]), int64, node.attrs["dtype"])


# ---------------------------------------------------------------- reductions and indices

def _reduction(name: str, op_type: str, by_input: int) -> None:
    """Axes are an attribute before the opset `by_input`."""
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        value, a = node.inputs[0], node.attrs
        assert isinstance(value, Value)
        axes = list(range(value.ndim)) if a["axis"] is None else list(a["axis"])
        wide = value.dtype if name not in ("any", "all") else float32
        wide = a["dtype"] if name in ("sum", "prod") and a.get("dtype") is not None else wide
        given = _cast(w, x[0], value.dtype, wide if value.dtype is not bool_ or wide is not bool_ else float32)
        keep = int(bool(a["keepdims"]))
        if not axes:
            found = given
        elif w.opset >= by_input:
            found = w.emit(op_type, [given, w.ints(axes)], keepdims=keep)
        else:
            found = w.emit(op_type, [given], axes=axes, keepdims=keep)
        return _cast(w, found, wide, _dtype(node))


for _name, _op_type, _by in (("sum", "ReduceSum", 13), ("prod", "ReduceProd", 18), ("max", "ReduceMax", 18),
                             ("min", "ReduceMin", 18), ("any", "ReduceMax", 18), ("all", "ReduceMin", 18),
                             ("mean", "ReduceMean", 18), ("logsumexp", "ReduceLogSumExp", 18)):
    _reduction(_name, _op_type, _by)


def _position(name: str, op_type: str) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        a, axis = node.attrs, node.attrs["axis"]
        axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
        if not isinstance(axis, int):
            flat = w.emit("Reshape", [x[0], w.ints([-1])])
            found = w.emit(op_type, [flat], axis=0, keepdims=0)
            return w.emit("Reshape", [found, w.shape(node.outputs[0].shape)]) if a["keepdims"] else found
        return w.emit(op_type, [x[0]], axis=axis, keepdims=int(bool(a["keepdims"])))


_position("argmax", "ArgMax")
_position("argmin", "ArgMin")


def _running(name: str, op_type: str, since: int) -> None:
    @rule(name, since)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return w.emit(op_type, [x[0], w.scalar(node.attrs["axis"], int64)], reverse=int(node.attrs["reverse"]))


_running("cumsum", "CumSum", 14)
_running("cumprod", "CumProd", 26)


@rule("wrap_index")
def wrap_index(w: Writer, node: Node, x: list[str]) -> Any:
    value = node.inputs[0]
    assert isinstance(value, Value)
    size = _cast(w, w.emit("Squeeze", [w.size(node.attrs["size"])]), int64, value.dtype)
    return w.emit("Where", [w.emit("Less", [x[0], w.scalar(0, value.dtype)]), w.emit("Add", [x[0], size]), x[0]])


def _index(w: Writer, node: Node, k: int, name: str) -> str:
    """An index as int64."""
    value = node.inputs[k]
    assert value is not None
    return _cast(w, name, value.type.dtype, int64)


@rule("take")
def take(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Gather", [x[0], _index(w, node, 1, x[1])], axis=node.attrs["axis"])


@rule("embedding")
def embedding(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Gather", [x[1], _index(w, node, 0, x[0])], axis=0)


@rule("gather")
def gather(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("GatherElements", [x[0], _index(w, node, 1, x[1])], axis=node.attrs["axis"])


HOW = {"set": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


@rule("scatter", 16)
def scatter(w: Writer, node: Node, x: list[str]) -> Any:
    value, at, updates = node.inputs
    assert value is not None and at is not None and updates is not None
    given = x[2] if updates.ndim == at.ndim else w.emit("Expand", [x[2], w.emit("Shape", [x[1]])])
    return w.emit("ScatterElements", [x[0], _index(w, node, 1, x[1]), given], axis=node.attrs["axis"],
                  reduction=HOW[node.attrs["reduce"]])


@rule("put", 16)
def put(w: Writer, node: Node, x: list[str]) -> Any:
    """Rows along an axis: that axis goes to the front, and comes back."""
    (value, at, updates), axis = node.inputs, node.attrs["axis"]
    assert isinstance(value, Value) and at is not None and updates is not None
    there = [axis, *(k for k in range(value.ndim) if k != axis)]
    rows = [*range(axis, axis + at.ndim), *range(axis), *range(axis + at.ndim, updates.ndim)]
    front = x[0] if axis == 0 else w.emit("Transpose", [x[0]], perm=there)
    given = x[2] if axis == 0 else w.emit("Transpose", [x[2]], perm=rows)
    places = w.emit("Unsqueeze", [_index(w, node, 1, x[1]), w.ints([-1])])
    found = w.emit("ScatterND", [front, places, given], reduction=HOW[node.attrs["reduce"]])
    return found if axis == 0 else w.emit("Transpose", [found], perm=list(np.argsort(there)))


@rule("argsort")
def argsort(w: Writer, node: Node, x: list[str]) -> Any:
    return _sorted(w, node, x)[1]


@rule("sort")
def sort(w: Writer, node: Node, x: list[str]) -> Any:
    values, places = _sorted(w, node, x)
    return values if len(node.outputs) == 1 else (values, places)


def _sorted(w: Writer, node: Node, x: list[str]) -> Any:
    value, a = node.inputs[0], node.attrs
    assert isinstance(value, Value)
    axis = a["axis"] % value.ndim
    return w.emit("TopK", [x[0], w.size(value.shape[axis])], 2, axis=axis, largest=int(a["descending"]))


@rule("first_places")
def first_places(w: Writer, node: Node, x: list[str]) -> Any:
    a = node.attrs
    return w.emit("TopK", [x[0], w.size(a["k"])], 2, axis=a["axis"], largest=int(a["descending"]))[1]


@rule("one_hot")
def one_hot(w: Writer, node: Node, x: list[str]) -> Any:
    dtype = _dtype(node)
    return w.emit("OneHot", [_index(w, node, 0, x[0]), w.scalar(node.attrs["num_classes"], int64),
                             w.constant(np.array([0, 1], dtype.numpy))], axis=-1)


@rule("argwhere")
def argwhere(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Transpose", [w.emit("NonZero", x)], perm=[1, 0])


# ---------------------------------------------------------------- layers

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
    return w.emit("Pad", [y, w.shape([p[0] for p in pairs] + [p[1] for p in pairs]), w.scalar(0, _dtype(node))])


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


# ---------------------------------------------------------------- control flow

@rule("call")
def call(w: Writer, node: Node, x: list[str]) -> Any:
    return w.write(node.attrs["body"], x)


@rule("barrier")
def barrier(w: Writer, node: Node, x: list[str]) -> Any:
    return [w.emit("Identity", [name]) for name in x]


@rule("cond")
def cond(w: Writer, node: Node, x: list[str]) -> Any:
    def branch(name: str) -> Any:
        graph = node.attrs[name]
        return w.subgraph(name, lambda: list(zip(w.write(graph, x[1:]), [r.type for r in graph.results])))
    found = w.emit("If", x[:1], len(node.outputs), then_branch=branch("true"), else_branch=branch("false"))
    return found


SCALAR_BOOL, SCALAR_INT = TensorType(bool_, ()), TensorType(int64, ())


@rule("while_loop")
def while_loop(w: Writer, node: Node, x: list[str]) -> Any:
    a, fixed = node.attrs, x[:node.attrs["constants"]]
    start, condition, body = x[len(fixed):], a["condition"], a["body"]
    inputs = [w.fresh("turn"), w.fresh("goes_on"), *[w.fresh("carried") for _ in start]]
    types = [SCALAR_INT, SCALAR_BOOL, *[r.type for r in body.results]]
    declared = [value_info(n, t.dtype, t.shape) for n, t in zip(inputs, types, strict=True)]

    def write() -> Any:
        new = w.write(body, [*fixed, *inputs[2:]])
        goes_on, = w.write(condition, [*fixed, *new])
        return list(zip([goes_on, *new], types[1:], strict=True))
    first, = w.write(condition, x)
    graph = w.subgraph("body", write, declared)
    return w.emit("Loop", ["", first, *start], len(node.outputs), body=graph)


@rule("scan")
def scan(w: Writer, node: Node, x: list[str]) -> Any:
    """A Loop that reads row after row: ONNX's Scan needs something to go along."""
    a = node.attrs
    fixed, start = x[:a["constants"]], x[a["constants"]:a["constants"] + a["carried"]]
    rows, body = x[a["constants"] + a["carried"]:], a["body"]
    inputs = [w.fresh("turn"), w.fresh("goes_on"), *[w.fresh("carried") for _ in start]]
    types = [SCALAR_INT, SCALAR_BOOL, *[r.type for r in body.results[:len(start)]]]
    declared = [value_info(n, t.dtype, t.shape) for n, t in zip(inputs, types, strict=True)]
    length = w.emit("Squeeze", [w.size(a["length"])])

    def write() -> Any:
        place = w.emit("Sub", [w.emit("Sub", [length, w.scalar(1, int64)]), inputs[0]]) if a["reverse"] else inputs[0]
        given = [w.emit("Gather", [row, place], axis=0) for row in rows]
        new = w.write(body, [*fixed, *inputs[2:], *given])
        return [(inputs[1], SCALAR_BOOL), *zip(new, [r.type for r in body.results], strict=True)]
    graph = w.subgraph("body", write, declared)
    found = w.emit("Loop", [length, w.constant(np.array(True)), *start], len(node.outputs), body=graph)
    found = [found] if isinstance(found, str) else found
    if not a["reverse"]:
        return found
    back = [w.ints([-1]), w.ints([-(2 ** 62)]), w.ints([0]), w.ints([-1])]
    return [*found[:len(start)], *[w.emit("Slice", [y, *back]) for y in found[len(start):]]]


