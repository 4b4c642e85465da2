"""Functions that several kernels call, each a module of its own: compiled, kept and in memory once.

    call(b, write, (element, 16), [start, count])       # write(builder, element, 16, start, count), in a function

What a piece does is decided by constants, and by arguments at run time: the fewer constants, the more kernels share it.
It has the digest of its text for a name, so a kernel's text and its object code say which pieces they need.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

from llvmlite import ir

from tenon.llvm import optimization_level
from tenon.llvm.code_cache import make_key
from tenon.llvm.ir_printer import print_module, take_apart
from tenon.llvm.line_tables import LineTable
from tenon.llvm.target_module import TargetModule
from tenon.target import Target

PREFIX = "piece."
HEAD = "; piece: "      # in front of the text of one, behind that of a kernel
NEEDS = b"; needs: "    # in front of object code that calls some
MAX_KNOWN = 512         # pieces whose text is remembered

NOTHING = ir.VoidType()

Write = Callable[..., Any]


class Piece(ir.Function):    # type: ignore[misc]
    """A piece, as a module declares it that calls it."""

    def __init__(self, module: ir.Module, kind: ir.FunctionType, name: str, text: str) -> None:
        super().__init__(module, kind, name)
        self.text = text


def call(b: ir.IRBuilder, write: Write, constants: tuple[Hashable, ...], given: Sequence[ir.Value]) -> None:
    """Call the piece that `write` writes: given a builder, constants, and arguments."""
    b.call(declared(b.module, write, constants, tuple(value.type for value in given)), given)


def declared(module: TargetModule, write: Write, constants: tuple[Hashable, ...], kinds: tuple[Any, ...],
             result: ir.Type = NOTHING) -> Piece:
    """The piece that `write` writes, which returns a value where it is of another type than nothing."""
    name, text = _written(write, constants, kinds, result, module.target)
    found: Piece | None = module.globals.get(name)
    return found or Piece(module, ir.FunctionType(result, kinds), name, text)


@lru_cache(MAX_KNOWN)
def _written(write: Write, constants: tuple[Hashable, ...], kinds: tuple[Any, ...], result: ir.Type,
             target: Target) -> tuple[str, str]:
    """Name and text."""
    module = TargetModule(target)
    function = ir.Function(module, ir.FunctionType(result, kinds), PREFIX)
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    value = write(b, *constants, *function.args)
    b.ret_void() if result is NOTHING else b.ret(value)
    text = print_module(module)
    take_apart(module)
    name = PREFIX + make_key(text)
    text = text.replace(f'@"{PREFIX}"', f'@"{name}"')
    return name, optimization_level.headed([name], text)


def text_of(module: ir.Module, table: LineTable | None = None) -> str:
    """The text of a module, which is taken apart, and behind it those of the pieces that it calls."""
    pieces = [x for x in module.functions if isinstance(x, Piece)]
    text = "".join([optimization_level.text_of(module, table), *(f"\n{HEAD}{x.name}\n{x.text}" for x in pieces)])
    take_apart(module)
    return text


def parted(text: str) -> tuple[str, dict[str, str]]:
    """The text of a module alone, and those of its pieces by name."""
    own, *others = text.split("\n" + HEAD)
    return own, {name: piece for name, _, piece in (x.partition("\n") for x in others)}


def needing(names: Sequence[str], code: bytes) -> bytes:
    """Object code that says which pieces it calls."""
    return NEEDS + " ".join(names).encode() + b"\n" + code if names else code


def needs(code: bytes) -> tuple[list[str], bytes]:
    """Which pieces some code calls, and the object code alone."""
    if not code.startswith(NEEDS):
        return [], code
    head, _, code = code.partition(b"\n")
    return head[len(NEEDS):].decode().split(" "), code
