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

A value is a `Word`, an integer, or a `Pointer`; both are read from memory by what stands at a pointer.  Comparisons are
of unsigned words and give a `Word` of one bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from llvmlite import ir

from tenon.backends import plain
from tenon.backends.code_cache import make_key
from tenon.backends.fingerprint import fingerprint
from tenon.backends.llvm import Library, compile_object, environment, obtain, store, stored
from tenon.backends.printing import print_module

WORD, HALF, BOOLEAN, POINTER, NOTHING = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.PointerType(), ir.VoidType()
BYTES = 8               # of a word


class Value:
    """One instruction's result."""

    __slots__ = ("b", "value")

    def __init__(self, b: ir.IRBuilder, value: ir.Value) -> None:
        self.b, self.value = b, value

    def _compare(self, sign: str, other: Any) -> Word:
        return Word(self.b, self.b.icmp_unsigned(sign, self.value, _raw(other, self.value.type)))

    def __eq__(self, other: Any) -> Word:                       # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Any) -> Word:                       # type: ignore[override]
        return self._compare("!=", other)

    __hash__ = None                                             # type: ignore[assignment]


class Word(Value):
    """An integer, or with one bit a truth value."""

    __slots__ = ()

    def _binary(self, name: str, other: Word | int) -> Word:
        return Word(self.b, getattr(self.b, name)(self.value, _raw(other, self.value.type)))

    def __add__(self, other: Word | int) -> Word:
        return self._binary("add", other)

    def __sub__(self, other: Word | int) -> Word:
        return self._binary("sub", other)

    def __mul__(self, other: Word | int) -> Word:
        return self._binary("mul", other)

    def __floordiv__(self, other: Word | int) -> Word:
        return self._binary("udiv", other)

    def __mod__(self, other: Word | int) -> Word:
        return self._binary("urem", other)

    def __and__(self, other: Word | int) -> Word:
        return self._binary("and_", other)

    def __or__(self, other: Word | int) -> Word:
        return self._binary("or_", other)

    def __xor__(self, other: Word | int) -> Word:
        return self._binary("xor", other)

    def __invert__(self) -> Word:
        return Word(self.b, self.b.not_(self.value))

    def __lt__(self, other: Word | int) -> Word:
        return self._compare("<", other)

    def __gt__(self, other: Word | int) -> Word:
        return self._compare(">", other)

    def wide(self) -> Word:
        """As a whole word."""
        return Word(self.b, self.b.zext(self.value, WORD))

    def low(self) -> Word:
        """The lower 32 bits."""
        return Word(self.b, self.b.trunc(self.value, HALF))

    def pointer(self) -> Pointer:
        """The address that it is."""
        return Pointer(self.b, self.b.inttoptr(self.value, POINTER))


class Pointer(Value):
    """An address.  `place` counts words, `offset` bytes."""

    __slots__ = ()

    def is_null(self) -> Word:
        return self._compare("==", None)

    def at(self, place: Word | int) -> Pointer:
        """The address so many words behind."""
        return self._behind(place, WORD)

    def behind(self, offset: Word | int) -> Pointer:
        """The address so many bytes behind."""
        return self._behind(offset, ir.IntType(8))

    def _behind(self, count: Word | int, unit: ir.Type) -> Pointer:
        return Pointer(self.b, self.b.gep(self.value, [_raw(count, WORD)], source_etype=unit))

    def word(self, place: Word | int = 0) -> Word:
        """The word there."""
        return Word(self.b, self.b.load(self.at(place).value, typ=WORD))

    def half(self, offset: Word | int = 0) -> Word:
        """The 32 bits there, as a whole word."""
        return self.narrow(offset).wide()

    def narrow(self, offset: Word | int = 0) -> Word:
        """The 32 bits there."""
        return Word(self.b, self.b.load(self.behind(offset).value, typ=HALF))

    def shared(self, offset: Word | int = 0, kind: ir.Type = HALF) -> Shared:
        """The 32 bits there, or the word, as what several threads may use at once."""
        return Shared(self.b, self.behind(offset).value, kind)

    def byte(self) -> Word:
        """The 8 bits there, as a whole word."""
        return Word(self.b, self.b.load(self.value, typ=ir.IntType(8))).wide()

    def pointer(self, place: Word | int = 0) -> Pointer:
        """The address there."""
        return Pointer(self.b, self.b.load(self.at(place).value, typ=POINTER))

    def field(self, offset: Word | int) -> Pointer:
        """The address so many bytes behind."""
        return self.behind(offset).pointer()

    def put(self, value: Value | int, place: Word | int = 0) -> None:
        """Write a word or an address there."""
        self.b.store(_raw(value, WORD), self.at(place).value)

    def word_of(self) -> Word:
        """The address as a number."""
        return Word(self.b, self.b.ptrtoint(self.value, WORD))


