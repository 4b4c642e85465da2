"""Turns the name of a mathematical function into the LLVM instructions that compute it, inline and without branches.

    y = FUNCTIONS["exp"](builder, x)         # x: float, double or a vector of either; y has the same type

Nothing calls a library, and only straight-line arithmetic comes out (fmod and its two relatives loop), so that LLVM
vectorises a loop around it. Accuracies stand in TABLE; tests/backends/test_mathematics.py measures them. All
functions rely on fused multiply-add and on IEEE arithmetic: emit them without fast-math flags.
"""

from collections.abc import Callable
from functools import partial

from llvmlite import ir

from tenon.backends.cpu.mathematics import (
    division,
    error_function,
    exp_sigmoid,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    rounding_and_signs,
    sin_cos_tan,
    sqrt_cbrt,
)
from tenon.backends.cpu.mathematics.notation import Number

Emitter = Callable[..., ir.Value]

# Name, definition, and the largest error in units in the last place for (float, double): 0.5 is correct rounding.
# The gamma functions' are for positive numbers; logaddexp's unit is that of the largest of operands and result,
# normal_cdf's that of 1/2.
TABLE: list[tuple[str, Callable[..., Number], tuple[float, float]]] = [
    ("acos", inverse_trigonometric.acos, (1.1, 1.1)),
    ("acosh", hyperbolic.acosh, (1.9, 1.9)),
    ("asin", inverse_trigonometric.asin, (0.8, 0.8)),
    ("asinh", hyperbolic.asinh, (1.4, 1.4)),
    ("atan", inverse_trigonometric.atan, (0.7, 0.7)),
    ("atan2", inverse_trigonometric.atan2, (0.7, 0.7)),
    ("atanh", hyperbolic.atanh, (1.5, 1.5)),
    ("cbrt", sqrt_cbrt.cbrt, (0.6, 0.6)),
    ("ceil", rounding_and_signs.ceil, (0.5, 0.5)),
    ("copysign", rounding_and_signs.copysign, (0.5, 0.5)),
    ("cos", sin_cos_tan.cos, (1.6, 0.8)),
    ("cosh", hyperbolic.cosh, (1.5, 1.5)),
    ("digamma", gamma.digamma, (0.6, 32.0)),
    ("erf", error_function.erf, (1.9, 1.1)),
    ("erfc", error_function.erfc, (2.2, 2.0)),
    ("erfinv", error_function.erfinv, (2.6, 8.0)),
    ("exp", exp_sigmoid.exp, (1.1, 1.1)),
    ("exp2", exp_sigmoid.exp2, (1.1, 1.1)),
    ("expm1", exp_sigmoid.expm1, (1.4, 1.4)),
    ("floor", rounding_and_signs.floor, (0.5, 0.5)),
    ("floor_divide", division.floor_divide, (0.5, 0.5)),
    ("fmod", division.fmod, (0.5, 0.5)),
    ("hypot", sqrt_cbrt.hypot, (1.0, 1.0)),
    ("lgamma", gamma.lgamma, (0.6, 64.0)),
    ("log", logarithm.log, (0.9, 0.9)),
    ("log10", logarithm.log10, (0.7, 0.7)),
    ("log1p", logarithm.log1p, (0.9, 0.9)),
    ("log2", logarithm.log2, (0.7, 0.7)),
    ("logaddexp", power.logaddexp, (2.0, 2.0)),
    ("nextafter", rounding_and_signs.nextafter, (0.5, 0.5)),
    ("normal_cdf", error_function.normal_cdf, (2.1, 1.0)),
    ("pow", power.power, (0.6, 1.1)),
    ("remainder", division.remainder, (0.5, 0.5)),
    ("round", rounding_and_signs.round_half_even, (0.5, 0.5)),
    ("rsqrt", sqrt_cbrt.rsqrt, (1.5, 1.5)),
    ("sigmoid", exp_sigmoid.sigmoid, (2.1, 2.1)),
    ("sin", sin_cos_tan.sin, (1.6, 0.8)),
    ("sinh", hyperbolic.sinh, (1.7, 1.7)),
    ("sqrt", sqrt_cbrt.sqrt, (0.5, 0.5)),
    ("tan", sin_cos_tan.tan, (0.6, 0.8)),
    ("tanh", hyperbolic.tanh, (1.5, 1.5)),
    ("trunc", rounding_and_signs.trunc, (0.5, 0.5)),
]


def emitter(definition: Callable[..., Number]) -> Emitter:
    """The definition as a function of a builder and plain LLVM values."""

    def emit(b: ir.IRBuilder, *operands: ir.Value) -> ir.Value:
        return definition(*(Number(b, operand) for operand in operands)).value

    return emit


FUNCTIONS: dict[str, Emitter] = {name: emitter(definition) for name, definition, _ in TABLE}
# The same for angles of at most `angle.NEAR` and quotients that fit the mantissa, with the same bits, in less time.
NEAR_FUNCTIONS: dict[str, Emitter] = {
    name: emitter(partial(definition, near=True))
    for name, definition in (("cos", sin_cos_tan.cos), ("fmod", division.fmod), ("sin", sin_cos_tan.sin),
                             ("tan", sin_cos_tan.tan))}
MAX_ULP: dict[str, tuple[float, float]] = {name: bound for name, _, bound in TABLE}
