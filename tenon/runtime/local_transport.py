"""Devices of one process that speak to each other: a thread each, and the memory that they share.

    transport = LocalTransport(mesh)
    speakers = transport.begin()                # of one run: a communicator a rank
    with speaking(speakers[rank]): ...          # on the thread of that rank

Arrays are read where they lie: a group meets, each rank makes what it wants of what the others have brought, and all
meet again before anybody goes on.  An error of one rank wakes all; so does a rank that has ended, and a circle of ranks
that wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Condition
from typing import Any

import numpy as np

from tenon.errors import ArgumentError, CommunicationError
from tenon.graph.ir import Graph, Value
from tenon.ops.communicator import Array, Over, RankGroups, Ranks, along, check_part, check_split, combine, part
from tenon.records import dataclass, field
from tenon.types import TensorType, as_dtype

Group = tuple[int, ...]
MAX_DIRECT_BYTES = 1 << 15  # bytes that every rank sums or copies for itself: to meet once more takes longer


@dataclass(frozen=True)
class LocalTransport:
    """The devices of a mesh, all in this process."""

    mesh: Ranks

    @property
    def size(self) -> int:
        return self.mesh.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that run in this process."""
        return tuple(range(self.mesh.size))

    def agree(self, graph: Graph) -> None:
        """Of one process, which has captured one graph."""

    def agree_on_state(self, name: str, whole: Sequence[tuple[Value, np.ndarray]], held: Collection[Value]) -> None:
        """Of one process, which has but one of each."""

    def begin(self) -> dict[int, LocalCommunicator]:
        """What the ranks of one run speak through."""
        meeting = MeetingPlace(self.mesh.size)
        return {rank: LocalCommunicator(rank, self.mesh, meeting) for rank in self.ranks}


@dataclass(eq=False)
class Round:
    """One meeting of a group: what its ranks have brought, by rank, and how many have taken it."""

    brought: dict[int, Any] = field(default_factory=dict)
    taken: int = 0


class MeetingPlace:
    """What the threads of one run share."""

    def __init__(self, size: int):
        self.changed = Condition()
        self.here = set(range(size))            # ranks that have not ended
        self.waiting: dict[int, tuple[Callable[[], Sequence[int]], str]] = {}
        self.error: BaseException | None = None
        self.rounds: dict[tuple[Group, int], Round] = {}
        self.letters: dict[tuple[int, int, int], list[Array]] = {}

    def wait(self, rank: int, missing: Callable[[], Sequence[int]], what: str) -> None:
        """Until no rank is missing; the lock is held.  Raises where one cannot come any more."""
        while others := missing():
            self.check()
            if gone := [k for k in others if k not in self.here]:
                self.fail(CommunicationError(f"rank {rank} waits in {what} for rank {gone[0]}, which has ended"))
            self.waiting[rank] = missing, what
            if len(self.waiting) == len(self.here) and all(absent() for absent, _ in self.waiting.values()):
                told = "; ".join(f"rank {k} in {name}" for k, (_, name) in sorted(self.waiting.items()))
                self.fail(CommunicationError(f"all ranks wait for each other: {told}"))
            try:
                self.changed.wait()
            finally:
                self.waiting.pop(rank, None)
        self.check()

    def check(self) -> None:
        """Raise what ended the run, if anything did."""
        if self.error is not None:
            raise CommunicationError(f"another rank failed: {self.error}") from self.error

    def fail(self, error: BaseException) -> None:
        """End the run for all, and raise."""
        self.end(error)
        raise error

    def end(self, error: BaseException) -> None:
        """Wake all ranks; the first error is what they hear of."""
        with self.changed:
            self.error = self.error or error
            self.changed.notify_all()

    def leave(self, rank: int) -> None:
        """A rank has ended."""
        with self.changed:
            self.here.discard(rank)
            self.changed.notify_all()

    def meet(self, rank: int, group: Group, number: int, what: str, brought: Any) -> dict[int, Any]:
        """What all ranks of a group bring, by rank, when the last has come."""
        with self.changed:
            self.check()
            key = group, number
            meeting = self.rounds.setdefault(key, Round())
            meeting.brought[rank] = brought
            if len(meeting.brought) == len(group):
                self.changed.notify_all()
            self.wait(rank, lambda: [k for k in group if k not in meeting.brought], what)
            meeting.taken += 1
            if meeting.taken == len(group):
                del self.rounds[key]
            return meeting.brought