class Shared(Value):
    """What several threads read and write.  An order is one of LLVM's: what each sees of the other's memory."""

    __slots__ = ("kind",)

    def __init__(self, b: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> None:
        super().__init__(b, value)
        self.kind = kind

    def now(self, order: str = "acquire") -> Word:
        """What it is."""
        return Word(self.b, self.b.load_atomic(self.value, order, self.kind.width // 8, typ=self.kind))

    def set(self, value: Word | int, order: str = "release") -> None:
        self.b.atomic_rmw("xchg", self.value, _raw(value, self.kind), order)

    def add(self, value: Word | int, order: str = "seq_cst") -> Word:
        """Add to it; what it was before."""
        return Word(self.b, self.b.atomic_rmw("add", self.value, _raw(value, self.kind), order))

    def replace(self, old: Word | int, new: Word | int) -> Word:
        """Let the old value become the new; whether it was the old one, as 32 bits."""
        made = self.b.cmpxchg(self.value, _raw(old, self.kind), _raw(new, self.kind), "acquire", "monotonic")
        return Word(self.b, self.b.zext(self.b.extract_value(made, 1), HALF))


V = TypeVar("V", bound=Value)


class Variable(Generic[V]):
    """What a function may set again; called, it says its value."""

    def __init__(self, first: V) -> None:
        self.b, self.kind = first.b, type(first)
        with self.b.goto_entry_block():
            self.place = self.b.alloca(first.value.type)
        self.set(first)

    def __call__(self) -> V:
        return self.kind(self.b, self.b.load(self.place, typ=self.place.allocated_type))

    def set(self, value: V | int) -> None:
        self.b.store(_raw(value, self.place.allocated_type), self.place)


class Function:
    """The function being written, at the place where the next instruction goes."""

    def __init__(self, module: Module, function: ir.Function) -> None:
        self.module, self.function = module, function
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    @overload
    def variable(self, first: int) -> Variable[Word]: ...
    @overload
    def variable(self, first: V) -> Variable[V]: ...
    def variable(self, first: Any) -> Any:
        return Variable(self.word(first) if isinstance(first, int) else first)

    def call(self, name: str, *given: Value | int) -> Any:
        """Call a function of the module."""
        callee = self.module.functions[name]
        kinds = callee.function_type.args
        further = [x.value for x in given[len(kinds):] if isinstance(x, Value)]
        first = [_raw(x, kind) for x, kind in zip(given, kinds, strict=not callee.function_type.var_arg)]
        return _wrap(self.b, self.b.call(callee, first + further))

    def through(self, place: Pointer, result: ir.Type, *given: Value) -> Any:
        """Call the function whose address is there."""
        kind = ir.FunctionType(result, [x.value.type for x in given])
        callee = self.b.load(place.value, typ=kind.as_pointer())
        return _wrap(self.b, self.b.call(callee, [x.value for x in given]))

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
        return Word(self.b, _raw(number, WORD))

    def half(self, number: int) -> Word:
        return Word(self.b, _raw(number, HALF))

    def null(self) -> Pointer:
        return Pointer(self.b, _raw(None, POINTER))

    def give(self, result: Value | int | None = None) -> None:
        """Return this; None: zero, false, null or nothing."""
        kind = self.function.function_type.return_type
        if isinstance(kind, ir.VoidType):
            self.b.ret_void()
        else:
            self.b.ret(_raw(result, kind))

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


class Module:
    """Functions that call each other."""

    def __init__(self) -> None:
        self.ir = ir.Module()
        self.functions: dict[str, ir.Function] = {}

    def define(self, name: str, write: Callable[..., None], result: ir.Type, *kinds: ir.Type,
               public: bool = False) -> None:
        """The function of this name, by what writes it: given a `Function` and its arguments."""
        function = self.declare(name, result, *kinds)
        function.linkage = "" if public else "internal"
        f = Function(self, function)
        write(f, *(_wrap(f.b, x) for x in function.args))

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
        return plain.headed([name for name, x in self.functions.items() if x.blocks], print_module(self.ir))


def library(name: str, *constants: int, module_of: Callable[..., Module]) -> Library:
    """The machine code of `module_of(*constants)`, which is only written where it is not on disk."""
    version = fingerprint()
    key = make_key("native", name, str(constants), version or "", *environment())

    def make() -> bytes:
        code = compile_object(str(module_of(*constants)))
        if version is not None:
            store(key, code)
        return code
    return obtain(key, lambda: stored(key) if version is not None else None, make)


def _raw(value: Value | int | None, kind: ir.Type) -> ir.Value:
    if isinstance(value, Value):
        return value.value
    return ir.Constant(kind, value if isinstance(kind, ir.PointerType) else int(value or 0))


def _wrap(b: ir.IRBuilder, value: ir.Value) -> Any:
    """The word or the address that an instruction gives."""
    return Pointer(b, value) if isinstance(value.type, ir.PointerType) else Word(b, value)
