"""Time to the end of the first training step, from a process that has imported its library and made its data.

    python -m benchmarks.first_step [mlp resnet18 gpt] [--repeat 3]

Every run is a process of its own: cold with an empty directory for compiled code, warm with the directory that the cold
one left.  Tenon by TENON_CACHE, torch.compile by TORCHINDUCTOR_CACHE_DIR, JAX by its compilation cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.timing import installed

PEERS = {"Tenon": "tenon", "JAX": "jax", "torch.compile": "torch"}


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", default=["mlp", "resnet18", "gpt"])
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--peers", nargs="*", default=["Tenon", "JAX"], choices=list(PEERS))
    options.add_argument("--child", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.child:
        print(json.dumps(first_steps(given.child, given.workloads[0])))
        return
    peers = [peer for peer in given.peers if installed(PEERS[peer])]
    for name in given.workloads:
        cold: dict[str, list[float]] = {peer: [] for peer in peers}
        warm: dict[str, list[float]] = {peer: [] for peer in peers}
        for _ in range(given.repeat):
            for peer in peers:
                with tempfile.TemporaryDirectory() as folder:
                    cold[peer].append(measure(peer, name, folder))
                    warm[peer].append(measure(peer, name, folder))
        print(f"{name:10} " + "   ".join(
            f"{peer}: cold {statistics.median(cold[peer]):6.2f} s, warm {statistics.median(warm[peer]):5.2f} s"
            for peer in peers), flush=True)


def measure(peer: str, name: str, cache: str) -> float:
    """Seconds for the first step in a new process."""
    places = {"TENON_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "JAX_COMPILATION_CACHE_DIR": cache}
    limits = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    command = [sys.executable, "-m", "benchmarks.first_step", name, "--child", peer]
    done = subprocess.run(command, env=os.environ | places | limits, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["first"])


def first_steps(peer: str, name: str) -> dict[str, float]:
    """In this process: how long the first step takes, and the second."""
    from benchmarks.models import WORKLOADS, inputs, tenon_run, torch_run, weights
    if peer == "JAX":
        from benchmarks.jax_nn import jax_run
        run = jax_run(WORKLOADS[name], weights(WORKLOADS[name]), inputs(WORKLOADS[name]))
    elif peer == "Tenon":
        run = tenon_run(WORKLOADS[name])
    else:
        run = torch_run(WORKLOADS[name], compiled=True)
    times = []
    for _ in range(2):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return {"first": times[0], "second": times[1]}


if __name__ == "__main__":
    main()
