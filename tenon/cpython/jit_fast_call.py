"""Conditions, inputs and a program's frame -> Python builtins that look, run and answer in one native call.

    check(leaves)             whether all conditions hold, and every input is what the program takes
    call(leaves, results)     the same; where it is so, the program has run, and no index was out of range
    check(leaves, words), call(leaves, (*results, words))   the same for the sizes in `words`, packed, which are those
                              that arrays are compared with and kernels are given, where they differ between calls
    answer(args, keywords)    a tensor with the one result of the program, or `miss` where the conditions do not hold

They keep their table, an array of words.  A run that takes long lets other Python threads go on: then the arrays are
held meanwhile, and who comes before it has ended is told that the conditions do not hold, since the frame is in use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tenon.cpython import object_layout
from tenon.cpython.guard_table import (
    ARRAY,
    CONDITION_WORDS,
    ENTRIES,
    ENTRY_WORDS,
    GET_ITEM,
    INPUT_WORDS,
    INPUTS,
    LEASE,
    LISTS,
    LOAN_COUNT,
    LOAN_WORDS,
    LOANS,
    NONE,
    OBJECTS,
    VERSIONS,
    WORDS,
    Conditions,
    Input,
    Slots,
    define_conditions,
)
from tenon.cpython.guard_table import DICTIONARY as DICTIONARY_ENTRY
from tenon.cpython.python_builtin import builtin
from tenon.llvm import function_builder
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import BOOLEAN, HALF, NOTHING, POINTER, WORD, Pointer, Word
from tenon.llvm.machine_code import Library
from tenon.llvm.safepoints import RAISE, interrupts
from tenon.locks import Lock
from tenon.program.backend_interface import IDLE, READING
from tenon.program.step_executor import PHASE, RUNNER, driver
from tenon.records import astuple, dataclass
from tenon.types import Shape

# Words of a table behind those of its conditions.
(PLACES, PLACE_COUNT, OBJECT_COUNT, CONTEXT, RUN, BIND, DRIVE, POOL, PARALLEL, RELEASE, BUSY, INCREF, DECREF, SAVE,
 RESTORE, TRUE, FALSE, LEAVES, DICT_SIZE, MISS, VECTORCALL, EMPTY, EMPTY_ARGUMENTS, PLACE, ALLOCATE, TENSOR, STATE,
 ZERO, STATUSES, STATUS_COUNT, UPDATED, NOT_UPDATED, SIZED, SIZED_COUNT) = range(
     CONDITION_WORDS, CONDITION_WORDS + 34)
TABLE_WORDS = CONDITION_WORDS + 34


@dataclass(frozen=True)
class ProgramRun:
    """How the program is run: what its frame reads, and on which threads."""

    objects_at: int                     # where the frame looks for arguments and results
    objects: int                        # how many
    context: int
    places: Sequence[int]               # of the results of `call` among them
    pool: tuple[int, int] = (0, 0)      # the state of the pool of threads, what runs a region on it; 0: no pool
    release: bool = False               # let other Python threads go on meanwhile
    statuses: tuple[int, int] = (0, 0)  # the words that kernels write where they fail, 0 until then: where, how many
    loans: Sequence[Any] = ()           # what the states of the tensors that it updates hold meanwhile
    updated: tuple[int, int] = (0, 0)   # the classes of such a state then, and else


@dataclass(frozen=True)
class Answer:
    """What `answer` makes."""

    leaves: int                         # how many arguments there are, no two of them the same
    empty: Callable[[Any, Any], Any]    # makes the array
    shape: Shape                        # numbers
    dtype: Any
    place: int                          # among the frame's objects
    tensor: type
    state: type
    miss: object


class FastCalls:
    """Conditions, inputs and, for those that run a program, its frame; the builtins keep what they point to."""

    def __init__(self, slots: Slots, conditions: Conditions, inputs: Sequence[Input], lease: type, kept: Any = None,
                 run: ProgramRun | None = None, sized: Sequence[int] = ()):
        self.library, self.table = library(slots), np.zeros(TABLE_WORDS, np.int64)
        self.versions = _words(conditions.versions, 2)
        entries = _words(conditions.entries, ENTRY_WORDS)
        refers = entries[:, 0] == DICTIONARY_ENTRY
        entries[refers, 1] = self.versions.ctypes.data + 16 * entries[refers, 1]
        rows = [(WORDS, _words(conditions.words, 2)), (VERSIONS, self.versions), (ENTRIES, entries),
                (LISTS, _words(conditions.lists, 3)), (PLACES, _words(run.places if run else (), 1)),
                (INPUTS, _words([astuple(x) for x in inputs], INPUT_WORDS)),
                (LOANS, _words([(0, id(loan)) for loan in run.loans] if run else (), LOAN_WORDS))]
        rows.append((SIZED, _words(sized, 1)))      # where the sizes of a call are written
        for place, values in rows:
            self.table[place:place + 2] = values.ctypes.data, len(values)
        self.kept: tuple[Any, ...] = rows, kept, run
        self._set({ARRAY: id(np.ndarray), LEASE: id(lease), NONE: id(None), TRUE: id(True), FALSE: id(False),
                   GET_ITEM: _python("PyDict_GetItem"), INCREF: _python("Py_IncRef"), DECREF: _python("Py_DecRef")})
        if run is not None:
            program = driver()
            self._set({OBJECTS: run.objects_at, OBJECT_COUNT: run.objects, CONTEXT: run.context, POOL: run.pool[0],
                       PARALLEL: run.pool[1], RELEASE: run.release, STATUSES: run.statuses[0],
                       STATUS_COUNT: run.statuses[1], UPDATED: run.updated[0], NOT_UPDATED: run.updated[1],
                       RUN: program.library.address("run_alone"),
                       BIND: program.library.address("bind"), DRIVE: program.drive,
                       SAVE: _python("PyEval_SaveThread"), RESTORE: _python("PyEval_RestoreThread")})
        self.check: Callable[..., bool] = self._builtin("check")
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
    return function_builder.library("calls", *astuple(slots), module_of=lambda *_: _module(slots))


_making = Lock()


# ---------------------------------------------------------------- the native functions

def _module(slots: Slots) -> NativeModule:
    module = NativeModule()
    module.declare(RAISE, HALF)
    define_conditions(module, slots)
    module.define("resize", _resize, NOTHING, POINTER, POINTER)
    module.define("ready", _ready, BOOLEAN, POINTER, POINTER, POINTER, WORD)
    module.define("each", _each, NOTHING, POINTER, WORD)
    module.define("succeeded", _succeeded, BOOLEAN, POINTER)
    for name, writes in (("lend", _lend), ("take_back", _take_back)):
        module.define(name, writes(slots), NOTHING, POINTER)
    module.define("execute", _execute, BOOLEAN, POINTER)
    module.define("boolean", _boolean, POINTER, POINTER, BOOLEAN)
    module.define("distinct", _distinct, BOOLEAN, POINTER, WORD)
    module.define("tensor_of", _tensor_of(slots), POINTER, POINTER, POINTER)
    for name, write in (("check", _check), ("call", _call), ("answer", _answer)):
        module.define(name, write, POINTER, POINTER, POINTER, WORD, public=True)
    return module


def _resize(f: NativeFunction, table: Pointer, words: Pointer) -> None:
    """Let these be the sizes, for what looks at arrays and for the program."""
    with f.each(table.word(SIZED_COUNT)) as k:
        table.pointer(SIZED).pointer(k).put(words.behind(object_layout.BYTES).word(k))
    f.give()


def _ready(f: NativeFunction, table: Pointer, leaves: Pointer, given: Pointer, last: Word) -> None:
    """Whether the frame is free, and all conditions hold; the sizes are the last of what is given."""
    f.require(table.word(BUSY) == 0)
    with f.where(table.word(SIZED_COUNT) != 0):
        f.call("resize", table, given.pointer(last))
    f.give(f.call("holds", table, leaves))


def _each(f: NativeFunction, table: Pointer, function: Word) -> None:
    """The function of the table with every argument and result."""
    with f.each(table.word(OBJECT_COUNT)) as k:
        f.through(table.at(function), NOTHING, table.pointer(OBJECTS).pointer(k))
    f.give()


def _succeeded(f: NativeFunction, table: Pointer) -> None:
    """Whether no failure is noted, which is then forgotten."""
    found, statuses = f.variable(0), table.pointer(STATUSES)
    with f.each(table.word(STATUS_COUNT)) as k:
        found.set(found() | statuses.word(k))
        statuses.put(0, k)
    f.give(found() == 0)


def _execute(f: NativeFunction, table: Pointer) -> None:
    """Whether the run met no index out of range."""
    context, pool = table.pointer(CONTEXT), table.pointer(POOL)
    with f.where(table.word(RELEASE) == 0):
        f.through(table.at(RUN), NOTHING, context)
        context.put(IDLE, PHASE)            # nobody has seen that it wrote: Python's lock was held
        f.give(f.call("succeeded", table))
    table.put(1, BUSY)
    f.call("each", table, INCREF)
    f.call("lend", table)
    state = f.through(table.at(SAVE), POINTER)
    context.put(state, RUNNER)
    with f.where(pool.is_null()):
        f.through(table.at(RUN), NOTHING, context)
    with f.unless(pool.is_null()):
        f.through(table.at(BIND), NOTHING, context)
        f.through(table.at(PARALLEL), HALF, pool, table.pointer(DRIVE), context)
    f.through(table.at(RESTORE), NOTHING, state)
    f.call("take_back", table)
    f.call("each", table, DECREF)
    good = f.call("succeeded", table)
    table.put(0, BUSY)
    f.give(good)


def _lend(slots: Slots) -> Callable[[NativeFunction, Pointer], None]:
    def lend(f: NativeFunction, table: Pointer) -> None:
        """Let the states of tensors that are updated hold loans, which take their arrays."""
        f.require(table.word(LOAN_COUNT) != 0)
        table.pointer(CONTEXT).put(0, RUNNER)           # not yet known
        table.pointer(CONTEXT).put(READING, PHASE)
        with f.each(table.word(LOAN_COUNT)) as k:
            state, loan = _loan(table, k)
            for held in (state, loan):
                f.through(table.at(INCREF), NOTHING, held)
            loan.behind(slots.lent).put(state.field(slots.payload))
            state.behind(slots.payload).put(loan)
            state.behind(object_layout.TYPE).put(table.pointer(UPDATED))
        f.give()
    return lend


def _take_back(slots: Slots) -> Callable[[NativeFunction, Pointer], None]:
    def take_back(f: NativeFunction, table: Pointer) -> None:
        """Let all hold their arrays again; then only let go of anything, since that may run Python."""
        with f.each(table.word(LOAN_COUNT)) as k:
            state, loan = _loan(table, k)
            state.behind(slots.payload).put(loan.field(slots.lent))
            loan.behind(slots.lent).put(table.pointer(NONE))
            state.behind(object_layout.TYPE).put(table.pointer(NOT_UPDATED))
        table.pointer(CONTEXT).put(IDLE, PHASE)
        with f.each(table.word(LOAN_COUNT)) as k:
            state, loan = _loan(table, k)
            copy = loan.field(slots.copy)
            loan.behind(slots.copy).put(_new(f, table, NONE))
            for held in (copy, loan, state):
                _drop(f, table, held)
        f.give()
    return take_back


def _loan(table: Pointer, k: Word) -> tuple[Pointer, Pointer]:
    row = table.pointer(LOANS).at(k * LOAN_WORDS)
    return row.pointer(), row.pointer(1)


def _new(f: NativeFunction, table: Pointer, place: int) -> Pointer:
    """A reference of one's own to an object of the table."""
    found = table.pointer(place)
    f.through(table.at(INCREF), NOTHING, found)
    return found


