"""Devices of several processes that speak by MPI: each process runs the device of its own rank.

    mpiexec -n 4 python train.py        # or: tenon launch -n 4 train.py

Sums are made here, not by MPI: each rank gets its piece of everybody's array and adds them in the order of the ranks,
then all get the pieces.  So the bits are those of the local transport.  Large arrays go in pieces that fit in caches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from tenon.distributed.graph_agreement import check_same_graph
from tenon.distributed.mpi_link import MpiLink, link, summary
from tenon.distributed.pending_sum import SMALL, STAGES, PendingSum, bytes_of
from tenon.distributed.state_agreement import check_same_state
from tenon.errors import ArgumentError, CommunicationError
from tenon.graph.ir import Graph, Value
from tenon.ops.communicator import Array, Over, RankGroups, Ranks, along, check_part, check_split, combine, part
from tenon.records import dataclass
from tenon.types import TensorType, as_dtype, bfloat16

BFLOAT16 = bfloat16.numpy      # whose memory Python does not know how to show
PIECE = 1 << 19         # bytes of a large array that one rank adds up at a time


@dataclass(frozen=True)
class MpiTransport:
    """The devices of a mesh, of which this process runs one."""

    mesh: Ranks

    def __post_init__(self) -> None:
        if self.mesh.size != link().size:
            raise ArgumentError(f"{self.mesh!r} has {self.mesh.size} places, and there are {link().size} processes",
                                hint=f"tenon launch -n {self.mesh.size} starts as many")

    @property
    def size(self) -> int:
        return self.mesh.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """The one of this process."""
        return (link().rank,)

    def agree(self, graph: Graph) -> None:
        """Raise CommunicationError, on every rank, where not all have captured the same graph."""
        check_same_graph(graph, link())

    def agree_on_state(self, name: str, whole: Sequence[tuple[Value, np.ndarray]], held: Collection[Value]) -> None:
        """Raise CommunicationError, on every rank, where these tensors are not the same on all."""
        check_same_state(name, whole, held, link())

    def begin(self) -> dict[int, MpiCommunicator]:
        """What the rank of this process speaks through."""
        return {link().rank: communicator_on(self.mesh)}


@cache
def communicator_on(mesh: Ranks) -> MpiCommunicator:
    """The one of this process; it remembers groups and calls from run to run."""
    return MpiCommunicator(mesh, link())


class MpiCommunicator(RankGroups):
    """One rank of a run."""

    def __init__(self, mesh: Ranks, through: MpiLink):
        super().__init__(through.rank, mesh)
        self.size, self._link = through.size, through
        self._tags: dict[Any, int] = {}
        self._started: dict[tuple[int, ...], int] = {}      # by group: tags of sums that were started
        self._unpacked: dict[int, Array | None] = {}        # where sums lie that travel together, until they are done

    # ------------------------------------------------------------ between all of a group

    def all_reduce(self, x: Array, over: Over, op: str = "sum", out: Array | None = None) -> Array:
        """The reduction of everybody's array."""
        ranks = self.group(over)
        if len(ranks) == 1:
            return _into(out, x)
        told = self._call("all_reduce", x, over, op)
        found = np.empty(x.shape, x.dtype) if out is None or not out.flags.c_contiguous else out
        source, target = np.ascontiguousarray(x).reshape(-1), found.reshape(-1)
        if x.nbytes <= SMALL:
            others = self._everybody(told, source, [source.size] * len(ranks), ranks)
            combine(others, op, target)
        else:
            step = max(1, PIECE // x.itemsize) * len(ranks)
            for start in range(0, source.size, step):
                self._reduce_piece(told, source[start:start + step], target[start:start + step], ranks, op)
        return found if out is None or found is out else _into(out, found)

    def start_sum(self, xs: Sequence[Array], outs: Sequence[Array], over: Over, op: str = "sum") -> None:
        """Begin the reduction of everybody's arrays into others; of one type, and not to be changed meanwhile."""
        ranks, key = self.group(over), outs[0].ctypes.data
        alone = len(xs) == 1 and xs[0].flags.c_contiguous and outs[0].flags.c_contiguous
        source = xs[0].reshape(-1) if alone else np.concatenate([x.reshape(-1) for x in xs])
        target = outs[0].reshape(-1) if alone else np.empty_like(source)
        self._link.advance()
        told = self._call("all_reduce", source, over, op, shape=xs[0].shape if alone else source.shape)
        started = self._started[ranks] = self._started.get(ranks, 0) + STAGES
        tag = (told.tag + started) % (self._link.most_tag - STAGES)
        step = max(1, PIECE // source.itemsize) * len(ranks)
        pending = PendingSum(self._link, tag, told.text, source, target, ranks, op, step)
        if key in self._link.under_way:         # of a run that failed
            self._link.under_way.pop(key).give_up()
        self._link.under_way[key] = pending
        self._unpacked[key] = None if alone else target

    def finish_sum(self, outs: Sequence[Array]) -> None:
        """Wait for a reduction that was begun into these arrays."""
        key = outs[0].ctypes.data
        pending, packed, end = self._link.under_way.pop(key), self._unpacked.pop(key), 0
        try:
            pending.finish()
        except BaseException:
            self._link.under_way[key] = pending     # which `close` gives up
            raise
        if packed is None:
            return
        for out in outs:
            np.copyto(out, packed[end:end + out.size].reshape(out.shape))
            end += out.size

    def _reduce_piece(self, told: Told, source: Array, target: Array, ranks: Sequence[int], op: str) -> None:
        """Everybody adds a part of it, and all get all parts."""
        cuts, place = [part(source.size, len(ranks), k) for k in range(len(ranks))], ranks.index(self.rank)
        mine = target[cuts[place]]
        combine(self._swapped(told, [source[cut] for cut in cuts], [mine.size] * len(ranks), ranks), op, mine)
        self._swap(told, [mine] * len(ranks), [target[cut] for cut in cuts], ranks)

    def all_gather(self, x: Array, axis: int, over: Over, size: int, out: Array | None = None) -> Array:
        """The parts of everybody, joined along an axis."""
        ranks = self.group(over)
        shape = (*x.shape[:axis], size, *x.shape[axis + 1:])
        told = self._call("all_gather", x, over, axis, shape=shape)
        self._checked(told, ranks, lambda place: check_part("all_gather", x.shape[axis], size, len(ranks), place))
        cuts = [part(size, len(ranks), k) for k in range(len(ranks))]
        rest = prod((*x.shape[:axis], *x.shape[axis + 1:]))
        sizes = [(cut.stop - cut.start) * rest for cut in cuts]
        parts = self._everybody(told, np.ascontiguousarray(x).reshape(-1), sizes, ranks)
        shaped = [y.reshape(*x.shape[:axis], cut.stop - cut.start, *x.shape[axis + 1:])
                  for y, cut in zip(parts, cuts, strict=True)]
        return np.concatenate(shaped, axis, out=np.empty(shape, x.dtype) if out is None else out)

    def reduce_scatter(self, x: Array, axis: int, over: Over, op: str, size: int, out: Array | None = None) -> Array:
        """This rank's part of the reduction of everybody's array."""
        ranks = self.group(over)
        place = ranks.index(self.rank)
        told = self._call("reduce_scatter", x, over, axis, op)
        self._checked(told, ranks, lambda place: check_part("reduce_scatter", size, x.shape[axis], len(ranks), place))
        pieces = [x[along(axis, part(x.shape[axis], len(ranks), k))] for k in range(len(ranks))]
        received = self._swapped(told, [np.ascontiguousarray(y).reshape(-1) for y in pieces],
                                 [pieces[place].size] * len(ranks), ranks)
        return combine([y.reshape(pieces[place].shape) for y in received], op, out)

    def all_to_all(self, x: Array, split: int, concat: int, over: Over, split_size: int, concat_size: int,
                   out: Array | None = None) -> Array:
        """Everybody's part for this rank, joined along another axis."""
        ranks = self.group(over)
        count, whole = len(ranks), list(x.shape)
        whole[concat] = concat_size
        told = self._call("all_to_all", x, over, split, concat, shape=tuple(whole))
        self._checked(told, ranks, lambda place: check_split(x.shape, split, concat, split_size, concat_size, count,
                                                             place))
        pieces = [np.ascontiguousarray(x[along(split, part(x.shape[split], count, k))]) for k in range(count)]
        shapes = []
        for k in range(count):
            shape = list(x.shape)
            shape[split] = split_size
            if split != concat:
                cut = part(concat_size, count, k)
                shape[concat] = cut.stop - cut.start
            shapes.append(shape)
        received = self._swapped(told, [y.reshape(-1) for y in pieces], list(map(prod, shapes)), ranks)
        return np.concatenate([y.reshape(s) for y, s in zip(received, shapes, strict=True)], concat, out=out)

    def broadcast(self, x: Array, over: Over, root: int = 0, out: Array | None = None) -> Array:
        """The array of the rank at this place of the group."""
        ranks = self.group(over)
        if not 0 <= root < len(ranks):
            raise ArgumentError(f"collective_broadcast: root={root} is no place in a group of {len(ranks)}")
        told = self._call("broadcast", x, over, root)
        if ranks[root] == self.rank:
            data = bytes_of(np.ascontiguousarray(x))
            self._link.exchange([(k, data) for k in ranks if k != self.rank], [], told.tag, told.text)
            return _into(out, x)
        found = np.empty(x.shape, x.dtype)
        self._link.exchange([], [(ranks[root], bytes_of(found))], told.tag, told.text)
        return found if out is None else _into(out, found)

    def permute(self, x: Array, over: Over, shift: int = 1, out: Array | None = None) -> Array:
        """The array of the rank so many places before, round the group."""
        ranks = self.group(over)
        place = ranks.index(self.rank)
        to, source = ranks[(place + shift) % len(ranks)], ranks[(place - shift) % len(ranks)]
        if to == self.rank:
            return _into(out, x)
        told = self._call("permute", x, over, shift)
        found = np.empty(x.shape, x.dtype)
        self._link.exchange([(to, bytes_of(np.ascontiguousarray(x)))], [(source, bytes_of(found))], told.tag, told.text)
        return found if out is None else _into(out, found)

    def barrier(self, over: Over) -> None:
        """Wait for all of the group."""
        nothing = np.zeros(1, np.uint8)
        self._everybody(self._call("barrier", nothing, over), nothing, [1] * len(self.group(over)), self.group(over))

    # ------------------------------------------------------------ how

    def _call(self, name: str, x: Array, over: Over, *rest: Any, shape: tuple[int, ...] | None = None) -> Told:
        """What the ranks of a group do now.  Messages of other calls have another tag: none is taken for another."""
        key = name, x.dtype, x.shape if shape is None else shape, over, rest
        tag = self._tags.get(key)
        if tag is None:
            tag = self._tags[key] = crc32(repr(key).encode()) % self._link.most_tag
        return Told(tag, key)

    def _checked(self, told: Told, ranks: Sequence[int], check: Callable[[int], None]) -> None:
        """Raise what a check finds wrong with the call of this place in the group, so that others hear of it."""
        try:
            check(ranks.index(self.rank))
        except ArgumentError as error:
            self._link.refuse(told.text(), error, ranks)

    def _everybody(self, told: Told, mine: Array, sizes: Sequence[int], ranks: Sequence[int]) -> list[Array]:
        """What each rank of the group brings, flat, of these sizes."""
        found = [mine if k == self.rank else np.empty(size, mine.dtype) for k, size in zip(ranks, sizes, strict=True)]
        self._swap(told, [mine] * len(ranks), found, ranks)
        return found

    def _swapped(self, told: Told, pieces: Sequence[Array], sizes: Sequence[int], ranks: Sequence[int]) -> list[Array]:
        """Piece k goes to rank k; what comes from each rank, flat, of these sizes."""
        found = [pieces[k] if rank == self.rank else np.empty(sizes[k], pieces[k].dtype)
                 for k, rank in enumerate(ranks)]
        self._swap(told, pieces, found, ranks)
        return found

    def _swap(self, told: Told, pieces: Sequence[Array], into: Sequence[Array], ranks: Sequence[int]) -> None:
        """Piece k goes to rank k of the group, and what it sends to this one into array k."""
        others = [k for k, rank in enumerate(ranks) if rank != self.rank]
        self._link.exchange([(ranks[k], bytes_of(pieces[k])) for k in others],
                            [(ranks[k], bytes_of(into[k])) for k in others], told.tag, told.text)

    # ------------------------------------------------------------ from one to another

    def send(self, x: Array, to: int, tag: int) -> None:
        """Send a copy to another rank; it does not wait."""
        self._link.keep(self._link.letters.Isend(x.tobytes(), to, tag))

    def recv(self, shape: Sequence[int], dtype: Any, source: int, tag: int, out: Array | None = None) -> Array:
        """What another rank sends."""
        found = np.empty(shape, dtype) if out is None or not out.flags.c_contiguous else out
        buffer = bytes_of(found) if dtype == BFLOAT16 else [found, self._link.mpi.BYTE]
        request = self._link.letters.Irecv(buffer, source, tag)

        def what() -> str:
            return f"recv(source={source}, tag={tag}) of {TensorType(as_dtype(dtype), tuple(shape))}"
        if (came := self._link.wait_one(request, what, source)) != found.nbytes:
            raise CommunicationError(f"{what()}: {came} bytes came")
        return found if out is None or found is out else _into(out, found)

    # ------------------------------------------------------------ the end

    def abort(self, error: BaseException) -> None:
        """Tell all ranks of this error: who waits hears it."""
        self._link.tell("failed", summary(error))

    def close(self) -> None:
        """This rank has ended a run; what it sent goes on by itself."""
        if self._link.under_way:        # only where it failed
            for pending in self._link.under_way.values():
                pending.give_up()
            self._link.under_way.clear()
            self._unpacked.clear()


@dataclass(frozen=True)
class Told:
    """A call that all ranks of a group make: the tag of its messages, and what it is."""

    tag: int
    key: tuple[Any, ...]

    def text(self) -> str:
        """It in words."""
        name, dtype, shape, over, rest = self.key
        said = f"({', '.join(map(repr, rest))})" if rest else ""
        return f"{name}{said} of {TensorType(as_dtype(dtype), shape)} over {over}"


def _into(out: Array | None, x: Array) -> Array:
    if out is None:
        return np.array(x)
    np.copyto(out, x)
    return out
