"""Turns arithmetic written in Python into LLVM instructions, so that a function reads like its formula.

    x = Number(builder, value)                   # value: float, double, or a vector of either
    y = where(x > 0.0, fma(x, x, 1.0), -x)       # four instructions; y.value is the result

Three kinds of term: `Number` (floating point), `Bits` (its pattern, an integer of the same width) and `Mask` (an i1 a
lane). Python numbers among the operands become constants of the other operand's type. No fast-math flags are set: the
error-free transformations below are only true of IEEE arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Union

from llvmlite import ir

from tenon.llvm.target_module import target_of
from tenon.records import dataclass

Operand = Union["Number", float]


@dataclass(frozen=True)
class Format:
    """An IEEE binary format."""

    bits: int
    mantissa: int  # stored bits
    bias: int

    @property
    def to_integer(self) -> float:
        """1.5 * 2**mantissa: adding it rounds a small number to an integer, which then stands in the lowest bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def to_integer_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def one(self) -> int:
        return self.bias << self.mantissa

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)


SINGLE = Format(bits=32, mantissa=23, bias=127)
DOUBLE = Format(bits=64, mantissa=52, bias=1023)


class Term:
    """One instruction's result."""

    __slots__ = ("b", "value")

    def __init__(self, b: ir.IRBuilder, value: ir.Value):
        self.b = b
        self.value = value

    @property
    def lanes(self) -> int | None:
        """How many elements the vector has; None for a scalar."""
        return self.value.type.count if isinstance(self.value.type, ir.VectorType) else None

    def type_with(self, element: ir.Type) -> ir.Type:
        """The type with this term's number of lanes and other elements."""
        return ir.VectorType(element, self.lanes) if self.lanes else element

    def raw_constant(self, number: float) -> ir.Constant:
        return ir.Constant(self.value.type, [number] * self.lanes if self.lanes else number)


class Number(Term):
    """A floating-point term."""

    __slots__ = ()

    @property
    def format(self) -> Format:
        element = self.value.type.element if self.lanes else self.value.type
        return DOUBLE if isinstance(element, ir.DoubleType) else SINGLE

    @property
    def is_double(self) -> bool:
        return self.format is DOUBLE

    def constant(self, number: Operand) -> Number:
        return number if isinstance(number, Number) else Number(self.b, self.raw_constant(number))

    def bits(self) -> Bits:
        return Bits(self.b, self.b.bitcast(self.value, self.type_with(ir.IntType(self.format.bits))))

    def __add__(self, other: Operand) -> Number:
        return Number(self.b, self.b.fadd(self.value, self.constant(other).value))

    def __sub__(self, other: Operand) -> Number:
        return Number(self.b, self.b.fsub(self.value, self.constant(other).value))

    def __mul__(self, other: Operand) -> Number:
        return Number(self.b, self.b.fmul(self.value, self.constant(other).value))

    def __truediv__(self, other: Operand) -> Number:
        return Number(self.b, self.b.fdiv(self.value, self.constant(other).value))

    def __radd__(self, other: float) -> Number:
        return self.constant(other) + self

    def __rsub__(self, other: float) -> Number:
        return self.constant(other) - self

    def __rmul__(self, other: float) -> Number:
        return self.constant(other) * self

    def __rtruediv__(self, other: float) -> Number:
        return self.constant(other) / self

    def __neg__(self) -> Number:
        return Number(self.b, self.b.fneg(self.value))

    def __abs__(self) -> Number:
        return intrinsic("fabs", self)

    def __lt__(self, other: Operand) -> Mask:
        return self.compare("<", other)

    def __le__(self, other: Operand) -> Mask:
        return self.compare("<=", other)

    def __gt__(self, other: Operand) -> Mask:
        return self.compare(">", other)

    def __ge__(self, other: Operand) -> Mask:
        return self.compare(">=", other)

    def equals(self, other: Operand) -> Mask:
        return self.compare("==", other)

    def compare(self, how: str, other: Operand) -> Mask:
        """False where either is nan."""
        return Mask(self.b, self.b.fcmp_ordered(how, self.value, self.constant(other).value))

    def is_nan(self) -> Mask:
        return Mask(self.b, self.b.fcmp_unordered("uno", self.value, self.value))

    def is_finite(self) -> Mask:
        return abs(self) < math.inf

    def sign_bit(self) -> Mask:
        """True for negative numbers, -0.0 and nans whose sign is set."""
        return self.bits().is_negative()


