"""Machine code for the operators that `ufunc_fast_path.py` calls, once many calls were made.

Making it takes a second, or a tenth where it lies on disk, and another thread does it: programs that hardly call
operators eagerly never load LLVM.  Where Python's or NumPy's objects are not what they are known to be nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.autocast import narrowing
from tenon.config import config
from tenon.cpython import object_layout
from tenon.eager.backward_arrays import ways
from tenon.eager.cached_call_node import CachedRule, CallNode
from tenon.eager.call_cache import ReadyCall, ready_calls, remembered_call
from tenon.eager.errstate import quiet
from tenon.eager.fuse_steps import Fuser
from tenon.eager.grad_mode import recording_variable
from tenon.eager.gradient_programs import programs
from tenon.eager.recipes import use_natives
from tenon.eager.tape import NO_ATTRS, NUMBERS, Saved, TapeNode
from tenon.errors import OF_NUMPY
from tenon.gc_control import COLLECTOR
from tenon.graph.kernels import KERNELS
from tenon.graph.op import Op, current, innermost, set_call_cache
from tenon.graph.operators import install
from tenon.locks import unforked
from tenon.ops.methods import called_methods, reflected_methods, short_methods
from tenon.records import dataclass
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState, recorder
from tenon.types import DType

if TYPE_CHECKING:
    from tenon.cpython.eager.eager_library import EagerLibrary
    from tenon.cpython.eager.elementwise_calls import LoopRow

_OP_CALL, _METHODS = Op.__call__, called_methods()
MIN_CALLS = 5000        # calls, after which it is worth while
CHOOSING = frozenset((np.fmin, np.fmax, np.minimum, np.maximum))     # one of two zeros, by where they stand
REDUCED = np.add, np.multiply, np.maximum, np.minimum
TYPES = np.dtype(np.float32), np.dtype(np.float64)
WHOLE = np.dtype(np.int64), np.dtype(np.uint64)
ON_WHOLE = frozenset((np.add, np.subtract, np.multiply, np.less, np.less_equal, np.greater, np.greater_equal, np.equal,
                      np.not_equal))    # what never fails: a loop for whole numbers may raise errors
MOVED = *TYPES, *WHOLE, np.dtype(np.int32)
SLOTS: tuple[tuple[type, tuple[str, ...]], ...] = (     # as `Offsets` has them
    (Tensor, ("own",)), (Saved, ("leaf",)), (TensorState, ("payload", "requires_grad", "grad", "node", "index")),
    (TapeNode, ("attrs", "inputs", "number", "op", "payloads", "root")), (CallNode, ("rule", "arrays", "kept")),
    (Op, ("quick", "arity")), (CachedRule, ("late", "wanted")),
    (ReadyCall, ("function", "quiet", "several", "kind", "rule", "called", "places", "attrs")))


class FastPath:
    """An operator's fast path in Python, and what machine code needs for the same."""

    __slots__ = ("call", "find", "op", "results", "ufunc")

    def __init__(self, op: Op, ufunc: np.ufunc, call: Callable[..., Any], results: Mapping[Any, Any],
                 find: Callable[[Any, Any], Any] | None = None):
        self.op, self.ufunc, self.call = op, ufunc, call
        self.results, self.find = results, find     # element types by that of the inputs; numbers beside a tensor

    def rows(self, machine: EagerLibrary) -> Iterator[LoopRow]:
        """How it is computed, for the element types whose loop is found."""
        from tenon.cpython.eager.elementwise_calls import LoopRow  # local: LLVM is slow to load, and not always needed
        from tenon.cpython.eager.ufunc_loops import inner_loop  # local: as above

        for dtype in (*TYPES, *(WHOLE if self.ufunc in ON_WHOLE else ())):
            result = self.results[dtype]
            loop = result and inner_loop(self.ufunc, dtype.char * self.ufunc.nin + result.char)
            if loop:
                yield LoopRow(dtype, machine.beside(self.ufunc, dtype, loop), result, self.ufunc not in CHOOSING)


