"""Functions for machine code that are no kernels (checks of Python objects, the walk over a program's steps), written
as Python that says their instructions.

    def largest(f: Function, words: Pointer, count: Word) -> None:
        found = f.variable(0)
        with f.each(count) as k:
            with f.where(words.word(k) > found()):
                found.set(words.word(k))
        f.give(found())

    module = Module()
    module.define("largest", largest, WORD, POINTER, WORD, public=True)
    library("largest", module_of=lambda: module).address("largest")

What values are, and what can be done with them, says `ir_values.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

from llvmlite import ir

from tenon.llvm import optimization_level
from tenon.llvm.code_cache import make_key
from tenon.llvm.fingerprint import fingerprint
from tenon.llvm.host_target import host
from tenon.llvm.ir_printer import print_module
from tenon.llvm.ir_values import HALF, POINTER, WORD, IrValue, Pointer, V, Variable, Word, raw, wrap
from tenon.llvm.machine_code import Library, compile_object, environment, obtain, store, stored
from tenon.llvm.target_module import TargetModule


class NativeFunction:
    """The function being written, at the place where the next instruction goes."""

    def __init__(self, module: NativeModule, function: ir.Function) -> None:
        self.module, self.function = module, function
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    @overload
    def variable(self, first: int) -> Variable[Word]: ...
    @overload
    def variable(self, first: V) -> Variable[V]: ...
    def variable(self, first: Any) -> Any:
        return Variable(self.word(first) if isinstance(first, int) else first)

    def call(self, name: str, *given: IrValue | int) -> Any:
        """Call a function of the module."""
        callee = self.module.functions[name]
        kinds = callee.function_type.args
        further = [x.value for x in given[len(kinds):] if isinstance(x, IrValue)]
        first = [raw(x, kind) for x, kind in zip(given, kinds, strict=not callee.function_type.var_arg)]
        return wrap(self.b, self.b.call(callee, first + further))

    def through(self, place: Pointer, result: ir.Type, *given: IrValue) -> Any:
        """Call the function whose address is there."""
        kind = ir.FunctionType(result, [x.value.type for x in given])
        callee = self.b.load(place.value, typ=kind.as_pointer())
        return wrap(self.b, self.b.call(callee, [x.value for x in given]))

    def words(self, count: int) -> Pointer:
        """Memory of the function's own, zeros at first."""
        with self.b.goto_entry_block():
            room = self.b.alloca(WORD, size=count)
            room.type = POINTER         # of anything: addresses are written there too
            made = Pointer(self.b, room)
            for k in range(count):
                made.put(0, k)
        return made

    def memory(self, name: str) -> Pointer:
        """Where words of the module's own lie."""
        return Pointer(self.b, ir.FormattedConstant(POINTER, self.module.ir.get_global(name).get_reference()))

    def word(self, number: int) -> Word:
        return Word(self.b, raw(number, WORD))

    def half(self, number: int) -> Word:
        return Word(self.b, raw(number, HALF))

    def null(self) -> Pointer:
        return Pointer(self.b, raw(None, POINTER))

    def give(self, result: IrValue | int | None = None) -> None:
        """Return this; None: zero, false, null or nothing."""
        kind = self.function.function_type.return_type
        if isinstance(kind, ir.VoidType):
            self.b.ret_void()
        else:
            self.b.ret(raw(result, kind))

    def require(self, condition: Word) -> None:
        """Return zero, false, null or nothing, unless it is so."""
        with self.unless(condition):
            self.give()

    def unless(self, condition: Word) -> contextlib.AbstractContextManager[None]:
        """What is done if it is not so."""
        return self.where(~condition)

    @contextlib.contextmanager
    def where(self, condition: Word) -> Iterator[None]:
        """What is done if it is so."""
        inside, after = self._block("where"), self._block("after")
        self.b.cbranch(condition.value, inside, after)
        self.b.position_at_end(inside)
        yield
        self._go_on(after)

    @contextlib.contextmanager
    def loop(self, condition: Callable[[], Word]) -> Iterator[None]:
        """What is done as long as it is so."""
        head, body, after = self._block("head"), self._block("body"), self._block("after")
        self._go_on(head)
        self.b.cbranch(condition().value, body, after)
        self.b.position_at_end(body)
        yield
        self._go_on(head)
        self.b.position_at_end(after)

    def switch(self, word: Word, cases: Mapping[int, Callable[[], None]]) -> None:
        """What is done for this word, if anything."""
        after = self._block("after")
        choice = self.b.switch(word.value, after)
        for case, write in cases.items():
            block = self._block("case")
            choice.add_case(ir.Constant(WORD, case), block)
            self.b.position_at_end(block)
            write()
            self._go_on(after)
        self.b.position_at_end(after)

    @contextlib.contextmanager
    def each(self, count: Word) -> Iterator[Word]:
        """What is done for every number below the count."""
        k = self.variable(0)
        with self.loop(lambda: k() < count):
            now = k()
            yield now
            if not self.b.block.is_terminated:
                k.set(now + 1)

    def _block(self, name: str) -> ir.Block:
        return self.function.append_basic_block(name)

    def _go_on(self, block: ir.Block) -> None:
        if not self.b.block.is_terminated:
            self.b.branch(block)
        self.b.position_at_end(block)


class NativeModule:
    """Functions that call each other."""

    def __init__(self) -> None:
        self.ir = TargetModule(host())
        self.functions: dict[str, ir.Function] = {}

    def define(self, name: str, write: Callable[..., None], result: ir.Type, *kinds: ir.Type,
               public: bool = False) -> None:
        """The function of this name, by what writes it: given a `NativeFunction` and its arguments.

        It is declared before where another one calls it that it calls itself."""
        function = self.functions.get(name) or self.declare(name, result, *kinds)
        function.linkage = "" if public else "internal"
        f = NativeFunction(self, function)
        write(f, *(wrap(f.b, x) for x in function.args))

    def declare(self, name: str, result: ir.Type, *kinds: ir.Type, more: bool = False) -> ir.Function:
        """A function that is somewhere else; `more`: it takes further arguments of any kind."""
        made = self.functions[name] = ir.Function(self.ir, ir.FunctionType(result, kinds, more), name)
        return made

    def memory(self, name: str, count: int) -> None:
        """Words of the module's own, zeros at first."""
        made = ir.GlobalVariable(self.ir, ir.ArrayType(WORD, count), name)
        made.linkage, made.initializer = "internal", ir.Constant(made.value_type, None)

    def __str__(self) -> str:
        """The text; a few passes do it as much good as all, in a tenth of the time: there is nothing to vectorise."""
        defined = [name for name, x in self.functions.items() if x.blocks]
        return optimization_level.headed(defined, print_module(self.ir))


def library(name: str, *constants: int, module_of: Callable[..., NativeModule]) -> Library:
    """The machine code of `module_of(*constants)`, which is only written where it is not on disk."""
    version = fingerprint()
    key = make_key("native", name, str(constants), version or "", *environment())

    def make() -> bytes:
        code = compile_object(str(module_of(*constants)))
        if version is not None:
            store(key, code)
        return code
    return obtain(key, lambda: stored(key) if version is not None else None, make)
