"""Branches and loops -> steps that hold steps: where results of branches lie, what a loop carries between its
iterations.

What a loop carries lies, as far as possible, where it was computed; nothing is copied between two iterations.

    in place    the next value is written over the last one, whose last reader writes it, or it never changes
    pointed at  it lies where nobody writes again (a row of a stacked output, a constant): a pointer moves there
    in turns    the next value is written to a spare buffer; afterwards the pointers to both change places

Where a scan stacks what it carries, as its gradient asks for, an iteration reads a row of the array and writes the next
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.dims.symbolic_dim import Dim
from tenon.graph.build import trace
from tenon.graph.ir import Graph, Node
from tenon.graph.kernels import has_kernel
from tenon.graph.op import Op
from tenon.ops.branches import cond, switch
from tenon.ops.comparison import clip
from tenon.ops.loops import scan, while_loop
from tenon.ops.shape import cast
from tenon.program.loop_body import LoopBody
from tenon.program.release_stacks import with_releases
from tenon.program.stack_steps import STACKS
from tenon.program.steps import (
    BranchStep,
    CopyStep,
    KernelStep,
    LoopStep,
    Move,
    MoveStep,
    Step,
    Storage,
    resolve,
    share,
)
from tenon.types import DType, TensorType, int64

if TYPE_CHECKING:
    from tenon.program.execution_plan import Assembler


def add_structure(assembler: Assembler, node: Node) -> bool:
    """Append the steps of a branch, a loop or a stack; False where the node is none."""
    make = STRUCTURES.get(node.op)
    if make is None or has_kernel(node):
        return False
    make(assembler, node)
    return True


def _cond(assembler: Assembler, node: Node) -> None:
    _branches(assembler, node, (node.attrs["false"], node.attrs["true"]))


def _switch(assembler: Assembler, node: Node) -> None:
    """The index, brought into range, is 8 bytes long."""
    graphs = node.attrs["branches"]
    index, choice = node.inputs[0], Storage("arena", TensorType(int64, ()))
    assert index is not None
    body = trace(lambda x: cast(clip(x, 0, _last(len(graphs), x.dtype)), dtype=int64), index.type)
    unit = assembler.make_unit(body)
    assert unit is not None
    assembler.steps.append(KernelStep(node, unit, (assembler.place_of(index),), (choice,)))
    _branches(assembler, node, graphs, choice)


def _last(count: int, dtype: DType) -> int:
    """The number of the last branch, as far as the type goes."""
    return min(count - 1, int(np.iinfo(dtype.numpy).max))


def _branches(assembler: Assembler, node: Node, graphs: Sequence[Graph], choice: Storage | None = None) -> None:
    condition, *operands = map(assembler.place_of, node.inputs)
    choice = choice or condition
    branches = [assembler.inside(graph, operands) for graph in graphs]
    step, results = branch(node, choice, branches, [x.type for x in graphs[0].results])
    assembler.steps.append(step)
    assembler.set_results(node, results)


def _while_loop(assembler: Assembler, node: Node) -> None:
    inputs = [assembler.place_of(x) for x in node.inputs]
    fixed, initial = inputs[:node.attrs["constants"]], inputs[node.attrs["constants"]:]
    loop = LoopPlaces(initial, [p.type for p in node.attrs["body"].params[len(fixed):]])
    condition, (proceed,) = assembler.inside(node.attrs["condition"], [*fixed, *loop.carried])
    body, results = assembler.inside(node.attrs["body"], [*fixed, *loop.carried])
    loop_body = LoopBody(loop.initial, loop.carried, tuple(condition), proceed, tuple(body), tuple(results))
    if assembler.backend.loops.suits(loop_body):
        add_whole(assembler, node, inputs, loop_body)
        return
    share(condition, kept=[proceed])
    loop.close(body, results)
    body, condition = with_releases(body, results), with_releases(condition)
    before, step = assembler.backend.packing.prepack(loop.step(node, body, condition=tuple(condition), proceed=proceed))
    assembler.steps += [*loop.before, *before, step]
    assembler.set_results(node, loop.carried)


def _scan(assembler: Assembler, node: Node) -> None:
    inputs = [assembler.place_of(x) for x in node.inputs]
    body, length, reverse = node.attrs["body"], node.attrs["length"], bool(node.attrs.get("reverse"))
    first, after = node.attrs["constants"], node.attrs["constants"] + node.attrs["carried"]
    loop = LoopPlaces(inputs[first:after], [p.type for p in body.params[first:after]])
    rows = [(Storage("moving", p.type), x) for x, p in zip(inputs[after:], body.params[after:], strict=True)]
    steps, results = assembler.inside(body, [*inputs[:first], *loop.carried, *(row for row, _ in rows)])
    arrays = [Storage("arena", r.type.with_shape((length, *r.shape))) for r in body.results[after - first:]]
    stacked = tuple(zip(results[after - first:], arrays, strict=True))
    if isinstance(length, int):
        loop_body = LoopBody(loop.initial, loop.carried, (), None, tuple(steps), tuple(results[:after - first]), length,
                      reverse, tuple(rows), stacked)
        if assembler.backend.loops.suits(loop_body):
            add_whole(assembler, node, inputs, loop_body)
            return
    for row, array in rows:
        loop.through(row, array, length, reverse)
    for place, array in loop.stack_states(node, steps, results, stacked):
        loop.stack(steps, place, array, length, reverse)
    loop.close(steps, results[:after - first])
    steps = with_releases(steps, results)
    before, step = assembler.backend.packing.prepack(loop.step(node, steps, length=length))
    assembler.steps += [*loop.before, *before, step]
    assembler.set_results(node, (*loop.carried, *arrays))


def add_whole(assembler: Assembler, node: Node, given: Sequence[Storage], loop_body: LoopBody) -> None:
    """The loop as one kernel."""
    types = [x.type for x in loop_body.carried] + [array.type for _, array in loop_body.stacked]
    results = tuple(Storage("arena", type) for type in types)
    unit = assembler.backend.loops.make_whole(node, given, loop_body)
    assembler.steps.append(KernelStep(node, unit, loop_body.inputs, results, given=tuple(given)))
    assembler.set_results(node, results)


STRUCTURES: dict[Op, Callable[[Assembler, Node], None]] = {
    cond: _cond, switch: _switch, while_loop: _while_loop, scan: _scan, **STACKS}


# ---------------------------------------------------------------- branches

def branch(node: Node, choice: Storage, branches: Sequence[tuple[list[Step], list[Storage]]],
           types: Sequence[TensorType]) -> tuple[BranchStep, tuple[Storage, ...]]:
    """The step for branches, each given as its steps and where its results lie; and where the chosen results lie."""
    results = tuple(Storage("arena", type) for type in types)
    for steps, places in branches:
        share(steps, kept=places)
        own = made_by(steps)
        for place, result in zip(map(resolve, places), results, strict=True):
            if place in own:
                own.discard(place)
                place.into = result
            else:
                steps.append(CopyStep(place, result))
    return BranchStep(node, choice, tuple(tuple(with_releases(*branch)) for branch in branches)), results


def made_by(steps: Sequence[Step]) -> set[Storage]:
    """The memory that the steps write, of which they may make what they like."""
    return {x for step in steps for x in map(resolve, step.outputs) if x.kind == "arena"}


# ---------------------------------------------------------------- loops

class LoopPlaces:
    """A loop while its steps are being made.

        loop = Loop(initial)            # where the first values lie
        ...                             # steps of condition and body, which read loop.carried
        loop.close(body, results)
        loop.before, loop.start, loop.iteration
    """

    def __init__(self, initial: Sequence[Storage], types: Sequence[TensorType]):
        self.initial = tuple(initial)
        self.carried = tuple(Storage("arena", type) for type in types)
        self.before: list[Step] = []
        self.start: list[Move] = []
        self.advance: list[Move] = []

    # ------------------------------------------------------------ rows of arrays

    def stack(self, body: list[Step], place: Storage, array: Storage, length: Dim, reverse: bool) -> None:
        """Let the result of every iteration lie in another row of the array: written there, or copied."""
        place = resolve(place)
        if place in made_by(body) and place not in self.carried:
            place.kind = "moving"
        else:
            source, place = place, Storage("moving", place.type)
            body.append(CopyStep(source, place))
        self.through(place, array, length, reverse)

    def stack_states(self, node: Node, body: Sequence[Step], following: Sequence[Storage],
                     stacked: Sequence[tuple[Storage, Storage]]) -> list[tuple[Storage, Storage]]:
        """Let carried values that are stacked lie in rows of the array, so that nobody copies them; what is left."""
        arrays: dict[Storage, list[Storage]] = {}
        for place, array in stacked:
            arrays.setdefault(resolve(place), []).append(array)
        made = made_by(body) - set(self.carried)
        for k, state in enumerate(self.carried):
            place = resolve(following[k])
            if state in arrays and place in made:
                made.discard(place)
                self._in_rows(node, k, place, arrays.pop(state), arrays.pop(place, []))
        return [(place, array) for place, array in stacked if resolve(place) in arrays]

    def _in_rows(self, node: Node, k: int, place: Storage, before: Sequence[Storage], after: Sequence[Storage]) -> None:
        """Let the next value lie in the row behind the last one; `before` and `after` stack the one and the other.

        With the first value that is a row more than there are iterations.
        """
        length, reverse, size = node.attrs["length"], bool(node.attrs.get("reverse")), place.bytes
        rows = Storage("arena", place.type.with_shape((length + 1, *place.type.shape)))
        first = Storage("moving", place.type)
        at_before, at_after = (size, 0) if reverse else (0, size)
        for array in (place, *before, *after):
            array.kind = "moving"
        self.before += [MoveStep(node, (Move(first, rows, length * size if reverse else 0),
                                        *(Move(array, rows, at_before) for array in before),
                                        *(Move(array, rows, at_after) for array in after))),
                        CopyStep(self.initial[k], first)]
        self.through(place, rows, length, reverse, at_after)

    def through(self, row: Storage, array: Storage, length: Dim, reverse: bool, offset: Dim = 0) -> None:
        """Let `row` be another row of the array, which begins there, in every iteration."""
        size = row.bytes
        self.start.append(Move(row, array, offset + (length - 1) * size if reverse else offset))
        self.advance.append(Move(row, row, -size if reverse else size))

    # ------------------------------------------------------------ what is carried

    def close(self, body: list[Step], results: Sequence[Storage]) -> None:
        """Decide how each carried value gets from the end of an iteration to the beginning of the next."""
        pointed = self._pointed_at([resolve(x) for x in results], made_by(body) - set(self.carried))
        share(body, own=[x for k, x in enumerate(self.carried) if k not in pointed], kept=results)
        following = [resolve(x) for x in results]
        own = made_by(body) - set(self.carried)
        pointed = self._pointed_at(following, own)
        taken: set[Storage] = set()
        double_buffered: list[int] = []
        for k, (carried, place) in enumerate(zip(self.carried, following, strict=True)):
            if place is carried:
                self.before.append(CopyStep(self.initial[k], carried))
                taken.add(place)
            elif k in pointed:
                carried.kind = "moving"
                self.start.append(Move(carried, self.initial[k]))
                self.advance.append(Move(carried, place))
            else:
                double_buffered.append(k)
        for k in double_buffered:
            place = following[k]
            other = self.carried.index(place) if place in self.carried else -1
            if place in taken or not (place in own or other in double_buffered):
                following[k] = Storage("arena", self.carried[k].type)
                body.append(CopyStep(place, following[k]))
            taken.add(following[k])
        self._double_buffer(double_buffered, following)

    def _pointed_at(self, following: Sequence[Storage], own: set[Storage]) -> set[int]:
        """Which carried values may stay where they were computed, since nobody writes there again.

        Not what a loop or branch inside moves about: its memory is written again in the next iteration.
        """
        rows = {move.target for move in self.advance}
        found: set[int] = set()
        while True:
            more = {k for k, place in enumerate(following) if k not in found and place is not self.carried[k] and (
                self.carried.index(place) in found if place in self.carried else
                place in rows or (place not in own and place.kind != "moving"))}
            if not more:
                return found
            found |= more

    def _double_buffer(self, places: Sequence[int], following: Sequence[Storage]) -> None:
        """Pointers to buffers: those of the old values become those that the next iteration writes to."""
        old, new = [self.carried[k] for k in places], [following[k] for k in places]
        for k, carried in zip(places, old, strict=True):
            buffer = Storage("arena", carried.type)
            self.before.append(CopyStep(self.initial[k], buffer))
            self._point(carried, buffer)
        fresh = [x for x in new if x not in old]
        for x in fresh:
            self._point(x, Storage("arena", x.type))
        self.advance += [Move(x, y) for x, y in zip(old, new, strict=True)]
        spare = [x for x in old if x not in new]
        for x in fresh:
            free = next(y for y in spare if y.bytes == x.bytes)
            spare.remove(free)
            self.advance.append(Move(x, free))

    def _point(self, x: Storage, buffer: Storage) -> None:
        x.kind = "moving"
        self.start.append(Move(x, buffer))

    def step(self, node: Node, body: Sequence[Step], **parts: object) -> LoopStep:
        """The finished loop."""
        return LoopStep(node, tuple(self.start), tuple(self.advance), tuple(body), **parts)  # type: ignore[arg-type]
