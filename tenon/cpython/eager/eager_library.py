"""The machine code for eager calls, as builtins of Python.

    machine = Machine(offsets, share)
    quick, turned = machine.quick(op, rows, python, find)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from tenon.cpython.eager.backward_walk import define_tape
from tenon.cpython.eager.call_keys import define_keys
from tenon.cpython.eager.elementwise_calls import LoopRow, define_calls, table_of_calls
from tenon.cpython.eager.fused_elementwise import FusedRow, define_rows, table_of_rows
from tenon.cpython.eager.gradient_interpreter import define_formulas
from tenon.cpython.eager.inline_cache import define_remembered
from tenon.cpython.eager.ndarray_access import define_arrays
from tenon.cpython.eager.reductions import Total, define_reductions, table_of
from tenon.cpython.eager.scalar_operand_loops import TIED, define_beside, loop_name, numbers_beside
from tenon.cpython.eager.tensor_objects import Objects, Offsets, SharedObject
from tenon.cpython.eager.ufunc_loops import loop_beside
from tenon.cpython.eager.where import define_selection, table_of_selection
from tenon.cpython.python_builtin import bound, builtin, method
from tenon.llvm import function_builder
from tenon.llvm.function_builder import NativeModule
from tenon.llvm.machine_code import Library
from tenon.records import astuple


class EagerLibrary:
    """The machine code for eager calls, and what it refers to."""

    def __init__(self, offsets: Offsets, share: Mapping[SharedObject, Any]):
        self.library = _library(offsets)
        words = [share[place] if place is SharedObject.NEW_ARRAY else id(share[place]) for place in SharedObject]
        self.kept = dict(share)
        self.held: list[np.ndarray] = []            # data of loops
        self.loops: dict[tuple[np.ufunc, np.dtype[Any]], tuple[int, int]] = {}
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.library.address("share"))((ctypes.c_uint64 * len(words))(*words))

    def beside(self, ufunc: np.ufunc, dtype: np.dtype[Any], loop: tuple[int, int]) -> tuple[int, int]:
        """A loop that is sooner than this one of NumPy's where one of both inputs is a number; else this one."""
        name = loop_name(ufunc, dtype)
        if (ufunc, dtype) in self.loops:
            return self.loops[ufunc, dtype]
        for ties in TIED if name else ():
            data = np.array([*loop, *ties], np.int64)
            found = self.library.address(name), data.ctypes.data
            if loop_beside(ufunc, *found, numbers_beside(dtype)):
                self.held.append(data)
                loop = found
                break
        self.loops[ufunc, dtype] = loop
        return loop

    def quick(self, op: Any, rows: Sequence[LoopRow], python: Callable[..., Any],
              find: Callable[..., Any] | None = None) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """An operator's call, and the same with its inputs exchanged where it has two, so that there is a `find`."""
        table, name, doc = table_of_calls(op, rows, python, find), op.name, op.doc
        kept = op, python, find, rows
        one, other = ("unary", "unary") if find is None else ("binary", "reflected")
        return (builtin(name, self.library.address(one), table, kept, doc),
                builtin(name, self.library.address(other), table, kept, doc))

    def product(self, op: Any, rows: Sequence[LoopRow], python: Callable[..., Any]) -> Callable[..., Any]:
        """`x @ y`."""
        table = table_of_calls(op, rows, python)
        return builtin(op.name, self.library.address("product"), table, (op, rows, python), op.doc)

    def on_arrays(self, ufunc: np.ufunc, rows: Sequence[LoopRow]) -> Callable[..., Any]:
        """A ufunc on arrays, without its warnings where they are of these types."""
        name = "array" if ufunc.nin == 1 else "arrays"
        return builtin(ufunc.__name__, self.library.address(name), table_of_calls(ufunc, rows, ufunc), (ufunc, rows))

    as_method = staticmethod(bound)

    def on_axes(self, ufunc: np.ufunc, totals: Sequence[Total]) -> Callable[..., Any]:
        """`ufunc.reduce`, without its warnings where the elements are of these types."""
        python = ufunc.reduce
        return builtin("reduce", self.library.address("reduce"), table_of(python, totals), (python, totals))

    def selection(self, python: Callable[..., Any], dtypes: Sequence[np.dtype[Any]]) -> Callable[..., Any]:
        """`np.where` on arrays of these types."""
        return builtin("where", self.library.address("where"), table_of_selection(python, dtypes), (python, dtypes))

    def fused(self, python: Callable[..., Any], shape: Sequence[int], given: Sequence[tuple[np.dtype[Any], bool]],
              rows: Sequence[FusedRow], outs: Sequence[np.dtype[Any]]) -> Callable[..., Any]:
        """Steps that go element by element, as one; what is not usual is the function's in Python."""
        table = table_of_rows(python, shape, given, rows, outs)
        return builtin("fused", self.library.address("fused"), table, (python, given, rows, outs))

    def called(self, name: str, target: Any, python: Callable[..., Any], is_op: bool) -> Any:
        """A method that is a remembered call of an operator or function."""
        table = np.array([id(target), id(python)], np.int64)
        code = self.library.address("called_op" if is_op else "called")
        return bound(builtin(name, code, table, (target, python), python.__doc__, named=True))

    def function(self, name: str) -> Callable[..., Any]:
        """One of the functions for tapes."""
        return builtin(name, self.library.address(name), self.kept)

    def op_call(self, kind: type) -> Any:
        """What `Op.__call__` is then: a call of its builtin where it has one."""
        return method("__call__", self.library.address("op_call"), kind)


@cache
def _library(offsets: Offsets) -> Library:
    return function_builder.library("eager", *astuple(offsets), module_of=lambda *_: _module(offsets))


def _module(offsets: Offsets) -> NativeModule:
    module = NativeModule()
    found = Objects(module, offsets)
    define_arrays(module)
    define_keys(module, found)
    define_beside(module)
    define_remembered(module, found)
    define_calls(module, found)
    define_reductions(module)
    define_selection(module)
    define_rows(module)
    define_formulas(module, found)
    define_tape(module, found)
    return module
