"""Steps and sizes -> what several threads save: how much work there is, and what meeting costs.

A kernel that all threads share takes less time, but they meet before it and after it.  Within a loop that is paid in
every iteration, so a loop of small kernels is done sooner by one thread alone, even where one of them is worth several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.llvm.work_partition import PARTS_PER_THREAD
from tenon.program.kernel import UNKNOWN_TRIP_COUNT, count
from tenon.program.steps import BranchStep, KernelStep, LoopStep, Step, touched

PARALLEL_WORK = 30_000      # elements below which one thread is done sooner than others are woken
BARRIER_COST = 4_000    # elements that a thread computes while others are waited for: a microsecond
CLAIM_COST = 20_000     # elements that are worth a claim of their own: five microseconds
SPLIT_OVERHEAD = 1.05   # the work of all threads at a kernel that is cut, to that of one thread alone

Sizes = Mapping[str, int]


def work_of(step: Step, sizes: Sizes) -> int:
    """About how many elements are computed or read."""
    match step:
        case KernelStep():
            return step.unit.work(sizes)
        case BranchStep():
            return max(sum(work_of(x, sizes) for x in part) for part in step.branches)
        case LoopStep():
            return iterations_of(step, sizes) * (1 + sum(work_of(x, sizes) for part in step.parts for x in part))
    return max((count(x.type.size, sizes) for x in touched(step)), default=0)


def iterations_of(step: LoopStep, sizes: Sizes) -> int:
    """How often the loop goes round, as far as that is known."""
    return UNKNOWN_TRIP_COUNT if step.length is None else count(step.length, sizes)


def is_parallel(step: Step, sizes: Sizes) -> bool:
    """Whether several threads are of use to a kernel."""
    return isinstance(step, KernelStep) and not step.unit.alone and work_of(step, sizes) >= PARALLEL_WORK


def least_claim(step: KernelStep, sizes: Sizes, threads: int) -> int:
    """How many of a kernel's parts a thread should take at once; all of its own where there is little to do."""
    parts = -(-CLAIM_COST * PARTS_PER_THREAD * threads // max(1, work_of(step, sizes)))
    return PARTS_PER_THREAD if parts > PARTS_PER_THREAD // 2 or step.unit.is_one_call(sizes) else parts


def saved(steps: Sequence[Step], sizes: Sizes, threads: int) -> float:
    """About how many elements one thread would compute in the time that several save, where each step is run by as
    many as it is worth; what it costs to meet is taken off.  Nothing where no step is worth several."""
    total, shared = 0.0, False
    for step in steps:
        gain = _saved_in(step, sizes, threads)
        if gain > 0:
            total += gain - BARRIER_COST * (1 if shared else 2)      # after it, and before unless they have just met
        shared = gain > 0
    return total


def _saved_in(step: Step, sizes: Sizes, threads: int) -> float:
    match step:
        case BranchStep():          # they meet where they have looked at what decides, and where branches join
            return max(0.0, max(saved(part, sizes, threads) for part in step.branches) - 2 * BARRIER_COST)
        case LoopStep():            # in an iteration too, and once more where pointers have been moved
            iteration = sum(saved(part, sizes, threads) for part in step.parts) - 3 * BARRIER_COST
            return max(0.0, iterations_of(step, sizes) * iteration)
    return work_of(step, sizes) * (1 - SPLIT_OVERHEAD / threads) if is_parallel(step, sizes) else 0.0
