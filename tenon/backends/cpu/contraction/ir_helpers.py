"""LLVM IR building blocks of the contraction template: counted loops, odometers over composite indices, vectors.

Loops are written with `with`, so that the generator looks like what it generates:

    with loop(b, ZERO, n, carried=[zero]) as (i, state):
        state[0] = b.fadd(state[0], load(i))
    total = state[0]
"""
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

I1, I32, I64, POINTER = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.PointerType()
State = list[ir.Value]


def const(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


ZERO, ONE = const(0), const(1)
_BYTES = {"half": 2, "float": 4, "double": 8}


@contextmanager
def loop(b: ir.IRBuilder, start: ir.Value, stop: ir.Value, step: ir.Value = ONE,
         carried: Sequence[ir.Value] = (), short: bool = False,
         sure: bool = False) -> Iterator[tuple[ir.Value, State]]:
    """for i in range(start, stop, step); `state` holds the carried values, before, during and after the loop.

    A `short` loop is left as it is: vectorising it costs more time while compiling than it ever saves.  One that is
    `sure` is gone through at least once.
    """
    before, body, done = b.block, b.append_basic_block("body"), b.append_basic_block("done")
    if sure:
        b.branch(body)
    else:
        b.cbranch(b.icmp_signed("<", start, stop), body, done)
    b.position_at_end(body)
    index = b.phi(I64)
    index.add_incoming(start, before)
    entering = [b.phi(value.type) for value in carried]
    state: State = list(entering)
    yield index, state
    after = b.add(index, step, flags=["nsw"])
    latch = b.block
    again = b.cbranch(b.icmp_signed("<", after, stop), body, done)
    if short:
        again.set_metadata("llvm.loop", loop_flags(b.module, "llvm.loop.unroll.disable", "llvm.loop.vectorize.width=1"))
    index.add_incoming(after, latch)
    b.position_at_end(done)
    for place, (phi, first) in enumerate(zip(entering, carried, strict=True)):
        phi.add_incoming(first, before)
        phi.add_incoming(state[place], latch)
        if sure:
            continue
        final = b.phi(phi.type)
        final.add_incoming(first, before)
        final.add_incoming(state[place], latch)
        state[place] = final


def loop_flags(module: ir.Module, *flags: str) -> ir.MDValue:
    """A loop's metadata: what LLVM shall leave alone, or do: `"flag"` or `"flag=number"`."""
    listed = []
    for flag in flags:
        name, _, number = flag.partition("=")
        listed.append(module.add_metadata([name, *([ir.Constant(I32, int(number))] if number else [])]))
    found = module.add_metadata([*listed, ir.Constant(I64, len(module.metadata))])
    found.operands = (found, *listed)       # it begins with itself, so that no two loops share it
    return found


@contextmanager
def runs(b: ir.IRBuilder, first: ir.Value, count: ir.Value,
         sizes: Sequence[ir.Value]) -> Iterator[tuple[ir.Value, tuple[ir.Value, ...], ir.Value]]:
    """Cut the flat indices first .. first+count into runs in which only the innermost component moves; of no sizes
    there is one index, without components.

    Gives (position - first, the composite index of the run's start, its length); divides once, then counts upwards.
    """
    before, body, done = b.block, b.append_basic_block("run"), b.append_basic_block("ran")
    start = unravel(b, first, sizes) if sizes else ()
    b.cbranch(b.icmp_signed(">", count, ZERO), body, done)
    b.position_at_end(body)
    position, digits = b.phi(I64), [b.phi(I64) for _ in sizes]
    left = b.sub(count, position)
    length = minimum(b, left, b.sub(sizes[-1], digits[-1])) if len(sizes) > 1 else left
    yield position, tuple(digits), length
    after, carry, following = b.add(position, length), ir.Constant(I1, 1), [ZERO] * bool(sizes)
    for digit, size in zip(digits[-2::-1], sizes[-2::-1], strict=True):
        more = b.add(digit, b.zext(carry, I64))
        carry = b.icmp_signed("==", more, size)
        following.insert(0, b.select(carry, ZERO, more))
    latch = b.block
    b.cbranch(b.icmp_signed("<", after, count), body, done)
    for phi, one, other in zip([position, *digits], [ZERO, *start], [after, *following], strict=True):
        phi.add_incoming(one, before)
        phi.add_incoming(other, latch)
    b.position_at_end(done)


def unravel(b: ir.IRBuilder, index: ir.Value, sizes: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
    """The composite index of a flat one, outermost component first."""
    digits: list[ir.Value] = []
    for size in sizes[:0:-1]:
        safe = maximum(b, size, ONE)            # an empty axis is never read, but must not divide by zero
        digits.insert(0, b.urem(index, safe))
        index = b.udiv(index, safe)
    return (index, *digits)


def product(b: ir.IRBuilder, sizes: Sequence[ir.Value]) -> ir.Value:
    if all(isinstance(size, ir.Constant) for size in sizes):
        return const(math.prod(size.constant for size in sizes))
    total = sizes[0]
    for size in sizes[1:]:
        total = b.mul(total, size)
    return total


def known(*sizes: ir.Value) -> list[int] | None:
    """The numbers that sizes are, if all are known now."""
    found = [size.constant for size in sizes if isinstance(size, ir.Constant)]
    return found if len(found) == len(sizes) else None


def minimum(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, y), x, y)


def maximum(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed(">", x, y), x, y)


def ceil_div(b: ir.IRBuilder, x: ir.Value, by: ir.Value) -> ir.Value:
    return b.udiv(b.add(x, b.sub(by, ONE)), by)


def balanced(b: ir.IRBuilder, size: ir.Value, largest: ir.Value, multiple: int) -> ir.Value:
    """A block size of at most `largest` that cuts `size` into nearly equal blocks, each a multiple of `multiple`."""
    blocks = maximum(b, ceil_div(b, size, largest), ONE)
    return maximum(b, b.mul(ceil_div(b, ceil_div(b, size, blocks), const(multiple)), const(multiple)), const(multiple))


def address(b: ir.IRBuilder, base: ir.Value, offset: ir.Value, element: ir.Type) -> ir.Value:
    return b.gep(base, [offset], source_etype=element)


def element_bytes(element: ir.Type) -> int:
    return int(element.width) // 8 if isinstance(element, ir.IntType) else _BYTES[str(element)]


def load_vector(b: ir.IRBuilder, where: ir.Value, element: ir.Type, lanes: int) -> ir.Value:
    return b.load(where, typ=ir.VectorType(element, lanes), align=element_bytes(element))


def store_vector(b: ir.IRBuilder, value: ir.Value, where: ir.Value) -> None:
    b.store(value, where, align=element_bytes(value.type.element))


def masked_load(b: ir.IRBuilder, where: ir.Value, mask: ir.Value, others: ir.Value) -> ir.Value:
    """The lanes in the mask from memory, of which nothing else is touched; the others as given."""
    align = ir.Constant(I32, element_bytes(others.type.element))
    return intrinsic(b, "llvm.masked.load", [where, align, mask, others], ".p0")


def masked_store(b: ir.IRBuilder, value: ir.Value, where: ir.Value, mask: ir.Value) -> None:
    """Store the lanes in the mask; nothing else is touched."""
    name = f"llvm.masked.store.v{value.type.count}{value.type.element.intrinsic_name}.p0"
    kind = ir.FunctionType(ir.VoidType(), [value.type, POINTER, I32, mask.type])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    b.call(function, [value, where, ir.Constant(I32, element_bytes(value.type.element)), mask])


def splat(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = b.insert_element(undefined, value, ir.Constant(I32, 0))
    return b.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def lanes_before(b: ir.IRBuilder, where: ir.Value, element: ir.Type, lanes: int) -> ir.Value:
    """Elements from the beginning of the line of the cache, as long as a vector, to this address."""
    size = element_bytes(element)
    return b.udiv(b.and_(b.ptrtoint(where, I64), const(lanes * size - 1)), const(size))


def lanes_below(count: int, lanes: int) -> ir.Constant:
    """The mask of the first `count` lanes."""
    return ir.Constant(ir.VectorType(I1, lanes), [int(lane < count) for lane in range(lanes)])


def between(b: ir.IRBuilder, low: ir.Value, high: ir.Value, lanes: int, first: int = 0) -> ir.Value:
    """The mask of the lanes, numbered from `first`, that are not below low and below high."""
    numbers = ir.Constant(ir.VectorType(I32, lanes), list(range(first, first + lanes)))
    return b.and_(b.icmp_signed(">=", numbers, splat(b, low, lanes)),
                  b.icmp_signed("<", numbers, splat(b, high, lanes)))


def zero(kind: ir.Type) -> ir.Constant:
    return ir.Constant(kind, None)


def intrinsic(b: ir.IRBuilder, name: str, values: Sequence[ir.Value], suffix: str = "") -> ir.Value:
    """Call an LLVM intrinsic that is overloaded on the type of its last operand, which is its result's type too."""
    kind = values[-1].type
    scalar = kind.element if isinstance(kind, ir.VectorType) else kind
    name += f".{f'v{kind.count}' if kind is not scalar else ''}{scalar.intrinsic_name}{suffix}"
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(kind, [value.type for value in values]), name)
    return b.call(function, values)


def multiply_add(b: ir.IRBuilder, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    """x * y + total, fused where the machine can."""
    kind = total.type
    scalar = kind.element if isinstance(kind, ir.VectorType) else kind
    if isinstance(scalar, ir.IntType):
        return b.add(b.mul(x, y), total)
    return intrinsic(b, "llvm.fmuladd", [x, y, total])


def add(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    scalar = x.type.element if isinstance(x.type, ir.VectorType) else x.type
    return b.add(x, y) if isinstance(scalar, ir.IntType) else b.fadd(x, y)


def prefetch(b: ir.IRBuilder, where: ir.Value, nearness: int = 3, write: bool = False) -> None:
    """Fetch a cache line, to the first cache (3) or the second (2), perhaps to write it."""
    name, kind = "llvm.prefetch.p0", ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I32])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    b.call(function, [where, *(ir.Constant(I32, flag) for flag in (int(write), nearness, 1))])


def transpose(b: ir.IRBuilder, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The columns of a square of vectors, by log2(lanes) rounds of shuffles."""
    lanes, vectors, half = len(rows), list(rows), len(rows) // 2
    while half:
        low = [lanes + i - half if i & half else i for i in range(lanes)]
        masks = [ir.Constant(ir.VectorType(I32, lanes), [i + shift for i in low]) for shift in (0, half)]
        for i in range(lanes):
            if not i & half:
                pair = vectors[i], vectors[i + half]
                vectors[i], vectors[i + half] = (b.shuffle_vector(*pair, mask) for mask in masks)
        half //= 2
    return vectors
