"""One scalar operation of the loop IR -> LLVM instructions.  Nothing traps and nothing is undefined.

In registers bool is i1 and floats narrower than 32 bits are float; in memory bool is i8, and they have their own width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from tenon.types import DType, bfloat16, bool_, float16, float64

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
POINTER = ir.PointerType()
FLOAT, DOUBLE, HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()
# An operation is rounded once, so a value has the same bits wherever it is computed: no flag that lets LLVM round
# otherwise is set, but in sums, whose elements may be taken in any order.
FUSED = ("contract",)                           # a product that a sum alone takes in: it may be one with the addition
REORDER = ("contract", "reassoc", "nsz")        # a product, or an extreme, may be split into partial ones
SPLIT = ("contract", "reassoc")                 # a sum likewise; by "nsz" LLVM factors, cancels, drops 0 +


def register(dtype: DType) -> ir.Type:
    """The type of a value in a register."""
    if dtype.kind == "f":
        return DOUBLE if dtype.bits == 64 else FLOAT
    return I1 if dtype is bool_ else ir.IntType(dtype.bits)


def in_memory(dtype: DType) -> ir.Type:
    """The type of a value in memory."""
    if dtype.kind == "f":
        return {16: HALF if dtype is float16 else I16, 32: FLOAT, 64: DOUBLE}[dtype.bits]
    return ir.IntType(dtype.bits)


def number(value: Any, dtype: DType) -> ir.Constant:
    """A constant in a register."""
    return ir.Constant(register(dtype), float(value) if dtype.kind == "f" else int(value))


def from_memory(b: ir.IRBuilder, x: ir.Value, dtype: DType) -> ir.Value:
    """Memory form -> register form."""
    if dtype is bool_:
        return b.icmp_unsigned("!=", x, ir.Constant(I8, 0))
    if dtype is float16:
        return b.fpext(x, FLOAT)
    if dtype is bfloat16:
        return b.bitcast(b.shl(b.zext(x, I32), ir.Constant(I32, 16)), FLOAT)
    return x


def to_memory(b: ir.IRBuilder, x: ir.Value, dtype: DType) -> ir.Value:
    """Register form -> memory form, rounding to nearest even."""
    if dtype is bool_:
        return b.zext(x, I8)
    if dtype is float16:
        return b.fptrunc(x, HALF)
    if dtype is bfloat16:
        known = _bits_of(b, x)
        if known is not None:
            return known
        bits = b.bitcast(x, I32)
        odd = b.and_(b.lshr(bits, ir.Constant(I32, 16)), ir.Constant(I32, 1))
        rounded = b.add(bits, b.add(odd, ir.Constant(I32, 0x7FFF)))
        quiet = b.or_(bits, ir.Constant(I32, 0x400000))
        return b.trunc(b.lshr(b.select(b.fcmp_unordered("uno", x, x), quiet, rounded), ir.Constant(I32, 16)), I16)
    return x


def _bits_of(b: ir.IRBuilder, x: ir.Value) -> ir.Value | None:
    """The 16 bits that a float was made of, or a choice of such: there is nothing to round, which LLVM does not see."""
    if getattr(x, "opname", None) != "select":
        return _source(x)
    choice, *both = x.operands
    one, other = map(_source, both)
    return None if one is None or other is None else b.select(choice, one, other)


def _source(x: ir.Value) -> ir.Value | None:
    """What `from_memory` made the bfloat16 of."""
    if isinstance(x, ir.Constant) and isinstance(x.constant, float):
        with np.errstate(over="ignore"):
            bits = int(np.float32(x.constant).view(np.uint32))
        return None if bits & 0xFFFF else ir.Constant(I16, bits >> 16)
    for opname in ("bitcast", "shl", "zext"):
        if getattr(x, "opname", None) != opname:
            return None
        x = x.operands[0]
    return x if x.type == I16 else None


def cast(b: ir.IRBuilder, x: ir.Value, source: DType, target: DType) -> ir.Value:
    """The value as another type: integers wrap, floats saturate to integers, NaN becomes 0."""
    to, old, new = register(target), source.kind, target.kind
    if new == "b":
        zero = ir.Constant(x.type, 0)
        return b.fcmp_unordered("!=", x, zero) if old == "f" else b.icmp_unsigned("!=", x, zero)
    if old == "f" and new == "f":
        x = _to_odd(b, x) if source is float64 and target is float16 else x
        wide = x if x.type == to else b.fpext(x, to) if to == DOUBLE else b.fptrunc(x, to)
        return wide if target.bits >= 32 else from_memory(b, to_memory(b, wide, target), target)
    if old == "f":
        return _whole(b, x, to, new == "i")
    if new == "f":
        number = b.sitofp(x, to) if old == "i" else b.uitofp(x, to)
        return number if target.bits >= 32 else from_memory(b, to_memory(b, number, target), target)
    if to.width == x.type.width:
        return x
    if to.width < x.type.width:
        return b.trunc(x, to)
    return b.sext(x, to) if old == "i" else b.zext(x, to)


def _to_odd(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """A double with as many places as a float has, of which the last says whether any other was not 0: what is rounded
    once more then is rounded as if it were the first time."""
    bits = b.bitcast(x, I64)
    lost = b.icmp_unsigned("!=", b.and_(bits, ir.Constant(I64, (1 << 29) - 1)), ir.Constant(I64, 0))
    kept = b.and_(bits, ir.Constant(I64, -1 << 29))
    return b.bitcast(b.or_(kept, b.select(lost, ir.Constant(I64, 1 << 29), ir.Constant(I64, 0))), DOUBLE)


def _whole(b: ir.IRBuilder, x: ir.Value, to: ir.IntType, signed: bool) -> ir.Value:
    """x cut off; where the type ends, its end, and 0 for NaN.  LLVM's intrinsic for it stays out of vectors."""
    low, high = (-(1 << to.width - 1), 1 << to.width - 1) if signed else (0, 1 << to.width)
    above = b.fcmp_ordered(">=", x, ir.Constant(x.type, float(high)))
    below = b.fcmp_ordered("<=", x, ir.Constant(x.type, float(low)))
    inside = b.and_(b.fcmp_ordered("<", x, ir.Constant(x.type, float(high))),
                    b.fcmp_ordered(">", x, ir.Constant(x.type, float(low))))
    safe = b.select(inside, x, ir.Constant(x.type, 0.0))
    wide = to if to.width >= 32 else I32                    # where the processor converts vectors
    number = b.fptosi(safe, wide) if signed or wide is not to else b.fptoui(safe, wide)
    cut = number if wide is to else b.trunc(number, to)
    ends = ir.Constant(to, high - 1), ir.Constant(to, low)
    return b.select(above, ends[0], b.select(below, ends[1], cut))


