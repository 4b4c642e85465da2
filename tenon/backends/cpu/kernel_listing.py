"""A kernel -> all of its texts, and how their lines belong together: nodes, loops, LLVM's and the machine's code."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from tenon.backends.cpu.lower_kernel import module_of
from tenon.backends.cpu.lowered_kernel import LoweredKernel
from tenon.llvm import machine_code
from tenon.llvm.line_tables import LineTable, Numbered, lines_known, without_directives, without_table
from tenon.llvm.shared_functions import parted, text_of
from tenon.loops.loop_ir import Kernel
from tenon.loops.loop_printer import rows_of
from tenon.loops.statement_origins import nodes_of_rows
from tenon.program.kernel import CompiledKernel
from tenon.records import dataclass


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
    if type(unit) is not LoweredKernel:         # a whole loop, or one that packs: its loops are those of others
        return _without_lines(unit, code)
    kernel = unit.kernel
    rows = list(rows_of(kernel))
    nodes = [sorted(x) for x in nodes_of_rows(unit.body, kernel)]
    loops = "\n".join(text for text, _ in rows)
    if not code:
        return KernelListing(loops, nodes, None, None)
    started = time.perf_counter()
    lines = {statement: k for k, (_, statement) in reversed(list(enumerate(rows, 1))) if statement is not None}
    with lines_known(lines):
        module = module_of(kernel, unit.target, unit.shared)
    text = text_of(module, LineTable(kernel.name, _first_lines(kernel, lines)))
    own, pieces = parted(text)
    written = time.perf_counter()
    llvm = without_table(own)
    code_of_own, *others = [machine_code.assembly(x, unit.target) for x in (own, *pieces.values())]
    seconds = written - started, time.perf_counter() - written
    machine = without_directives(code_of_own)
    return KernelListing(loops, nodes, ("\n".join([llvm[0], *pieces.values()]), llvm[1]),
                         ("\n".join([machine[0], *others]), machine[1]), seconds)


def _without_lines(unit: CompiledKernel, code: bool) -> KernelListing:
    if not code:
        return KernelListing(unit.loops, [], None, None)
    started = time.perf_counter()
    llvm = unit.ir
    written = time.perf_counter()
    machine = machine_code.assembly(llvm, unit.target)
    return KernelListing(unit.loops, [], (llvm, []), (machine, []), (written - started, time.perf_counter() - written))


def _first_lines(kernel: Kernel, lines: Mapping[Any, int]) -> Callable[[str], int]:
    """The line where the nest begins that a function of the kernel is of."""
    starts = [lines.get(nest.body[0], 1) if nest.body else 1 for nest in kernel.nests]

    def first(function: str) -> int:
        found = re.match(rf"{re.escape(kernel.name)}_(\d+)", function)
        place = int(found[1]) if found else 0
        return starts[place] if place < len(starts) else 1
    return first
