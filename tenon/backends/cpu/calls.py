"""Conditions, inputs and a program's frame -> Python builtins that look, run and answer in one native call.

    check(leaves)             whether all conditions hold, and every input is what the program takes
    call(leaves, results)     the same; where it is so, the program has run, and no index was out of range
    answer(args, keywords)    a tensor with the one result of the program, or `miss` where the conditions do not hold

They keep their table, an array of words.  A run that takes long lets other Python threads go on: then the arrays are
held meanwhile, and who comes before it has ended is told that the conditions do not hold, since the frame is in use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import numpy as np

from tenon.backends.builtin import builtin
from tenon.backends.cpu import objects
from tenon.backends.cpu.conditions import (
    ARRAY,
    CONDITION_WORDS,
    ENTRIES,
    ENTRY_WORDS,
    GET_ITEM,
    INPUT_WORDS,
    INPUTS,
    LEASE,
    LISTS,
    NONE,
    OBJECTS,
    VERSIONS,
    WORDS,
    Conditions,
    Input,
    Slots,
    conditions_ir,
    field_at,
    word,
)
from tenon.backends.cpu.conditions import DICTIONARY as DICTIONARY_ENTRY
from tenon.backends.cpu.driver import driver
from tenon.backends.interrupts import RAISE, interrupts
from tenon.backends.llvm import Library, compile
from tenon.locks import Lock

# Words of a table behind those of its conditions.
(PLACES, PLACE_COUNT, OBJECT_COUNT, CONTEXT, RUN, BIND, DRIVE, POOL, PARALLEL, RELEASE, BUSY, INCREF, DECREF, SAVE,
 RESTORE, TRUE, FALSE, LEAVES, DICT_SIZE, MISS, VECTORCALL, EMPTY, EMPTY_ARGUMENTS, PLACE, ALLOCATE, TENSOR, STATE,
 ZERO, STATUSES, STATUS_COUNT) = range(CONDITION_WORDS, CONDITION_WORDS + 30)
TABLE_WORDS = CONDITION_WORDS + 30


@dataclass(frozen=True)
class Run:
    """How the program is run: what its frame reads, and on which threads."""

    objects_at: int                     # where the frame looks for arguments and results
    objects: int                        # how many
    context: int
    places: Sequence[int]               # of the results of `call` among them
    pool: tuple[int, int] = (0, 0)      # the state of the pool of threads, what runs a region on it; 0: no pool
    release: bool = False               # let other Python threads go on meanwhile
    statuses: tuple[int, int] = (0, 0)  # the words that kernels write where they fail, 0 until then: where, how many


@dataclass(frozen=True)
class Answer:
    """What `answer` makes."""

    leaves: int                         # how many arguments there are, no two of them the same
    empty: Callable[[Any, Any], Any]    # makes the array
    shape: tuple[int, ...]
    dtype: Any
    place: int                          # among the frame's objects
    tensor: type
    state: type
    miss: object


class Calls:
    """Conditions, inputs and, for those that run a program, its frame; the builtins keep what they point to."""

    def __init__(self, slots: Slots, conditions: Conditions, inputs: Sequence[Input], lease: type, kept: Any = None,
                 run: Run | None = None):
        self.library, self.table = library(slots), np.zeros(TABLE_WORDS, np.int64)
        self.versions = _words(conditions.versions, 2)
        entries = _words(conditions.entries, ENTRY_WORDS)
        refers = entries[:, 0] == DICTIONARY_ENTRY
        entries[refers, 1] = self.versions.ctypes.data + 16 * entries[refers, 1]
        rows = [(WORDS, _words(conditions.words, 2)), (VERSIONS, self.versions), (ENTRIES, entries),
                (LISTS, _words(conditions.lists, 3)), (PLACES, _words(run.places if run else (), 1)),
                (INPUTS, _words([astuple(x) for x in inputs], INPUT_WORDS))]
        for place, values in rows:
            self.table[place:place + 2] = values.ctypes.data, len(values)
        self.kept: tuple[Any, ...] = rows, kept
        self._set({ARRAY: id(np.ndarray), LEASE: id(lease), NONE: id(None), TRUE: id(True), FALSE: id(False),
                   GET_ITEM: _python("PyDict_GetItem"), INCREF: _python("Py_IncRef"), DECREF: _python("Py_DecRef")})
        if run is not None:
            native = driver()
            self._set({OBJECTS: run.objects_at, OBJECT_COUNT: run.objects, CONTEXT: run.context, POOL: run.pool[0],
                       PARALLEL: run.pool[1], RELEASE: run.release, STATUSES: run.statuses[0],
                       STATUS_COUNT: run.statuses[1], RUN: native.library.address("run_alone"),
                       BIND: native.library.address("bind"), DRIVE: native.drive,
                       SAVE: _python("PyEval_SaveThread"), RESTORE: _python("PyEval_RestoreThread")})
        self.check: Callable[[tuple[Any, ...]], bool] = self._builtin("check")
        self.call: Callable[[tuple[Any, ...], tuple[Any, ...]], bool] = self._builtin("call")

    def answer(self, made: Answer) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """The builtin that gives a tensor, or `made.miss`."""
        arguments = np.array([id(made.shape), id(made.dtype)], np.int64)
        self._set({LEAVES: made.leaves, DICT_SIZE: _python("PyDict_Size"), MISS: id(made.miss), PLACE: made.place,
                   VECTORCALL: _python("PyObject_Vectorcall"), EMPTY: id(made.empty),
                   EMPTY_ARGUMENTS: arguments.ctypes.data, ALLOCATE: _python("PyType_GenericAlloc"),
                   TENSOR: id(made.tensor), STATE: id(made.state), ZERO: id(_ZERO)})
        self.kept = *self.kept, made, arguments
        return self._builtin("answer")

    def _set(self, words: dict[int, int]) -> None:
        for place, value in words.items():
            self.table[place] = value

    def _builtin(self, name: str) -> Callable[..., Any]:
        return builtin(name, self.library.address(name), self.table, self.kept)


_ZERO = 0


def _words(rows: Sequence[Any], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)


def _python(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def library(slots: Slots) -> Library:
    """The native functions, compiled at first use or taken from the disk; who asks meanwhile waits for them."""
    with _making:
        return _made(slots)


@cache
def _made(slots: Slots) -> Library:
    interrupts()
    return compile(conditions_ir(slots) + _EXECUTE + _CALLS + _answer_ir(slots))


_making = Lock()


# ---------------------------------------------------------------- the native functions

_EXECUTE = f"""
declare i32 @{RAISE}()