def _drop(f: NativeFunction, table: Pointer, object: Pointer) -> None:
    f.through(table.at(DECREF), NOTHING, object)


def _boolean(f: NativeFunction, table: Pointer, answer: Word) -> None:
    with f.where(answer):
        f.give(_new(f, table, TRUE))
    f.give(_new(f, table, FALSE))


def _check(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table = owner.field(object_layout.DATA)
    with f.where(table.word(SIZED_COUNT) != 0):
        f.call("resize", table, arguments.pointer(1))
    f.give(f.call("boolean", table, f.call("holds", table, arguments.pointer())))


def _call(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table, results = owner.field(object_layout.DATA), arguments.pointer(1).behind(object_layout.ITEMS)
    with f.unless(f.call("ready", table, arguments.pointer(), results, table.word(PLACE_COUNT))):
        f.give(_new(f, table, FALSE))
    with f.each(table.word(PLACE_COUNT)) as k:
        table.pointer(OBJECTS).put(results.pointer(k), table.pointer(PLACES).word(k))
    ran = f.call("execute", table)
    f.require(f.call(RAISE) == 0)
    f.give(f.call("boolean", table, ran))


def _distinct(f: NativeFunction, leaves: Pointer, count: Word) -> None:
    """Whether no two leaves are the same object."""
    items = leaves.behind(object_layout.ITEMS)
    with f.each(count) as k, f.each(k) as n:
        f.require(items.word(k) != items.word(n))
    f.give(1)


def _tensor_of(slots: Slots) -> Callable[[NativeFunction, Pointer, Pointer], None]:
    fields = {slots.requires_grad: FALSE, slots.grad: NONE, slots.node: NONE, slots.index: ZERO}

    def tensor_of(f: NativeFunction, table: Pointer, array: Pointer) -> None:
        """A tensor that has this array and no history; null after an error."""
        nothing = f.word(0)
        state = f.through(table.at(ALLOCATE), POINTER, table.pointer(STATE), nothing)
        f.require(~state.is_null())
        for offset, place in fields.items():
            state.behind(offset).put(_new(f, table, place))
        tensor = f.through(table.at(ALLOCATE), POINTER, table.pointer(TENSOR), nothing)
        with f.where(tensor.is_null()):
            _drop(f, table, state)
            f.give()
        state.behind(slots.payload).put(array)
        tensor.behind(slots.own).put(state)
        f.give(tensor)
    return tensor_of


def _answer(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    table, leaves = owner.field(object_layout.DATA), arguments.pointer()
    named = f.through(table.at(DICT_SIZE), WORD, arguments.pointer(1))
    with f.unless((named == 0) & (leaves.behind(object_layout.LENGTH).word() == table.word(LEAVES))):
        f.give(_new(f, table, MISS))
    with f.unless(f.call("distinct", leaves, table.word(LEAVES))):
        f.give(_new(f, table, MISS))
    # The array first, since making it may run Python, which may change what is looked at.
    array = f.through(table.at(VECTORCALL), POINTER, table.pointer(EMPTY), table.pointer(EMPTY_ARGUMENTS),
                      f.word(2), f.null())
    f.require(~array.is_null())
    with f.where(f.call("ready", table, leaves, arguments, f.word(0))):     # its sizes are the same in all calls
        table.pointer(OBJECTS).put(array, table.word(PLACE))
        ran = f.call("execute", table)
        with f.where(f.call(RAISE) != 0):
            _drop(f, table, array)
            f.give()
        with f.where(ran):
            tensor = f.call("tensor_of", table, array)
            with f.where(tensor.is_null()):
                _drop(f, table, array)
            f.give(tensor)
    _drop(f, table, array)
    f.give(_new(f, table, MISS))
