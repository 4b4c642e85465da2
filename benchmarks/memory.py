"""By how much a process grows when it trains a network: its greatest resident size, over what it was before.

    python -m benchmarks.memory [gpt resnet18] [--libraries tenon torch jax] [--steps 4] [--threads 1]

Every library has a process of its own, which imports it and makes the data first; then the network, the optimizer and
what is compiled count.  Tenon and JAX run twice: cold with an empty directory for compiled code, warm with the one that
the cold run left.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from contextlib import suppress
from pathlib import Path

from benchmarks.models import WORKLOADS, weights
from benchmarks.peers import PACKAGES, able, network
from benchmarks.processes import caches, module, number

COMPILES = ("tenon", "compiled", "jax", "tensorflow", "xla")  # for which it matters whether code was kept


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", default=["gpt", "resnet18"])
    options.add_argument("--libraries", nargs="*", default=["tenon", "torch", "jax"])
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--child", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.child:
        print(growth(given.child, given.rows[0], given.steps))
        return
    for row in given.rows:
        print(line(row, {name: measure(name, row, given.steps, given.threads) for name in given.libraries
                         if able(name)}), flush=True)


def line(row: str, found: dict[str, list[float]]) -> str:
    """Of one row: megabytes of each library, cold and warm, and Tenon's relative to the best other one."""
    cells = [f"{name} " + ", ".join(f"{x:.0f}" for x in sizes) for name, sizes in found.items()]
    others = {name: min(sizes) for name, sizes in found.items() if name != "tenon"}
    if "tenon" in found and others:
        best = min(others, key=others.__getitem__)
        ratios = ", ".join(f"{x / others[best]:.2f}" for x in found["tenon"])
        cells.append(f"tenon / the best peer ({best}): {ratios}")
    return f"{row:10} {parameters(row):4.0f} MB of parameters   " + "   ".join(cells)


def parameters(row: str) -> float:
    """Their size, in megabytes."""
    return sum(x.nbytes for x in weights(WORKLOADS[row]).values()) / 1e6


def measure(name: str, row: str, steps: int, threads: int) -> list[float]:
    """Megabytes: cold and warm, or one number for a library that compiles nothing."""
    command = module("memory", row, "--child", name, "--steps", str(steps))
    with tempfile.TemporaryDirectory() as folder:
        return [number(command, threads, caches(folder)) for _ in range(2 if name in COMPILES else 1)]


def growth(name: str, row: str, steps: int) -> float:
    """In this process, in megabytes."""
    use_library(name)
    forget_peak()
    before = status("VmRSS")
    run = network(name, WORKLOADS[row])
    assert run is not None, f"{name} cannot do {row}"
    for _ in range(steps):
        run()
    return (status("VmHWM") - before) / 1e6


def use_library(name: str) -> None:
    """Import it; and Tenon, from which the others have their weights."""
    importlib.import_module("tenon.optim")
    importlib.import_module(PACKAGES.get(name, name))


def forget_peak() -> None:
    """Let the greatest resident size be counted from now on, where Linux allows that."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def status(field: str) -> float:
    """A size in bytes that Linux tells of this process."""
    for entry in Path("/proc/self/status").read_text().splitlines():
        if entry.startswith(f"{field}:"):
            return 1024.0 * int(entry.split()[1])
    raise RuntimeError(f"this system does not tell {field}: the benchmark needs Linux")


if __name__ == "__main__":
    main()
