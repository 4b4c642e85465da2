"""Values of a function that is being written: operators on them write instructions (`function_builder.py`).

    found = words.word(k) + 1           # a `Word`, an integer: read from memory, and added to
    place.field(8).put(found)           # a `Pointer`: what is stored 8 bytes behind what stands there

Comparisons are of unsigned words and give a `Word` of one bit.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from llvmlite import ir

WORD, HALF, BOOLEAN, POINTER, NOTHING = ir.IntType(64), ir.IntType(32), ir.IntType(1), ir.PointerType(), ir.VoidType()
BYTES = 8               # of a word


class IrValue:
    """One instruction's result."""

    __slots__ = ("b", "value")

    def __init__(self, b: ir.IRBuilder, value: ir.Value) -> None:
        self.b, self.value = b, value

    def _compare(self, sign: str, other: Any) -> Word:
        return Word(self.b, self.b.icmp_unsigned(sign, self.value, raw(other, self.value.type)))

    def __eq__(self, other: Any) -> Word:                       # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Any) -> Word:                       # type: ignore[override]
        return self._compare("!=", other)

    __hash__ = None                                             # type: ignore[assignment]


class Word(IrValue):
    """An integer, or with one bit a truth value."""

    __slots__ = ()

    def _binary(self, name: str, other: Word | int) -> Word:
        return Word(self.b, getattr(self.b, name)(self.value, raw(other, self.value.type)))

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


class Pointer(IrValue):
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
        return Pointer(self.b, self.b.gep(self.value, [raw(count, WORD)], source_etype=unit))

    def word(self, place: Word | int = 0) -> Word:
        """The word there."""
        return Word(self.b, self.b.load(self.at(place).value, typ=WORD))

    def half(self, offset: Word | int = 0) -> Word:
        """The 32 bits there, as a whole word."""
        return self.narrow(offset).wide()

    def narrow(self, offset: Word | int = 0) -> Word:
        """The 32 bits there."""
        return Word(self.b, self.b.load(self.behind(offset).value, typ=HALF))

    def shared(self, offset: Word | int = 0, kind: ir.Type = HALF) -> SharedValue:
        """The 32 bits there, or the word, as what several threads may use at once."""
        return SharedValue(self.b, self.behind(offset).value, kind)

    def byte(self) -> Word:
        """The 8 bits there, as a whole word."""
        return Word(self.b, self.b.load(self.value, typ=ir.IntType(8))).wide()

    def pointer(self, place: Word | int = 0) -> Pointer:
        """The address there."""
        return Pointer(self.b, self.b.load(self.at(place).value, typ=POINTER))

    def field(self, offset: Word | int) -> Pointer:
        """The address so many bytes behind."""
        return self.behind(offset).pointer()

    def put(self, value: IrValue | int, place: Word | int = 0) -> None:
        """Write a word or an address there."""
        self.b.store(raw(value, WORD), self.at(place).value)

    def word_of(self) -> Word:
        """The address as a number."""
        return Word(self.b, self.b.ptrtoint(self.value, WORD))


class SharedValue(IrValue):
    """What several threads read and write.  An order is one of LLVM's: what each sees of the other's memory."""

    __slots__ = ("kind",)

    def __init__(self, b: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> None:
        super().__init__(b, value)
        self.kind = kind

    def now(self, order: str = "acquire") -> Word:
        """What it is."""
        return Word(self.b, self.b.load_atomic(self.value, order, self.kind.width // 8, typ=self.kind))

    def set(self, value: Word | int, order: str = "release") -> None:
        self.b.atomic_rmw("xchg", self.value, raw(value, self.kind), order)

    def add(self, value: Word | int, order: str = "seq_cst") -> Word:
        """Add to it; what it was before."""
        return Word(self.b, self.b.atomic_rmw("add", self.value, raw(value, self.kind), order))

    def replace(self, old: Word | int, new: Word | int) -> Word:
        """Let the old value become the new; whether it was the old one, as 32 bits."""
        made = self.b.cmpxchg(self.value, raw(old, self.kind), raw(new, self.kind), "acquire", "monotonic")
        return Word(self.b, self.b.zext(self.b.extract_value(made, 1), HALF))


V = TypeVar("V", bound=IrValue)


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
        self.b.store(raw(value, self.place.allocated_type), self.place)


def raw(value: IrValue | int | None, kind: ir.Type) -> ir.Value:
    """What LLVM takes as a value of this kind."""
    if isinstance(value, IrValue):
        return value.value
    return ir.Constant(kind, value if isinstance(kind, ir.PointerType) else int(value or 0))


def wrap(b: ir.IRBuilder, value: ir.Value) -> Any:
    """The word or the address that an instruction gives."""
    return Pointer(b, value) if isinstance(value.type, ir.PointerType) else Word(b, value)
