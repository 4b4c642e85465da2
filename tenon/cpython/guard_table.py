"""Conditions on Python objects as a table of words -> one native pass that checks them all.

`jit_fast_call` makes Python functions of it.  There are

    words       (address, expected): the word at the address is this one
    versions    the same, for the words by which dictionaries say that they were not changed
    lists       (address, expected, count): the words that the address points to are these
    entries     what to look at where a version is another one, dictionary by dictionary:
        DICTIONARY version entries      skip the entries where this version is still the same
        ENTRY      dictionary key value what the dictionary has under this key (0: nothing)
        WHOLE                           it must be unchanged

Where all entries are right, the versions that the dictionaries have then are those expected from then on.
An input is a tensor that the caller passes or that somebody holds, or its gradient, or an array, or any object: see
`Input`.  Reading it puts the array where the program's frame looks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from tenon.cpython import object_layout
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import BOOLEAN, BYTES, POINTER, WORD, Pointer, Word
from tenon.records import dataclass, field, fields

DICTIONARY, ENTRY, WHOLE = range(3)
PAIR_WORDS, LIST_WORDS, ENTRY_WORDS = 2, 3, 4
ANY = -1

# Words of a table, 8 bytes each; `jit_fast_call` has more.
(WORDS, WORD_COUNT, VERSIONS, VERSION_COUNT, LISTS, LIST_COUNT, ENTRIES, ENTRY_COUNT, INPUTS, INPUT_COUNT, OBJECTS,
 GET_ITEM, NONE, ARRAY, LEASE, LOANS, LOAN_COUNT) = range(17)
CONDITION_WORDS = 17
LOAN_WORDS = 2              # a state, and what it holds while the program writes in its array (`tenon.in_place`)


@dataclass
class Conditions:
    """What must hold; the number in an entry that refers to a version is its place among them."""

    words: list[tuple[int, int]] = field(default_factory=list)
    versions: list[tuple[int, int]] = field(default_factory=list)
    lists: list[tuple[int, int, int]] = field(default_factory=list)
    entries: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Input:
    """What is read of one object, and what it must be."""

    holder: int                 # the object, or 0: it is a leaf of the arguments
    leaf: int                   # which
    type: int                   # of the object
    kind: int                   # TENSOR, GRADIENT (of the tensor), PLAIN (an array, or whatever it is)
    value: int                  # of requires_grad, or what a plain object is; 0: any
    has_grad: int               # 1 or 0; ANY
    dtype: int                  # of the array; 0: no array is looked at
    ndim: int
    shape: int                  # the address of its sizes
    flags: int                  # of the array that must be set
    place: int                  # among the program's objects; ANY: it is only looked at
    alone: int                  # nobody else may hold the tensor's state, its array, or the memory of that: 1 and the
                                # place of its loan; 0: they may
    gradient: int               # the type of the gradient, where that is read
    array: int = 0              # which array it must be; 0: any


TENSOR, GRADIENT, PLAIN = range(3)
INPUT_WORDS = len(fields(Input))


@dataclass(frozen=True)
class Slots:
    """Where a tensor keeps its state, and a state what it holds."""

    own: int
    payload: int
    requires_grad: int
    grad: int
    node: int
    index: int
    lent: int       # of a loan: the array, and a copy of it
    copy: int


# ---------------------------------------------------------------- the native functions

def define_conditions(module: NativeModule, slots: Slots) -> None:
    """`holds(table, leaves)`: whether all conditions hold and every input is what it must be, and lies in its place."""
    module.define("same", _same, BOOLEAN, POINTER, WORD)
    module.define("lists", _lists, BOOLEAN, POINTER, WORD)
    module.define("entries", _entries, BOOLEAN, POINTER)
    module.define("conditions", _conditions, BOOLEAN, POINTER)
    module.define("array", _array, BOOLEAN, POINTER, POINTER, POINTER)
    module.define("elements", _elements, BOOLEAN, POINTER, POINTER, POINTER)
    module.define("plain", _plain, BOOLEAN, POINTER, POINTER, POINTER)
    module.define("tensor", _tensor_with(slots), BOOLEAN, POINTER, POINTER, POINTER)
    module.define("inputs", _inputs, BOOLEAN, POINTER, POINTER)
    module.define("holds", _holds, BOOLEAN, POINTER, POINTER)


def _same(f: NativeFunction, rows: Pointer, count: Word) -> None:
    """Whether all words are what they were; without branches, since nearly always all are."""
    differ = f.variable(0)
    with f.each(count) as k:
        row = rows.at(k * PAIR_WORDS)
        differ.set(differ() | (row.pointer().word() ^ row.word(1)))
    f.give(differ() == 0)


def _lists(f: NativeFunction, rows: Pointer, count: Word) -> None:
    with f.each(count) as k:
        row = rows.at(k * LIST_WORDS)
        these, those = row.pointer().pointer(), row.pointer(1)
        with f.each(row.word(2)) as n:
            f.require(these.word(n) == those.word(n))
    f.give(1)


def _entries(f: NativeFunction, table: Pointer) -> None:
    k = f.variable(0)
    with f.loop(lambda: k() < table.word(ENTRY_COUNT)):
        row = table.pointer(ENTRIES).at(k() * ENTRY_WORDS)
        kind, holder, value, expected = row.word(), row.pointer(1), row.word(2), row.word(3)
        f.require(kind != WHOLE)
        with f.where(kind == DICTIONARY), f.where(holder.pointer().word() == holder.word(1)):
            k.set(k() + value)
        with f.where(kind == ENTRY):
            found = f.through(table.at(GET_ITEM), POINTER, holder, value.pointer())
            f.require(found.word_of() == expected)
        k.set(k() + 1)
    f.give(1)


def _conditions(f: NativeFunction, table: Pointer) -> None:
    f.require(f.call("same", table.pointer(WORDS), table.word(WORD_COUNT)))
    f.require(f.call("lists", table.pointer(LISTS), table.word(LIST_COUNT)))
    versions, count = table.pointer(VERSIONS), table.word(VERSION_COUNT)
    with f.where((count != 0) & f.call("same", versions, count)):     # 0: this Python has none, look every time
        f.give(1)
    f.require(f.call("entries", table))
    with f.each(count) as k:
        pair = versions.at(k * PAIR_WORDS)
        pair.put(pair.pointer().word(), 1)
    f.give(1)


def _array(f: NativeFunction, array: Pointer, row: Pointer, table: Pointer) -> None:
    """Whether an object is the array that the row asks for."""
    f.require(array.field(object_layout.TYPE) == table.pointer(ARRAY))
    f.require(array.field(object_layout.DTYPE) == row.pointer(_AT["dtype"]))
    f.require(array.half(object_layout.NDIM) == row.word(_AT["ndim"]))
    flags = row.word(_AT["flags"])
    f.require((array.half(object_layout.FLAGS) & flags) == flags)
    with f.where(row.word(_AT["alone"]) != 0):
        f.require(array.half() == 1)
        base = array.field(object_layout.BASE)
        with f.unless(base.is_null()):                 # memory that only this array may give back is its own too
            f.require(base.field(object_layout.TYPE) == table.pointer(LEASE))
            f.require(base.half() == 1)
    sizes, expected = array.field(object_layout.DIMENSIONS), row.pointer(_AT["shape"])
    with f.each(row.word(_AT["ndim"])) as k:
        f.require(sizes.word(k) == expected.word(k))
    f.give(1)


def _elements(f: NativeFunction, elements: Pointer, row: Pointer, table: Pointer) -> None:
    """The same, and put it where the frame looks."""
    wanted, place = row.pointer(_AT["array"]), row.word(_AT["place"])
    f.require(wanted.is_null() | (elements == wanted))
    f.require(f.call("array", elements, row, table))
    with f.where(place != ANY):
        table.pointer(OBJECTS).put(elements, place)
    f.give(1)


def _plain(f: NativeFunction, item: Pointer, row: Pointer, table: Pointer) -> None:
    """Whether an object is the one that the row asks for, or the array."""
    wanted = row.pointer(_AT["value"])
    f.require(wanted.is_null() | (item == wanted))
    with f.where(row.word(_AT["dtype"]) == 0):
        f.give(1)
    f.give(f.call("elements", item, row, table))


def _tensor_with(slots: Slots) -> Callable[[NativeFunction, Pointer, Pointer, Pointer], None]:
    def tensor(f: NativeFunction, item: Pointer, row: Pointer, table: Pointer) -> None:
        """Whether a tensor, or its gradient, is what the row asks for."""
        state, wanted, has_grad = item.field(slots.own), row.pointer(_AT["value"]), row.word(_AT["has_grad"])
        grad = state.field(slots.grad)
        there = grad != table.pointer(NONE)
        f.require(wanted.is_null() | (state.field(slots.requires_grad) == wanted))
        f.require((has_grad == ANY) | (there.wide() == has_grad))
        owner = f.variable(state)
        with f.where(row.word(_AT["kind"]) == GRADIENT):
            f.require(there)
            f.require(grad.field(object_layout.TYPE) == row.pointer(_AT["gradient"]))
            owner.set(grad.field(slots.own))
        with f.where(row.word(_AT["alone"]) != 0):
            f.require(owner().half() == 1)
            f.require(owner().field(slots.node) == table.pointer(NONE))     # it would stay
            table.pointer(LOANS).put(owner(), (row.word(_AT["alone"]) - 1) * LOAN_WORDS)
        f.give(f.call("elements", owner().field(slots.payload), row, table))
    return tensor


def _inputs(f: NativeFunction, table: Pointer, leaves: Pointer) -> None:
    with f.each(table.word(INPUT_COUNT)) as k:
        row = table.pointer(INPUTS).at(k * INPUT_WORDS)
        item = f.variable(row.pointer(_AT["holder"]))
        with f.where(item().is_null()):
            item.set(leaves.pointer(row.word(_AT["leaf"]) + object_layout.ITEMS // BYTES))
        f.require(item().field(object_layout.TYPE) == row.pointer(_AT["type"]))
        plain = row.word(_AT["kind"]) == PLAIN
        with f.where(plain):
            f.require(f.call("plain", item(), row, table))
        with f.unless(plain):
            f.require(f.call("tensor", item(), row, table))
    f.give(1)


def _holds(f: NativeFunction, table: Pointer, leaves: Pointer) -> None:
    f.require(f.call("inputs", table, leaves))
    f.give(f.call("conditions", table))


_AT = {x.name: k for k, x in enumerate(fields(Input))}
