"""Calls of the loop IR -> LLVM: negation and integers here, everything else by the mathematics library."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from tenon.backends.cpu.mathematics import FUNCTIONS, NEAR_FUNCTIONS
from tenon.types import DType


def call(b: ir.IRBuilder, name: str, dtype: DType, args: Sequence[ir.Value], near: bool = False) -> ir.Value:
    """The value of a function of operands of this type; `near`: which are known not to be large."""
    if dtype.kind != "f":
        return _INTEGER[name](b, dtype, *args)
    if near and name in NEAR_FUNCTIONS:
        return NEAR_FUNCTIONS[name](b, *args)
    return _FLOAT[name](b, *args) if name in _FLOAT else FUNCTIONS[name](b, *args)


def _absolute(b: ir.IRBuilder, dtype: DType, x: ir.Value) -> ir.Value:
    zero = ir.Constant(x.type, 0)
    return b.select(b.icmp_signed("<", x, zero), b.sub(zero, x), x) if dtype.kind == "i" else x


_FLOAT: dict[str, Callable[..., ir.Value]] = {
    "neg": lambda b, x: b.fneg(x),
    "abs": lambda b, x: b.call(b.module.declare_intrinsic("llvm.fabs", [x.type]), [x]),
    "isnan": lambda b, x: b.fcmp_unordered("uno", x, x),
    "product": lambda b, x, y: b.fmul(x, y),        # without the flag that lets it be fused with a sum
}
_INTEGER: dict[str, Callable[..., ir.Value]] = {
    "neg": lambda b, dtype, x: b.sub(ir.Constant(x.type, 0), x),
    "not": lambda b, dtype, x: b.not_(x),
    "abs": _absolute,
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), lambda b, dtype, x: x),
}
