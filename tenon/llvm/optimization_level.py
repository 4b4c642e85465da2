"""Functions that most of LLVM's passes do nothing for: which they are, and a module's text cut in two.

    ; plain: matmul_0 matmul_0_product.tile
    define internal void @"matmul_0_product.tile"(...)

A tile of a product, and the loops around it, are emitted as they shall be.  A few of the passes of -O2 do them as much
good as all, in a fifth of the time (`llvm.compile_object`); what has loops over scalars, or masks in loops, gets all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir

from tenon.llvm.ir_printer import print_module
from tenon.llvm.line_tables import LineTable
from tenon.llvm.outline_loops import NaturalLoop, innermost, natural_loops, outline
from tenon.records import dataclass

HEAD = "; plain: "
DRIVERS = "; drivers: "  # in the line behind it: those of the plain functions that do little themselves
MIN_SPLIT_INSTRUCTIONS = 200    # instructions, for which a module is cut in two
MAX_NOTED = 16          # iterations of a loop that only notes addresses for what is called then
# instructions of a function, for which all passes take seconds: loops are taken out of it
LARGE_FUNCTION_INSTRUCTIONS = 3000
NO_VECTORS = "llvm.loop.vectorize.width"    # which is 1 wherever the emitter says it


def text_of(module: ir.Module, table: LineTable | None = None) -> str:
    """The module as text, headed by the names of its plain functions; with a table of lines, where one is given."""
    for function in list(module.functions):
        if _is_large(function):
            outline(function, gains_whole)
    plain = [f for f in module.functions if f.blocks and "alwaysinline" not in f.attributes and is_plain(f)]
    if sum(len(block.instructions) for f in plain for block in f.blocks) < MIN_SPLIT_INSTRUCTIONS:
        join(module.functions)
        return _printed(module, table)
    drivers, joined = [f for f in plain if is_driver(f)], join(plain)
    left = [f for f in plain if f not in joined.values()]
    little = [f.name for f in left if joined.get(f, f) in drivers]
    return headed([f.name for f in left], _printed(module, table), little)


def _printed(module: ir.Module, table: LineTable | None) -> str:
    if table is not None:
        table.add_to(module)
    return print_module(module)


def join(functions: Sequence[ir.Function]) -> dict[ir.Function, ir.Function]:
    """Let LLVM put functions into what does nothing but call them; by the latter, what they were.

    A function takes a millisecond and a half to be emitted, however little it does.
    """
    found = {f: calls[0].callee for f in functions if f.linkage != "internal"
             for calls in [_calls(f)] if len(f.blocks) == 1 and len(calls) == 1 and calls[0].callee in functions}
    alone = Counter(x.callee for f in functions for x in _calls(f))
    found = {f: inner for f, inner in found.items() if alone[inner] == 1 and inner.linkage == "internal"}
    for inner in found.values():
        inner.attributes.discard("noinline")
        inner.attributes.add("alwaysinline")
    return found


def _calls(function: ir.Function) -> list[ir.CallInstr]:
    return [x for block in function.blocks for x in block.instructions if isinstance(x, ir.CallInstr)]


def headed(names: Iterable[str], text: str, drivers: Iterable[str] = ()) -> str:
    """The text of a module in which these functions are plain."""
    return f"{HEAD}{' '.join(names)}\n{DRIVERS}{' '.join(drivers)}\n{text}"


def is_plain(function: ir.Function) -> bool:
    """Whether a few passes do it as much good as all."""
    return not any(gains(x.instructions) for x in innermost(natural_loops(function)))


def is_driver(function: ir.Function) -> bool:
    """Whether all that it does often is to call functions that do much: its own instructions hardly matter."""
    found = innermost(natural_loops(function))
    calling = [loop for loop in found if any(_is_call(x) and _does_much(x.callee) for x in loop.instructions)]
    return bool(calling) and all(loop in calling or _fills_a_table(loop) for loop in found)


def _does_much(callee: ir.Value) -> bool:
    """Whether the emitter says that LLVM shall not copy a function to where it is called, or it is a piece."""
    return isinstance(callee, ir.Function) and (not callee.blocks or "noinline" in callee.attributes)


def _fills_a_table(loop: NaturalLoop) -> bool:
    """Whether it notes, in a few iterations, the addresses of what a function that is called then works on."""
    *_, branch = loop.instructions
    if not _stays(branch):
        return False
    iterations = getattr(loop.instructions[-2].operands[1], "constant", None)    # what the index is compared with
    stored = [x.operands[0].type for x in loop.instructions if isinstance(x, ir.instructions.StoreInstr)]
    return isinstance(iterations, int) and iterations <= MAX_NOTED and bool(stored) and all(
        isinstance(x, ir.PointerType) for x in stored)


def _is_large(function: ir.Function) -> bool:
    """Whether most of a function has no use for all of the passes, and some of it has."""
    if "alwaysinline" in function.attributes or sum(len(x.instructions)
                                                    for x in function.blocks) < LARGE_FUNCTION_INSTRUCTIONS:
        return False
    found = [x.instructions for x in innermost(natural_loops(function))]
    gaining = sum(len(x) for x in found if gains(x))
    return 0 < gaining < sum(map(len, found)) // 2


def gains_whole(nest: NaturalLoop) -> bool:
    """Whether all of the passes are of use to a loop, and harm nothing inside of it."""
    inside = set(nest.blocks)
    parts = [x.instructions for x in innermost(natural_loops(nest.header.parent)) if inside.issuperset(x.blocks)]
    return any(map(gains, parts)) and not any(_is_call(x) or _is_product(x) for part in parts for x in part)


def gains(inside: Sequence[ir.Instruction]) -> bool:
    """Whether all of the passes are of use to a loop: to make scalars vectors, or to take masks out of it."""
    if any(_is_call(x) or _is_product(x) for x in inside):
        return False
    return any(map(_is_mask, inside)) or not any(_has_vectors(x) or _stays(x) for x in inside)


def _is_call(x: ir.Instruction) -> bool:
    if not isinstance(x, ir.CallInstr) or isinstance(x.callee, ir.InlineAsm):
        return isinstance(x, ir.CallInstr)
    plain = {"alwaysinline", "readnone"}.isdisjoint(x.callee.attributes)     # the latter may be one of vectors
    return plain and not x.callee.name.startswith("llvm.")


def _is_product(x: ir.Instruction) -> bool:
    return isinstance(x, ir.CallInstr) and x.callee.name.startswith("llvm.fmuladd.v")


def _is_mask(x: ir.Instruction) -> bool:
    return isinstance(x, ir.instructions.ICMPInstr) and isinstance(x.type, ir.VectorType)


def _has_vectors(x: ir.Instruction) -> bool:
    return any(isinstance(value.type, ir.VectorType) for value in (x, *x.operands))


def _stays(x: ir.Instruction) -> bool:
    """Whether it ends a loop of which the emitter says that LLVM shall not vectorise it."""
    flags = x.metadata.get("llvm.loop")
    return flags is not None and any(
        flag.operands[0].string == NO_VECTORS and flag.operands[1].constant == 1 for flag in flags.operands[1:])


# ---------------------------------------------------------------- the text

@dataclass(frozen=True)
class ModuleParts:
    """A module in two that call each other's functions; `hidden` are those that were internal."""

    others: str             # empty where all functions are plain
    plain: str
    names: tuple[str, ...]  # of the plain ones
    drivers: tuple[str, ...]    # those of the plain ones that do little themselves
    hidden: tuple[str, ...]
    inlined: tuple[str, ...]    # those of the others that LLVM may copy into the plain ones


