"""An expression at neighbouring values of an index -> a vector (`loops.neighbours` says of which that can be made)."""

from __future__ import annotations

from llvmlite import ir

from tenon.backends.cpu import arithmetic as scalar
from tenon.backends.cpu import functions
from tenon.backends.cpu.contraction.emit import intrinsic, load_vector, masked_load, splat, zero
from tenon.backends.cpu.values import Values
from tenon.loops.expressions import Binary, Call, Cast, Const, Expr, Index, Load, Select
from tenon.types import DType, bool_


class Neighbours:
    """The vectors of some expressions, from where `values` knows the index to be on."""

    def __init__(self, values: Values, along: Index, lanes: int, mask: ir.Value | None) -> None:
        self.values, self.b, self.along, self.lanes, self.mask = values, values.b, along, lanes, mask
        self.known: dict[Expr, ir.Value] = {}

    def of(self, x: Expr) -> ir.Value:
        """The vector of x; in lanes that are not in the mask is anything."""
        if x not in self.known:
            self.known[x] = self.made(x) if self.along in x.free else self.same(x)
        return self.known[x]

    def same(self, x: Expr) -> ir.Value:
        """What all lanes are."""
        if isinstance(x, Const):
            one = scalar.number(x.value, x.dtype)
            return ir.Constant(ir.VectorType(one.type, self.lanes), [one] * self.lanes)
        return splat(self.b, self.values.value(x), self.lanes)

    def made(self, x: Expr) -> ir.Value:
        """What differs from lane to lane."""
        b = self.b
        match x:
            case Load():
                return self.load(x)
            case Binary(op=op, left=left, right=right):
                return scalar.binary(b, op, self.of(left), self.of(right), left.dtype)
            case Call(name="abs", args=(inner,)):
                return intrinsic(b, "llvm.fabs", [self.of(inner)])
            case Call(name=name, args=args):
                return functions.call(b, name, args[0].dtype, [self.of(arg) for arg in args])
            case Select(condition=condition, then=then, otherwise=otherwise):
                return b.select(self.of(condition), self.of(then), self.of(otherwise))
            case Cast(x=inner, dtype=dtype):
                return self.cast(self.of(inner), inner.dtype, dtype)
        raise AssertionError(x)

    def load(self, x: Load) -> ir.Value:
        """Neighbours in memory."""
        b, memory = self.b, scalar.in_memory(x.dtype)
        where, none = self.values.address(x.buffer, x.offset), zero(ir.VectorType(memory, self.lanes))
        read = load_vector(b, where, memory, self.lanes) if self.mask is None else \
            masked_load(b, where, self.mask, none)
        if x.dtype is bool_:
            return b.icmp_unsigned("!=", read, none)
        return scalar.widened(b, read, x.dtype, scalar.FLOAT) if x.dtype.kind == "f" and x.dtype.bits < 32 else read

    def cast(self, x: ir.Value, source: DType, target: DType) -> ir.Value:
        """Numbers as wide floats, or integers as others."""
        b, kind = self.b, ir.VectorType(scalar.register(target), self.lanes)
        if x.type == kind:
            return x
        if target.kind == "f":
            if source.kind == "f":
                return b.fpext(x, kind) if target.bits == 64 else b.fptrunc(x, kind)
            return b.sitofp(x, kind) if source.kind == "i" else b.uitofp(x, kind)
        if kind.element.width < x.type.element.width:
            return b.trunc(x, kind)
        return b.sext(x, kind) if source.kind == "i" else b.zext(x, kind)