class Bits(Term):
    """An integer term, as wide as the floating-point number whose bits it holds."""

    __slots__ = ()

    def constant(self, number: Bits | int) -> Bits:
        return number if isinstance(number, Bits) else Bits(self.b, self.raw_constant(number))

    def __add__(self, other: Bits | int) -> Bits:
        return Bits(self.b, self.b.add(self.value, self.constant(other).value))

    def __sub__(self, other: Bits | int) -> Bits:
        return Bits(self.b, self.b.sub(self.value, self.constant(other).value))

    def __and__(self, other: Bits | int) -> Bits:
        return Bits(self.b, self.b.and_(self.value, self.constant(other).value))

    def __or__(self, other: Bits | int) -> Bits:
        return Bits(self.b, self.b.or_(self.value, self.constant(other).value))

    def __xor__(self, other: Bits | int) -> Bits:
        return Bits(self.b, self.b.xor(self.value, self.constant(other).value))

    def __lshift__(self, count: int) -> Bits:
        return Bits(self.b, self.b.shl(self.value, self.constant(count).value))

    def __rshift__(self, count: int) -> Bits:
        """Fills with zeros: arithmetic shifts of 64-bit lanes are not instructions everywhere."""
        return Bits(self.b, self.b.lshr(self.value, self.constant(count).value))

    def is_negative(self) -> Mask:
        return Mask(self.b, self.b.icmp_signed("<", self.value, self.constant(0).value))

    def equals(self, other: Bits | int) -> Mask:
        return Mask(self.b, self.b.icmp_signed("==", self.value, self.constant(other).value))

    def number(self) -> Number:
        """The floating-point number of these bits."""
        element = self.value.type.element if self.lanes else self.value.type
        as_float: ir.Type = ir.FloatType() if element.width == SINGLE.bits else ir.DoubleType()
        return Number(self.b, self.b.bitcast(self.value, self.type_with(as_float)))


class Mask(Term):
    """A truth value a lane."""

    __slots__ = ()

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.b, self.b.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.b, self.b.or_(self.value, other.value))

    def __xor__(self, other: Mask) -> Mask:
        return Mask(self.b, self.b.xor(self.value, other.value))

    def __invert__(self) -> Mask:
        return Mask(self.b, self.b.not_(self.value))


def intrinsic(name: str, x: Number, *others: Number) -> Number:
    """llvm.<name>, for those that become instructions and that the loop vectoriser widens."""
    operands = [x.value, *(other.value for other in others)]
    kind = x.value.type
    suffix = ("f64" if x.is_double else "f32") if not x.lanes else f"v{x.lanes}" + ("f64" if x.is_double else "f32")
    function_type = ir.FunctionType(kind, [kind] * len(operands))
    module = x.b.module
    full_name = f"llvm.{name}.{suffix}"
    function = module.globals.get(full_name) or ir.Function(module, function_type, name=full_name)
    return Number(x.b, x.b.call(function, operands))


def fma(x: Number, y: Operand, z: Operand) -> Number:
    """x*y + z, rounded once."""
    return intrinsic("fma", x, x.constant(y), x.constant(z))


def sqrt(x: Number) -> Number:
    return intrinsic("sqrt", x)


def copysign(size: Number, sign: Number) -> Number:
    return intrinsic("copysign", size, sign)


def where(mask: Mask, yes: Operand, no: Operand) -> Number:
    like: Any = yes if isinstance(yes, Number) else no if isinstance(no, Number) else None
    return Number(mask.b, mask.b.select(mask.value, like.constant(yes).value, like.constant(no).value))


def minimum(x: Number, bound: Operand) -> Number:
    """The smaller one; nan where x is nan."""
    return where(x > bound, bound, x)


def maximum(x: Number, bound: Operand) -> Number:
    """The larger one; nan where x is nan."""
    return where(x < bound, bound, x)


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Horner's rule; the lowest coefficient first."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def scaled(x: Number, exponent: Bits) -> Number:
    """x * 2**exponent, rounded once, however large the exponent: one instruction where `can_scale` holds."""
    b, lanes = x.b, f"v{x.lanes}" if x.lanes else ""
    name = f"llvm.ldexp.{lanes}f{x.format.bits}.{lanes}i{x.format.bits}"
    kind = ir.FunctionType(x.value.type, [x.value.type, exponent.value.type])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name=name)
    return Number(b, b.call(function, [x.value, exponent.value]))


def can_scale(x: Number) -> bool:
    """Whether the processor has an instruction for `scaled`; without it LLVM would call a library."""
    return target_of(x.b).has("avx512f" if x.format is SINGLE else "avx512dq")     # which makes 64-bit lanes numbers


def widen(x: Number) -> Number:
    """The same number as a double."""
    return Number(x.b, x.b.fpext(x.value, x.type_with(ir.DoubleType())))


def narrow(x: Number) -> Number:
    """A double rounded to single precision."""
    return Number(x.b, x.b.fptrunc(x.value, x.type_with(ir.FloatType())))
