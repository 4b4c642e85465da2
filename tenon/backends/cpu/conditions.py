"""Conditions on Python objects as a table of words -> one native pass that checks them all.

`calls` makes Python functions of it.  There are

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

from dataclasses import dataclass, field

from tenon.backends.cpu import objects

DICTIONARY, ENTRY, WHOLE = range(3)
ENTRY_WORDS = 4
ANY = -1

# Words of a table, 8 bytes each; `calls` has more.
(WORDS, WORD_COUNT, VERSIONS, VERSION_COUNT, LISTS, LIST_COUNT, ENTRIES, ENTRY_COUNT, INPUTS, INPUT_COUNT, OBJECTS,
 GET_ITEM, NONE, ARRAY, LEASE) = range(15)
CONDITION_WORDS = 15


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
    alone: int                  # 1: nobody else may hold the tensor's state, its array, or the memory of that
    gradient: int               # the type of the gradient, where that is read
    array: int = 0              # which array it must be; 0: any


TENSOR, GRADIENT, PLAIN = range(3)
INPUT_WORDS = 14


@dataclass(frozen=True)
class Slots:
    """Where a tensor keeps its state, and a state what it holds."""

    own: int
    payload: int
    requires_grad: int
    grad: int
    node: int
    index: int


# ---------------------------------------------------------------- the native functions

def word(base: str, name: str, index: int, type: str = "i64") -> str:
    """Load a word of a table, to a value of this name."""
    return (f"  %{name}.at = getelementptr i64, ptr %{base}, i64 {index}\n"
            f"  %{name} = load {type}, ptr %{name}.at, align 8\n")


def field_at(base: str, name: str, offset: int, type: str = "i64") -> str:
    """Load what lies so many bytes behind an address, to a value of this name."""
    return (f"  %{name}.at = getelementptr i8, ptr %{base}, i64 {offset}\n"
            f"  %{name} = load {type}, ptr %{name}.at, align 4\n")


def conditions_ir(slots: Slots) -> str:
    """i1 holds(ptr table, ptr leaves)."""
    return _CONDITIONS + _array_ir() + _inputs_ir(slots) + _HOLDS


_CONDITIONS = f"""
define internal i1 @same(ptr %rows, i64 %count) {{          ; without branches: nearly always all are
entry:
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %body]
  %differ = phi i64 [0, %entry], [%differ.next, %body]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %out
body:
  %row = getelementptr {{ ptr, i64 }}, ptr %rows, i64 %k
  %address = load ptr, ptr %row, align 8
{word("row", "expected", 1)}
  %now = load i64, ptr %address, align 8
  %other = xor i64 %now, %expected
  %differ.next = or i64 %differ, %other
  %k.next = add i64 %k, 1
  br label %head
out:
  %equal = icmp eq i64 %differ, 0
  ret i1 %equal
}}

define internal i1 @lists(ptr %rows, i64 %count) {{
entry:
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %list]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %start, label %good
start:
  %at = mul i64 %k, 3
  %row = getelementptr i64, ptr %rows, i64 %at
{word("row", "address", 0, "ptr")}{word("row", "those", 1, "ptr")}{word("row", "items", 2)}
  %these = load ptr, ptr %address, align 8
  %k.next = add i64 %k, 1
  br label %list
list:
  %n = phi i64 [0, %start], [%n.next, %item]
  %left = icmp ult i64 %n, %items
  br i1 %left, label %item, label %head
item:
  %this.at = getelementptr i64, ptr %these, i64 %n
  %that.at = getelementptr i64, ptr %those, i64 %n
  %this = load i64, ptr %this.at, align 8
  %that = load i64, ptr %that.at, align 8
  %n.next = add i64 %n, 1
  %alike = icmp eq i64 %this, %that
  br i1 %alike, label %list, label %bad
good:
  ret i1 true
bad:
  ret i1 false
}}

