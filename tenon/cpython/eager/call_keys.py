"""A call of an operator or function -> what equal calls have in common, as machine code writes it.

    key(target, args, keywords)         the key, as bytes; None where that cannot be said

The key is words: addresses of what Python compares by identity, numbers, sizes.  Who adds a call to the dictionary of
those that are known keeps what the addresses stand for.
"""

from __future__ import annotations

from functools import partial

from tenon.cpython import object_layout
from tenon.cpython.eager.tensor_objects import Objects, Offsets, SharedObject, drop, held, shared
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import BYTES, HALF, POINTER, WORD, Pointer, Word

MAX_TENSORS = 8
MAX_WORDS = 64
# Words of what is seen of a call: how many words the key has and tensors there are; these; their arrays; the key.
COUNT, TENSOR_COUNT, TENSORS = range(3)
ARRAYS = TENSORS + MAX_TENSORS
KEY = ARRAYS + MAX_TENSORS
SEEN_WORDS = KEY + MAX_WORDS
BY_IDENTITY = (SharedObject.STRING, SharedObject.BOOL, SharedObject.NONE_TYPE, SharedObject.ELEMENT_TYPE,
               SharedObject.ELLIPSIS_TYPE)
SLICE_ENDS = object_layout.DATA       # of a slice: start, stop and step


def define_keys(module: NativeModule, objects: Objects) -> None:
    """`key`, and what fills the words of what is seen of a call: `see` and `see_objects`; in a module with objects."""
    module.declare("describe", HALF, POINTER, POINTER)
    module.define("add_words", _add_words, HALF, POINTER, WORD, WORD)
    module.define("add_tensor", partial(_add_tensor, objects.offsets), HALF, POINTER, POINTER)
    module.define("add_items", _add_items, HALF, POINTER, POINTER, POINTER, WORD)
    module.define("describe", _describe, HALF, POINTER, POINTER)
    module.define("begin", _begin, HALF, POINTER, POINTER, WORD)
    module.define("see", _see, HALF, POINTER, POINTER, POINTER, WORD, POINTER)
    module.define("see_objects", _see_objects, HALF, POINTER, POINTER, POINTER, POINTER)
    module.define("key_of", _key_of, POINTER, POINTER)
    module.define("key", _key, POINTER, POINTER, POINTER, WORD, public=True)


def _begin(f: NativeFunction, seen: Pointer, target: Pointer, count: Word) -> None:
    """The first words: what is called, whether it is recorded, and how many arguments have no name."""
    place = f.words(1)
    f.call("PyContextVar_Get", shared(f, SharedObject.RECORDING), f.null(), place)
    f.require(~place.pointer().is_null())
    drop(f, place.pointer())        # who adds the key keeps it
    f.require(f.call("add_words", seen, target.word_of(), place.word()) != 0)
    f.give(f.call("add_words", seen, f.word(0), count))


def _see(f: NativeFunction, seen: Pointer, target: Pointer, arguments: Pointer, count: Word, names: Pointer) -> None:
    """Whether there is a key of a call, which is written; the values of named arguments come last."""
    f.require(f.call("begin", seen, target, count) != 0)
    f.require(f.call("add_items", seen, arguments, f.null(), count) != 0)
    with f.unless(names.is_null()):
        f.require(f.call("add_items", seen, arguments.at(count), names.behind(object_layout.ITEMS),
                         names.behind(object_layout.LENGTH).word()) != 0)
    f.give(1)


def _see_objects(f: NativeFunction, seen: Pointer, target: Pointer, given: Pointer, keywords: Pointer) -> None:
    """The same of a call whose arguments are a tuple and a dictionary."""
    f.require((given.field(object_layout.TYPE) == shared(f, SharedObject.TUPLE))
              & (keywords.field(object_layout.TYPE) == shared(f, SharedObject.DICT)))
    count = given.behind(object_layout.LENGTH).word()
    f.require(f.call("begin", seen, target, count) != 0)
    f.require(f.call("add_items", seen, given.behind(object_layout.ITEMS), f.null(), count) != 0)
    with f.unless(f.call("PyDict_Size", keywords) == 0):
        place, name, value = f.words(1), f.words(1), f.words(1)
        place.put(0)
        with f.loop(lambda: f.call("PyDict_Next", keywords, place, name, value) != 0):
            f.require(f.call("add_items", seen, value, name, f.word(1)) != 0)
    f.give(1)


