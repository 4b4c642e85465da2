"""Which steps of a program different threads run at the same time, each alone: chains that do not depend on each other.

    [a1, a2, b1, b2, join]  ->  a1 and a2 on thread 0, b1 and b2 on thread 1; join on all

A kernel cut among all threads makes them meet after it, and each of them does again what cannot be cut, such as
packing an operand.  Where there are as many equal chains as threads, a thread that does a whole chain is done sooner.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from itertools import accumulate
from math import inf

from tenon.records import dataclass, field
from tenon.runtime.parallel_profitability import BARRIER_COST, SPLIT_OVERHEAD

MAX_REGION_STEPS = 48       # steps of a region
LONGEST_CHAIN = 12          # steps without a second chain, after which none is looked for
# Of the time that cutting takes, as far as work is known.  Nearly equal steps are cut: parts of a kernel balance cores
# that are not equally fast, chains do not.  With 1.0, on a 2-core machine with AVX-512: four branches of products take
# 0.94 of the time, four of convolutions 1.25.
MAX_TIME_RATIO = 0.95


@dataclass(frozen=True)
class ThreadJob:
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
        return (self.work * SPLIT_OVERHEAD + self.repeated * (threads - 1)) / threads + BARRIER_COST


def side_by_side(jobs: Sequence[ThreadJob | None], threads: int) -> list[dict[int, int]]:
    """The regions of a sequence of steps, each as {step: thread}.  A step that is None is in none.

    >>> first, second = ThreadJob("x", "a", 90_000, True, 18_000), ThreadJob("x", "b", 90_000, True, 18_000)
    >>> side_by_side([first, second, ThreadJob("ab", "y", 90_000, True)], threads=2)
    [{0: 0, 1: 1}]
    """
    regions, step = [], 0
    times = [0.0 if job is None else job.time(threads) for job in jobs]
    gains = [-inf if job is None else MAX_TIME_RATIO * time - job.work / threads
             for job, time in zip(jobs, times, strict=True)]
    needed = _needed(jobs)
    while step < len(jobs):
        second = min(needed[step + 1:step + LONGEST_CHAIN], default=step) < step
        region = _region(jobs, times, step, threads) if second and _may_gain(gains, step) else {}
        regions += [region] if region else []
        step += len(region) or 1
    return regions


def _may_gain(gains: Sequence[float], first: int) -> bool:
    """Whether steps from this one on would be done sooner if all threads had equal shares: most are not, in no time.

    `gains` says by how much each step would.
    """
    return max(accumulate(gains[first:first + MAX_REGION_STEPS])) > 2 * BARRIER_COST


def _needed(jobs: Sequence[ThreadJob | None]) -> list[int]:
    """For each job the last one before it in whose chain it must be, -1 where there is none."""
    needed = []
    touched: dict[Hashable, int] = {}
    written: dict[Hashable, int] = {}
    for step, job in enumerate(jobs):
        if job is None:
            needed.append(step)
            continue
        before = [written.get(x, -1) for x in job.reads] + [touched.get(x, -1) for x in job.writes]
        needed.append(max(before, default=-1))
        touched.update(dict.fromkeys((*job.reads, *job.writes), step))
        written.update(dict.fromkeys(job.writes, step))
    return needed


def _region(jobs: Sequence[ThreadJob | None], times: Sequence[float], first: int, threads: int) -> dict[int, int]:
    """The steps from this one on that are done soonest chain by chain, and the thread of each; {} if none are.

    `times` says how long each step takes all threads.
    """
    chains = _Chains()
    cut, best, found = 0.0, 0.0, {}
    total, longest = 0, 0
    for step in range(first, min(first + MAX_REGION_STEPS, len(jobs))):
        job = jobs[step]
        if job is None or (len(chains.listed) < 2 and step - first >= LONGEST_CHAIN):
            break
        chain = chains.add(step, job)
        if chain is None:
            break
        cut += times[step]
        total, longest = total + job.work, max(longest, chain.work)
        bound = max(longest, total / threads) + 2 * BARRIER_COST
        if len(chains.listed) > 1 and MAX_TIME_RATIO * cut - bound > best:
            shares = _shares(chains.listed, threads)
            slowest = max(sum(chain.work for chain in share) for share in shares)
            gain = MAX_TIME_RATIO * cut - (slowest + 2 * BARRIER_COST)
            if gain > best:
                best = gain
                found = {step: k for k, share in enumerate(shares) for chain in share for step in chain.steps}
    return found


@dataclass(eq=False)
class _Chain:
    """Steps of which each needs one before it."""

    steps: list[int] = field(default_factory=list)
    work: int = 0


class _Chains:
    """Chains, and which of them read and write what."""

    def __init__(self) -> None:
        self.listed: list[_Chain] = []
        self.readers: dict[Hashable, list[_Chain]] = {}
        self.writer: dict[Hashable, _Chain] = {}

    def add(self, step: int, job: ThreadJob) -> _Chain | None:
        """The chain that the step goes on with, or begins; None where it needs several."""
        before = {self.writer[x] for x in (*job.reads, *job.writes) if x in self.writer}
        before.update(chain for x in job.writes for chain in self.readers.get(x, ()))
        if len(before) > 1:
            return None
        if not before:
            self.listed.append(_Chain())
        chain = before.pop() if before else self.listed[-1]
        chain.steps.append(step)
        chain.work += job.work
        for x in job.reads:
            self.readers.setdefault(x, []).append(chain)
        for x in job.writes:
            self.writer[x] = chain
        return chain


def _shares(chains: Sequence[_Chain], threads: int) -> list[list[_Chain]]:
    """The chains of every thread: the longest first, each to the thread that has least to do."""
    shares: list[list[_Chain]] = [[] for _ in range(threads)]
    work = [0] * threads
    for chain in sorted(chains, key=lambda chain: -chain.work):
        thread = work.index(min(work))
        shares[thread].append(chain)
        work[thread] += chain.work
    return shares
