"""Steps -> the same steps, which also give cells of stacks back to the region once nobody can reach them.

Where all that was pushed from one step on is out of reach after another, the region is put back to where it was: behind
both loops of a gradient, or at the end of an iteration that has them.  A cell is reached by handles, and by what lies
in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tenon.program.steps import (
    AllocateStep,
    BranchStep,
    FollowStep,
    Leaf,
    LoopStep,
    MarkStep,
    Move,
    MoveStep,
    ReleaseStep,
    Step,
    Storage,
    homes,
    leaves,
    resolve,
)
from tenon.types import stack


def with_releases(steps: Sequence[Step], results: Iterable[Storage] = ()) -> list[Step]:
    """The steps, with marks and releases between them.  Of the results, handles live on; all else was copied."""
    if not any(map(_pushes, steps)):
        return list(steps)
    last_read = {x: k for k, step in enumerate(steps) for y in step.inputs for x in _reads(y)}
    last_read.update((x, len(steps)) for y in results if y.type.dtype is stack for x in _reads(y))
    ends: dict[int, tuple[int, MarkStep]] = {}         # where what began there can be given back
    for k, step in enumerate(steps):
        end = _out_of_reach(steps, k, last_read) if _pushes(step) else len(steps)
        if end < len(steps):
            ends.setdefault(end, (k, MarkStep()))
    marks = dict(ends.values())
    made: list[Step] = []
    for k, step in enumerate(steps):
        made += [marks[k], step] if k in marks else [step]
        made += [ReleaseStep(ends[k][1])] if k in ends else []
    return made


def _pushes(step: Step) -> bool:
    return any(isinstance(x, AllocateStep) for x in leaves([step]))


def _out_of_reach(steps: Sequence[Step], first: int, last_read: Mapping[Storage | tuple[Storage], int]) -> int:
    """The step after which nobody reaches what was pushed from the first one on; their number, if that is none."""
    reach, end = _Reach(), first
    for k in range(first, len(steps)):
        if k > end:
            break
        reach.follow(steps[k])
        end = max((last_read.get(x, k) for x in reach.known), default=k)
    return end


def _reads(x: Storage) -> tuple[Storage | tuple[Storage], ...]:
    """What is read where a step reads this: it; and, as `(memory,)`, the handles in its memory, if it holds some."""
    return (resolve(x), *((y,) for y in _memory(x))) if x.type.dtype is stack else (resolve(x),)


def _memory(x: Storage) -> tuple[Storage, ...]:
    """Where it may lie; the region of all cells, which tells nothing, is left out."""
    return tuple(y for y in homes(x) if y.kind != "cells")


class _Reach:
    """What may lie in a new cell; and the memory, as `(memory,)`, that may hold handles of one."""

    def __init__(self) -> None:
        self.known: set[Storage | tuple[Storage]] = set()

    def follow(self, step: Step) -> None:
        """Go through a step until there is no more to find: values go around in loops."""
        before = -1
        while before < len(self.known):
            before = len(self.known)
            for move in _moves(step):
                self._move(move)
            for leaf in leaves([step]):
                self._leaf(leaf)

    def _move(self, move: Move) -> None:
        if resolve(move.source) in self.known:
            self.known.add(resolve(move.target))
        if self.leads_there(move.source):
            self.hold(move.target)

    def _leaf(self, step: Leaf) -> None:
        match step:
            case AllocateStep():
                self.known.add(step.cell)
                self.hold(step.handle)
            case FollowStep():
                if self.leads_there(step.handle):
                    self.known.add(step.cell)
            case _:
                if any(map(self.leads_there, step.inputs)):
                    for x in step.outputs:
                        self.hold(x)

    def leads_there(self, x: Storage) -> bool:
        """Whether it may be a handle of a new cell, or of one that such a cell leads to."""
        return x.type.dtype is stack and not self.known.isdisjoint(_reads(x))

    def hold(self, x: Storage) -> None:
        if x.type.dtype is stack:
            self.known.update((y,) for y in _memory(x))


def _moves(step: Step) -> Iterator[Move]:
    """Those in the step."""
    match step:
        case MoveStep():
            yield from step.moves
        case LoopStep():
            yield from (*step.start, *step.advance)
    if isinstance(step, (BranchStep, LoopStep)):
        for part in step.parts:
            for inner in part:
                yield from _moves(inner)
