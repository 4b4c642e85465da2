"""What eager calls make of arrays, as machine code: tensors, and nodes of the tape.

The functions read what is the same for all of them (types, constants of Python) in the module's own words, `SHARED`,
which `share(words)` fills.  They return null after an error.  An object that they are given to keep is theirs: where
they fail they drop it.
"""

from __future__ import annotations

from enum import IntEnum, auto

from tenon.cpython import object_layout
from tenon.llvm.function_builder import NativeFunction, NativeModule
from tenon.llvm.ir_values import BYTES, HALF, NOTHING, POINTER, WORD, Pointer
from tenon.records import dataclass

SHARED = "shared"


class SharedObject(IntEnum):
    """What stands where among the shared words."""

    ARRAY = 0                   # types
    TENSOR = auto()
    SAVED = auto()
    STATE = auto()
    NODE = auto()
    CALL_NODE = auto()
    FLOAT = auto()
    INT = auto()
    BOOL = auto()
    STRING = auto()
    TUPLE = auto()
    LIST = auto()
    DICT = auto()
    SLICE = auto()
    NONE_TYPE = auto()
    ELLIPSIS_TYPE = auto()
    ELEMENT_TYPE = auto()       # Tenon's
    BUILTIN = auto()
    NONE = auto()               # constants
    TRUE = auto()
    FALSE = auto()
    ZERO = auto()
    ONE = auto()
    TWO = auto()
    NO_ATTRS = auto()
    INTERPRETER = auto()        # context variables
    RECORDING = auto()
    KERNELS = auto()            # the dictionary of what users registered
    NUMBERS = auto()            # what counts the nodes of tapes
    NEW_ARRAY = auto()          # the address of NumPy's function
    CALL = auto()               # `Op.__call__` in Python
    NARROW = auto()             # the context variable of `autocast`
    EMPTY = auto()              # the tuple without items
    PROGRAMS = auto()           # operator -> the words of its gradients' first program
    KNOWN_CALLS = auto()        # key of a call -> what is known of it
    REMEMBERED_CALL = auto()    # the function in Python that makes all others
    QUIET = auto()              # where each thread has what calls a function while NumPy does not warn
    RUN = auto()                # the name under which
    KEPT = auto()               # the name of what a recorded call keeps for its gradient
    OF_NUMPY = auto()           # what NumPy raises


@dataclass(frozen=True)
class Offsets:
    """Where Tenon's objects keep what machine code reads and writes."""

    own: int                    # of a tensor
    leaf: int                   # of a saved one
    payload: int                # of a state
    requires_grad: int
    grad: int
    node: int
    index: int
    attrs: int                  # of a node of the tape
    inputs: int
    number: int
    op: int
    payloads: int
    root: int
    node_rule: int              # of one that is a call that is remembered
    arrays: int
    kept: int
    quick: int                  # of an operator
    arity: int
    late: int                   # of its rule
    wanted: int
    function: int               # of what is known of such a call
    quiet: int
    several: int
    kind: int
    rule: int
    called: int
    places: int
    known_attrs: int


PYTHON = {
    "PyContextVar_Get": (HALF, POINTER, POINTER, POINTER), "PyDict_Size": (WORD, POINTER),
    "PyDict_GetItem": (POINTER, POINTER, POINTER), "PyDict_SetItem": (HALF, POINTER, POINTER, POINTER),
    "PyDict_DelItem": (HALF, POINTER, POINTER),
    "Py_IncRef": (NOTHING, POINTER), "Py_DecRef": (NOTHING, POINTER), "PyErr_Occurred": (POINTER,),
    "PyType_GenericAlloc": (POINTER, POINTER, WORD), "PyType_IsSubtype": (HALF, POINTER, POINTER),
    "PyTuple_New": (POINTER, WORD), "PyIter_Next": (POINTER, POINTER),
    "PyObject_Vectorcall": (POINTER, POINTER, POINTER, WORD, POINTER),
    "PyList_New": (POINTER, WORD), "PyList_Append": (HALF, POINTER, POINTER), "PyList_Reverse": (HALF, POINTER),
    "PySet_New": (POINTER, POINTER), "PySet_Add": (HALF, POINTER, POINTER), "PySet_Contains": (HALF, POINTER, POINTER),
    "PyMem_Malloc": (POINTER, WORD), "PyMem_Free": (NOTHING, POINTER),
    "PyDict_New": (POINTER,), "PyDict_Next": (HALF, POINTER, POINTER, POINTER, POINTER),
    "PyBytes_FromStringAndSize": (POINTER, POINTER, WORD), "PyObject_GetAttr": (POINTER, POINTER, POINTER),
    "PyTuple_GetSlice": (POINTER, POINTER, WORD, WORD), "PyErr_ExceptionMatches": (HALF, POINTER),
    "PyErr_Clear": (NOTHING,), "PyLong_AsSsize_t": (WORD, POINTER),
    "PyLong_AsLongLongAndOverflow": (WORD, POINTER, POINTER),
}


