"""This process among those that `mpiexec` started: the MPI library, messages between processes, and how they end.

Every wait is a poll.  So a rank that waits in vain finds out: another one says that it failed or ended before it goes,
and a limit of time is set for one that says nothing.  Who waits longer than a moment leaves the processor to others.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

import numpy as np

from tenon.config import config
from tenon.errors import CommunicationError, TenonError
from tenon.ops.communicator import Array

SPINS = 200             # polls before the first look at the clock
PATIENCE = 0.005        # seconds of polling before a rank sleeps between polls
NAP = 50e-6             # seconds of such a sleep
LOOK = 0.02             # seconds between looks for notices of other ranks
FAREWELL = 1.0          # seconds that others have to say what they know of a failure, before all are ended
KEPT = 64               # sends, after which it is asked which of them are done
TEXTS = 2               # the tag of texts that all ranks exchange
LAST_WORDS = 0.2        # seconds that what was printed has to reach the launcher, which drops the rest
ASK = 0.5               # seconds after which a rank tells whom it waits for what it waits in
FAILED, DISAGREED, ENDED, WAITING, GOING_ON = "failed", "disagreed", "ended", "waiting", "going on"
REFUSED = ", refused: "  # behind a call that a rank finds wrong


class MpiLink:
    """The processes of `mpiexec`, as this one sees them."""

    def __init__(self, mpi: Any):
        self.mpi = mpi
        world = mpi.COMM_WORLD
        self.rank: int = world.Get_rank()
        self.size: int = world.Get_size()
        self.world = world
        self.parts, self.letters, self.notices, self.sums = world.Dup(), world.Dup(), world.Dup(), world.Dup()
        self.status = mpi.Status()
        self.most_tag = world.Get_attr(mpi.TAG_UB) or (1 << 15) - 1
        self.gone: dict[int, tuple[str, str]] = {}      # rank -> how it ended, and what it said
        self.waiting: dict[int, str] = {}               # rank -> the call in which it has waited for long
        self.kept: list[Any] = []                       # requests of sends,
        self.broken: list[Any] = []                     # and of waits that were broken off, which may never be done
        self.most_kept = KEPT
        self.under_way: dict[int, Any] = {}             # sums that were started, by where their results lie
        self.failed: str | None = None      # what broke a call off, whose messages may still come
        self.said = False                               # whether this rank has said how it ended
        atexit.register(self.end)
        previous = sys.excepthook

        def hook(kind: Any, error: Any, trace: Any) -> None:
            previous(kind, error, trace)
            self.fail(error)
        sys.excepthook = hook

    # ------------------------------------------------------------ waiting

    def wait(self, requests: Sequence[Any], what: Callable[[], str], others: Sequence[int]) -> None:
        """Until these requests are done.  Raises CommunicationError where another rank makes that impossible."""
        done = self.mpi.Request.Testall
        self._wait(lambda: bool(done(requests)), requests, what, others)

    def wait_until(self, done: Callable[[], bool], what: Callable[[], str], others: Sequence[int]) -> None:
        """Until this says that it is so, as `wait`."""
        self._wait(done, (), what, others)

    def advance(self) -> None:
        """Go on with the sums that are under way."""
        for pending in list(self.under_way.values()):
            pending.advance()

    def wait_one(self, request: Any, what: Callable[[], str], source: int) -> int:
        """How many bytes came by this request."""
        status, test = self.status, request.Test
        for _ in range(SPINS):
            if test(status):
                found: int = status.Get_count(self.mpi.BYTE)
                return found
        came: list[int] = []

        def done() -> bool:         # a request that is done has no status the second time
            if not came and test(status):
                came.append(status.Get_count(self.mpi.BYTE))
            return bool(came)
        self._wait(done, [request], what, [source])
        return came[0]

    def _wait(self, done: Callable[[], bool], requests: Sequence[Any], what: Callable[[], str],
              others: Sequence[int]) -> None:
        try:
            for _ in range(SPINS):
                if done():
                    return
            self._wait_long(done, what, others)
        except self.mpi.Exception as error:
            raise CommunicationError(f"{what()}: MPI says {error}",
                                     hint="do all ranks make the same calls in the same order?") from error
        except BaseException as error:
            self.broken += requests         # whose memory MPI may still write to
            if isinstance(error, CommunicationError):
                self.failed = self.failed or error.what
            raise

    def _wait_long(self, done: Callable[[], bool], what: Callable[[], str], others: Sequence[int]) -> None:
        started = looked = time.monotonic()
        limit, told = config().timeout, False
        while not done():
            self.advance()
            now = time.monotonic()
            if now - looked > LOOK:
                looked = now
                self._look(done, what, others, now - started > 2 * ASK)
            if now - started > ASK and not told:
                told = True
                self._notify(WAITING, what(), others)
            if now - started > limit:
                raise CommunicationError(f"rank {self.rank} has waited {limit:g} s in {what()} for rank "
                                         f"{' or '.join(str(k) for k in others if k != self.rank)}",
                                         hint="TENON_TIMEOUT sets the limit, in seconds")
            if now - started > PATIENCE:
                time.sleep(NAP)
            else:
                os.sched_yield()
        if told:
            self._notify(GOING_ON, "", others)

    def _look(self, done: Callable[[], bool], what: Callable[[], str], others: Sequence[int], long: bool) -> None:
        """Raise where what others have said leaves no hope."""
        self.hear()
        if not (self.gone or self.waiting) or done():
            return
        for rank, (how, text) in self.gone.items():
            if how == DISAGREED:
                self._disagree(text)
            if how == FAILED:
                raise CommunicationError(f"rank {rank} failed: {text}")
        if long or not self.gone.keys().isdisjoint(others):
            self._compare(what(), others)
        for rank in others:
            if rank in self.gone:
                raise CommunicationError(f"rank {self.rank} waits in {what()} for rank {rank}, which has ended")

    def _compare(self, call: str, others: Sequence[int]) -> None:
        """Raise where others wait in another call.  All say the same: the first rank of each call."""
        calls = {self.rank: call} | {rank: self.waiting[rank] for rank in others if rank in self.waiting}
        firsts = {text: rank for rank, text in sorted(calls.items(), reverse=True) if is_of_all(text)}
        if len(firsts) > 1 and is_of_all(call):
            self._disagree("ranks disagree: " + ", ".join(
                f"rank {rank} {'is' if REFUSED in text else 'waits'} in {text}"
                for rank, text in sorted((rank, text) for text, rank in firsts.items())))

    def _disagree(self, text: str) -> NoReturn:
        """Raise what all ranks hear; others are told, for some know of this one only that it has gone."""
        self.tell(DISAGREED, text)
        self.failed = text
        raise CommunicationError(text, hint="all ranks of a group must make the same calls in the same order")

    def refuse(self, call: str, error: TenonError, ranks: Sequence[int]) -> None:
        """Raise an error of this rank's own call; where others wait in one that is right, what all of them hear."""
        self._check_unbroken()
        refused, others = f"{call}{REFUSED}{error.what.partition(': ')[2]}", [k for k in ranks if k != self.rank]
        self._notify(WAITING, refused, others)
        until = time.monotonic() + 3 * ASK
        while time.monotonic() < until and not self.waiting.keys() | self.gone.keys() >= set(others):
            self.hear()
            time.sleep(NAP)
        if all(REFUSED in self.waiting.get(k, "") for k in others):     # all are wrong, and nobody waits
            for k in others:
                del self.waiting[k]
            raise error
        self._compare(refused, others)
        self.failed = error.what
        raise error

    # ------------------------------------------------------------ messages

    def keep(self, request: Any) -> None:
        """Let a send go on by itself."""
        self.kept.append(request)
        if len(self.kept) > self.most_kept:
            self.kept = [x for x in self.kept if not x.Test()]
            self.most_kept = max(KEPT, 2 * len(self.kept))

    def settle(self) -> None:
        """Until all sends are taken."""
        if self.kept:
            kept, self.kept = self.kept, []
            self.wait(kept, lambda: "send", range(self.size))

    def exchange(self, sends: Sequence[tuple[int, Array]], receives: Sequence[tuple[int, Array]], tag: int,
                 what: Callable[[], str]) -> None:
        """Bytes to ranks, and from ranks, all at once.  Who hears nothing of a rank that it sends to waits until that
        takes it: both find out where that is in another call."""
        self._check_unbroken()
        self.advance()
        parts, sources = self.parts, [rank for rank, _ in receives]
        requests = [parts.Irecv(array, source, tag) for source, array in receives]
        requests += [(parts.Isend if to in sources else parts.Issend)(array, to, tag) for to, array in sends]
        self.wait(requests, what, [*sources, *(to for to, _ in sends if to not in sources)])

    def _check_unbroken(self) -> None:
        if self.failed is not None:
            raise CommunicationError(f"a call before this one was broken off: {self.failed}",
                                     hint="its messages may still come: start all processes again")

    def gather_texts(self, text: str) -> list[str]:
        """The text of every rank, by rank."""
        mine = np.frombuffer(text.encode(), np.uint8)
        sizes = self._from_all(np.asarray([mine.size], np.int64).view(np.uint8), [8] * self.size)
        texts = self._from_all(mine, [int(x.view(np.int64)[0]) for x in sizes])
        return [x.tobytes().decode() for x in texts]

    def _from_all(self, mine: Array, sizes: Sequence[int]) -> list[Array]:
        """Bytes of every rank, by rank."""
        found = [mine if k == self.rank else np.empty(size, np.uint8) for k, size in enumerate(sizes)]
        others = [k for k in range(self.size) if k != self.rank]
        self.exchange([(k, mine) for k in others], [(k, found[k]) for k in others], TEXTS,
                      lambda: "an exchange of texts")
        return found

    # ------------------------------------------------------------ the end

    def tell(self, how: str, text: str = "") -> None:
        """Say to all other ranks how this one ends; once."""
        if self.said:
            return
        self.said = True
        self._notify(how, text, range(self.size))

    def _notify(self, how: str, text: str, ranks: Sequence[int]) -> None:
        data = np.frombuffer(json.dumps([how, text[:2000]]).encode(), np.uint8)
        self.kept += [self.notices.Isend(data, rank, 0) for rank in ranks if rank != self.rank]

    def hear(self) -> None:
        """Note what others have said of their end, and of where they wait."""
        status = self.mpi.Status()
        while self.notices.Iprobe(self.mpi.ANY_SOURCE, 0, status):
            data = np.empty(status.Get_count(self.mpi.BYTE), np.uint8)
            source = status.Get_source()
            self.notices.Recv(data, source, 0)
            how, text = json.loads(data.tobytes())
            if how == WAITING:
                self.waiting[source] = text
            elif how == GOING_ON:
                self.waiting.pop(source, None)
            else:               # where it waited last may say why
                self.gone[source] = how, text

    def end(self) -> None:
        """At the end of the process, when what it sent is taken; after a call that was broken off, it may never be."""
        with suppress(Exception):
            if not self.said and not self.broken:
                self.settle()
            self.tell(ENDED)

    def fail(self, error: BaseException) -> None:
        """End all processes, when the others have had a moment to say what they know."""
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            self.tell(FAILED, summary(error))
            until = time.monotonic() + FAREWELL
            while time.monotonic() < until and len(self.gone) < self.size - 1:
                self.hear()
                time.sleep(0.01)
            time.sleep(LAST_WORDS)
        self.world.Abort(1)


def is_of_all(call: str) -> bool:
    """Whether a call is one that all ranks of a group make."""
    return not call.startswith(("recv", "send"))


def summary(error: BaseException) -> str:
    """What happened, in a line."""
    return error.what if isinstance(error, TenonError) else f"{type(error).__name__}: {error}"


@cache
def link() -> MpiLink:
    """The one of this process.  Raises CommunicationError where there is no MPI."""
    try:
        from mpi4py import MPI  # local: an optional dependency
    except (ImportError, RuntimeError) as error:
        raise CommunicationError(f"MPI is not installed: {error}",
                                 hint="pip install 'tenon-graph[mpi]' brings mpi4py and MPICH") from error
    return MpiLink(MPI)