def widened(b: ir.IRBuilder, x: ir.Value, source: DType, element: ir.Type) -> ir.Value:
    """Elements of 8 or 16 bits, in their memory form, one or a vector of them, as elements of a wider type."""
    def like(kind: ir.Type) -> ir.Type:
        return ir.VectorType(kind, x.type.count) if isinstance(x.type, ir.VectorType) else kind
    if source is bfloat16:
        places = ir.Constant(I32, 16)
        by = ir.Constant(like(I32), [places] * x.type.count) if isinstance(x.type, ir.VectorType) else places
        x = b.bitcast(b.shl(b.zext(x, like(I32)), by), like(FLOAT))
    if source.kind == "f":
        return x if x.type == like(element) else b.fpext(x, like(element))
    if isinstance(element, ir.IntType):
        return b.sext(x, like(element)) if source.kind == "i" else b.zext(x, like(element))
    return b.sitofp(x, like(element)) if source.kind == "i" else b.uitofp(x, like(element))


def rounded(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """float32, one number or a vector, as bfloat16 has it, to nearest even; NaN stays NaN."""
    kind = ir.VectorType(I32, x.type.count) if isinstance(x.type, ir.VectorType) else I32

    def number(value: int) -> ir.Constant:
        return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)
    bits = b.bitcast(x, kind)
    nearest = b.add(bits, b.add(b.and_(b.lshr(bits, number(16)), number(1)), number(0x7FFF)))
    chosen = b.select(b.fcmp_unordered("uno", x, x), b.or_(bits, number(0x400000)), nearest)
    return b.bitcast(b.and_(chosen, number(0xFFFF0000)), x.type)