class Objects:
    """The functions that make and look at objects, in the module of whoever calls them."""

    def __init__(self, module: NativeModule, offsets: Offsets):
        self.offsets = offsets
        for name, kinds in PYTHON.items():
            module.declare(name, *kinds)
        module.memory(SHARED, len(SharedObject))
        module.define("share", _share, NOTHING, POINTER, public=True)
        module.define("says", _says, HALF, POINTER, POINTER)
        module.define("allocate", _allocate, POINTER, POINTER)
        module.define("is_tensor", self._is_tensor, HALF, POINTER)
        module.define("tensor", self._tensor, POINTER, POINTER, POINTER, POINTER)
        module.define("saved", self._saved, POINTER, POINTER)
        module.define("recorded", self._recorded, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER)

    def _is_tensor(self, f: NativeFunction, x: Pointer) -> None:
        """Whether it is a tensor that has a state: a class of the user's may not have made one."""
        kind, tensor = x.field(object_layout.TYPE), shared(f, SharedObject.TENSOR)
        with f.unless(kind == tensor):
            f.require(f.call("PyType_IsSubtype", kind, tensor) != 0)
        f.give((~x.field(self.offsets.own).is_null()).wide().low())

    def _tensor(self, f: NativeFunction, array: Pointer, requires_grad: Pointer, node: Pointer) -> None:
        """A tensor of an array, made by a node of the tape or none (None)."""
        at, state = self.offsets, f.call("allocate", shared(f, SharedObject.STATE))
        with f.where(state.is_null()):
            drop(f, array, node)
            f.give()
        state.behind(at.payload).put(array)
        state.behind(at.requires_grad).put(held(f, requires_grad))
        state.behind(at.grad).put(held(f, shared(f, SharedObject.NONE)))
        state.behind(at.node).put(node)
        state.behind(at.index).put(held(f, shared(f, SharedObject.ZERO)))
        tensor = f.call("allocate", shared(f, SharedObject.TENSOR))
        with f.where(tensor.is_null()):
            drop(f, state)
            f.give()
        tensor.behind(at.own).put(state)
        f.give(tensor)

    def _saved(self, f: NativeFunction, x: Pointer) -> None:
        """An input of a call that is recorded: a tensor in the state of now, a number as it is."""
        at = self.offsets
        with f.where(f.call("is_tensor", x) == 0):
            f.give(held(f, x))
        kept = f.call("allocate", shared(f, SharedObject.SAVED))
        f.require(~kept.is_null())
        state, leaf = held(f, x.field(at.own)), f.variable(x)
        kept.behind(at.own).put(state)
        with f.where(state.field(at.node) == shared(f, SharedObject.NONE)):
            with f.where(x.field(object_layout.TYPE) == shared(f, SharedObject.SAVED)):
                leaf.set(x.field(at.leaf))
            kept.behind(at.leaf).put(held(f, leaf()))
        f.give(kept)

    def _recorded(self, f: NativeFunction, op: Pointer, x: Pointer, y: Pointer, array: Pointer, requires_grad: Pointer
                  ) -> None:
        """The one output of a call with the inputs x and, unless it is null, y."""
        at, node = self.offsets, f.call("allocate", shared(f, SharedObject.NODE))
        with f.where(node.is_null()):
            drop(f, array)
            f.give()
        count = f.word(2) - y.is_null().wide()
        inputs, payloads = f.call("PyTuple_New", count), f.call("PyTuple_New", f.word(1))
        for offset, tuple in ((at.inputs, inputs), (at.payloads, payloads)):
            node.behind(offset).put(tuple)
        good = f.variable((~inputs.is_null() & ~payloads.is_null()).wide())
        with f.where(good() != 0):
            payloads.behind(object_layout.ITEMS).put(held(f, array))
            for k, given in enumerate((x, y)):
                with f.unless(given.is_null()):
                    kept = f.call("saved", given)
                    inputs.behind(object_layout.ITEMS + BYTES * k).put(kept)
                    good.set(good() & (~kept.is_null()).wide())
        node.behind(at.number).put(f.call("PyIter_Next", shared(f, SharedObject.NUMBERS)))
        node.behind(at.op).put(held(f, op))
        node.behind(at.attrs).put(held(f, shared(f, SharedObject.NO_ATTRS)))
        node.behind(at.root).put(held(f, shared(f, SharedObject.NONE)))
        with f.where((good() == 0) | node.field(at.number).is_null()):
            drop(f, node, array)
            f.give()
        f.give(f.call("tensor", array, requires_grad, node))


def shared(f: NativeFunction, place: SharedObject) -> Pointer:
    """One of the shared words."""
    return f.memory(SHARED).pointer(int(place))


def held(f: NativeFunction, object: Pointer) -> Pointer:
    """A reference of one's own."""
    f.call("Py_IncRef", object)
    return object


def drop(f: NativeFunction, *found: Pointer) -> None:
    """Give references back."""
    for object in found:
        f.call("Py_DecRef", object)


def require_eager(f: NativeFunction) -> None:
    """Return null where a call is not just computed."""
    f.require(f.call("says", shared(f, SharedObject.INTERPRETER), shared(f, SharedObject.NONE)) != 0)
    f.require(f.call("PyDict_Size", shared(f, SharedObject.KERNELS)) == 0)


def unless_done(f: NativeFunction, found: Pointer) -> None:
    """Return what was found, or an error; go on where there is neither."""
    with f.unless(found.is_null()):
        f.give(found)
    with f.unless(f.call("PyErr_Occurred").is_null()):
        f.give()


def _share(f: NativeFunction, words: Pointer) -> None:
    for k in range(len(SharedObject)):
        f.memory(SHARED).put(words.word(k), k)
    f.give()


def _says(f: NativeFunction, variable: Pointer, expected: Pointer) -> None:
    """Whether this is the value of a context variable."""
    place = f.words(1)
    f.call("PyContextVar_Get", variable, f.null(), place)
    value = place.pointer()
    f.require(~value.is_null())
    drop(f, value)
    f.give((value == expected).wide().low())


def _allocate(f: NativeFunction, kind: Pointer) -> None:
    f.give(f.call("PyType_GenericAlloc", kind, f.word(0)))
