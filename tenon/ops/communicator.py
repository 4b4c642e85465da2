"""How one device of a run speaks to the others: what every transport gives a rank, and which one speaks now.

    with speaking(communicator):
        program.run(arrays)             # its collectives ask this communicator

Every rank of a run calls the same operations in the same order.  `over` names axes of the mesh: an operation is between
the ranks that differ only along these.  Parts of uneven sizes are those of `numpy.array_split`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from tenon.context_values import during
from tenon.errors import ArgumentError, CommunicationError
from tenon.types import bfloat16, float16

Array = np.ndarray[Any, np.dtype[Any]]
Over = tuple[str, ...]

REDUCTIONS = ("sum", "max", "min")
NARROW = (float16.numpy, bfloat16.numpy)


class Ranks(Protocol):
    """What a transport asks of a mesh."""

    @property
    def size(self) -> int: ...
    def group(self, rank: int, over: Over) -> tuple[int, ...]: ...
    def __hash__(self) -> int: ...


class Communicator(Protocol):
    """What one rank of a run says and hears.  Results are new arrays, or `out` where one is given.

    Raises CommunicationError where another rank has failed, has gone, or asks for another operation.
    """

    rank: int
    size: int

    def group(self, over: Over) -> tuple[int, ...]: ...
    def all_reduce(self, x: Array, over: Over, op: str = "sum", out: Array | None = None) -> Array: ...
    def start_sum(self, xs: Sequence[Array], outs: Sequence[Array], over: Over, op: str = "sum") -> None: ...
    def finish_sum(self, outs: Sequence[Array]) -> None: ...
    def all_gather(self, x: Array, axis: int, over: Over, size: int, out: Array | None = None) -> Array: ...
    def reduce_scatter(self, x: Array, axis: int, over: Over, op: str, size: int,
                       out: Array | None = None) -> Array: ...
    def all_to_all(self, x: Array, split: int, concat: int, over: Over, split_size: int, concat_size: int,
                   out: Array | None = None) -> Array: ...
    def broadcast(self, x: Array, over: Over, root: int = 0, out: Array | None = None) -> Array: ...
    def permute(self, x: Array, over: Over, shift: int = 1, out: Array | None = None) -> Array: ...
    def barrier(self, over: Over) -> None: ...
    def send(self, x: Array, to: int, tag: int) -> None: ...
    def recv(self, shape: Sequence[int], dtype: Any, source: int, tag: int, out: Array | None = None) -> Array: ...
    def abort(self, error: BaseException) -> None: ...
    def close(self) -> None: ...


class RankGroups:
    """A rank of a mesh, and the groups that it is in, found once each."""

    def __init__(self, rank: int, mesh: Ranks):
        self.rank, self.size, self._mesh = rank, mesh.size, mesh
        self._groups: dict[Over, tuple[int, ...]] = {}

    def group(self, over: Over) -> tuple[int, ...]:
        """The ranks that differ from this one along these axes only."""
        if over not in self._groups:
            self._groups[over] = tuple(self._mesh.group(self.rank, over))
        return self._groups[over]


_speaker: ContextVar[Communicator | None] = ContextVar("communicator", default=None)


def speaking(communicator: Communicator | None) -> AbstractContextManager[Any]:
    """A block in which collectives ask this communicator."""
    return during(_speaker, communicator)


def speak_by_default(factory: Callable[[str], Communicator]) -> None:
    """Let `factory(name of the operator)` say who speaks where no `speaking` is in force."""
    _default.append(factory)


_default: list[Callable[[str], Communicator]] = []


def communicator(name: str) -> Communicator:
    """The one that speaks now; raises CommunicationError where none does."""
    found = _speaker.get()
    if found is None and _default:
        found = _default[-1](name)
    if found is None:
        raise CommunicationError(f"{name}: nobody to speak to, since this run has one device only",
                                 hint="run it on a mesh: @tn.jit(mesh=tn.distributed.Mesh({'data': 2}))")
    return found


def place(speaker: Communicator, over: Over) -> int:
    """The place of a rank in its group."""
    return speaker.group(over).index(speaker.rank)


# ---------------------------------------------------------------- parts

def part(size: int, count: int, k: int) -> slice:
    """Part `k` of an axis in `count` parts: the first `size % count` have one element more.

    >>> [part(5, 3, k) for k in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    least, more = divmod(size, count)
    start = k * least + min(k, more)
    return slice(start, start + least + (k < more))


def part_size(size: int, count: int, k: int) -> int:
    """How many elements part `k` has."""
    return size // count + (k < size % count)


def along(axis: int, where: slice) -> tuple[slice, ...]:
    """An index that takes this part of one axis."""
    return (*(slice(None),) * axis, where)


def check_part(name: str, found: int, size: int, count: int, k: int) -> None:
    """Raise ArgumentError unless a rank has the part of an axis that its place in the group gives it."""
    if found != (expected := part_size(size, count, k)):
        raise ArgumentError(f"{name}: part {k} of {count} of {size} elements has {expected}, not {found}")


def check_split(shape: Sequence[int], split: int, concat: int, split_size: int, concat_size: int, count: int,
                k: int) -> None:
    """Raise ArgumentError unless an all_to_all of this array makes parts of these sizes."""
    check_part("all_to_all", split_size, shape[split], count, k)
    if split != concat:
        check_part("all_to_all", shape[concat], concat_size, count, k)
    elif concat_size % count:
        raise ArgumentError(f"all_to_all: an axis of {concat_size} elements that is split and joined must divide by "
                            f"the {count} ranks")


# ---------------------------------------------------------------- sums in the order of the ranks

def combine(arrays: Sequence[Array], op: str, out: Array | None = None) -> Array:
    """Sum, maximum or minimum, element by element, always from the first array to the last.

    So the bits do not depend on who comes first.  Elements of 16 bits are summed in float32 and rounded once.
    """
    first = arrays[0]
    out = np.empty_like(first) if out is None else out
    step = {"sum": np.add, "max": np.maximum, "min": np.minimum}[op]
    if len(arrays) == 1:
        np.copyto(out, first)
    elif first.dtype in NARROW:
        total = first.astype(np.float32)
        for x in arrays[1:]:
            step(total, x.astype(np.float32), out=total)
        np.copyto(out, total, casting="unsafe")
    else:
        with np.errstate(all="ignore"):
            step(first, arrays[1], out=out)
            for x in arrays[2:]:
                step(out, x, out=out)
    return out