def give(shorts: Sequence[FastPath], product: FastPath) -> None:
    """Let operators go the fast path, and `x @ y`: in Python, and natively when many calls were made."""
    left, once = iter(range(MIN_CALLS)), iter((True,))  # functions that somebody holds go on to ask

    def count() -> None:
        if next(left, None) is None and _nothing_watches() and next(once, False):
            give_python(shorts, product)
            if object_layout.READABLE and config().backend != "reference":
                _begin(shorts, product)

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def quick(*given: Any) -> Any:
            count()
            return call(*given)
        quick.__name__, quick.__doc__ = call.__name__, call.__doc__
        return quick
    give_python(shorts, product, counting)
    ready_calls.count = count


def _begin(shorts: Sequence[FastPath], product: FastPath) -> None:
    """Let another thread make machine code; none where the system has no more threads, or Python is about to end."""
    def work() -> None:
        with COLLECTOR:     # a finalizer that compiles would wait for what is locked here
            give_native(shorts, product)

    with suppress(RuntimeError):
        Thread(target=work, name="tenon-compile").start()


def _nothing_watches() -> bool:
    """Whether this is no capture, which would take the new thread for the user's."""
    return current() is None and recorder.get() is None


def give_python(shorts: Sequence[FastPath], product: FastPath,
                around: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda call: call) -> None:
    """Let operators, and Python's, be functions in Python."""
    for short in shorts:
        short.op.quick = around(short.call)
    install({name: op.quick for name, op in short_methods().items() if op.quick is not None}
            | {"__matmul__": around(product.call)} | {name: method for name, (_, method) in _METHODS.items()})
    set_call_cache(remembered_call)
    ready_calls.key = ready_calls.count = None


def give_native(shorts: Sequence[FastPath], product: FastPath) -> None:
    """Let operators, and Python's, be builtins, where there is a loop for them; as they are where there is no code."""
    with unforked:
        import tenon.cpython.eager.eager_library  # noqa: F401  # local: as above
        from tenon.cpython.eager.ufunc_loops import new_array  # local: as above

    if new_array():
        made = _native_calls(tuple(shorts), product)
        for op, quick in made.quick.items():
            op.quick = quick
        install(made.methods)
        use_natives(made.on_arrays, made.fuser)
        ready_calls.key = made.key
        set_call_cache(made.again)
        if Op.__call__ is _OP_CALL:             # and not what somebody put in its place
            Op.__call__ = made.op_call          # type: ignore[method-assign]
        programs.follow()
        vars(ways).update(made.ways)


@dataclass(frozen=True)
class NativeCalls:
    """The builtins that calls go on with: made once, they can be given up and taken again."""

    quick: Mapping[Op, Callable[..., Any]]
    methods: Mapping[str, Any]
    on_arrays: Mapping[Any, Callable[..., Any]]     # what recipes call in the place of NumPy's functions
    fuser: Fuser
    key: Callable[..., Any]
    again: Callable[..., Any]
    op_call: Any
    ways: Mapping[str, Callable[..., Any]]


@cache
def _native_calls(shorts: tuple[FastPath, ...], product: FastPath) -> NativeCalls:
    machine = _machine()
    rows = {short: list(short.rows(machine)) for short in (*shorts, product)}
    own = [short for short in shorts if rows[short]]
    made = {short.op: machine.quick(short.op, rows[short], short.call, short.find) for short in own}
    methods = {name: machine.as_method(made[op][0]) for name, op in short_methods().items() if op in made}
    methods |= {name: machine.as_method(made[op][1]) for name, op in reflected_methods().items() if op in made}
    if rows[product]:
        methods["__matmul__"] = machine.as_method(machine.product(product.op, rows[product], product.call))
    methods |= {name: machine.called(name, target, method, isinstance(target, Op))
                for name, (target, method) in _METHODS.items()}
    on_arrays = {short.ufunc: machine.on_arrays(short.ufunc, rows[short]) for short in own} | dict(_on_axes(machine))
    loops = {(short.ufunc, row.dtype): (row.loop, row.result) for short in own for row in rows[short]}
    return NativeCalls({op: quick for op, (quick, _) in made.items()}, methods,
                       on_arrays | {np.where: machine.selection(np.where, MOVED)}, Fuser(machine, loops),
                       machine.function("key"), machine.function("again"), machine.op_call(Op),
                       {name: machine.function(name) for name in ("above", "down", "release")})


