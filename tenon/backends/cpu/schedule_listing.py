"""A kernel -> which schedules its statements were offered, as text: what each would take, or why it was refused."""

from __future__ import annotations

from collections.abc import Iterator

from tenon.backends.cpu.attention import ATTENTION_SCHEDULES, schedule_of
from tenon.backends.cpu.product_schedules import considered
from tenon.dims.symbolic_dim import product
from tenon.loops.loop_ir import BlockedAttention, Contraction, Kernel, Stmt
from tenon.loops.refusal import Refusal
from tenon.target import Target


def schedules_text(kernel: Kernel, target: Target, packed: bool = False) -> str:
    """The list for each nest, the schedule that is taken marked by a star."""
    return "\n".join(line for number, nest in enumerate(kernel.nests) for line in (
        f"nest {number}: {_title(nest.body[0])}", *_rows(nest.body[0], target, packed))) if kernel.nests else ""


def _title(statement: Stmt) -> str:
    match statement:
        case Contraction():
            axes = statement.batch, statement.rows, statement.columns, statement.depth
            batch, rows, columns, depth = (product(i.extent for i in axis) for axis in axes)
            times = "" if batch == 1 else f"{batch} times "
            return f"a product, {times}{rows} x {columns}, sums of {depth}"
        case BlockedAttention():
            return f"attention, {statement.row.extent} queries, {statement.column.extent} keys"
    return "loops"


def _rows(statement: Stmt, target: Target, packed: bool) -> Iterator[str]:
    match statement:
        case Contraction():
            taken = False
            for row in considered(statement, target, packed):
                first = not taken and not isinstance(row.found, Refusal)
                taken = taken or first
                yield f"  {'*' if first else ' '} {row}"
        case BlockedAttention():
            found = schedule_of(statement)
            for name, (kind, reason) in ATTENTION_SCHEDULES.items():
                yield f"  * {name}" if kind is found else f"    {name:<28} refused: {reason}"
        case _:
            yield "  * loop_nest"
