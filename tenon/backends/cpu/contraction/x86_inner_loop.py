"""The innermost loop of a register tile in the words of x86's processors, where the order of loads matters.

LLVM loads a line of right, and an element of left, just before they are used.  Where a core runs two threads, each of
which looks half as far ahead, that takes longer than here, where a vector of a later line is loaded as soon as the last
product with this one is under way, and two elements of left are on their way at any time.  That line is the one after
the next if there are registers for two.  What is needed later is fetched in the same loop, a line at an iteration: all
of a chunk's at once, between runs of the loop, took 5 % of the time beside a busy neighbour (8 x 3 sums, 768 deep).
LLVM has less to do, too: about a quarter less.  What is added to a sum, and in which order, is the same.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from tenon.backends.cpu.contraction.ir_helpers import I64, POINTER
from tenon.backends.cpu.contraction.microkernel_types import NO_PREFETCH_ITERATION
from tenon.target import Target

VECTOR_BYTES, REGISTERS = 64, 32
FACTORS = 2             # elements of left that are on their way
ROWS_A_BASE = 4         # rows that are found from one register: a processor adds 0, 1 or 2 times another one, and we 3
MAX_BASES = 4           # there are 15 registers for all numbers; these are in memory:
LAST, NEAR, AHEAD_APART, EVERY = range(0, 32, 8)
TABLE = 4
DOT = "vdpbf16ps"       # adds the products of two pairs of bfloat16 to a sum


class InnerIteration(NamedTuple):
    """What some steps of depth are, for a number of rows and vectors; sizes are in bytes."""
    element: ir.Type
    rows: int
    vectors: int
    size: int               # of an element
    steps: int
    step: int               # from an element of a row to the next one
    line: int               # and from a line of right to the next one
    pairs: bool = False     # elements are two of bfloat16, neighbours along depth
    listed: bool = True     # what shall be near stands in a list

    @property
    def bases(self) -> int:
        """Registers that point to rows."""
        return 1 if self.step > self.size else -(-self.rows // ROWS_A_BASE)

    @property
    def lines(self) -> int:
        """How many lines of right are in registers, which change places at every step."""
        return 2 if self.steps % 2 == 0 and (self.rows + 2) * self.vectors + FACTORS <= REGISTERS else 1


class Fetches(NamedTuple):
    """What is asked for meanwhile, lines of memory as long as those of right: to the first cache one at an iteration,
    after `wait`, the first of which is `near`, or which `near` is a list of; one `ahead` to the second cache at one
    iteration of `every`."""
    near: ir.Value
    wait: ir.Value
    ahead: ir.Value
    ahead_apart: ir.Value
    every: ir.Value
    near_apart: ir.Value | None = None      # bytes between lines that are not listed


def no_iterations(where: ir.Value) -> Fetches:
    """No iteration fetches anything."""
    return Fetches(where, I64(NO_PREFETCH_ITERATION), where, I64(0), I64(NO_PREFETCH_ITERATION))


def has_x86_inner_loop(inner: InnerIteration, lanes: int, target: Target) -> bool:
    """Whether a machine understands it, and has registers enough."""
    enough = (inner.rows + 1) * inner.vectors + FACTORS <= REGISTERS and inner.bases <= MAX_BASES
    whole = lanes * inner.size == VECTOR_BYTES and not isinstance(inner.element, ir.IntType)
    return enough and whole and target.has("avx512f")


def add_iterations(b: ir.IRBuilder, inner: InnerIteration, state: Sequence[ir.Value], left: ir.Value, row: ir.Value,
              right: ir.Value,
              last: ir.Value, count: ir.Value, fetches: Fetches,
              table: ir.Value) -> tuple[list[ir.Value], ir.Value]:
    """Add the products of `count` iterations, of which there is one at least, to the sums; and load the next lines.
    Returns the state after that, and what would be fetched ahead next.

    `state` are the sums and the vectors of the lines from `right` on, `row` says how many bytes rows are apart, if
    their steps are neighbours.  The last `inner.lines` that there are begin at `last`.  `table` is memory for
    `TABLE` numbers.
    """
    bases = [b.gep(left, [b.mul(row, I64(i * ROWS_A_BASE))], source_etype=ir.IntType(8)) for i in range(inner.bases)]
    near = fetches.near if fetches.near_apart is None else fetches.near_apart
    numbers = last, near, fetches.ahead_apart, fetches.every
    for place, value in enumerate(numbers):
        kept = b.ptrtoint(value, I64) if isinstance(value.type, ir.PointerType) else value
        b.store(kept, b.gep(table, [I64(place)], source_etype=I64))
    changed = [*state, *bases, right, count, fetches.wait, I64(1), fetches.near, fetches.ahead]
    given = [*changed, row, b.mul(row, I64(3)), table]
    factors = [state[0].type] * FACTORS
    kinds = [*(value.type for value in changed), *factors, POINTER]
    names = ["v"] * len(state) + ["r"] * (len(changed) - len(state)) + ["&v"] * FACTORS + ["&r"]
    constraints = [f"={name}" for name in names] + [str(i) for i in range(len(changed))] + ["r"] * 3
    text = _Text(inner, len(state), len(changed)).text()
    code = ir.InlineAsm(ir.FunctionType(ir.LiteralStructType(kinds), [value.type for value in given]), text,
                        ",".join([*constraints, "~{memory}", "~{flags}"]), True)
    result = b.call(code, given)
    return [b.extract_value(result, i) for i in range(len(state))], b.extract_value(result, len(changed) - 1)


def add_pairs(b: ir.IRBuilder, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    """The same of one vector: the products of its pairs and those of another one, added to sums."""
    kind = total.type
    return b.call(ir.InlineAsm(ir.FunctionType(kind, [kind] * 3), f"{DOT} $1, $2, $0", "=v,v,v,0"), [x, y, total])


class _Text:
    """The lines; operands have the numbers that `add_iterations` gives them, those that are changed one more."""

    def __init__(self, inner: InnerIteration, state: int, changed: int) -> None:
        self.inner = inner
        operand = [f"${i}" for i in range(2 * changed + FACTORS + 4)]
        self.sums, self.vectors = operand[:inner.rows * inner.vectors], operand[inner.rows * inner.vectors:state]
        *self.bases, self.right, self.count, self.wait, self.soon, self.near, self.ahead = operand[state:changed]
        *self.factors, self.following = operand[changed:changed + FACTORS + 1]
        self.row, self.row_3, self.table = operand[-3:]
        self.kind = "s" if inner.size == 4 else "d"
        self.multiply = DOT if inner.pairs else f"vfmadd231p{self.kind}"

    def text(self) -> str:
        """All of them."""
        inner, behind = self.inner, self.inner.steps * self.inner.line
        lines = [".p2align 5", "1:", f"leaq {behind}({self.right}), {self.following}",
                 f"cmpq {LAST}({self.table}), {self.following}", f"cmovaq {LAST}({self.table}), {self.following}"]
        lines += [self.factor(place) for place in range(FACTORS)]
        for place in range(inner.steps * inner.rows):
            lines += self.products(place)
            if place + FACTORS < inner.steps * inner.rows:
                lines.append(self.factor(place + FACTORS))
            if place + 1 == inner.rows:
                lines += self.fetches()
        lines += [f"addq $${inner.steps * inner.step}, {base}" for base in self.bases]
        return "\n".join([*lines, f"addq $${behind}, {self.right}", f"decq {self.count}", "jnz 1b"])

    def fetches(self) -> list[str]:
        """Ask for a line that is near, and for one ahead, if it is time."""
        size = self.inner.vectors * VECTOR_BYTES
        whole = range(0, size, VECTOR_BYTES)
        near = [f"prefetcht0 {place}({self.near})" for place in (*whole, size - 1)]
        ahead = [f"prefetcht1 {place}({self.ahead})" for place in (*whole, size - 1)]
        if self.inner.listed:
            near = [f"movq {NEAR}({self.table}), {self.near}", f"addq $$8, {NEAR}({self.table})",
                    f"movq ({self.near}), {self.near}", *near]
        else:
            near = [*near, f"addq {NEAR}({self.table}), {self.near}"]
        return [f"decq {self.wait}", "jns 2f", *near, "2:",
                f"decq {self.soon}", "jnz 3f", *ahead, f"addq {AHEAD_APART}({self.table}), {self.ahead}",
                f"movq {EVERY}({self.table}), {self.soon}", "3:"]

    def factor(self, place: int) -> str:
        """Load an element of left: they are numbered row by row, step after step."""
        step, row = divmod(place, self.inner.rows)
        return f"vbroadcasts{self.kind} {self.element(step, row)}, {self.factors[place % FACTORS]}"

    def element(self, step: int, row: int) -> str:
        """Where it is."""
        inner = self.inner
        if inner.step > inner.size:
            return f"{step * inner.step + row * inner.size}({self.bases[0]})"
        base, row = divmod(row, ROWS_A_BASE)
        added = ("", f",{self.row}", f",{self.row},2", f",{self.row_3}")[row]
        return f"{step * inner.step}({self.bases[base]}{added})"

    def products(self, place: int) -> list[str]:
        """Those of an element with a line; after the last ones with a vector, that of a later line is loaded."""
        inner, lines = self.inner, []
        step, row = divmod(place, inner.rows)
        first = step % inner.lines * inner.vectors
        for v, vector in enumerate(self.vectors[first:first + inner.vectors]):
            total = self.sums[row * inner.vectors + v]
            lines.append(f"{self.multiply} {self.factors[place % FACTORS]}, {vector}, {total}")
            if row + 1 == inner.rows:
                lines.append(f"vmovups {self.vector(step + inner.lines, v)}, {vector}")
        return lines

    def vector(self, step: int, v: int) -> str:
        """Where a vector of the line of a step is, perhaps one of the next iteration."""
        beyond, place = step - self.inner.steps, v * VECTOR_BYTES
        if beyond < 0:
            return f"{step * self.inner.line + place}({self.right})"
        return f"{beyond * self.inner.line + place}({self.following})"