def split_module(text: str) -> ModuleParts | None:
    """The plain functions of a module and the others; None where nobody says which they are."""
    if not text.startswith(HEAD):
        return None
    head, second, text = text.split("\n", 2)
    names, drivers = head.removeprefix(HEAD).split(" "), second.removeprefix(DRIVERS).split()
    kinds: dict[str, bool | None] = {}      # whether it is plain; None for what is part of those that call it

    def kind(found: re.Match[str]) -> bool | None:
        name = found["name"]
        kinds[name] = None if " alwaysinline" in found["end"] else name in names
        return kinds[name]

    def part(plain: bool) -> str:
        return _without_unused(_each_definition(text, lambda found, whole: _as_is(found, whole)
                               if kind(found) in (plain, None) else _declared(found)))
    plain, others = part(True), part(False)
    found = [x for x in _FIRST_LINE.finditer(text) if x["linkage"] and kinds[x["name"]] is not None]
    inlined = [x["name"] for x in found if not kinds[x["name"]] and " noinline" not in x["end"]]
    return ModuleParts(others if False in kinds.values() else "", plain, tuple(names), tuple(drivers),
                 tuple(x["name"] for x in found), tuple(inlined))


_FIRST_LINE = re.compile(r'\ndefine (?P<linkage>internal )?(?P<type>[^@\n]*)@"?(?P<name>[^"(\n]+)"?'
                         r"\((?P<end>[^\n]*)\n\{\n")
LAST_LINE = "\n}\n"


def _each_definition(text: str, write: Callable[[re.Match[str], str], str]) -> str:
    """The text, in which every definition is what `write` makes of its first line and of the whole of it.

    Its end is looked for as a string: a pattern for all of it takes nine times as long.
    """
    parts, at = list[str](), 0
    for found in _FIRST_LINE.finditer(text):
        start, stop = found.start() + 1, text.index(LAST_LINE, found.end() - 1) + len(LAST_LINE)
        parts += text[at:start], write(found, text[start:stop])
        at = stop
    return "".join([*parts, text[at:]])


def _as_is(found: re.Match[str], whole: str) -> str:
    """A definition that the other part can call."""
    if " alwaysinline" in found["end"] or not found["linkage"]:
        return whole
    return whole.replace("define internal ", "define hidden ", 1)


def _without_unused(text: str) -> str:
    """A part without the definitions that are part of those that call them, where none does."""
    return _each_definition(text, lambda found, whole: "" if found["linkage"] and " alwaysinline" in found["end"] and
                            text.count(f'@"{found["name"]}"(') == 1 else whole)


def _declared(found: re.Match[str]) -> str:
    end = found["end"].partition(" !dbg ")[0]       # which only a definition has
    return f'declare {"hidden " if found["linkage"] else ""}{found["type"]}@"{found["name"]}"({end}\n'