class LocalCommunicator(RankGroups):
    """One rank of a run.  Only its own thread may call it."""

    def __init__(self, rank: int, mesh: Ranks, place: MeetingPlace):
        super().__init__(rank, mesh)
        self._place = place
        self._numbers: dict[Group, int] = {}

    # ------------------------------------------------------------ between all of a group

    def all_reduce(self, x: Array, over: Over, op: str = "sum", out: Array | None = None) -> Array:
        """The reduction of everybody's array; each rank makes a part of a large one for all."""
        said = f"all_reduce(op={op!r})"
        if x.nbytes <= MAX_DIRECT_BYTES or len(self.group(over)) == 1:
            found = np.empty_like(x) if out is None else out
            return self._together(said, x, over, lambda arrays, _: combine(list(arrays.values()), op, found))
        flat = np.ascontiguousarray(x).reshape(-1)
        shared = self._together(said, flat, over, lambda arrays, k: self._sum_of_part(arrays, k, op), shape=x.shape)
        pieces = self._meet(f"{said}, its parts", over, shared)
        out = np.empty(x.shape, x.dtype) if out is None else out
        target = out.reshape(-1)
        for k, piece in enumerate(pieces.values()):
            target[part(flat.size, len(pieces), k)] = piece
        return out

    def start_sum(self, xs: Sequence[Array], outs: Sequence[Array], over: Over, op: str = "sum") -> None:
        """The reductions, at once: threads share the memory, and there is nothing to wait for but each other."""
        if len(xs) == 1:
            self.all_reduce(xs[0], over, op, outs[0])
            return
        total, end = self.all_reduce(np.concatenate([x.reshape(-1) for x in xs]), over, op), 0
        for out in outs:
            np.copyto(out, total[end:end + out.size].reshape(out.shape))
            end += out.size

    def finish_sum(self, outs: Sequence[Array]) -> None:
        """They were made when they were started."""

    def _sum_of_part(self, arrays: Mapping[int, Array], k: int, op: str) -> Array:
        mine = part(next(iter(arrays.values())).size, len(arrays), k)
        return combine([x[mine] for x in arrays.values()], op)

    def all_gather(self, x: Array, axis: int, over: Over, size: int, out: Array | None = None) -> Array:
        """The parts of everybody, joined along an axis."""
        ranks = self.group(over)
        check_part("all_gather", x.shape[axis], size, len(ranks), ranks.index(self.rank))
        found = np.empty((*x.shape[:axis], size, *x.shape[axis + 1:]), x.dtype) if out is None else out
        return self._together(f"all_gather(axis={axis}, size={size})", x, over,
                              lambda arrays, _: np.concatenate(list(arrays.values()), axis, out=found),
                              shape=found.shape)

    def reduce_scatter(self, x: Array, axis: int, over: Over, op: str, size: int, out: Array | None = None) -> Array:
        """This rank's part of the reduction of everybody's array."""
        ranks = self.group(over)
        place = ranks.index(self.rank)
        check_part("reduce_scatter", size, x.shape[axis], len(ranks), place)
        mine = along(axis, part(x.shape[axis], len(ranks), place))
        return self._together(f"reduce_scatter(axis={axis}, op={op!r})", x, over,
                              lambda arrays, _: combine([y[mine] for y in arrays.values()], op, out))

    def all_to_all(self, x: Array, split: int, concat: int, over: Over, split_size: int, concat_size: int,
                   out: Array | None = None) -> Array:
        """Everybody's part for this rank, joined along another axis."""
        ranks = self.group(over)
        place = ranks.index(self.rank)
        check_split(x.shape, split, concat, split_size, concat_size, len(ranks), place)
        mine = along(split, part(x.shape[split], len(ranks), place))
        shape = list(x.shape)
        shape[concat] = concat_size
        return self._together(
            f"all_to_all(split={split}, concat={concat})", x, over,
            lambda arrays, _: np.concatenate([y[mine] for y in arrays.values()], concat, out=out), shape=tuple(shape))

    def broadcast(self, x: Array, over: Over, root: int = 0, out: Array | None = None) -> Array:
        """The array of the rank at this place of the group."""
        ranks = self.group(over)
        if not 0 <= root < len(ranks):
            raise ArgumentError(f"collective_broadcast: root={root} is no place in a group of {len(ranks)}")
        return self._together(f"broadcast(root={root})", x, over, lambda arrays, _: _copy(arrays[ranks[root]], out))

    def permute(self, x: Array, over: Over, shift: int = 1, out: Array | None = None) -> Array:
        """The array of the rank so many places before, round the group."""
        ranks = self.group(over)
        source = ranks[(ranks.index(self.rank) - shift) % len(ranks)]
        return self._together(f"permute(shift={shift})", x, over, lambda arrays, _: _copy(arrays[source], out))

    def barrier(self, over: Over) -> None:
        """Wait for all of the group."""
        self._meet("barrier", over, None)

    def _together(self, what: str, x: Array, over: Over, make: Callable[[Mapping[int, Array], int], Array],
                  shape: tuple[int, ...] | None = None) -> Array:
        """What this rank makes of everybody's arrays, which stay as they are until all have made theirs.

        Of small ones copies are brought, so that nobody waits for the others once more.
        """
        shape = x.shape if shape is None else shape
        said = f"{what} of {TensorType(as_dtype(x.dtype), shape)}"
        small = math.prod(shape) * x.itemsize <= MAX_DIRECT_BYTES      # the same on all ranks that call the same
        brought = self._meet(said, over, (said, np.array(x) if small else x))
        if others := {k: other for k, (other, _) in brought.items() if other != said}:
            rank, other = next(iter(others.items()))
            error = CommunicationError(f"ranks disagree: rank {self.rank} calls {said}, rank {rank} calls {other}",
                                       hint="all ranks of a group must make the same calls in the same order")
            self._place.fail(error)
        made = make({k: array for k, (_, array) in brought.items()}, self.group(over).index(self.rank))
        if not small:
            self._meet(f"{said}, its end", over, None)
        return made

    def _meet(self, what: str, over: Over, brought: Any) -> dict[int, Any]:
        ranks = self.group(over)
        number = self._numbers[ranks] = self._numbers.get(ranks, 0) + 1
        found = self._place.meet(self.rank, ranks, number, what, brought)
        return {k: found[k] for k in ranks}

    # ------------------------------------------------------------ from one to another

    def send(self, x: Array, to: int, tag: int) -> None:
        """Leave a copy for another rank; it does not wait."""
        with self._place.changed:
            self._place.check()
            self._place.letters.setdefault((self.rank, to, tag), []).append(np.array(x))
            self._place.changed.notify_all()

    def recv(self, shape: Sequence[int], dtype: Any, source: int, tag: int, out: Array | None = None) -> Array:
        """What another rank has sent, when it has."""
        letters, key, said = self._place.letters, (source, self.rank, tag), f"recv(source={source}, tag={tag})"
        with self._place.changed:
            self._place.wait(self.rank, lambda: () if letters.get(key) else (source,), said)
            found = letters[key].pop(0)
        if found.shape != tuple(shape) or found.dtype != dtype:
            expected, came = TensorType(as_dtype(dtype), tuple(shape)), TensorType(as_dtype(found.dtype), found.shape)
            raise CommunicationError(f"{said}: expected {expected}, and {came} came")
        return found if out is None else _copy(found, out)

    # ------------------------------------------------------------ the end

    def abort(self, error: BaseException) -> None:
        """End the run for all ranks, which hear of this error."""
        self._place.end(error)

    def close(self) -> None:
        """This rank has ended; who still waits for it is told."""
        self._place.leave(self.rank)


def _copy(x: Array, out: Array | None) -> Array:
    if out is None:
        return np.array(x)
    np.copyto(out, x)
    return out
