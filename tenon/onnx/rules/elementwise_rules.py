"""Elementwise operators, and what is computed of an element or two, as ONNX has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tenon.graph.ir import Node
from tenon.onnx.graph_writer import Writer, element_number, rule
from tenon.onnx.known_values import UnsupportedError
from tenon.types import bool_

SAME = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "abs": "Abs", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "sign": "Sign", "erf": "Erf",
    "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign", "reciprocal": "Reciprocal", "isnan": "IsNaN",
    "isinf": "IsInf", "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "logical_not": "Not",
    "equal": "Equal", "greater": "Greater", "less": "Less", "matmul": "MatMul", "det": "Det", "portable_log": "Log",
    "copy": "Identity", "stop_gradient": "Identity", "positive": "Identity", "recomputed": "Identity",
}
SINCE = {"greater_equal": (16, "GreaterOrEqual"), "less_equal": (16, "LessOrEqual"), "mish": (18, "Mish"),
         "hardswish": (14, "HardSwish")}
BITWISE = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "bitwise_invert": "Not"}     # of bools


def _enter(name: str, op_type: str, since: int = 13) -> None:
    @rule(name, since)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return w.emit(op_type, x)


for _name, _op_type in SAME.items():
    _enter(_name, _op_type)
for _name, (_since, _op_type) in SINCE.items():
    _enter(_name, _op_type, _since)


def _enter_bitwise(name: str, of_bools: str) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        if node.outputs[0].dtype is bool_:
            return w.emit(of_bools, x)
        if w.opset < 18:
            raise UnsupportedError(f"export: {name} needs opset 18", where=node.loc)
        return w.emit(f"Bitwise{of_bools}", x)


for _name, _op_type in BITWISE.items():
    _enter_bitwise(_name, _op_type)


def _enter_rounding(name: str, op_type: str) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return w.emit(op_type if result_dtype(node).is_floating else "Identity", x)


for _name, _op_type in (("floor", "Floor"), ("ceil", "Ceil"), ("round", "Round")):
    _enter_rounding(_name, _op_type)


@rule("where")
def where(w: Writer, node: Node, x: list[str]) -> Any:
    """ONNX Runtime has no Where of bools."""
    if result_dtype(node) is not bool_:
        return w.emit("Where", x)
    return w.emit("Or", [w.emit("And", x[:2]), w.emit("And", [w.emit("Not", x[:1]), x[2]])])


def result_dtype(node: Node) -> Any:
    """The element type of the first result."""
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


def half_turn(w: Writer, d: Any, x: list[str]) -> Any:
    """The angle from atan, which knows no quadrants: pi more or less where x is negative, a quarter where it is 0."""
    y, along = x
    zero, pi = w.scalar(0, d), w.scalar(math.pi, d)
    left = w.emit("Less", [along, zero])
    low = w.emit("Or", [w.emit("Less", [found, zero]) for found in (y, w.emit("Reciprocal", [y]))])     # -0 is below
    signed = w.emit("Where", [low, w.emit("Neg", [pi]), pi])
    whole = w.emit("Add", [w.emit("Atan", [w.emit("Div", x)]), w.emit("Where", [left, signed, zero])])
    upright = w.emit("Mul", [w.emit("Sign", [y]), w.scalar(math.pi / 2, d)])
    return w.emit("Where", [w.emit("Equal", [along, zero]), upright, whole])


def rather(w: Writer, d: Any, x: list[str], op_type: str) -> Any:
    """The larger or smaller one, and a number rather than NaN."""
    if not d.is_floating:
        return w.emit(op_type, x)
    first, second = (w.emit("IsNaN", [name]) for name in x)
    return w.emit("Where", [first, x[1], w.emit("Where", [second, x[0], w.emit(op_type, x)])])


FORMULAS |= {
    "atan2": half_turn,
    "fmax": lambda w, d, x: rather(w, d, x, "Max"),
    "fmin": lambda w, d, x: rather(w, d, x, "Min"),
    "cbrt": lambda w, d, x: w.emit("Mul", [w.emit("Sign", x), w.emit("Pow", [w.emit("Abs", x), w.scalar(1 / 3, d)])]),
    "xlogy": lambda w, d, x: w.emit("Where", [w.emit("And", [w.emit("Equal", [x[0], w.scalar(0, d)]), w.emit(
        "Not", [w.emit("IsNaN", [x[1]])])]), w.scalar(0, d), w.emit("Mul", [x[0], w.emit("Log", [x[1]])])]),
}


def _enter_formula(name: str, formula: Callable[[Writer, Any, list[str]], Any]) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return formula(w, result_dtype(node), x)


for _name, _formula in FORMULAS.items():
    if _name != "add_to_channels":
        _enter_formula(_name, _formula)


def _extreme(name: str, op_type: str) -> None:
    @rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        if result_dtype(node) is bool_:
            return w.emit("Or" if op_type == "Max" else "And", x)
        return w.emit(op_type, x)


_extreme("maximum", "Max")
_extreme("minimum", "Min")


@rule("remainder")
def remainder(w: Writer, node: Node, x: list[str]) -> Any:
    if not result_dtype(node).is_floating:
        return w.emit("Mod", x)
    return w.emit("Sub", [x[0], w.emit("Mul", [w.emit("Floor", [w.emit("Div", x)]), x[1]])])


@rule("fmod")
def fmod(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Mod", x, fmod=1)


@rule("floor_divide")
def floor_divide(w: Writer, node: Node, x: list[str]) -> Any:
    """ONNX divides integers towards zero: one less where what is left has another sign than the divisor."""
    dtype = result_dtype(node)
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
    return w.emit("Cast", x, to=element_number(result_dtype(node)))


def cast_to(w: Writer, name: str, before: Any, after: Any) -> str:
    """The value of this name in another element type."""
    return name if before is after else str(w.emit("Cast", [name], to=element_number(after)))
