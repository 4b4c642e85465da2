"""Stacks (tenon.ops.gradient_stacks) -> steps: cells in a region that grows, made by a push and pointed at by a pop.

A handle is the address of a cell: the handle of the cell below, a number that stands for the types of the values, then
the values, each at the beginning of a cache line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.dims.symbolic_dim import Dim
from tenon.graph.build import trace
from tenon.graph.ir import Node
from tenon.graph.op import Op
from tenon.ops.comparison import equal
from tenon.ops.gradient_stacks import empty_stack, is_empty, pop, push
from tenon.program.steps import AllocateStep, CopyStep, FollowStep, KernelStep, Move, MoveStep, Storage
from tenon.types import STACK, TensorType, int64

if TYPE_CHECKING:
    from tenon.program.execution_plan import Assembler

LINE = 64
CELLS = Storage("cells", STACK)         # the region, as far as barriers are concerned


def _push(assembler: Assembler, node: Node) -> None:
    below, *values = map(assembler.place_of, node.inputs)
    handle, cell = Storage("arena", STACK), _cell()
    types = tuple(x.type for x in values)
    places, size = _parts(cell, types)
    assembler.steps += [AllocateStep(node, handle, cell, size, types), MoveStep(node, tuple(places))]
    assembler.steps += [CopyStep(below, cell)]
    assembler.steps += [CopyStep(x, move.target) for x, move in zip(values, places, strict=True)]
    assembler.set_results(node, [handle])


def _pop(assembler: Assembler, node: Node) -> None:
    handle, below, cell = assembler.place_of(node.inputs[0]), Storage("arena", STACK), _cell()
    types = tuple(x.type for x in node.outputs[1:])
    places, _ = _parts(cell, types)
    assembler.steps += [FollowStep(node, handle, cell, types), MoveStep(node, tuple(places)), CopyStep(cell, below)]
    assembler.set_results(node, [below, *(move.target for move in places)])


def _empty_stack(assembler: Assembler, node: Node) -> None:
    assembler.set_results(node, [Storage("constant", STACK, data=np.zeros((), np.int64))])


def _is_empty(assembler: Assembler, node: Node) -> None:
    unit = assembler.make_unit(trace(lambda handle: equal(handle, 0), TensorType(int64, ())))
    assert unit is not None
    result = Storage("arena", node.output.type)
    assembler.steps.append(KernelStep(node, unit, (assembler.place_of(node.inputs[0]),), (result,)))
    assembler.set_results(node, [result])


def _cell() -> Storage:
    return Storage("moving", STACK, sources=[CELLS])


def _parts(cell: Storage, types: Sequence[TensorType]) -> tuple[list[Move], Dim]:
    """(what says where the values of a cell lie, its size)."""
    moves: list[Move] = []
    offset: Dim = LINE
    for type in types:
        value = Storage("moving", type)
        moves.append(Move(value, cell, offset))
        offset = offset + (value.bytes + (LINE - 1)) // LINE * LINE
    return moves, offset


STACKS: dict[Op, Callable[[Assembler, Node], None]] = {
    push: _push, pop: _pop, empty_stack: _empty_stack, is_empty: _is_empty}
