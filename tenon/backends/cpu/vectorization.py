"""An innermost loop -> the vectors that LLVM makes of it: how many are in flight, and whether a mask ends the loop.

    for i in range(0, n & -64): ...         four vectors of 16 elements at a time
    for i in range(n & -64, n): ...         one vector at a time, behind a mask

A polynomial is a long chain of multiply-adds that wait for each other.  Processors look ahead for work that need not
wait, but not as far as the next vectors: where two or four go along side by side, there is always some at hand.  What
is left of a row would be computed one by one, which takes longer than all the rest of a short row.

What is a few elements apart, as windows are that stand side by side, is shuffled out of whole vectors, and into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenon.backends.cpu.mathematics import NEAR_FUNCTIONS
from tenon.backends.cpu.mathematics.angle import MAX_CODY_WAITE_ARGUMENT
from tenon.backends.cpu.mathematics.notation import DOUBLE, SINGLE
from tenon.dims.symbolic_dim import Dim
from tenon.loops.affine import affine
from tenon.loops.cost import FUNCTION, operations
from tenon.loops.expressions import Binary, Call, CheckedIndex, Const, Expr, Load, Local, Select, constant
from tenon.loops.loop_ir import Accumulator, Let, Loop, Stmt, Store, Update, expressions_in, roots, statements
from tenon.loops.traversal import walk
from tenon.records import replace
from tenon.target import LINE_BYTES, Target
from tenon.types import int64

PARTIAL_RESULTS = 4     # vectors of a reduction: of one alone, each addition would wait for the last
IN_FLIGHT = (4, 2)      # vectors that go along side by side
SHORT_ROW = 256         # elements, too few for several vectors of partial results
MIN_VECTORS_FOR_A_LEFT_OVER = 16  # of so many vectors one may be left over, to be computed by itself
SHUFFLED_STRIDES = 1, 2, 3, 4   # strides in elements for which shuffles take less time than a gather
MAX_UNROLLED_ITERATIONS = 8  # a longer loop is vectorised before it is unrolled
MIN_LANES = 4           # of a vector that is shuffled together
MAX_COPIES = 36         # of the innermost statements, where such loops are nested: 2 x 2 phases of 3 x 3 taps


def is_unrolled(loop: Loop, target: Target) -> bool:
    """Whether a loop is written out, with all inside of it."""
    return _copies(loop, target) <= MAX_COPIES


def has_branches(loop: Loop) -> bool:
    """Whether a loop holds masks or loops.  LLVM merges their ends with its own, and loses how often it runs."""
    return any(isinstance(x, Loop) for x in loop.body) or any(
        isinstance(x, Select | CheckedIndex) or (isinstance(x, Load) and x.mask is not None)
        for x in expressions_in(statements(loop.body)))


def _copies(statement: Stmt, target: Target) -> int:
    """How often the innermost statements of a loop would stand in the code, if it is unrolled with all inside of it."""
    if not isinstance(statement, Loop):
        return 1
    iterations = MAX_COPIES + 1
    if isinstance(statement.extent, Const) and statement.kind != "parallel":    # of which a thread's part is not known
        iterations = int(statement.extent.value)
    if iterations > MAX_UNROLLED_ITERATIONS or (
            iterations >= MIN_LANES and _is_short_row(statement, iterations, target)):
        return MAX_COPIES + 1
    return iterations * max((_copies(x, target) for x in statement.body), default=1)


def _is_short_row(loop: Loop, iterations: int, target: Target) -> bool:
    """Whether a loop makes a few neighbours of what is some apart: a vector by shuffles, where rows' would be gathered.
    """
    adds = any(isinstance(x, Update) for x in loop.body)
    return not adds and masked_lanes(loop, iterations, target) is not None and has_gaps(loop, target)


def in_flight(loop: Loop, lanes: int | None, iterations: int | None) -> int:
    """How many vectors of so many elements go along side by side in a loop of so many iterations, as far as that is
    known.

    A body that computes little does not wait, unless it adds up what it computes.
    """
    if any(isinstance(x, Loop) for x in loop.body):
        return 1
    if sum(map(operations, walk(*_roots(loop)))) < FUNCTION:
        adds = any(isinstance(x, Update) for x in loop.body)
        long = not isinstance(loop.extent, Const) or loop.extent.value >= SHORT_ROW
        return PARTIAL_RESULTS if adds and long else 1
    if lanes is None:
        return 1
    if iterations is None:
        return IN_FLIGHT[-1]
    vectors = iterations // lanes
    return next((n for n in IN_FLIGHT if n <= vectors and vectors % n * MIN_VECTORS_FOR_A_LEFT_OVER <= vectors), 1)


def masked_lanes(loop: Loop, iterations: int | None, target: Target) -> int | None:
    """How many elements of a loop a vector holds, where masks do for its end; None where they do not.

    Masks are for what lies side by side in memory, or nearly so, and is computed without branches.  The end of many
    iterations takes no time, so where their number is unknown only what is simple is masked.
    """
    body = _written_out(loop, target)
    if body is None or not target.masks_lanes or any(_branches(x, loop) for x in expressions_in(body)):
        return None
    touched = _touched(loop, body)
    steps = SHUFFLED_STRIDES if iterations is not None else (1,)
    if any(step not in (steps if isinstance(x, Store) else (0, *steps)) for x, step in touched):
        return None
    if iterations is None and any(isinstance(x, Loop) for x in loop.body):
        return None
    widths = [x.buffer.type.dtype.itemsize for x, _ in touched]
    widths += [x.local.dtype.itemsize for x in body if isinstance(x, Update)]
    return target.vector_bytes // max(widths)


def has_gaps(loop: Loop, target: Target) -> bool:
    """Whether iterations touch elements some apart; LLVM goes along gaps without a mask for all but the last
    vectors."""
    return any(step not in (0, 1) for _, step in _touched(loop, _written_out(loop, target) or ()))


def scatters(loop: Loop, target: Target) -> bool:
    """Whether each iteration writes other lines of memory than the next, by loops inside that are written out.

    Vectors of iterations would be taken apart to be stored; LLVM makes vectors of an iteration's own stores.  In a loop
    that adds up, or calls functions, vectors of iterations pay all the same.
    """
    body = _written_out(loop, target)
    if body is None or not any(isinstance(x, Loop) for x in loop.body) or any(isinstance(x, Update) for x in body):
        return False
    steps = [(x, step) for x, step in _touched(loop, body) if isinstance(x, Store)]
    return all(operations(x) < FUNCTION for x in expressions_in(body)) and all(
        isinstance(step, int) and abs(step) * x.buffer.type.dtype.itemsize >= LINE_BYTES for x, step in steps)


def refills_rows(loop: Loop) -> bool:
    """Whether each iteration writes the same row of local memory: an output dependence, so iterations are no vectors.

    Where loops inside are written out LLVM looks for vectors all the same, for minutes: in a chain of `max` it asks
    after each use of each use.
    """
    return any(isinstance(x, Store) and x.buffer.role == "local" and loop.index not in x.offset.free
               for x in statements(loop.body))


def reads_over_gaps(loop: Loop, target: Target) -> bool:
    """Whether elements some apart are read only where they are there.

    LLVM reads the gap behind the last of them too, since it takes it that there is another one; a loop that is masked
    itself leaves the gaps out.
    """
    touched = _touched(loop, _written_out(loop, target) or loop.body)
    return any(isinstance(x, Load) and x.mask is not None and isinstance(step, int) and abs(step) > 1
               for x, step in touched)


def _touched(loop: Loop, body: Sequence[Stmt]) -> list[tuple[Load | Store, Dim | None]]:
    """What is read and written, and how many elements further in every iteration, as far as that is known."""
    steps = _steps(loop, body)
    return [(x, _step(x.offset, steps)) for x in (*body, *expressions_in(body)) if isinstance(x, (Load, Store))]


def _written_out(loop: Loop, target: Target) -> list[Stmt] | None:
    """The statements of a loop, with those of loops inside that are unrolled; None where others are inside."""
    found: list[Stmt] = []
    for x in loop.body:
        inside = _written_out(x, target) if isinstance(x, Loop) and is_unrolled(x, target) else None
        if inside is None and not isinstance(x, (Let, Store, Update, Accumulator)):
            return None
        found += [x] if inside is None else inside
    return found


def nearness(loop: Loop, near: Local) -> Loop | None:
    """The loop that finds whether functions that take longer for large operands need not; None where that is work."""
    calls = list(dict.fromkeys(x for x in walk(*_roots(loop)) if isinstance(x, Call) and x.name in NEAR_FUNCTIONS
                               and x.dtype.kind == "f" and x.dtype.bits >= SINGLE.bits))
    read, named = set(walk(*(x for call in calls for x in call.args))), list[Let]()
    for x in reversed(loop.body):
        if isinstance(x, Let) and x.local in read:
            read.update(walk(x.value))
            named.insert(0, x)
    if not calls or not all(isinstance(x, (Let, Store, Update)) for x in loop.body) \
            or sum(map(operations, read)) >= FUNCTION:
        return None
    return replace(loop, body=(*named, *(Update(near, "all", _is_near(call)) for call in calls)))


def _is_near(call: Call) -> Expr:
    """Whether an angle is small, or a quotient fits its mantissa."""
    size, *other = (Call("abs", (x,)) for x in call.args)
    if not other:
        return Binary("<=", size, constant(MAX_CODY_WAITE_ARGUMENT, call.dtype))
    mantissa = (SINGLE if call.dtype.bits == SINGLE.bits else DOUBLE).mantissa
    return Binary("<", size, other[0] * constant(2.0 ** mantissa, call.dtype))


def _roots(loop: Loop) -> Iterator[Expr]:
    return (x for statement in loop.body for x in roots(statement))


def _branches(x: Expr, loop: Loop) -> bool:
    """Whether elements are computed one by one: what may fail, is only read where it is there, or is divided."""
    if isinstance(x, Binary) and x.op in ("//", "%"):
        return x.dtype is not int64 or loop.index in x.free
    return isinstance(x, CheckedIndex) or (isinstance(x, Load) and x.mask is not None)


def _steps(loop: Loop, body: Iterable[Stmt]) -> dict[Expr, Dim | None]:
    """How far what an iteration names moves from one iteration to the next; None where it jumps."""
    steps: dict[Expr, Dim | None] = {loop.index: 1}
    for x in body:
        if isinstance(x, Let):
            steps[x.local] = _step(x.value, steps) if x.value.dtype is int64 else None
        if isinstance(x, Accumulator):
            steps[x.local] = None
    return steps


def _step(x: Expr, steps: Mapping[Expr, Dim | None]) -> Dim | None:
    total: Dim = 0
    for atom, coefficient in affine(x).terms.items():
        step = steps.get(atom, None if any(part in steps for part in walk(atom)) else 0)
        if step is None:
            return None
        total = total + step * coefficient
    return total
