"""Eager calls that are worth machine code: operators whose reference is slow, on much data, as one-node programs.

A program is made at the first such call, so that equal calls give equal results, and remembered for these types and
attributes; between processes the code cache keeps the machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, Protocol

from tenon.config import config
from tenon.dims import symbol
from tenon.eager.shared_sizes import of_other_sizes
from tenon.graph.build import Builder
from tenon.graph.ir import Graph
from tenon.graph.op import OPS, Op
from tenon.graph.structural_key import Exact
from tenon.locks import unforked
from tenon.ops.attention import attention, attention_gradient
from tenon.ops.convolution import conv, conv_input_grad, conv_weight_grad
from tenon.ops.indexing import put
from tenon.ops.normalization import batch_norm_train, layer_norm_, rms_norm_
from tenon.ops.philox_random import (
    dealt,
    random_bits,
    random_exponential,
    random_integers,
    random_normal,
    random_uniform,
)
from tenon.ops.pooling import max_pool_grad, max_pool_op, max_pool_positions, max_pool_taps
from tenon.program.backend_interface import Executable
from tenon.types import TensorType

LEAST_WORK = 1_000_000      # multiply-adds; below it NumPy is done before machine code would be found

Types = Sequence[Any]


def _of_kernel(images: TensorType, kernel: TensorType) -> int:
    """What a convolution does: every output element looks at one filter."""
    return int(images.size) * prod(map(int, kernel.shape[1:]))


def _of_window(inputs: Types, outputs: Types) -> int:
    return 4 * int(inputs[0].size)


def _of_norm(inputs: Types, outputs: Types) -> int:
    return 10 * int(inputs[0].size)


def _of_function(work: int, inputs: Types, outputs: Types) -> int:
    return work * int(outputs[0].size) if outputs[0].dtype.kind == "f" else 0


def _of_draw(inputs: Types, outputs: Types) -> int:
    return int(outputs[0].size)


# function of an element -> multiply-adds an element that NumPy could do meanwhile
FUNCTIONS: dict[Op, int] = {OPS[name]: work for name, work in (
    ("erf", 250), ("normal_cdf", 250), ("erfc", 500), ("erfinv", 3000), ("lgamma", 1000), ("digamma", 500),
    ("gelu", 250), ("mish", 15), ("softplus", 15), ("sigmoid", 8), ("silu", 8), ("elu", 8), ("selu", 8), ("celu", 8),
    ("logsigmoid", 8))}

# operator -> multiply-adds, from the types of inputs and outputs
WORK: dict[Op, Callable[[Types, Types], int]] = {
    conv: lambda inputs, outputs: _of_kernel(outputs[0], inputs[1]),
    conv_input_grad: lambda inputs, outputs: _of_kernel(inputs[0], inputs[1]),
    conv_weight_grad: lambda inputs, outputs: _of_kernel(inputs[1], outputs[0]),
    max_pool_op: _of_window,
    max_pool_positions: _of_window,
    max_pool_taps: _of_window,
    max_pool_grad: _of_window,
    attention: lambda inputs, outputs: 2 * int(inputs[0].size) * inputs[1].shape[-2],
    attention_gradient: lambda inputs, outputs: 5 * int(inputs[3].size) * inputs[4].shape[-2],
    layer_norm_: _of_norm,
    rms_norm_: _of_norm,
    batch_norm_train: _of_norm,
    put: lambda inputs, outputs: 4 * int(inputs[2].size),           # NumPy sorts what meets in a place
    dealt: lambda inputs, outputs: 100 * int(outputs[0].size),      # in Python, one after the other
    **{op: partial(_of_function, work) for op, work in FUNCTIONS.items()},
    **dict.fromkeys((random_bits, random_uniform, random_integers, random_normal, random_exponential), _of_draw),
}


def heavy_program(op: Op, types: Types, outputs: Types, attrs: Mapping[str, Any]) -> Runs | None:
    """The compiled form of a call with inputs of these types; None where NumPy does as well."""
    if op not in WORK or config().backend == "reference" or WORK[op](types, outputs) < LEAST_WORK:
        return None
    if attrs.get("reduce") == "set":        # which NumPy does as fast
        return None
    return program_of_call(op, types, attrs)


def program_of_call(op: Op, types: Types, attrs: Mapping[str, Any]) -> Runs:
    """The compiled form of a call with inputs of these types; one for many shapes where that is as fast, or nearly so.
    """
    types, attrs = of_other_sizes(op, types, attrs)
    known = Exact(attrs)
    return OfElements(_program(op, (TensorType(types[0].dtype, (symbol("N"),)),), known)) if op in FUNCTIONS \
        else _program(op, tuple(types), known)


class OfElements:
    """A program for one row of elements, run on an array of any shape."""

    def __init__(self, program: Executable):
        self.program = program

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The result."""
        (x,), (out,) = arrays, self.program.run([x.reshape(-1) for x in arrays])
        return (out.reshape(x.shape),)


@lru_cache(maxsize=256)
def _program(op: Op, types: tuple[TensorType | None, ...], attrs: Exact) -> Executable:
    with unforked:
        from tenon.pipeline import compile  # local: the compiler is loaded when something is first compiled

    return compile(one_node(op, types, attrs.values))


def one_node(op: Op, types: Sequence[TensorType | None], attrs: Mapping[str, Any]) -> Graph:
    """The graph that is this one call."""
    builder = Builder(op.name, rewriting=True)
    out = builder.emit(op, tuple(None if t is None else builder.parameter(t) for t in types), attrs)
    return builder.finish(out if isinstance(out, tuple) else (out,))


class Runs(Protocol):
    """A recipe, or machine code."""

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The results."""


def run_whole(program: Runs, *arrays: Any) -> Any:
    """The result of a recipe or of machine code, or the tuple of several; None stands for an input that is left out."""
    out = program.run([a for a in arrays if a is not None])
    return out if len(out) > 1 else out[0]