define internal void @each(ptr %table, ptr %function) {{     ; the function with every argument and result
entry:
{word("table", "objects", OBJECTS, "ptr")}{word("table", "count", OBJECT_COUNT)}
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %body]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %out
body:
  %at = getelementptr ptr, ptr %objects, i64 %k
  %object = load ptr, ptr %at, align 8
  call void %function(ptr %object)
  %k.next = add i64 %k, 1
  br label %head
out:
  ret void
}}

define internal i1 @succeeded(ptr %table) {{                 ; whether no failure is noted, which is then forgotten
entry:
{word("table", "statuses", STATUSES, "ptr")}{word("table", "count", STATUS_COUNT)}
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %body]
  %found = phi i64 [0, %entry], [%found.next, %body]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %out
body:
  %at = getelementptr i64, ptr %statuses, i64 %k
  %word = load i64, ptr %at, align 8
  store i64 0, ptr %at, align 8
  %found.next = or i64 %found, %word
  %k.next = add i64 %k, 1
  br label %head
out:
  %good = icmp eq i64 %found, 0
  ret i1 %good
}}

define internal i1 @execute(ptr %table) {{                   ; whether the run met no index out of range
entry:
{word("table", "release", RELEASE)}{word("table", "run", RUN, "ptr")}{word("table", "context", CONTEXT, "ptr")}
  %quick = icmp eq i64 %release, 0
  br i1 %quick, label %at.once, label %meanwhile
at.once:
  call void %run(ptr %context)
  %good.at.once = call i1 @succeeded(ptr %table)
  ret i1 %good.at.once
meanwhile:
{word("table", "incref", INCREF, "ptr")}{word("table", "decref", DECREF, "ptr")}{word("table", "save", SAVE, "ptr")}\
{word("table", "restore", RESTORE, "ptr")}{word("table", "pool", POOL, "ptr")}
  %busy = getelementptr i64, ptr %table, i64 {BUSY}
  store i64 1, ptr %busy, align 8
  call void @each(ptr %table, ptr %incref)
  %state = call ptr %save()
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %by.caller, label %by.all
by.caller:
  call void %run(ptr %context)
  br label %done
by.all:
{word("table", "bind", BIND, "ptr")}{word("table", "drive", DRIVE, "ptr")}{word("table", "parallel", PARALLEL, "ptr")}
  call void %bind(ptr %context)
  %ran = call i32 %parallel(ptr %pool, ptr %drive, ptr %context)
  br label %done
done:
  call void %restore(ptr %state)
  call void @each(ptr %table, ptr %decref)
  %good = call i1 @succeeded(ptr %table)
  store i64 0, ptr %busy, align 8
  ret i1 %good
}}

