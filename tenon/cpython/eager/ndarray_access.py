"""What eager calls in machine code do with arrays: look at them, make them, and let NumPy's loops fill them."""

from __future__ import annotations

from collections.abc import Sequence

from tenon.cpython import object_layout
from tenon.cpython.eager.tensor_objects import SHARED, SharedObject, held, shared
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import HALF, NOTHING, POINTER, Pointer, Word

MAX_ELEMENTS = 1 << 14          # of a call; NumPy lets other threads go on while it computes more
CONTIGUOUS, ALIGNED, WRITEABLE, OWN_DATA = 0x1, 0x100, 0x400, 0x4       # of ndarray.flags
PLAIN = CONTIGUOUS | ALIGNED
OWN = PLAIN | WRITEABLE | OWN_DATA


def define_arrays(module: NativeModule) -> None:
    """`is_plain(array)`, `same_sizes(a, b)`, and `made(dtype, like)`, null where there would be many elements,
    `made_of(dtype, ndim, sizes)`."""
    module.define("is_plain", _is_plain, HALF, POINTER)
    module.define("same_sizes", _same_sizes, HALF, POINTER, POINTER)
    module.define("made_of", _made_of, POINTER, POINTER, HALF, POINTER)
    module.define("made", _made, POINTER, POINTER, POINTER)


def _is_plain(f: NativeFunction, array: Pointer) -> None:
    """Whether it is an array whose elements lie side by side."""
    f.require(array.field(object_layout.TYPE) == shared(f, SharedObject.ARRAY))
    f.give(((array.half(object_layout.FLAGS) & PLAIN) == PLAIN).wide().low())


def _same_sizes(f: NativeFunction, a: Pointer, b: Pointer) -> None:
    count = a.half(object_layout.NDIM)
    these, those = a.field(object_layout.DIMENSIONS), b.field(object_layout.DIMENSIONS)
    f.require(count == b.half(object_layout.NDIM))
    with f.each(count) as k:
        f.require(these.word(k) == those.word(k))
    f.give(1)


def _made(f: NativeFunction, dtype: Pointer, like: Pointer) -> None:
    """An array of a type, of the sizes of another."""
    f.require(count_of(f, like) < MAX_ELEMENTS + 1)
    f.give(f.call("made_of", dtype, like.narrow(object_layout.NDIM), like.field(object_layout.DIMENSIONS)))


def _made_of(f: NativeFunction, dtype: Pointer, ndim: Word, sizes: Pointer) -> None:
    """An array of a type and of sizes."""
    nothing = f.null()
    f.give(f.through(f.memory(SHARED).at(int(SharedObject.NEW_ARRAY)), POINTER, shared(f, SharedObject.ARRAY),
                     held(f, dtype), ndim,
                     sizes, nothing, nothing, f.half(0), nothing))


def count_of(f: NativeFunction, array: Pointer) -> Word:
    """How many elements an array has."""
    found, sizes = f.variable(1), array.field(object_layout.DIMENSIONS)
    with f.each(array.half(object_layout.NDIM)) as k:
        found.set(found() * sizes.word(k))
    return found()


def step_of(f: NativeFunction, array: Pointer, item: Word) -> Word:
    """How far apart NumPy says that the elements of a plain array are: its loops give NaNs signs by that."""
    count, found = array.half(object_layout.NDIM), f.variable(item)
    with f.where(count == 0):
        found.set(0)
    with f.where(count == 1):
        found.set(array.field(object_layout.STRIDES).word())
    return found()


def run_loop(f: NativeFunction, loop: Pointer, arrays: Sequence[Pointer], steps: Sequence[Word]) -> None:
    """Let the loop of a ufunc, which stands there with its data, fill the last of the arrays."""
    addresses, strides, count = f.words(len(arrays)), f.words(len(arrays)), f.words(1)
    for k, (array, step) in enumerate(zip(arrays, steps, strict=True)):
        addresses.put(array.field(object_layout.DATA), k)
        strides.put(step, k)
    count.put(count_of(f, arrays[-1]))
    f.through(loop, NOTHING, addresses, count, strides, loop.pointer(1))