define internal i1 @entries(ptr %table) {{
entry:
{word("table", "rows", ENTRIES, "ptr")}{word("table", "count", ENTRY_COUNT)}{word("table", "get", GET_ITEM, "ptr")}
  br label %head
head:
  %k = phi i64 [0, %entry], [%following, %next]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %good
body:
  %start = mul i64 %k, {ENTRY_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %start
{word("row", "kind", 0)}{word("row", "a", 1, "ptr")}{word("row", "b", 2)}{word("row", "c", 3)}
  switch i64 %kind, label %bad [ i64 {DICTIONARY}, label %dictionary
                                 i64 {ENTRY}, label %item ]
dictionary:
  %address = load ptr, ptr %a, align 8
{word("a", "known", 1)}
  %version = load i64, ptr %address, align 8
  %unchanged = icmp eq i64 %version, %known
  %skipped = select i1 %unchanged, i64 %b, i64 0
  br label %next
item:
  %key = inttoptr i64 %b to ptr
  %found = call ptr %get(ptr %a, ptr %key)
  %value = ptrtoint ptr %found to i64
  %held = icmp eq i64 %value, %c
  br i1 %held, label %next, label %bad
next:
  %skip = phi i64 [%skipped, %dictionary], [0, %item]
  %step = add i64 %skip, 1
  %following = add i64 %k, %step
  br label %head
good:
  ret i1 true
bad:
  ret i1 false
}}

define internal i1 @conditions(ptr %table) {{
entry:
{word("table", "words", WORDS, "ptr")}{word("table", "word.count", WORD_COUNT)}\
{word("table", "lists", LISTS, "ptr")}{word("table", "list.count", LIST_COUNT)}\
{word("table", "versions", VERSIONS, "ptr")}{word("table", "version.count", VERSION_COUNT)}
  %first = call i1 @same(ptr %words, i64 %word.count)
  br i1 %first, label %second, label %bad
second:
  %listed = call i1 @lists(ptr %lists, i64 %list.count)
  br i1 %listed, label %third, label %bad
third:
  %none = icmp eq i64 %version.count, 0                     ; this Python has none: look at the entries every time
  %unchanged = call i1 @same(ptr %versions, i64 %version.count)
  %other = xor i1 %unchanged, true
  %look = or i1 %none, %other
  br i1 %look, label %last, label %good
last:
  %right = call i1 @entries(ptr %table)
  br i1 %right, label %remember, label %bad
remember:
  %k = phi i64 [0, %last], [%k.next, %version]
  %more = icmp ult i64 %k, %version.count
  br i1 %more, label %version, label %good
version:
  %pair = getelementptr {{ ptr, i64 }}, ptr %versions, i64 %k
  %address = load ptr, ptr %pair, align 8
  %now = load i64, ptr %address, align 8
  %expected.at = getelementptr i64, ptr %pair, i64 1
  store i64 %now, ptr %expected.at, align 8
  %k.next = add i64 %k, 1
  br label %remember
good:
  ret i1 true
bad:
  ret i1 false
}}
"""


def _array_ir() -> str:
    return f"""
define internal i1 @array(ptr %object, ptr %row, ptr %table) {{
entry:
{word("table", "type", ARRAY, "ptr")}{word("table", "lease", LEASE, "ptr")}\
{field_at("object", "found.type", objects.TYPE, "ptr")}
  %is.array = icmp eq ptr %found.type, %type
  br i1 %is.array, label %fields, label %bad
fields:
{field_at("object", "dtype", objects.DTYPE)}{field_at("object", "base", objects.BASE, "ptr")}\
{field_at("object", "ndim.short", objects.NDIM, "i32")}{field_at("object", "flags.short", objects.FLAGS, "i32")}\
{field_at("object", "sizes", objects.DIMENSIONS, "ptr")}\
{word("row", "want.dtype", 6)}{word("row", "want.ndim", 7)}{word("row", "want.sizes", 8, "ptr")}\
{word("row", "want.flags", 9)}{word("row", "alone", 11)}
  %baseless = icmp eq ptr %base, null
  br i1 %baseless, label %compare, label %based
based:                                                ; memory that only this array may give back is its own too
{field_at("base", "base.type", objects.TYPE, "ptr")}
  %base.count = load i32, ptr %base, align 4
  %is.lease = icmp eq ptr %base.type, %lease
  %leased.once = icmp eq i32 %base.count, 1
  %leased = and i1 %is.lease, %leased.once
  br label %compare
compare:
  %own.memory = phi i1 [true, %fields], [%leased, %based]
  %same.dtype = icmp eq i64 %dtype, %want.dtype
  %ndim = zext i32 %ndim.short to i64
  %same.ndim = icmp eq i64 %ndim, %want.ndim
  %flags = zext i32 %flags.short to i64
  %set = and i64 %flags, %want.flags
  %same.flags = icmp eq i64 %set, %want.flags
  %count = load i32, ptr %object, align 4
  %one.holder = icmp eq i32 %count, 1
  %only = and i1 %one.holder, %own.memory
  %shared = icmp eq i64 %alone, 0
  %held.right = or i1 %only, %shared
  %one = and i1 %held.right, %same.dtype
  %two = and i1 %same.ndim, %same.flags
  %so.far = and i1 %one, %two
  br i1 %so.far, label %head, label %bad
head:
  %k = phi i64 [0, %compare], [%k.next, %body]
  %more = icmp ult i64 %k, %ndim
  br i1 %more, label %body, label %good
body:
  %size.at = getelementptr i64, ptr %sizes, i64 %k
  %want.at = getelementptr i64, ptr %want.sizes, i64 %k
  %size = load i64, ptr %size.at, align 8
  %want = load i64, ptr %want.at, align 8
  %k.next = add i64 %k, 1
  %same = icmp eq i64 %size, %want
  br i1 %same, label %head, label %bad
good:
  ret i1 true
bad:
  ret i1 false
}}
"""


def _inputs_ir(slots: Slots) -> str:
    return f"""
define internal i1 @inputs(ptr %table, ptr %leaves) {{
entry:
{word("table", "rows", INPUTS, "ptr")}{word("table", "count", INPUT_COUNT)}\
{word("table", "places", OBJECTS, "ptr")}{word("table", "none", NONE, "ptr")}
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %next]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %good
body:
  %k.next = add i64 %k, 1
  %start = mul i64 %k, {INPUT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %start
{word("row", "holder", 0, "ptr")}{word("row", "leaf", 1)}{word("row", "type", 2, "ptr")}{word("row", "kind", 3)}\
{word("row", "want.value", 4, "ptr")}{word("row", "has.grad", 5)}{word("row", "place", 10)}\
{word("row", "alone", 11)}
  %items = getelementptr i8, ptr %leaves, i64 {objects.ITEMS}
  %item.at = getelementptr ptr, ptr %items, i64 %leaf
  %is.leaf = icmp eq ptr %holder, null
  br i1 %is.leaf, label %take, label %have
take:
  %item = load ptr, ptr %item.at, align 8
  br label %have
have:
  %object = phi ptr [%item, %take], [%holder, %body]
{field_at("object", "object.type", objects.TYPE, "ptr")}
  %right.type = icmp eq ptr %object.type, %type
  br i1 %right.type, label %typed, label %bad
typed:
  switch i64 %kind, label %plain [ i64 {TENSOR}, label %tensor
                                   i64 {GRADIENT}, label %tensor ]
plain:                                                ; an array, or an object that only its identity tells
{word("row", "element.type", 6)}
  %unlooked = icmp eq i64 %element.type, 0
  %identical = icmp eq ptr %object, %want.value
  %unasked = icmp eq ptr %want.value, null
  %known = or i1 %identical, %unasked
  %no.array = and i1 %unlooked, %known
  br i1 %no.array, label %next, label %plain.array
plain.array:
  br i1 %known, label %look, label %bad
tensor:
{field_at("object", "state", slots.own, "ptr")}\
{field_at("state", "flag", slots.requires_grad, "ptr")}{field_at("state", "grad", slots.grad, "ptr")}
  %flag.same = icmp eq ptr %flag, %want.value
  %flag.any = icmp eq ptr %want.value, null
  %flag.good = or i1 %flag.same, %flag.any
  %grad.there = icmp ne ptr %grad, %none
  %grad.word = zext i1 %grad.there to i64
  %grad.same = icmp eq i64 %grad.word, %has.grad
  %grad.any = icmp eq i64 %has.grad, {ANY}
  %grad.good = or i1 %grad.same, %grad.any
  %states = and i1 %flag.good, %grad.good
  br i1 %states, label %stated, label %bad
stated:
  %of.gradient = icmp eq i64 %kind, {GRADIENT}
  br i1 %of.gradient, label %gradient, label %payload
gradient:
  br i1 %grad.there, label %gradient.there, label %bad
gradient.there:
{field_at("grad", "grad.type", objects.TYPE, "ptr")}{word("row", "want.type", 12, "ptr")}
  %grad.known = icmp eq ptr %grad.type, %want.type
  br i1 %grad.known, label %gradient.known, label %bad
gradient.known:
{field_at("grad", "grad.state", slots.own, "ptr")}
  br label %payload
payload:
  %owner = phi ptr [%state, %stated], [%grad.state, %gradient.known]
{field_at("owner", "array", slots.payload, "ptr")}
  %count.states = load i32, ptr %owner, align 4
  %one.state = icmp eq i32 %count.states, 1
  %shared = icmp eq i64 %alone, 0
  %held.right = or i1 %one.state, %shared
  br i1 %held.right, label %look, label %bad
look:
  %elements = phi ptr [%object, %plain.array], [%array, %payload]
{word("row", "want.array", 13, "ptr")}
  %array.same = icmp eq ptr %elements, %want.array
  %array.any = icmp eq ptr %want.array, null
  %array.good = or i1 %array.same, %array.any
  br i1 %array.good, label %right.array, label %bad
right.array:
  %fits = call i1 @array(ptr %elements, ptr %row, ptr %table)
  br i1 %fits, label %put, label %bad
put:
  %looked = icmp eq i64 %place, {ANY}
  br i1 %looked, label %next, label %store
store:
  %stored.at = getelementptr ptr, ptr %places, i64 %place
  store ptr %elements, ptr %stored.at, align 8
  br label %next
next:
  br label %head
good:
  ret i1 true
bad:
  ret i1 false
}}
"""


_HOLDS = """
define internal i1 @holds(ptr %table, ptr %leaves) {
entry:
  %first = call i1 @inputs(ptr %table, ptr %leaves)
  br i1 %first, label %rest, label %out
rest:
  %second = call i1 @conditions(ptr %table)
  br label %out
out:
  %both = phi i1 [false, %entry], [%second, %rest]
  ret i1 %both
}
"""