define internal i1 @ready(ptr %table, ptr %leaves) {{         ; whether the frame is free, and all conditions hold
entry:
{word("table", "busy", BUSY)}
  %free = icmp eq i64 %busy, 0
  br i1 %free, label %look, label %out
look:
  %good = call i1 @holds(ptr %table, ptr %leaves)
  br label %out
out:
  %both = phi i1 [false, %entry], [%good, %look]
  ret i1 %both
}}
"""

_CALLS = f"""
define internal ptr @boolean(ptr %table, i1 %answer) {{
{word("table", "true", TRUE, "ptr")}{word("table", "false", FALSE, "ptr")}{word("table", "incref", INCREF, "ptr")}
  %object = select i1 %answer, ptr %true, ptr %false
  call void %incref(ptr %object)
  ret ptr %object
}}

define ptr @check(ptr %owner, ptr %arguments, i64 %given) {{
{field_at("owner", "table", objects.DATA, "ptr")}
  %leaves = load ptr, ptr %arguments, align 8
  %good = call i1 @holds(ptr %table, ptr %leaves)
  %answer = call ptr @boolean(ptr %table, i1 %good)
  ret ptr %answer
}}

define ptr @call(ptr %owner, ptr %arguments, i64 %given) {{
entry:
{field_at("owner", "table", objects.DATA, "ptr")}
  %leaves = load ptr, ptr %arguments, align 8
{word("arguments", "results", 1, "ptr")}
  %good = call i1 @ready(ptr %table, ptr %leaves)
  br i1 %good, label %bind, label %out
bind:
{word("table", "to", PLACES, "ptr")}{word("table", "count", PLACE_COUNT)}{word("table", "places", OBJECTS, "ptr")}
  %items = getelementptr i8, ptr %results, i64 {objects.ITEMS}
  br label %head
head:
  %k = phi i64 [0, %bind], [%k.next, %body]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %start
body:
  %item.at = getelementptr ptr, ptr %items, i64 %k
  %item = load ptr, ptr %item.at, align 8
  %which.at = getelementptr i64, ptr %to, i64 %k
  %which = load i64, ptr %which.at, align 8
  %place.at = getelementptr ptr, ptr %places, i64 %which
  store ptr %item, ptr %place.at, align 8
  %k.next = add i64 %k, 1
  br label %head
start:
  %ran = call i1 @execute(ptr %table)
  %raised = call i32 @{RAISE}()
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %out, label %error
out:
  %yes = phi i1 [false, %entry], [%ran, %start]
  %answer = call ptr @boolean(ptr %table, i1 %yes)
  ret ptr %answer
error:
  ret ptr null
}}
"""


def _answer_ir(slots: Slots) -> str:
    def store(base: str, value: str, offset: int) -> str:
        return (f"  %{base}.{offset} = getelementptr i8, ptr %{base}, i64 {offset}\n"
                f"  store ptr %{value}, ptr %{base}.{offset}, align 8\n")

    return f"""
