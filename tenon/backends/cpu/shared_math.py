"""A mathematical function in a vector loop -> a call of one out-of-line function, which all kernels share.

    y = call(builder, "sin", False, [x])        # x: float or double; where LLVM makes vectors it calls their variant

Written inline, each function is some tens of instructions, three times in every loop: a chain of a hundred takes LLVM
four seconds.  A call takes a few cycles, where the function takes tens of them.  The bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tenon.backends.cpu.mathematics import FUNCTIONS, NEAR_FUNCTIONS
from tenon.backends.cpu.mathematics.angle import MAX_CODY_WAITE_ARGUMENT
from tenon.backends.cpu.mathematics.notation import Number
from tenon.backends.cpu.scalar_codegen import POINTER
from tenon.llvm import shared_functions
from tenon.llvm.target_module import target_of
from tenon.loops.expressions import Call, Expr
from tenon.loops.loop_ir import Kernel, roots, statements
from tenon.loops.traversal import walk
from tenon.target import Target

MAX_INLINE = 6          # functions of a kernel, which LLVM does in no time
SIDE_BY_SIDE = 2        # vectors of a call, which do not wait for each other
INSTRUCTIONS = ("sqrt", "floor", "ceil", "trunc", "round", "copysign")       # that are one, or two
PURE = "readnone", "nounwind", "willreturn"
USED = "llvm.compiler.used"


def most_lanes(target: Target) -> int:
    """How many elements a call takes at most."""
    return SIDE_BY_SIDE * target.vector_bytes // 4


def is_shared(x: Expr) -> bool:
    """Whether a call may be one of a function that stands elsewhere."""
    return isinstance(x, Call) and x.name in FUNCTIONS and x.name not in INSTRUCTIONS and x.args[0].dtype.kind == "f"


def has_many(kernel: Kernel) -> bool:
    """Whether so many functions are computed that they are not written inline."""
    computed = (x for nest in kernel.nests for statement in statements(nest.body) for x in roots(statement))
    return sum(map(is_shared, walk(*computed))) > MAX_INLINE


def call(b: ir.IRBuilder, name: str, near: bool, args: Sequence[ir.Value]) -> ir.Value:
    """The value of a function, by a call of the one for this type, of which LLVM is told the variants for vectors."""
    kind, count, target = args[0].type, len(args), target_of(b)
    scalar = _function(b.module, name, near, kind, count)
    size, most = 8 if isinstance(kind, ir.DoubleType) else 4, most_lanes(target)
    vectors = {lanes: _function(b.module, name, near, ir.VectorType(kind, lanes), count)
               for lanes in (most, most // 2, most // 4) if lanes * size <= SIDE_BY_SIDE * target.vector_bytes}
    _keep(b.module, list(vectors.values()))
    variants = ",".join(f"_ZGV_LLVM_N{n}{'v' * count}_{scalar.name}({x.name})" for n, x in vectors.items())
    made = b.call(scalar, args)
    for attribute in (*PURE[:2], f'"vector-function-abi-variant"="{variants}"'):
        set.add(made.attributes, attribute)         # llvmlite does not know of all that LLVM does
    return made


def _function(module: ir.Module, name: str, near: bool, kind: ir.Type, count: int) -> ir.Function:
    found = shared_functions.declared(module, _write, (name, near), (kind,) * count, kind)
    for attribute in PURE:
        set.add(found.attributes, attribute)
    return found


def _keep(module: ir.Module, functions: Sequence[ir.Function]) -> None:
    """Let LLVM keep functions that nobody calls until it makes vectors."""
    used = module.globals.get(USED)
    kept = list(dict.fromkeys([*(used.initializer.constant if used else ()), *functions]))
    kind = ir.ArrayType(POINTER, len(kept))
    if used is None:
        used = ir.GlobalVariable(module, kind, USED)
        used.linkage, used.section = "appending", "llvm.metadata"
    used.value_type, used.initializer = kind, ir.Constant(kind, kept)


def _write(b: ir.IRBuilder, name: str, near: bool, *args: ir.Value) -> ir.Value:
    """The function, by the shorter way where all operands are small."""
    if near and name in NEAR_FUNCTIONS:
        return NEAR_FUNCTIONS[name](b, *args)
    if name not in NEAR_FUNCTIONS or len(args) > 1:
        return FUNCTIONS[name](b, *args)
    with b.if_else(_all_near(b, *args)) as (all_are, some_are_not):
        with all_are:
            short, first = NEAR_FUNCTIONS[name](b, *args), b.block
        with some_are_not:
            long, second = FUNCTIONS[name](b, *args), b.block
    merged = b.phi(args[0].type)
    merged.add_incoming(short, first)
    merged.add_incoming(long, second)
    return merged


def _all_near(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    inside = (abs(Number(b, x)) <= MAX_CODY_WAITE_ARGUMENT).value
    if not isinstance(inside.type, ir.VectorType):
        return inside
    bits = ir.IntType(inside.type.count)
    return b.icmp_unsigned("==", b.bitcast(inside, bits), ir.Constant(bits, -1))
