"""Which steps of a program different threads run at the same time, each alone: chains that do not depend on each other.

    [a1, a2, b1, b2, join]  ->  a1 and a2 on thread 0, b1 and b2 on thread 1; join on all

A kernel cut among all threads makes them meet after it, and each of them does again what cannot be cut, such as
packing an operand.  Where there are as many equal chains as threads, a thread that does a whole chain is done sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from tenon.runtime.worth import CUTTING, MEETING

LONGEST = 48                # steps of a region
LONGEST_CHAIN = 12          # steps without a second chain, after which none is looked for
WORTH = 0.95                # of the time that cutting takes, as far as work is known


@dataclass(frozen=True)
class Job:
    """What is to be known of a step: the memory it touches, its work, whether all threads can share it, and which part
    each of them repeats then."""

    reads: Collection[Hashable]
    writes: Collection[Hashable]
    work: int
    can_be_cut: bool
    repeated: int = 0

    def time(self, threads: int) -> float:
        """About how long all threads are busy with it, or wait."""
        if not self.can_be_cut:
            return self.work
        return (self.work * CUTTING + self.repeated * (threads - 1)) / threads + MEETING


def side_by_side(jobs: Sequence[Job | None], threads: int) -> list[dict[int, int]]:
    """The regions of a sequence of steps, each as {step: thread}.  A step that is None is in none.

    >>> first, second = Job("x", "a", 90_000, True, 18_000), Job("x", "b", 90_000, True, 18_000)
    >>> side_by_side([first, second, Job("ab", "y", 90_000, True)], threads=2)
    [{0: 0, 1: 1}]
    """
    regions, step = [], 0
    while step < len(jobs):
        region = _region(jobs, step, threads)
        regions += [region] if region else []
        step += len(region) or 1
    return regions


def _region(jobs: Sequence[Job | None], first: int, threads: int) -> dict[int, int]:
    """The steps from this one on that are done soonest chain by chain, and the thread of each; {} if none are."""
    chains: list[_Chain] = []
    cut, best, found = 0.0, 0.0, {}
    total, longest = 0, 0
    for step in range(first, min(first + LONGEST, len(jobs))):
        job = jobs[step]
        before = [] if job is None else [chain for chain in chains if chain.leads_to(job)]
        if job is None or len(before) > 1 or (len(chains) < 2 and step - first >= LONGEST_CHAIN):
            break
        if not before:
            chains.append(_Chain())
        chain = (before or chains[-1:])[0]
        chain.add(step, job)
        cut += job.time(threads)
        total, longest = total + job.work, max(longest, chain.work)
        if len(chains) > 1 and WORTH * cut - (max(longest, total / threads) + 2 * MEETING) > best:    # it may be better
            shares = _shares(chains, threads)
            gain = WORTH * cut - (max(sum(chain.work for chain in share) for share in shares) + 2 * MEETING)
            if gain > best:
                best = gain
                found = {step: k for k, share in enumerate(shares) for chain in share for step in chain.steps}
    return found


class _Chain:
    """Steps of which each needs one before it."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.work = 0
        self.read: set[Hashable] = set()
        self.written: set[Hashable] = set()

    def leads_to(self, job: Job) -> bool:
        """Whether the job must come after this chain."""
        return not (self.written.isdisjoint(job.reads) and self.written.isdisjoint(job.writes)
                    and self.read.isdisjoint(job.writes))

    def add(self, step: int, job: Job) -> None:
        self.steps.append(step)
        self.work += job.work
        self.read.update(job.reads)
        self.written.update(job.writes)


def _shares(chains: Sequence[_Chain], threads: int) -> list[list[_Chain]]:
    """The chains of every thread: the longest first, each to the thread that has least to do."""
    shares: list[list[_Chain]] = [[] for _ in range(threads)]
    work = [0] * threads
    for chain in sorted(chains, key=lambda chain: -chain.work):
        thread = work.index(min(work))
        shares[thread].append(chain)
        work[thread] += chain.work
    return shares
