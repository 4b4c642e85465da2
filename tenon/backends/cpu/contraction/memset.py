"""Runs of memory filled with a number: a piece that kernels share, where each would have loops of its own."""

from __future__ import annotations

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import ONE, ZERO, address, const, loop, splat, store_vector
from tenon.llvm import shared_functions


def fill(b: ir.IRBuilder, element: ir.Type, lanes: int, start: ir.Value, run: ir.Value, lines: ir.Value = ONE,
         apart: ir.Value = ZERO, number: float = 0.0) -> None:
    """Put a number into the elements of a run, in whole vectors, so maybe a few behind it; of so many runs `apart`."""
    shared_functions.call(b, _filled, (element, lanes, number), [start, run, lines, apart])


def _filled(b: ir.IRBuilder, element: ir.Type, lanes: int, number: float, start: ir.Value, run: ir.Value,
            lines: ir.Value, apart: ir.Value) -> None:
    """Write the piece."""
    value = splat(b, ir.Constant(element, number), lanes)
    with loop(b, ZERO, lines, short=True) as (line, _), loop(b, ZERO, run, const(lanes), short=True) as (k, _):
        store_vector(b, value, address(b, start, b.add(b.mul(line, apart), k), element))
