"""Time to the end of the first training step, from a process that has imported its library and made its data.

    python -m benchmarks.first_step [mlp resnet18 gpt] [--libraries tenon jax] [--repeat 3] [--threads 2]

Every run is a process of its own: cold with an empty directory for compiled code, warm with the directory that the cold
one left.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

from benchmarks.peers import able, network
from benchmarks.processes import caches, module, number
from tenon.config import config


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", default=["mlp", "resnet18", "gpt"])
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--libraries", nargs="*", default=["tenon", "jax"])
    options.add_argument("--threads", type=int, default=config().threads)
    options.add_argument("--child", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.child:
        print(first_step(given.child, given.workloads[0]))
        return
    libraries = [library for library in given.libraries if able(library)]
    for name in given.workloads:
        found: dict[str, list[list[float]]] = {library: [] for library in libraries}
        for _ in range(given.repeat):
            for library in libraries:
                found[library].append(measure(library, name, given.threads))
        print(f"{name:10} " + "   ".join(f"{library}: cold {cold:6.2f} s, warm {warm:5.2f} s"
              for library, times in found.items() for cold, warm in [map(statistics.median, zip(*times))]), flush=True)


def measure(library: str, name: str, threads: int) -> list[float]:
    """Seconds for the first step in a new process, cold and warm."""
    command = module("first_step", name, "--child", library)
    with tempfile.TemporaryDirectory() as folder:
        return [number(command, threads, caches(folder)) for _ in range(2)]


def first_step(library: str, name: str) -> float:
    """In this process, in seconds."""
    from benchmarks.models import WORKLOADS

    run = network(library, WORKLOADS[name])
    assert run is not None, f"{library} cannot do {name}"
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