def _add_items(f: NativeFunction, seen: Pointer, items: Pointer, names: Pointer, count: Word) -> None:
    """Add objects that lie in a row, each behind its name where they have names."""
    with f.each(count) as k:
        with f.unless(names.is_null()):
            f.require(f.call("describe", seen, names.pointer(k)) != 0)
        f.require(f.call("describe", seen, items.pointer(k)) != 0)
    f.give(1)


def _add_words(f: NativeFunction, seen: Pointer, first: Word, second: Word) -> None:
    """Add two words to a key; 0: there is no room."""
    count = seen.word(COUNT)
    f.require(count < MAX_WORDS - 1)
    for k, word in enumerate((first, second)):
        seen.at(count + KEY + k).put(word)
    seen.put(count + 2, COUNT)
    f.give(1)


def _describe(f: NativeFunction, seen: Pointer, x: Pointer) -> None:
    """Add what an argument is to a key; 0: that cannot be said."""
    kind = x.field(object_layout.TYPE)
    tag = kind.word_of()
    with f.where(kind == shared(f, SharedObject.TENSOR)):
        f.give(f.call("add_tensor", seen, x))
    with f.where(kind == shared(f, SharedObject.INT)):
        beyond = f.words(1)
        number = f.call("PyLong_AsLongLongAndOverflow", x, beyond)
        f.require(beyond.half() == 0)
        f.give(f.call("add_words", seen, tag, number))
    for place in BY_IDENTITY:
        with f.where(kind == shared(f, place)):
            f.give(f.call("add_words", seen, tag, x.word_of()))
    with f.where(kind == shared(f, SharedObject.FLOAT)):
        f.give(f.call("add_words", seen, tag, x.field(object_layout.DATA).word_of()))
    with f.where(kind == shared(f, SharedObject.TUPLE)):
        count = x.behind(object_layout.LENGTH).word()
        f.require(f.call("add_words", seen, tag, count) != 0)
        f.give(f.call("add_items", seen, x.behind(object_layout.ITEMS), f.null(), count))
    with f.where(kind == shared(f, SharedObject.LIST)):
        count = x.behind(object_layout.LENGTH).word()
        f.require(f.call("add_words", seen, tag, count) != 0)
        f.give(f.call("add_items", seen, x.field(object_layout.LIST_ITEMS), f.null(), count))
    with f.where(kind == shared(f, SharedObject.SLICE)):
        f.require(f.call("add_words", seen, tag, f.word(0)) != 0)
        f.give(f.call("add_items", seen, x.behind(SLICE_ENDS), f.null(), f.word(3)))
    f.require(f.call("is_tensor", x) != 0)
    f.give(f.call("add_tensor", seen, x))


def _add_tensor(at: Offsets, f: NativeFunction, seen: Pointer, x: Pointer) -> None:
    """Add element type, shape, and whether it wants a gradient."""
    state, which = x.field(at.own), seen.word(TENSOR_COUNT)
    f.require(~state.is_null())
    array = state.field(at.payload)
    f.require((array.field(object_layout.TYPE) == shared(f, SharedObject.ARRAY)) & (which < MAX_TENSORS))
    ndim, sizes = array.half(object_layout.NDIM), array.field(object_layout.DIMENSIONS)
    dtype, wanted = array.field(object_layout.DTYPE), state.field(at.requires_grad)
    f.require(f.call("add_words", seen, dtype.word_of(), wanted.word_of()) != 0)
    f.require(f.call("add_words", seen, shared(f, SharedObject.TENSOR).word_of(), ndim) != 0)
    count = seen.word(COUNT)
    f.require(count + ndim < MAX_WORDS + 1)
    with f.each(ndim) as k:
        seen.at(count + k + KEY).put(sizes.word(k))
    seen.put(count + ndim, COUNT)
    seen.at(which + TENSORS).put(x)
    seen.at(which + ARRAYS).put(array)
    seen.put(which + 1, TENSOR_COUNT)
    f.give(1)


def _key_of(f: NativeFunction, seen: Pointer) -> None:
    f.give(f.call("PyBytes_FromStringAndSize", seen.at(KEY), seen.word(COUNT) * BYTES))


def _key(f: NativeFunction, owner: Pointer, arguments: Pointer, count: Word) -> None:
    seen = f.words(SEEN_WORDS)
    with f.where(f.call("see_objects", seen, arguments.pointer(), arguments.pointer(1), arguments.pointer(2)) == 0):
        f.require(f.call("PyErr_Occurred").is_null())
        f.give(held(f, shared(f, SharedObject.NONE)))
    f.give(f.call("key_of", seen))
