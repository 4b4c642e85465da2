"""Time of the first and the second training step, from a process that has imported its library and made its data.

    python -m benchmarks.first_step [mlp resnet18 gpt] [--libraries tenon jax torch] [--wall] [--repeat 3] [--threads 2]
    python -m benchmarks.first_step resnet18_32 googlenet --libraries eager torch

Every run is a process of its own: cold with an empty directory for compiled code, warm with the directory that the cold
one left.  `eager` is Tenon without `tn.jit`.  What is told is the processor time of all threads, which a busy machine
changes least, or the time on the clock (`--wall`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise

from benchmarks.peers import able, network
from benchmarks.processes import caches, module, numbers
from tenon.config import config


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", default=["mlp", "resnet18", "gpt"])
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--libraries", nargs="*", default=["tenon", "jax"])
    options.add_argument("--threads", type=int, default=config().threads)
    options.add_argument("--wall", action="store_true")
    options.add_argument("--child", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    clock = time.perf_counter if given.wall else time.process_time
    if given.child:
        print(steps(given.child, given.workloads[0], clock))
        return
    libraries = [library for library in given.libraries if library == "eager" or able(library)]
    for name in given.workloads:
        found: dict[str, list[list[float]]] = {library: [] for library in libraries}
        for _ in range(given.repeat):
            for library in libraries:
                found[library].append(measure(library, name, given.threads, given.wall))
        for library, times in found.items():
            cold, second, warm, next_one = map(statistics.median, zip(*times, strict=True))
            print(f"{name:13} {library:6} cold {cold:6.2f} s, then {second * 1e3:5.0f} ms;   "
                  f"warm {warm:5.2f} s, then {next_one * 1e3:5.0f} ms", flush=True)


def measure(library: str, name: str, threads: int, wall: bool) -> list[float]:
    """Seconds for the first and the second step in a new process, cold and warm."""
    command = module("first_step", name, "--child", library, *(["--wall"] if wall else []))
    with tempfile.TemporaryDirectory() as folder:
        return [seconds for _ in range(2) for seconds in numbers(command, threads, caches(folder))]


def steps(library: str, name: str, clock: Callable[[], float]) -> list[float]:
    """Of this process, in seconds."""
    from benchmarks.first_networks import FIRST
    from benchmarks.models import tenon_run

    workload = FIRST[name]
    run = tenon_run(workload, lambda f: f) if library == "eager" else network(library, workload)
    assert run is not None, f"{library} cannot do {name}"
    times = [clock()]
    for _ in range(2):
        run()
        times.append(clock())
    return [after - before for before, after in pairwise(times)]


if __name__ == "__main__":
    main()
