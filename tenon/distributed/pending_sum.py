"""A sum between processes that is under way: what this rank has gone out, what it hears is added up as it comes.

    pending = PendingSum(link, tag, what, source, target, ranks, op)
    pending.advance()           # adds up what has come, says what is added up; True at the end
    pending.finish()            # waits for the end

It is done as the blocking one is (`tenon.distributed.mpi_transport`): each rank adds up a part of every piece in the
order of the ranks, then all get the parts; of a small array, everybody adds up all.  What can be asked for is asked for
at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tenon.distributed.mpi_link import MpiLink
from tenon.ops.communicator import Array, combine, part
from tenon.runtime.buffer_pool import take

SMALL = 1 << 14         # bytes that everybody sends to everybody
STAGES = 2              # tags that a sum takes: of what is added up, and of what was


class PendingSum:
    """One sum of a flat array, on one rank of a group."""

    def __init__(self, link: MpiLink, tag: int, what: Callable[[], str], source: Array, target: Array,
                 ranks: Sequence[int], op: str, step: int):
        self.link, self.tag, self.what, self.ranks, self.op = link, tag, what, ranks, op
        self.others = [k for k in ranks if k != link.rank]
        self.last: list[Any] = []           # requests of the second stage
        self.first: list[tuple[list[Any], list[Array], Array]] = []     # of each piece: requests, what comes, the sum
        if source.nbytes <= SMALL:
            self._begin_small(source, target)
            return
        for start in range(0, source.size, step):
            self._begin(source[start:start + step], target[start:start + step])

    def _begin_small(self, source: Array, target: Array) -> None:
        """Ask for all that everybody has: each rank adds it up for itself."""
        letters = self.link.sums
        brought = [source if rank == self.link.rank else np.empty_like(source) for rank in self.ranks]
        requests = [letters.Irecv(bytes_of(x), rank, self.tag) for rank, x in zip(self.ranks, brought, strict=True)
                    if rank != self.link.rank]
        self.first.append((requests + [letters.Isend(bytes_of(source), rank, self.tag) for rank in self.others],
                           brought, target))
        self.others = []            # who are told of the sum

    def _begin(self, source: Array, target: Array) -> None:
        """Ask for everybody's part of a piece that this rank adds up, and for the sums that others make."""
        letters, place = self.link.sums, self.ranks.index(self.link.rank)
        cuts = [part(source.size, len(self.ranks), k) for k in range(len(self.ranks))]
        mine = target[cuts[place]]
        brought = [source[cuts[place]] if rank == self.link.rank else take(mine.shape, mine.dtype)
                   for rank in self.ranks]
        self.last += [letters.Irecv(bytes_of(target[cuts[k]]), rank, self.tag + 1)
                      for k, rank in enumerate(self.ranks) if rank != self.link.rank]
        requests = [letters.Irecv(bytes_of(brought[k]), rank, self.tag)
                    for k, rank in enumerate(self.ranks) if rank != self.link.rank]
        requests += [letters.Isend(bytes_of(source[cuts[k]]), rank, self.tag)
                     for k, rank in enumerate(self.ranks) if rank != self.link.rank]
        self.first.append((requests, brought, mine))

    def advance(self) -> bool:
        """Do what can be done without waiting; whether that was all there was."""
        done = self.link.mpi.Request.Testall
        while self.first and done(self.first[0][0]):
            _, brought, mine = self.first.pop(0)
            combine(brought, self.op, mine)
            self.last += [self.link.sums.Isend(bytes_of(mine), rank, self.tag + 1) for rank in self.others]
        return not self.first and bool(done(self.last))

    def finish(self) -> None:
        """Until the sum is there.  Raises CommunicationError where another rank makes that impossible."""
        if not self.advance():
            self.link.wait_until(self.advance, self.what, self.ranks)

    def give_up(self) -> None:
        """After a failure: nothing more may be written to the memory of the sum."""
        for request in [*self.last, *(x for requests, _, _ in self.first for x in requests)]:
            with suppress(self.link.mpi.Exception):
                if not request.Test():
                    request.Cancel()
        self.link.kept += [*self.last, *(x for requests, _, _ in self.first for x in requests)]


def bytes_of(x: Array) -> Array:
    """The memory of an array as bytes."""
    return x.reshape(-1).view(np.uint8)
