"""Loops in a large function -> functions of their own, so that LLVM's passes go over them and not over all the rest.

    with loop(...):                     with loop(...):
        with loop(...): copy     ->         call outlined(what it reads)
        with loop(...): multiply            with loop(...): multiply

A loop can be taken out that leaves nothing in registers: no instruction after it reads a value that it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llvmlite import ir

from tenon.records import dataclass

_KEPT = ir.instructions.SwitchInstr, ir.instructions.ExtractValue, ir.instructions.InsertValue  # operands lie elsewhere


@dataclass(frozen=True, eq=False)
class NaturalLoop:
    """The blocks of a loop, the header, through which it is entered, first."""

    blocks: tuple[ir.Block, ...]

    @property
    def header(self) -> ir.Block:
        return self.blocks[0]

    @property
    def instructions(self) -> list[ir.Instruction]:
        return [x for block in self.blocks for x in block.instructions]


def natural_loops(function: ir.Function) -> list[NaturalLoop]:
    """All loops of a function, whatever they stand in."""
    before: dict[ir.Block, list[ir.Block]] = {block: [] for block in function.blocks}
    for block in function.blocks:
        for following in _following(block):
            before[following].append(block)
    latches: dict[ir.Block, list[ir.Block]] = {}
    for latch, header in _backward(function):
        latches.setdefault(header, []).append(latch)
    made = []
    for header, stack in latches.items():
        found = {header: None}
        while stack:
            block = stack.pop()
            if block not in found:
                found[block] = None
                stack += before[block]
        made.append(NaturalLoop(tuple(found)))
    return made


def innermost(loops: Sequence[NaturalLoop]) -> list[NaturalLoop]:
    """Those that hold no other."""
    headers = {x.header for x in loops}
    return [x for x in loops if not any(block in headers for block in x.blocks[1:])]


def outline(function: ir.Function, wanted: Callable[[NaturalLoop], bool]) -> list[ir.Function]:
    """Take the largest loops that are wanted out of a function; the functions that they are now."""
    loops = sorted(natural_loops(function), key=lambda x: -len(x.blocks))
    taken: set[ir.Block] = set()
    made = []
    for number, found in enumerate(loops):
        if not taken.isdisjoint(found.blocks) or not wanted(found):
            continue
        exits = _exits(function, found)
        if exits is not None:
            made.append(_moved(function, found, *exits, f"{function.name}.loop{number}"))
            taken.update(found.blocks)
    return made


def _exits(function: ir.Function, found: NaturalLoop) -> tuple[ir.Block, ir.Block] | None:
    """(the block before the loop, the one after it), where each is one, and no value of the loop is read outside."""
    inside = set(found.blocks)
    values = set(found.instructions)
    before = [block for block in function.blocks if block not in inside and found.header in _following(block)]
    after = {block for x in found.blocks for block in _following(x) if block not in inside}
    if len(before) != 1 or len(after) != 1 or any(isinstance(x, _KEPT) for x in values):
        return None
    for block in function.blocks:
        if block not in inside and any(x in values or x in inside for y in block.instructions for x in _read(y)
                                       if y is not before[0].terminator):
            return None
    return before[0], after.pop()


def _read(x: ir.Instruction) -> Iterator[ir.Value]:
    """All that an instruction names."""
    yield from x.operands
    if isinstance(x, ir.PhiInstr):
        for pair in x.incomings:
            yield from pair


def _moved(function: ir.Function, found: NaturalLoop, before: ir.Block, after: ir.Block, name: str) -> ir.Function:
    """The function that is the loop, which is called in its place."""
    inside = set(found.blocks)
    given = list(dict.fromkeys(value for x in found.instructions for value in _read(x) if _is_from_outside(
        value, inside)))
    made = ir.Function(function.module, ir.FunctionType(ir.VoidType(), [value.type for value in given]), name)
    made.linkage, made.scope = "internal", function.scope
    made.attributes.add("nounwind")
    made.attributes.add("noinline")
    for argument, value in zip(made.args, given, strict=True):
        argument.name = "given"
        if isinstance(value, ir.Argument):
            argument.attributes.update(value.attributes)
    entry = made.append_basic_block("entry")
    made.blocks += found.blocks
    end = made.append_basic_block("end")
    ir.IRBuilder(entry).branch(found.header)
    ir.IRBuilder(end).ret_void()
    other: dict[ir.Value, ir.Value] = {**dict(zip(given, made.args, strict=True)), before: entry, after: end}
    for block in found.blocks:
        block.parent = made
        for x in block.instructions:
            _replace(x, other)
    function.blocks = [block for block in function.blocks if block not in inside]
    b = ir.IRBuilder(function.append_basic_block("call"))
    b.call(made, given)
    _replace(before.terminator, {found.header: b.block})
    b.branch(after)
    return made


def _is_from_outside(value: ir.Value, inside: set[ir.Block]) -> bool:
    return isinstance(value, ir.Argument) or (isinstance(value, ir.Instruction) and value.parent not in inside)


def _replace(x: ir.Instruction, other: dict[ir.Value, ir.Value]) -> None:
    def new(value: ir.Value) -> ir.Value:
        return other.get(value, value) if isinstance(value, ir.NamedValue) else value
    x.operands = [new(value) for value in x.operands]
    if isinstance(x, ir.GEPInstr):      # which names them twice
        x.pointer, *x.indices = x.operands
    if isinstance(x, ir.PhiInstr):
        x.incomings = [(new(value), new(block)) for value, block in x.incomings]


def _backward(function: ir.Function) -> Iterator[tuple[ir.Block, ir.Block]]:
    """(latch, header) of every edge that goes back to a block that it came through."""
    open_blocks, seen = set(), set()
    stack: list[tuple[ir.Block, bool]] = [(function.entry_basic_block, False)]
    while stack:
        block, left = stack.pop()
        if left:
            open_blocks.discard(block)
        elif block not in seen:
            seen.add(block)
            open_blocks.add(block)
            stack.append((block, True))
            for following in _following(block):
                if following in open_blocks:
                    yield block, following
                else:
                    stack.append((following, False))


def _following(block: ir.Block) -> list[ir.Block]:
    return [x for x in block.terminator.operands if isinstance(x, ir.Block)]
