"""Times of several ways to do one thing, taken in turn, so that whatever else the machine does meets all of them.

    times = compare({"Tenon": f, "NumPy": g}, seconds=1.0)      # name -> median seconds
    print(row("64 x 64", times))                                # with the ratio of the first to each other one

With TENON_THREADS=1 a time is what this process computed, which other programs on the machine disturb less.
"""
import importlib.util
import os
import time
from collections.abc import Callable, Mapping

import numpy as np

from tenon.config import config


def use_one_core() -> None:
    """With TENON_THREADS=1, before any library starts threads: all of them share a core, so that their work counts."""
    if config().threads == 1:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])


def compare(runs: Mapping[str, Callable[[], object]], seconds: float = 1.0, least: int = 7) -> dict[str, float]:
    """The median time of a call of each, in seconds."""
    clock = time.process_time if config().threads == 1 else time.perf_counter
    repeats = {}
    for name, run in runs.items():
        run()
        repeats[name] = max(1, int(2e-4 / max(_once(run, clock), 1e-7)))
    taken: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    order, random = list(runs), np.random.default_rng(0)
    while time.perf_counter() < end or len(taken[order[0]]) < least:
        for place in random.permutation(len(order)):        # who finds what in the caches changes
            run = runs[name := order[place]]
            start = clock()
            for _ in range(repeats[name]):
                run()
            taken[name].append((clock() - start) / repeats[name])
    return {name: float(np.median(times)) for name, times in taken.items()}


def _once(run: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


def row(label: str, times: Mapping[str, float]) -> str:
    """One line: the times, and the first divided by each of the others."""
    first, *others = times
    cells = [f"{name} {_shown(t)}" for name, t in times.items()]
    ratios = [f"{first}/{name} {times[first] / times[name]:.2f}" for name in others]
    return f"{label:24} " + "   ".join(cells + ratios)


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:9.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:9.1f} us"


def installed(package: str) -> bool:
    """Whether a peer is there; says so where it is not."""
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"({package} is not installed: left out)")
    return found
