"""Eager calls that are worth machine code: operators whose reference is slow, on much data, as one-node programs.

A program is made at the first such call, so that equal calls give equal results, and remembered for these types and
attributes; between processes the code cache keeps the machine code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from tenon.config import config
from tenon.dims.symbolic_dim import symbol
from tenon.graph.build import Builder
from tenon.graph.ir import Graph
from tenon.graph.op import Op
from tenon.graph.structural_key import Exact
from tenon.locks import unforked
from tenon.program.backend_interface import Executable
from tenon.types import TensorType

MIN_WORK = 1_000_000        # multiply-adds; below it NumPy is done before machine code would be found
MIN_ELEMENTS = 1 << 14      # of a function of elements, whose one program serves all sizes

Types = Sequence[Any]


def numpy_work(op: Op, inputs: Types, outputs: Types) -> int:
    """Multiply-adds that NumPy could do while it computes the operator; 0 where it is as good as machine code."""
    if op.numpy_work is None:
        return 0
    if callable(op.numpy_work):
        return op.numpy_work(inputs, outputs)
    if op.multiply_adds is not None:
        shapes = [list(map(int, x.shape)) for x in (*inputs, *outputs) if x is not None]
        return op.numpy_work * int(op.multiply_adds(*shapes))
    return op.numpy_work * int(outputs[0].size) if outputs[0].dtype.kind == "f" else 0


def is_function(op: Op) -> bool:
    """Whether it is a slow function of the elements of its one input, each by itself."""
    return isinstance(op.numpy_work, int) and op.multiply_adds is None


def heavy_program(op: Op, types: Types, outputs: Types, attrs: Mapping[str, Any]) -> Runs | None:
    """The compiled form of a call with inputs of these types; None where NumPy does as well."""
    if op.numpy_work is None or config().backend == "reference" or attrs.get("reduce") == "set":    # as fast in NumPy
        return None
    work = numpy_work(op, types, outputs)
    enough = work >= MIN_WORK or (is_function(op) and work and outputs[0].size >= MIN_ELEMENTS)
    return program_of_call(op, types, attrs) if enough else None


def program_of_call(op: Op, types: Types, attrs: Mapping[str, Any]) -> Runs:
    """The compiled form of a call with inputs of these types; one for many shapes where that is as fast, or nearly so.
    """
    if is_function(op):
        return OfElements(_program(op, (TensorType(types[0].dtype, (symbol("N"),)),), Exact(attrs)))
    if op.any_sizes is not None:
        types, attrs = op.any_sizes(types, attrs)
    return _program(op, tuple(types), Exact(attrs))


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
