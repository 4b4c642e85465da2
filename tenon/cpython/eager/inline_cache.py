"""Calls that are remembered, found again and made by machine code (`tenon/eager/call_cache.py` says what they are).

    again(target, full, args, keywords)     the call: by the recipe that is known for its key, else as Python makes it
    called, called_op                       the same as methods
"""

from __future__ import annotations

from tenon.cpython import object_layout
from tenon.cpython.eager.call_keys import ARRAYS, COUNT, MAX_TENSORS, SEEN_WORDS, TENSOR_COUNT, TENSORS
from tenon.cpython.eager.tensor_objects import (
    Objects,
    Offsets,
    SharedObject,
    drop,
    held,
    require_eager,
    shared,
    unless_done,
)
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import POINTER, WORD, Pointer, Word

# Words of a method's table: what is called, and the method in Python.
TARGET, PYTHON_METHOD = range(2)


def define_remembered(module: NativeModule, objects: Objects) -> None:
    """The functions, in a module that has these objects, and keys."""
    writer = _CacheWriter(objects.offsets)
    module.define("computed", writer.computed, POINTER, POINTER, POINTER)
    module.define("call_node", writer.call_node, POINTER, POINTER, POINTER, POINTER, POINTER)
    module.define("listed", writer.listed, POINTER, POINTER, POINTER)
    module.define("finished", writer.finished, POINTER, POINTER, POINTER, POINTER)
    module.define("made_again", writer.made_again, POINTER, POINTER)
    module.define("from_call", _from_call, POINTER, POINTER, POINTER, WORD, POINTER)
    module.define("again", _again, POINTER, POINTER, POINTER, WORD, public=True)
    module.define("called", _called, POINTER, POINTER, POINTER, WORD, POINTER, public=True)
    module.define("called_op", writer.called_op, POINTER, POINTER, POINTER, WORD, POINTER, public=True)


# ---------------------------------------------------------------- the call; null: as Python makes it, or an error

def _from_call(f: NativeFunction, target: Pointer, arguments: Pointer, count: Word, names: Pointer) -> None:
    require_eager(f)
    f.require(f.call("says", shared(f, SharedObject.NARROW), shared(f, SharedObject.NONE)) != 0)
    seen = f.words(SEEN_WORDS)
    f.require(f.call("see", seen, target, arguments, count, names) != 0)
    f.give(f.call("made_again", seen))


def _again(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    made = f.variable(f.null())
    with f.where(f.call("PyDict_Size", shared(f, SharedObject.KERNELS)) == 0):
        with f.where(f.call("says", shared(f, SharedObject.NARROW), shared(f, SharedObject.NONE)) != 0):
            seen = f.words(SEEN_WORDS)
            seen.put(0, COUNT)
            seen.put(0, TENSOR_COUNT)
            known = f.call("see_objects", seen, arguments.pointer(), arguments.pointer(2), arguments.pointer(3))
            with f.where(known != 0):
                made.set(f.call("made_again", seen))
    unless_done(f, made())
    f.give(f.call("PyObject_Vectorcall", shared(f, SharedObject.REMEMBERED_CALL), arguments, count, f.null()))


def _called(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word, names: Pointer) -> None:
    table = owner.field(object_layout.DATA)
    unless_done(f, f.call("from_call", table.pointer(TARGET), arguments, count, names))
    f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON_METHOD), arguments, count, names))


