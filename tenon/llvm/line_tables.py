"""Lines of a kernel's loops -> what LLVM keeps for debuggers, so that each instruction says which line it is of.

    with lines_known({statement: 3, ...}):          # what is emitted meanwhile is marked with its statement's line
        module = module_of(kernel)
    text_of(module, LineTable("softmax", first))    # the marks become LLVM's own
    without_table(text)                             # the text again, and the line of each of its lines

Only who wants to look asks for it: code that runs has no such table, and is the same otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from llvmlite import ir

from tenon.context_values import during
from tenon.records import dataclass

Numbered = tuple[str, list[int]]        # text, and for each of its lines a number, or 0
VERSION_OF_TABLES = 3                   # which LLVM reads
_lines: ContextVar[Mapping[Any, int] | None] = ContextVar("lines", default=None)


def lines_known(lines: Mapping[Any, int]) -> AbstractContextManager[Any]:
    """Mark what is emitted in this block."""
    return during(_lines, lines)


@dataclass(frozen=True)
class Mark:
    """A line, until the function that the instruction ends up in is known."""

    line: int


def marking() -> bool:
    """Whether lines are wanted."""
    return _lines.get() is not None


def mark(builder: ir.IRBuilder, statement: Any) -> None:
    """What the builder emits from now on is of this statement."""
    line = (_lines.get() or {}).get(statement)
    if line is not None:
        builder.debug_metadata = Mark(line)


@dataclass(frozen=True)
class LineTable:
    """What turns marks into LLVM's debug locations, once all functions are there; `first` is the line of a function by
    its name, for what has no mark."""

    name: str
    first: Callable[[str], int]

    def add_to(self, module: ir.Module) -> None:
        file = module.add_debug_info("DIFile", {"filename": self.name, "directory": "."})
        unit = module.add_debug_info("DICompileUnit", {
            "language": ir.DIToken("DW_LANG_C"), "file": file, "producer": "tenon", "runtimeVersion": 0,
            "isOptimized": True, "emissionKind": ir.DIToken("LineTablesOnly")}, is_distinct=True)
        kind = module.add_debug_info("DISubroutineType", {"types": module.add_metadata([None])})
        module.add_named_metadata("llvm.dbg.cu", unit)
        module.add_named_metadata("llvm.module.flags", module.add_metadata(
            [ir.Constant(ir.IntType(32), 2), "Debug Info Version", ir.Constant(ir.IntType(32), VERSION_OF_TABLES)]))
        for function in module.functions:
            if function.blocks and type(function) is ir.Function:       # no piece, whose text stands elsewhere
                self._add_to(function, module, {"file": file, "unit": unit, "type": kind})

    def _add_to(self, function: ir.Function, module: ir.Module, known: dict[str, Any]) -> None:
        start = self.first(function.name)
        scope = module.add_debug_info("DISubprogram", {
            "name": function.name, "file": known["file"], "line": start, "type": known["type"], "unit": known["unit"],
            "spFlags": ir.DIToken("DISPFlagDefinition | DISPFlagOptimized")}, is_distinct=True)
        function.set_metadata("dbg", scope)
        for block in function.blocks:
            for x in block.instructions:
                found = x.metadata.get("dbg")
                line = found.line if isinstance(found, Mark) else start
                x.metadata["dbg"] = module.add_debug_info("DILocation", {"line": line, "column": 1, "scope": scope})


# ---------------------------------------------------------------- reading it again

LOCATION = re.compile(r"^!(\d+) = !DILocation\(.*line: (\d+)")
USE = re.compile(r",? !dbg !(\d+)")


def without_table(text: str) -> Numbered:
    """A module's text as it would be without the table, and the line that each of its lines is of."""
    places = {found[1]: int(found[2]) for found in map(LOCATION.match, text.splitlines()) if found}
    rows, numbers = [], []
    for row in text.splitlines():
        if re.match(r"^!\d+ = (distinct )?!DI|^!llvm\.(dbg\.cu|module\.flags) ", row):
            continue
        found = USE.search(row)
        rows.append(USE.sub("", row))
        numbers.append(places.get(found[1], 0) if found and row.startswith("  ") else 0)
    return "\n".join(rows), numbers


def without_directives(text: str) -> Numbered:
    """The machine code without what is there for debuggers alone, and the line that each of its lines is of."""
    rows, numbers, line, hidden = [], [], 0, False
    for row in text.splitlines():
        if found := re.match(r"\s*\.loc\s+\d+ (\d+)", row):
            line = int(found[1])
            continue
        if row.strip().startswith(".section"):
            hidden = ".debug_" in row
        elif row.strip() == ".text":
            hidden = False
        if hidden or re.match(r"\s*\.(cfi_|file|ident)|\.L(tmp|func_(begin|end)|debug_|info_|line_|cu_)\w*:", row):
            continue
        if re.match(r"[\w.\"$]+:", row) and not row.startswith(".L"):
            line = 0
        rows.append(row.partition("#")[0].rstrip() if "#" in row else row)
        numbers.append(line if row.startswith("\t") and not row.startswith("\t.") else 0)
    return "\n".join(rows), numbers