def nearest(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """A float that was computed of bfloat16 numbers, as one of them, to nearest even.

    The lower half of its bits is 0 where it is a NaN, as theirs is, so what is added for rounding leaves it one.
    """
    bits = b.bitcast(x, I32)
    odd = b.and_(b.lshr(bits, ir.Constant(I32, 16)), ir.Constant(I32, 1))
    upper = b.trunc(b.lshr(b.add(bits, b.add(odd, ir.Constant(I32, 0x7FFF))), ir.Constant(I32, 16)), I16)
    return from_memory(b, upper, bfloat16)


def reinterpret(b: ir.IRBuilder, x: ir.Value, source: DType, target: DType) -> ir.Value:
    """The same bits as another type."""
    return from_memory(b, b.bitcast(to_memory(b, x, source), in_memory(target)), target)


def binary(b: ir.IRBuilder, op: str, x: ir.Value, y: ir.Value, dtype: DType, flags: tuple[str, ...] = ()) -> ir.Value:
    """`x op y` for operands of one type."""
    if op in _COMPARISONS:
        return _compare(b, op, x, y, dtype)
    if dtype.kind == "f":
        return _FLOAT[op](b, x, y, flags)
    return _INTEGER[op](b, x, y, dtype)


def combined(b: ir.IRBuilder, op: str, total: ir.Value, x: ir.Value, dtype: DType) -> ir.Value:
    """`total op x` of a reduction, which may take its elements in any order."""
    return binary(b, op, total, x, dtype, SPLIT if op == "+" else REORDER)


# ---------------------------------------------------------------- floats

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def _compare(b: ir.IRBuilder, op: str, x: ir.Value, y: ir.Value, dtype: DType) -> ir.Value:
    if dtype.kind == "f":
        return b.fcmp_unordered(op, x, y) if op == "!=" else b.fcmp_ordered(op, x, y)
    return b.icmp_signed(op, x, y) if dtype.kind == "i" else b.icmp_unsigned(op, x, y)


def _extreme(name: str, relation: str) -> Callable[..., ir.Value]:
    """NaN if either is.  LLVM knows the intrinsic as a reduction, and makes vectors of comparisons elsewhere."""
    def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value, flags: tuple[str, ...]) -> ir.Value:
        if isinstance(x, ir.Constant):
            x, y = y, x
        if flags is REORDER:
            return b.call(declare(b, f"{name}.{spelled(x.type)}", x.type, x.type, x.type), [x, y], fastmath=("nsz",))
        if isinstance(y, ir.Constant) and y.constant == y.constant:
            return b.select(b.fcmp_ordered(relation, y, x), y, x)       # x, NaN or not, unless the constant wins
        return b.select(b.fcmp_unordered("uno", x, x), x, b.select(b.fcmp_ordered(relation, x, y), x, y))
    return emit


def float_remainder(b: ir.IRBuilder, x: ir.Value, y: ir.Value, flags: tuple[str, ...] = ()) -> ir.Value:
    """Python's modulo: the sign of the divisor."""
    zero = ir.Constant(x.type, 0.0)
    rest = b.frem(x, y)
    other_sign = b.xor(b.fcmp_ordered("<", rest, zero), b.fcmp_ordered("<", y, zero))
    return b.select(b.and_(other_sign, b.fcmp_ordered("!=", rest, zero)), b.fadd(rest, y), rest)


def _float_floor_divide(b: ir.IRBuilder, x: ir.Value, y: ir.Value, flags: tuple[str, ...]) -> ir.Value:
    quotient = b.fdiv(b.fsub(x, float_remainder(b, x, y)), y)
    exact = b.fcmp_ordered("==", y, ir.Constant(y.type, 0.0))
    rounded = b.call(b.module.declare_intrinsic("llvm.rint", [x.type]), [quotient])
    return b.select(exact, b.fdiv(x, y), rounded)


_FLOAT: dict[str, Callable[..., ir.Value]] = {
    "+": lambda b, x, y, flags: b.fadd(x, y, flags=flags),
    "-": lambda b, x, y, flags: b.fsub(x, y, flags=flags),
    "*": lambda b, x, y, flags: b.fmul(x, y, flags=flags),
    "/": lambda b, x, y, flags: b.fdiv(x, y, flags=flags),
    "min": _extreme("llvm.minimum", "<"), "max": _extreme("llvm.maximum", ">"),
    "%": float_remainder, "//": _float_floor_divide,
}