class _CacheWriter:
    """The functions that look into Tenon's objects."""

    def __init__(self, offsets: Offsets):
        self.offsets = offsets

    def made_again(self, f: NativeFunction, seen: Pointer) -> None:
        """The result of a call that is known."""
        key = f.call("key_of", seen)
        f.require(~key.is_null())
        found = f.call("PyDict_GetItem", shared(f, SharedObject.KNOWN_CALLS), key)
        drop(f, key)
        f.require(~found.is_null())
        known, count = held(f, found), seen.word(TENSOR_COUNT)
        with f.each(count) as k:
            held(f, seen.at(k + TENSORS).pointer())
            held(f, seen.at(k + ARRAYS).pointer())
        made = f.variable(f.call("computed", known, seen))
        with f.unless(made().is_null()):
            made.set(f.call("finished", known, seen, made()))
        with f.each(count) as k:
            drop(f, seen.at(k + TENSORS).pointer(), seen.at(k + ARRAYS).pointer())
        drop(f, known)
        f.give(made())

    def computed(self, f: NativeFunction, known: Pointer, seen: Pointer) -> None:
        """What the recipe gives; what NumPy raises is left to Python, which makes the call in full."""
        at, count = self.offsets, seen.word(TENSOR_COUNT)
        given, out = f.words(1 + MAX_TENSORS), f.variable(f.null())
        with f.each(count) as k:
            given.at(k + 1).put(seen.at(k + ARRAYS).pointer())
        function = known.field(at.function)
        quiet = known.field(at.quiet) == shared(f, SharedObject.TRUE)
        with f.where(quiet):
            run = f.call("PyObject_GetAttr", shared(f, SharedObject.QUIET), shared(f, SharedObject.RUN))
            f.require(~run.is_null())
            given.put(function)
            out.set(f.call("PyObject_Vectorcall", run, given, count + 1, f.null()))
            drop(f, run)
        with f.unless(quiet):
            out.set(f.call("PyObject_Vectorcall", function, given.at(1), count, f.null()))
        with f.where(out().is_null()), f.where(f.call("PyErr_ExceptionMatches", shared(f, SharedObject.OF_NUMPY)) != 0):
            f.call("PyErr_Clear")
        f.give(out())

    def finished(self, f: NativeFunction, known: Pointer, seen: Pointer, out: Pointer) -> None:
        """The tensor of what a recipe gave, recorded where it has a gradient, or the sequence of several."""
        at, none = self.offsets, shared(f, SharedObject.NONE)
        with f.where(known.field(at.rule) == none):
            with f.where(known.field(at.kind) == none):
                f.give(f.call("tensor", out, shared(f, SharedObject.FALSE), held(f, none)))
            made = f.call("listed", known, out)
            drop(f, out)
            f.give(made)
        payload, kept = f.variable(out), f.variable(shared(f, SharedObject.EMPTY))
        several = known.field(at.several) == shared(f, SharedObject.TRUE)
        with f.where(several):
            payload.set(out.field(object_layout.ITEMS))
            kept.set(f.call("PyTuple_GetSlice", out, f.word(1), out.behind(object_layout.LENGTH).word()))
            held(f, payload())
            drop(f, out)
            with f.where(kept().is_null()):
                drop(f, payload())
                f.give()
        with f.unless(several):
            held(f, kept())
        node = f.call("call_node", known, seen, payload(), kept())
        drop(f, kept())
        with f.where(node.is_null()):
            drop(f, payload())
            f.give()
        f.give(f.call("tensor", payload(), shared(f, SharedObject.TRUE), node))

    def listed(self, f: NativeFunction, known: Pointer, out: Pointer) -> None:
        """A tensor of each array, or of the one, as a list or a tuple."""
        at, count, items = self.offsets, f.variable(1), f.variable(f.null())
        several = known.field(at.several) == shared(f, SharedObject.TRUE)
        with f.where(several):
            count.set(out.behind(object_layout.LENGTH).word())
        is_list = known.field(at.kind) == shared(f, SharedObject.LIST)
        made = f.variable(f.null())
        with f.where(is_list):
            made.set(f.call("PyList_New", count()))
        with f.unless(is_list):
            made.set(f.call("PyTuple_New", count()))
        f.require(~made().is_null())
        items.set(made().behind(object_layout.ITEMS))
        with f.where(is_list):
            items.set(made().field(object_layout.LIST_ITEMS))
        with f.each(count()) as k:
            array = f.variable(out)
            with f.where(several):
                array.set(out.at(k).field(object_layout.ITEMS))
            tensor = f.call("tensor", held(f, array()), shared(f, SharedObject.FALSE),
                            held(f, shared(f, SharedObject.NONE)))
            with f.where(tensor.is_null()):
                drop(f, made())
                f.give()
            items().at(k).put(tensor)
        f.give(made())

    def call_node(self, f: NativeFunction, known: Pointer, seen: Pointer, payload: Pointer, kept: Pointer) -> None:
        """The node on the tape of a call with one result."""
        at, count = self.offsets, seen.word(TENSOR_COUNT)
        node = f.call("allocate", shared(f, SharedObject.CALL_NODE))
        f.require(~node.is_null())
        places = known.field(at.places)
        length = places.behind(object_layout.LENGTH).word()
        inputs, payloads, arrays = (f.call("PyTuple_New", size) for size in (length, f.word(1), count))
        attrs = f.variable(known.field(at.known_attrs))
        with f.where(attrs() == shared(f, SharedObject.NONE)):
            attrs.set(f.call("PyDict_New"))
        with f.unless(attrs() != known.field(at.known_attrs)):
            held(f, attrs())
        number = f.call("PyIter_Next", shared(f, SharedObject.NUMBERS))
        for offset, made in ((at.inputs, inputs), (at.payloads, payloads), (at.arrays, arrays), (at.attrs, attrs()),
                             (at.number, number)):
            node.behind(offset).put(made)
        for offset, has in ((at.root, shared(f, SharedObject.NONE)), (at.op, known.field(at.called)),
                            (at.node_rule, known.field(at.rule)), (at.kept, kept)):
            node.behind(offset).put(held(f, has))
        good = f.variable((~(inputs.is_null() | payloads.is_null() | arrays.is_null() | attrs().is_null()
                             | number.is_null())).wide())
        with f.where(good() != 0), f.where(known.field(at.known_attrs) == shared(f, SharedObject.NONE)):
            good.set((f.call("PyDict_SetItem", attrs(), shared(f, SharedObject.KEPT), kept) == 0).wide())
        with f.where(good() != 0):
            payloads.behind(object_layout.ITEMS).put(held(f, payload))
            with f.each(count) as k:
                arrays.at(k).behind(object_layout.ITEMS).put(held(f, seen.at(k + ARRAYS).pointer()))
            with f.each(length) as k:
                given = f.variable(places.at(k).field(object_layout.ITEMS))
                with f.where(given().field(object_layout.TYPE) == shared(f, SharedObject.INT)):
                    given.set(seen.at(f.call("PyLong_AsSsize_t", given()) + TENSORS).pointer())
                made = f.call("saved", given())
                inputs.at(k).behind(object_layout.ITEMS).put(made)
                with f.where(made.is_null()):
                    good.set(0)
        with f.where(good() == 0):
            drop(f, node)
            f.give()
        f.give(node)

    def called_op(self, f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word, names: Pointer) -> None:
        table = owner.field(object_layout.DATA)
        by_builtin(f, self.offsets, table.pointer(TARGET), arguments, count, names)
        unless_done(f, f.call("from_call", table.pointer(TARGET), arguments, count, names))
        f.give(f.call("PyObject_Vectorcall", table.pointer(PYTHON_METHOD), arguments, count, names))


def by_builtin(f: NativeFunction, offsets: Offsets, op: Pointer, arguments: Pointer, count: Word,
               names: Pointer) -> None:
    """Return what an operator's builtin gives where it has one and nothing is named."""
    quick, arity = op.field(offsets.quick), op.field(offsets.arity)
    with f.where(names.is_null() & (quick.field(object_layout.TYPE) == shared(f, SharedObject.BUILTIN))):
        one = (count == 1) & (arity == shared(f, SharedObject.ONE))
        with f.where(one | ((count == 2) & (arity == shared(f, SharedObject.TWO)))):
            f.give(f.call("PyObject_Vectorcall", quick, arguments, count, f.null()))