def _on_axes(machine: EagerLibrary) -> Iterator[tuple[Any, Any]]:
    """`reduce` of ufuncs, and its machine code for the types where that has been seen to give the same."""
    from tenon.cpython.eager.reductions import Total  # local: as above
    from tenon.cpython.eager.ufunc_loops import inner_loop  # local: as above

    for ufunc in REDUCED:
        found = []
        for dtype in TYPES:
            loop = inner_loop(ufunc, dtype.char * 3)
            totals = [Total(dtype, loop, start) for start in (ufunc.identity, None)] if loop else []
            found += [total for total in totals if _reduces_alike(machine.on_axes(ufunc, [total]), ufunc, dtype)][:1]
        if found:
            yield ufunc.reduce, machine.on_axes(ufunc, found)


def _reduces_alike(call: Callable[..., Any], ufunc: np.ufunc, dtype: np.dtype[Any]) -> bool:
    """Whether a builtin gives the bits of `ufunc.reduce`: the number it starts with decides."""
    reduce: Any = ufunc.reduce
    numbers = np.linspace(-0.7, 1.3, 150).astype(dtype), np.full(150, -0.0, dtype)
    return all(np.asarray(call(x, axis, None, None, False)).tobytes() ==
               np.asarray(reduce(x, axis, None, None, False)).tobytes()
               for row in numbers for shape in ((150,), (10, 15), (150, 1), (5, 6, 5)) for x in [row.reshape(shape)]
               for axis in (None, (0,), (x.ndim - 1,)))


@cache
def _machine() -> EagerLibrary:
    from tenon.cpython.eager.eager_library import EagerLibrary  # local: as above
    from tenon.cpython.eager.tensor_objects import Offsets, SharedObject  # local: as above
    from tenon.cpython.eager.ufunc_loops import new_array  # local: as above

    offsets = Offsets(*[object_layout.slot_offset(kind, name) for kind, names in SLOTS for name in names])
    return EagerLibrary(offsets, {
        SharedObject.ARRAY: np.ndarray, SharedObject.TENSOR: Tensor, SharedObject.SAVED: Saved,
        SharedObject.STATE: TensorState, SharedObject.NODE: TapeNode, SharedObject.CALL_NODE: CallNode,
        SharedObject.FLOAT: float, SharedObject.INT: int, SharedObject.BOOL: bool, SharedObject.STRING: str,
        SharedObject.TUPLE: tuple, SharedObject.LIST: list, SharedObject.DICT: dict, SharedObject.SLICE: slice,
        SharedObject.NONE_TYPE: type(None), SharedObject.ELLIPSIS_TYPE: type(Ellipsis),
        SharedObject.ELEMENT_TYPE: DType, SharedObject.BUILTIN: type(len), SharedObject.NONE: None,
        SharedObject.TRUE: True, SharedObject.FALSE: False, SharedObject.ZERO: 0, SharedObject.ONE: 1,
        SharedObject.TWO: 2, SharedObject.NO_ATTRS: NO_ATTRS, SharedObject.INTERPRETER: innermost,
        SharedObject.RECORDING: recording_variable, SharedObject.KERNELS: KERNELS, SharedObject.NUMBERS: NUMBERS,
        SharedObject.NEW_ARRAY: new_array(), SharedObject.CALL: _OP_CALL, SharedObject.NARROW: narrowing,
        SharedObject.EMPTY: (), SharedObject.PROGRAMS: programs.words, SharedObject.KNOWN_CALLS: ready_calls.known,
        SharedObject.REMEMBERED_CALL: remembered_call, SharedObject.QUIET: quiet, SharedObject.RUN: "run",
        SharedObject.KEPT: "kept", SharedObject.OF_NUMPY: OF_NUMPY})