# ---------------------------------------------------------------- integers and bool

def divide(b: ir.IRBuilder, x: ir.Value, y: ir.Value, dtype: DType) -> tuple[ir.Value, ir.Value]:
    """(x // y, x % y), rounding down; both 0 when y is 0, and the smallest integer divided by -1 wraps."""
    zero, one = ir.Constant(x.type, 0), ir.Constant(x.type, 1)
    if dtype.kind != "i":
        by_zero = b.icmp_unsigned("==", y, zero)
        safe = b.select(by_zero, one, y)
        return b.select(by_zero, zero, b.udiv(x, safe)), b.select(by_zero, zero, b.urem(x, safe))
    minus = ir.Constant(x.type, -1)
    special = b.icmp_unsigned("<=", b.add(y, one), one)         # 0 or -1
    safe = b.select(special, one, y)
    quotient, rest = b.sdiv(x, safe), b.srem(x, safe)
    down = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, safe), zero))
    quotient = b.select(down, b.sub(quotient, one), quotient)
    rest = b.select(down, b.add(rest, safe), rest)
    at_special = b.select(b.icmp_signed("==", y, minus), b.sub(zero, x), zero)
    return b.select(special, at_special, quotient), b.select(special, zero, rest)


def _shift(emit: Callable[..., ir.Value], arithmetic: bool) -> Callable[..., ir.Value]:
    def shifted(b: ir.IRBuilder, x: ir.Value, by: ir.Value, dtype: DType) -> ir.Value:
        bits = ir.Constant(x.type, x.type.width)
        inside = b.icmp_unsigned("<", by, bits)
        within = emit(b, x, b.select(inside, by, ir.Constant(x.type, 0)), dtype)
        beyond = b.ashr(x, ir.Constant(x.type, x.type.width - 1)) if arithmetic and dtype.kind == "i" \
            else ir.Constant(x.type, 0)
        return b.select(inside, within, beyond)
    return shifted


def _integer_extreme(word: str) -> Callable[..., ir.Value]:
    def emit(b: ir.IRBuilder, x: ir.Value, y: ir.Value, dtype: DType) -> ir.Value:
        if dtype.kind == "b":
            return b.and_(x, y) if word == "min" else b.or_(x, y)
        name = f"llvm.{'s' if dtype.kind == 'i' else 'u'}{word}"
        return b.call(declare(b, f"{name}.{spelled(x.type)}", x.type, x.type, x.type), [x, y])
    return emit


_INTEGER: dict[str, Callable[..., ir.Value]] = {
    "+": lambda b, x, y, dtype: b.or_(x, y) if dtype.kind == "b" else b.add(x, y),
    "-": lambda b, x, y, dtype: b.xor(x, y) if dtype.kind == "b" else b.sub(x, y),
    "*": lambda b, x, y, dtype: b.and_(x, y) if dtype.kind == "b" else b.mul(x, y),
    "//": lambda b, x, y, dtype: divide(b, x, y, dtype)[0],
    "%": lambda b, x, y, dtype: divide(b, x, y, dtype)[1],
    "&": lambda b, x, y, dtype: b.and_(x, y),
    "|": lambda b, x, y, dtype: b.or_(x, y),
    "^": lambda b, x, y, dtype: b.xor(x, y),
    "<<": _shift(lambda b, x, by, dtype: b.shl(x, by), False),
    ">>": _shift(lambda b, x, by, dtype: b.ashr(x, by) if dtype.kind == "i" else b.lshr(x, by), True),
    "min": _integer_extreme("min"), "max": _integer_extreme("max"),
}


def declare(b: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Type) -> ir.Function:
    """The function of this name in the module."""
    found = b.module.globals.get(name)
    return found if found is not None else ir.Function(b.module, ir.FunctionType(result, args), name)


def spelled(kind: ir.Type) -> str:
    """The suffix of an intrinsic for this type."""
    return {FLOAT: "f32", DOUBLE: "f64"}.get(kind) or f"i{kind.width}"
