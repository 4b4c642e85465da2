"""What a second thread gains: rows of the table in every library, beside what the machine itself gains in the same run.

    python -m benchmarks.scaling [ROW ...] [--threads 2] [--seconds 3] [--peers torch jax]

    matmul_768       machine FMA 1.74x copy 1.68x   tenon 12.4 / 7.19 ms, 1.73x   torch 12.6 / 6.32 ms, 1.99x

Cores that share power, caches, memory or a hypervisor's clock do less together than each alone; a row cannot gain more
than the machine does.  Every library has a process for one thread and one for all, and all of them, the machine's loops
among them, take turns; times are medians by the wall clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median

from benchmarks.bursts import Library
from benchmarks.machine import bandwidth_run, fma_run
from benchmarks.peers import LIBRARIES, able

TURNS = 10              # bursts of everything, for a row
CALLS = 20              # of the machine's loops in a turn of theirs
COPIED = 1 << 24        # bytes


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", default=["matmul_768"])
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--seconds", type=float, default=2.0, help="of every library, for a row")
    options.add_argument("--peers", nargs="*", default=[], choices=LIBRARIES[1:])
    given = options.parse_args(arguments)
    libraries = ["tenon", *filter(able, given.peers)]
    for row in given.rows:
        print(line(row, libraries, given.threads, given.seconds), flush=True)


def line(row: str, libraries: list[str], threads: int, seconds: float) -> str:
    """What every library takes on one thread and on several, and the machine's gain meanwhile."""
    with ExitStack() as stack:
        started = {(name, count): stack.enter_context(Library(name, row, count))
                   for name in libraries for count in (1, threads)}
        able_to = {key: process for key, process in started.items() if process.first is not None}
        found: dict[tuple[str, int], list[float]] = {key: [] for key in able_to}
        loops = {"FMA": [fma_run()[0]] * threads, "copy": [bandwidth_run("copy", COPIED)[0] for _ in range(threads)]}
        gains: dict[str, list[float]] = {name: [] for name in loops}
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        for _ in range(TURNS):
            for key, process in able_to.items():
                found[key] += process.burst(seconds / TURNS, wall=True)
            for name, runs in loops.items():
                gains[name].append(gain(runs, pool))
    cells = [f"machine {' '.join(f'{name} {median(x):.2f}x' for name, x in gains.items())}"]
    for name in dict.fromkeys(name for name, _ in able_to):
        alone, together = (median(found[name, count]) for count in (1, threads))
        cells.append(f"{name} {alone * 1e3:.3g} / {together * 1e3:.3g} ms, {alone / together:.2f}x")
    return f"{row:16} " + "   ".join(cells)


def gain(runs: list[Callable[[], object]], pool: ThreadPoolExecutor) -> float:
    """How much more all threads do than one, of calls that share nothing."""
    def calls(run: Callable[[], object]) -> None:
        for _ in range(CALLS):
            run()

    def seconds(together: list[Callable[[], object]]) -> float:
        start = time.perf_counter()
        for future in [pool.submit(calls, run) for run in together]:
            future.result()
        return time.perf_counter() - start
    return len(runs) * seconds(runs[:1]) / seconds(runs)


if __name__ == "__main__":
    main()
