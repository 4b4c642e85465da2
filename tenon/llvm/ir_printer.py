"""A module of LLVM's IR -> its text, the same to the letter as `str(module)`, in a part of the time.

llvmlite asks every instruction for its text, every operand for its reference and every type for its name by several
calls each, which was a fifth of what Python does for a small network.  Here the instructions that kernels are made of
are one format each; what is rarer, or carries metadata, is left to llvmlite.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions as of

WITHOUT_QUOTES = re.compile(r'"([-a-zA-Z$._][-a-zA-Z$._0-9]*)"').fullmatch


def print_module(module: ir.Module) -> str:
    """The text of a module.

    >>> from llvmlite import ir
    >>> module = ir.Module("m")
    >>> f = ir.Function(module, ir.FunctionType(ir.IntType(64), [ir.IntType(64)]), "twice")
    >>> b = ir.IRBuilder(f.append_basic_block("entry"))
    >>> _ = b.ret(b.add(f.args[0], f.args[0]))
    >>> print_module(module) == str(module)
    True
    """
    return "\n".join([
        f'; ModuleID = "{module.name}"',
        f'target triple = "{module.triple}"',
        f'target datalayout = "{module.data_layout}"',
        "",
        *(known.get_declaration() for known in module.get_identified_types().values()),
        *(_function(x) if isinstance(x, ir.Function) and x.blocks else str(x) for x in module.globals.values()),
        *(f"!{name} = !{{ {', '.join([x.get_reference() for x in node.operands])} }}"
          for name, node in module.namedmetadata.items()),
        *map(str, module.metadata)])


def take_apart(module: ir.Module) -> None:
    """Let go of a module that is printed: its parts name each other, so that all of it would stay until Python looks
    for cycles, which takes longer than this.

    >>> import gc, weakref
    >>> from llvmlite import ir
    >>> gc.disable()
    >>> module = ir.Module("m")
    >>> found = weakref.ref(ir.Function(module, ir.FunctionType(ir.VoidType(), []), "f").append_basic_block("entry"))
    >>> take_apart(module)
    >>> found() is None
    True
    >>> gc.enable()
    """
    functions = [x for x in module.globals.values() if isinstance(x, ir.Function)]
    blocks = [block for function in functions for block in function.blocks]
    loops = [x for block in blocks for x in block.instructions if isinstance(x, ir.PhiInstr)]
    for x in (module, *functions, *blocks, *loops):
        vars(x).clear()


def _function(function: ir.Function) -> str:
    parts: list[str] = []
    function.descr_prototype(parts)
    parts.append("{\n")
    for block in function.blocks:
        label = block.get_reference()[1:]
        simple = WITHOUT_QUOTES(label)
        parts.append(f"{simple[1] if simple else label}:\n")
        parts += [_line(x) for x in block.instructions]
    parts.append("}\n")
    return "".join(parts)


def _line(x: ir.Instruction) -> str:
    write = None if x.metadata else FORMATS.get(type(x))
    text = None if write is None else write(x)
    if text is None:
        return f"  {x!s}\n"
    return f"  {text}\n" if type(x.type) is ir.VoidType else f"  {x.get_reference()} = {text}\n"


# ---------------------------------------------------------------- each kind of instruction

def _operation(x: Any) -> str:
    operands = x.operands
    if len(operands) == 2 and not x.flags:
        return f"{x.opname} {x.type!s} {operands[0].get_reference()}, {operands[1].get_reference()}"
    return f"{' '.join([x.opname, *x.flags])} {x.type!s} {', '.join([y.get_reference() for y in operands])}"


def _of_typed(x: Any) -> str:
    return f"{x.opname} {', '.join([f'{y.type!s} {y.get_reference()}' for y in x.operands])}"


def _address(x: Any) -> str:
    places = ", ".join([f"{y.type!s} {y.get_reference()}" for y in x.indices])
    return (f"getelementptr {'inbounds ' if x.inbounds else ''}{x.source_etype!s}, "
            f"{x.pointer.type!s} {x.pointer.get_reference()}, {places}")


def _load(x: Any) -> str:
    pointer = x.operands[0]
    align = "" if x.align is None else f", align {x.align}"
    return f"load {x.type!s}, {pointer.type!s} {pointer.get_reference()}{align}"


def _store(x: Any) -> str:
    value, pointer = x.operands
    align = "" if x.align is None else f", align {x.align}"
    return f"store {value.type!s} {value.get_reference()}, {pointer.type!s} {pointer.get_reference()}{align}"


def _phi(x: Any) -> str:
    incoming = ", ".join([f"[{value.get_reference()}, {block.get_reference()}]" for value, block in x.incomings])
    return f"phi {' '.join(x.flags)} {x.type!s} {incoming}"


def _compare(x: Any) -> str:
    left, right = x.operands
    return (f"{' '.join([x.opname, *x.flags])} {x.op} {left.type!s} "
            f"{left.get_reference()}, {right.get_reference()}")


def _select(x: Any) -> str:
    condition, left, right = x.operands
    kind = str(left.type)
    return (f"select {' '.join(x.flags)} {condition.type!s} {condition.get_reference()}, "
            f"{kind} {left.get_reference()}, {kind} {right.get_reference()}")


def _cast(x: Any) -> str:
    value = x.operands[0]
    return f"{x.opname} {value.type!s} {value.get_reference()} to {x.type!s}"


def _call(x: Any) -> str | None:
    callee, *given = x.operands
    kind = callee.function_type
    if x.cconv or x.tail or x.fastmath or x.attributes or x.arg_attributes or kind.var_arg:
        return None
    arguments = ", ".join([f"{y.type!s} {y.get_reference()}" for y in given])
    return f"call {kind.return_type!s} {callee.get_reference()}({arguments})"


FORMATS: dict[type, Callable[[Any], str | None]] = {
    of.Instruction: _operation, of.GEPInstr: _address, of.LoadInstr: _load, of.StoreInstr: _store, of.PhiInstr: _phi,
    of.ICMPInstr: _compare, of.FCMPInstr: _compare, of.SelectInstr: _select, of.CastInstr: _cast,
    of.CallInstr: _call, of.Branch: _of_typed, of.ConditionalBranch: _of_typed, of.ShuffleVector: _of_typed,
    of.InsertElement: _of_typed, of.ExtractElement: _of_typed,
}
