"""Complex numbers and Fourier transforms as ONNX has them: a last axis of two, the real and the imaginary part.

Only these rules see values of complex types; a rule of real numbers would take the last axis for one of the tensor's.
"""

from __future__ import annotations

from typing import Any

from tenon.graph.ir import Literal, Node, Value
from tenon.onnx.graph_writer import Writer, complex_rule, element_number
from tenon.onnx.known_values import UnsupportedError
from tenon.onnx.rules.elementwise_rules import result_dtype
from tenon.types import DType, complex64, float32, float64, int64


def part_dtype(dtype: DType) -> DType:
    """The element type of the parts of complex numbers."""
    return float32 if dtype is complex64 else float64


def part(w: Writer, x: str, which: int) -> str:
    """The real (0) or imaginary (1) parts."""
    return str(w.emit("Gather", [x, w.scalar(which, int64)], axis=-1))


def paired(w: Writer, real: str, imaginary: str) -> str:
    """Complex numbers of their parts."""
    ends = [w.emit("Unsqueeze", [x, w.ints([-1])]) for x in (real, imaginary)]
    return str(w.emit("Concat", ends, axis=-1))


def given(w: Writer, node: Node, x: list[str], k: int) -> str:
    """An input of a complex node; a number that is written in the graph has parts too."""
    value = node.inputs[k]
    if not isinstance(value, Literal):
        return x[k]
    dtype, number = part_dtype(value.type.dtype), complex(value.value)
    return paired(w, w.scalar(number.real, dtype), w.scalar(number.imag, dtype))


@complex_rule("real")
def real(w: Writer, node: Node, x: list[str]) -> Any:
    return part(w, x[0], 0)


@complex_rule("imag")
def imag(w: Writer, node: Node, x: list[str]) -> Any:
    return part(w, x[0], 1)


@complex_rule("complex")
def complex_of(w: Writer, node: Node, x: list[str]) -> Any:
    return paired(w, x[0], x[1])


@complex_rule("cast")
def cast(w: Writer, node: Node, x: list[str]) -> Any:
    value, after = node.inputs[0], result_dtype(node)
    assert value is not None
    if value.type.dtype.kind == "c":
        return w.emit("Cast", x, to=element_number(part_dtype(after))) if after.kind == "c" else \
            w.emit("Cast", [part(w, x[0], 0)], to=element_number(after))
    number = w.emit("Cast", x, to=element_number(part_dtype(after)))
    return paired(w, number, w.emit("Sub", [number, number]))


@complex_rule("conj")
def conj(w: Writer, node: Node, x: list[str]) -> Any:
    return paired(w, part(w, x[0], 0), w.emit("Neg", [part(w, x[0], 1)]))


@complex_rule("abs")
def absolute(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("ReduceL2", [x[0], w.ints([-1])], keepdims=0) if w.opset >= 18 else \
        w.emit("ReduceL2", [x[0]], axes=[-1], keepdims=0)


@complex_rule("negative")
def negative(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Neg", x)


def _by_parts(name: str, op_type: str) -> None:
    @complex_rule(name)
    def write(w: Writer, node: Node, x: list[str]) -> Any:
        return w.emit(op_type, [given(w, node, x, k) for k in range(2)])


_by_parts("add", "Add")
_by_parts("subtract", "Sub")


@complex_rule("multiply")
def multiply(w: Writer, node: Node, x: list[str]) -> Any:
    a, b, c, d = (part(w, given(w, node, x, k), which) for k in range(2) for which in range(2))
    return paired(w, w.emit("Sub", [w.emit("Mul", [a, c]), w.emit("Mul", [b, d])]),
                  w.emit("Add", [w.emit("Mul", [a, d]), w.emit("Mul", [b, c])]))


@complex_rule("divide")
def divide(w: Writer, node: Node, x: list[str]) -> Any:
    a, b, c, d = (part(w, given(w, node, x, k), which) for k in range(2) for which in range(2))
    length = w.emit("Add", [w.emit("Mul", [c, c]), w.emit("Mul", [d, d])])
    real = w.emit("Add", [w.emit("Mul", [a, c]), w.emit("Mul", [b, d])])
    imaginary = w.emit("Sub", [w.emit("Mul", [b, c]), w.emit("Mul", [a, d])])
    return paired(w, w.emit("Div", [real, length]), w.emit("Div", [imaginary, length]))


# ---------------------------------------------------------------- what moves elements

@complex_rule("reshape")
def reshape(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Reshape", [x[0], w.shape([*node.outputs[0].shape, 2])])


@complex_rule("broadcast_to")
def broadcast_to(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Expand", [x[0], w.shape([*node.outputs[0].shape, 2])])


@complex_rule("permute")
def permute(w: Writer, node: Node, x: list[str]) -> Any:
    axes = node.attrs["axes"]
    return w.emit("Transpose", x, perm=[*axes, len(axes)])


@complex_rule("concat")
def concat(w: Writer, node: Node, x: list[str]) -> Any:
    return w.emit("Concat", x, axis=node.attrs["axis"])


# ---------------------------------------------------------------- transforms

def transformed(w: Writer, x: str, axis: int, inverse: bool = False, half: bool = False) -> str:
    if w.opset >= 20:
        return str(w.emit("DFT", [x, "", w.scalar(axis, int64)], inverse=int(inverse), onesided=int(half)))
    return str(w.emit("DFT", [x], axis=axis, inverse=int(inverse), onesided=int(half)))


@complex_rule("fft", 17)
def fft(w: Writer, node: Node, x: list[str]) -> Any:
    """ONNX divides by the length where it goes back, and Tenon does not."""
    axis = node.attrs["axis"]
    found = transformed(w, x[0], axis, node.attrs["inverse"])
    if not node.attrs["inverse"]:
        return found
    return w.emit("Mul", [found, length_of(w, node.outputs[0].shape[axis], part_dtype(result_dtype(node)))])


def length_of(w: Writer, size: Any, dtype: DType) -> str:
    return str(w.emit("Cast", [w.size(size)], to=element_number(dtype)))


@complex_rule("rfft", 17)
def rfft(w: Writer, node: Node, x: list[str]) -> Any:
    return transformed(w, w.emit("Unsqueeze", [x[0], w.ints([-1])]), node.attrs["axis"], half=True)


@complex_rule("irfft", 17)
def irfft(w: Writer, node: Node, x: list[str]) -> Any:
    """All elements of the spectrum first: those behind the middle are conjugates of those before.

    What has no conjugate adds nothing to the real part with its imaginary one, so it may have any.
    """
    axis, n = node.attrs["axis"], node.attrs["n"]
    value = node.inputs[0]
    assert isinstance(value, Value)
    half = value.shape[axis]
    left = n - (n // 2 + 1)
    if not all(isinstance(size, int) for size in (n, half)) or half != n // 2 + 1:
        raise UnsupportedError("export: irfft of a length that is not known is not supported", where=node.loc)
    ends = w.emit("Slice", [x[0], w.ints([left]), w.ints([0]), w.ints([axis]), w.ints([-1])])
    mirrored = paired(w, part(w, ends, 0), w.emit("Neg", [part(w, ends, 1)]))
    whole = transformed(w, w.emit("Concat", [x[0], mirrored], axis=axis), axis, inverse=True)
    return w.emit("Mul", [part(w, whole, 0), w.scalar(n, result_dtype(node))])
