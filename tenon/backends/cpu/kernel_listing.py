"""A kernel -> all of its texts, and how their lines belong together: nodes, loops, LLVM's and the machine's code."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from tenon.backends.cpu.loop_kernel import LoopKernel
from tenon.backends.cpu.lowered_kernel import LoweredKernel
from tenon.graph.ir import Node
from tenon.graph.partition import innermost
from tenon.llvm import machine_code
from tenon.llvm.line_tables import LineTable, Numbered, lines_known, without_directives, without_table
from tenon.llvm.shared_functions import parted, text_of
from tenon.loops.loop_ir import Kernel
from tenon.loops.loop_printer import Row, rows_of
from tenon.loops.statement_origins import nodes_of_rows
from tenon.program.kernel import CompiledKernel
from tenon.records import dataclass, replace


@dataclass(frozen=True)
class KernelListing:
    """The texts of a kernel; of LLVM's and the machine's lines, which line of the loops each is of, from 1, or 0."""

    loops: str
    nodes: list[list[int]]      # by line of the loops: the nodes of the body that it computes
    llvm: Numbered | None
    assembly: Numbered | None
    seconds: tuple[float, float] = (0.0, 0.0)      # that LLVM's text took, and the machine's code


def listing_of(unit: CompiledKernel, code: bool) -> KernelListing:
    """The texts; with `code` also LLVM's and the machine's."""
    assert isinstance(unit, (LoweredKernel, LoopKernel))
    pieces = list(_pieces(unit))
    rows = [row for piece in pieces for row in piece.rows]
    nodes = [sorted(x) for piece in pieces for x in piece.nodes]
    loops = "\n".join(text for text, _ in rows)
    if not code:
        return KernelListing(loops, nodes, None, None)
    started = time.perf_counter()
    lines = {statement: k for k, (_, statement) in reversed(list(enumerate(rows, 1))) if statement is not None}
    with lines_known(lines):
        module = unit.module()
    first = _first_lines(unit.kernel, lines) if isinstance(unit, LoweredKernel) else lambda function: 1
    own, shared = parted(text_of(module, LineTable(unit.name, first)))
    written = time.perf_counter()
    llvm = without_table(own)
    code_of_own, *others = [machine_code.assembly(x, unit.target) for x in (own, *shared.values())]
    seconds = written - started, time.perf_counter() - written
    machine = without_directives(code_of_own)
    return KernelListing(loops, nodes, ("\n".join([llvm[0], *shared.values()]), llvm[1]),
                         ("\n".join([machine[0], *others]), machine[1]), seconds)


@dataclass(frozen=True)
class _Piece:
    """The lines of one kernel's loops, and the nodes that each computes, as places in `innermost` of its node."""

    rows: list[Row]
    nodes: list[set[int]]


def _pieces(unit: CompiledKernel) -> Iterator[_Piece]:
    """The kernel; of a whole loop the kernels that an iteration runs, each once."""
    if not isinstance(unit, LoopKernel):
        yield _Piece(list(rows_of(unit.kernel)), nodes_of_rows(unit.body, unit.kernel))
        return
    places = {x: k for k, x in enumerate(x for node in unit.body.nodes for x in innermost(node))}
    inner: dict[CompiledKernel, list[Node]] = {}
    for step in unit.inner:
        inner.setdefault(step.unit, []).append(step.node)
    for one, nodes in inner.items():
        starts = [places[x] for node in nodes for x in islice(innermost(node), 1) if x in places]
        yield from (replace(piece, nodes=[{start + k for start in starts for k in row} for row in piece.nodes])
                    for piece in _pieces(one))


def _first_lines(kernel: Kernel, lines: Mapping[Any, int]) -> Callable[[str], int]:
    """The line where the nest begins that a function of the kernel is of."""
    starts = [lines.get(nest.body[0], 1) if nest.body else 1 for nest in kernel.nests]

    def first(function: str) -> int:
        found = re.match(rf"{re.escape(kernel.name)}_(\d+)", function)
        place = int(found[1]) if found else 0
        return starts[place] if place < len(starts) else 1
    return first