define internal i1 @distinct(ptr %leaves, i64 %count) {{
entry:
  %items = getelementptr i8, ptr %leaves, i64 {objects.ITEMS}
  br label %head
head:
  %k = phi i64 [0, %entry], [%k.next, %next]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %good
body:
  %at = getelementptr i64, ptr %items, i64 %k
  %item = load i64, ptr %at, align 8
  %k.next = add i64 %k, 1
  br label %others
others:
  %n = phi i64 [%k.next, %body], [%n.next, %other]
  %left = icmp ult i64 %n, %count
  br i1 %left, label %other, label %next
other:
  %other.at = getelementptr i64, ptr %items, i64 %n
  %another = load i64, ptr %other.at, align 8
  %n.next = add i64 %n, 1
  %same = icmp eq i64 %item, %another
  br i1 %same, label %bad, label %others
next:
  br label %head
good:
  ret i1 true
bad:
  ret i1 false
}}

define ptr @answer(ptr %owner, ptr %arguments, i64 %given) {{
entry:
{field_at("owner", "table", objects.DATA, "ptr")}
  %leaves = load ptr, ptr %arguments, align 8
{word("arguments", "keywords", 1, "ptr")}{word("table", "incref", INCREF, "ptr")}\
{word("table", "decref", DECREF, "ptr")}{word("table", "size.of", DICT_SIZE, "ptr")}\
{word("table", "count", LEAVES)}{word("table", "miss", MISS, "ptr")}\
{field_at("leaves", "length", objects.LENGTH)}
  %named = call i64 %size.of(ptr %keywords)
  %unnamed = icmp eq i64 %named, 0
  %as.many = icmp eq i64 %length, %count
  %fits = and i1 %unnamed, %as.many
  br i1 %fits, label %compare, label %bad
compare:
  %distinct = call i1 @distinct(ptr %leaves, i64 %count)
  br i1 %distinct, label %make, label %bad
make:                                         ; first, since it may run Python, which may change what is looked at
{word("table", "vectorcall", VECTORCALL, "ptr")}{word("table", "empty", EMPTY, "ptr")}\
{word("table", "shape", EMPTY_ARGUMENTS, "ptr")}{word("table", "place", PLACE)}\
{word("table", "objects", OBJECTS, "ptr")}
  %array = call ptr %vectorcall(ptr %empty, ptr %shape, i64 2, ptr null)
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %error, label %look
look:
  %good = call i1 @ready(ptr %table, ptr %leaves)
  br i1 %good, label %start, label %drop
start:
  %result.at = getelementptr ptr, ptr %objects, i64 %place
  store ptr %array, ptr %result.at, align 8
  %ran = call i1 @execute(ptr %table)
  %raised = call i32 @{RAISE}()
  %fine = icmp eq i32 %raised, 0
  br i1 %fine, label %went.on, label %give.up
went.on:
  br i1 %ran, label %answered, label %drop
answered:
{word("table", "allocate", ALLOCATE, "ptr")}{word("table", "state.type", STATE, "ptr")}\
{word("table", "tensor.type", TENSOR, "ptr")}{word("table", "none", NONE, "ptr")}{word("table", "false", FALSE, "ptr")}\
{word("table", "zero", ZERO, "ptr")}
  %state = call ptr %allocate(ptr %state.type, i64 0)
  %no.state = icmp eq ptr %state, null
  br i1 %no.state, label %give.up, label %stated
stated:
  call void %incref(ptr %none)
  call void %incref(ptr %none)
  call void %incref(ptr %false)
  call void %incref(ptr %zero)
{store("state", "array", slots.payload)}{store("state", "false", slots.requires_grad)}\
{store("state", "none", slots.grad)}{store("state", "none", slots.node)}{store("state", "zero", slots.index)}
  %tensor = call ptr %allocate(ptr %tensor.type, i64 0)
  %no.tensor = icmp eq ptr %tensor, null
  br i1 %no.tensor, label %give.up, label %held
held:
{store("tensor", "state", slots.own)}
  ret ptr %tensor
give.up:
  %rest = phi ptr [%array, %start], [%array, %answered], [%state, %stated]
  call void %decref(ptr %rest)
  br label %error
error:
  ret ptr null
drop:
  call void %decref(ptr %array)
  br label %bad
bad:
  call void %incref(ptr %miss)
  ret ptr %miss
}}
"""
