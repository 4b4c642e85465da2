"""Stacks: what a loop of unknown length leaves for the loop that undoes it.

    push(stack, *values) -> stack           pop(stack, dtypes=, shapes=) -> stack, *values
    empty_stack() -> stack                  is_empty(stack) -> bool

A stack is one 64-bit handle, so it is carried by loops, chosen by branches, stacked by scans and pushed on other stacks
like any scalar.  It names a cell: the stack below, and the values; 0 is the empty stack.  A pop that finds no cell, or
one with values of other types, is an error at run time.  Cells never change.  A native backend takes them from a region
that grows by doubling and is kept for the next run, so that a push is a copy behind the end of the region, and a pop
reads where the handle points; where no handle of some pushes is left, the region ends again where it did before them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.dims.symbolic_dim import Dim
from tenon.errors import GraphError, Location
from tenon.graph.interpret import current_run
from tenon.ops.define import define
from tenon.types import STACK, DType, TensorType, bool_


def _handle(name: str, handle: TensorType) -> None:
    if handle != STACK:
        raise GraphError(f"{name}: expected one stack, not {handle}")


def _push_type(handle: TensorType, *values: TensorType) -> TensorType:
    _handle("push", handle)
    return STACK


def _pop_type(handle: TensorType, *, dtypes: tuple[DType, ...], shapes: tuple[tuple[Dim, ...], ...]) -> Any:
    _handle("pop", handle)
    if len(dtypes) != len(shapes):
        raise GraphError(f"pop: {len(dtypes)} types and {len(shapes)} shapes")
    return (STACK, *map(TensorType, dtypes, shapes)) if dtypes else STACK


def _is_empty_type(handle: TensorType) -> TensorType:
    _handle("is_empty", handle)
    return TensorType(bool_, ())


def _push_ref(handle: Any, *values: Any) -> Any:
    cells = current_run().cells
    cells.append((int(handle), tuple(np.array(x) for x in values)))
    return np.asarray(len(cells), np.int64)


def _pop_ref(handle: Any, dtypes: Any, shapes: Any) -> Any:
    below, values = current_run().cells[int(handle) - 1] if handle else (0, None)
    if values is None or [(x.dtype, x.shape) for x in values] != [(t.numpy, s) for t, s in zip(dtypes, shapes)]:
        raise not_pushed()
    return (np.asarray(below, np.int64), *values) if dtypes else np.asarray(below, np.int64)


def not_pushed(where: Location | None = None) -> GraphError:
    """The error of a graph that takes from a stack what it did not put there."""
    return GraphError("pop: the stack is empty, or holds other types on top", where)


empty_stack = define("empty_stack", public=False, handles=True, type=lambda: STACK, ref=lambda: np.zeros((), np.int64),
                     doc="The empty stack.", examples=["empty_stack() -> stack"])
push = define("push", public=False, handles=True, type=_push_type, ref=_push_ref,
              doc="The stack with these values on top, of any types; the stack below stays as it is.")
pop = define("pop", public=False, handles=True, type=_pop_type, ref=_pop_ref,
             doc="The stack below the top of a stack that is not empty, and the values on top, of these types.")
is_empty = define("is_empty", public=False, handles=True, type=_is_empty_type, ref=lambda handle: handle == 0,
                  doc="Whether nothing is on the stack.", examples=["is_empty(stack) -> bool"])
