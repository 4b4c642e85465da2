"""Turns the name of a mathematical function into the LLVM instructions that compute it, inline and without branches.

    y = FUNCTIONS["exp"](builder, x)         # x: float, double or a vector of either; y has the same type

Nothing calls a library, and only straight-line arithmetic comes out (fmod and its two relatives loop), so that LLVM vectorises a loop around it.
Accuracies are in MAX_ULP; tests/backends/test_mathematics.py measures them. All functions rely on fused multiply-add and on IEEE
arithmetic: emit them without fast-math flags.
"""

from collections.abc import Callable

from llvmlite import ir

from tenon.backends.cpu.mathematics import (
    division,
    error_function,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    roots,
    rounding,
    trigonometric,
)
from tenon.backends.cpu.mathematics.notation import Number

Emitter = Callable[..., ir.Value]

DEFINITIONS: dict[str, Callable[..., Number]] = {
    "acos": inverse_trigonometric.acos,
    "acosh": hyperbolic.acosh,
    "asin": inverse_trigonometric.asin,
    "asinh": hyperbolic.asinh,
    "atan": inverse_trigonometric.atan,
    "atan2": inverse_trigonometric.atan2,
    "atanh": hyperbolic.atanh,
    "cbrt": roots.cbrt,
    "ceil": rounding.ceil,
    "copysign": rounding.copysign,
    "cos": trigonometric.cos,
    "cosh": hyperbolic.cosh,
    "digamma": gamma.digamma,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "erfinv": error_function.erfinv,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "floor": rounding.floor,
    "floor_divide": division.floor_divide,
    "fmod": division.fmod,
    "hypot": roots.hypot,
    "lgamma": gamma.lgamma,
    "log": logarithm.log,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "logaddexp": power.logaddexp,
    "nextafter": rounding.nextafter,
    "pow": power.power,
    "remainder": division.remainder,
    "round": rounding.round_half_even,
    "rsqrt": roots.rsqrt,
    "sigmoid": exponential.sigmoid,
    "sin": trigonometric.sin,
    "sinh": hyperbolic.sinh,
    "sqrt": roots.sqrt,
    "tan": trigonometric.tan,
    "tanh": hyperbolic.tanh,
    "trunc": rounding.trunc,
}


def emitter(definition: Callable[..., Number]) -> Emitter:
    """The definition as a function of a builder and plain LLVM values."""

    def emit(b: ir.IRBuilder, *operands: ir.Value) -> ir.Value:
        return definition(*(Number(b, operand) for operand in operands)).value

    return emit


FUNCTIONS: dict[str, Emitter] = {name: emitter(definition) for name, definition in DEFINITIONS.items()}
