"""Every row of the table: Tenon and its peers side by side, with the ratio to the best peer and to the machine's limit.

    python -m benchmarks.table [ROW ...] [--threads 1 2] [--seconds 4] [--without compiled] [--json FILE] [--chart FILE]

A row is measured in a process of its own, pinned to as many cores as there are threads; in it all libraries start from
the same numbers, must agree, and take turns.  On one core a time is processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Run = Callable[[], float]
PEERS = ("torch", "compiled", "jax", "onnxruntime")
TOLERANCE = 2e-3                # of the numbers that libraries return, which are sums or means over many


@dataclass
class Measured:
    """One row on so many threads: seconds by library, and the least that the multiply-adds in it can take."""

    row: str
    threads: int
    seconds: dict[str, float]
    floor: float
    disagreement: float

    @property
    def best_peer(self) -> tuple[str, float]:
        """The fastest library beside Tenon."""
        others = {name: t for name, t in self.seconds.items() if name != "tenon"}
        return min(others.items(), key=lambda item: item[1])

    def __str__(self) -> str:
        cells = "  ".join(f"{name} {1e3 * t:9.2f}" for name, t in self.seconds.items())
        name, best = self.best_peer if len(self.seconds) > 1 else ("-", float("nan"))
        ours = self.seconds["tenon"]
        return (f"{self.row:12} {self.threads} threads  {cells} ms   {best / ours:5.2f}x the best peer ({name}), "
                f"{self.floor / ours:4.0%} of the FMA peak" + (f"  DISAGREES by {self.disagreement:.0e}"
                                                                if self.disagreement > TOLERANCE else ""))


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*")
    options.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--without", nargs="*", default=[], choices=PEERS)
    options.add_argument("--json", type=Path)
    options.add_argument("--chart", type=Path)
    options.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.here:
        print(json.dumps(asdict(measure(given.rows[0], given.threads[0], given.seconds, given.without))))
        return
    from benchmarks.models import WORKLOADS

    found = []
    for threads in given.threads:
        for row in given.rows or WORKLOADS:
            found.append(apart(row, threads, given.seconds, given.without))
            print(found[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(m) for m in found], indent=1) + "\n")
    if given.chart:
        draw(found, given.chart)


def apart(row: str, threads: int, seconds: float, without: list[str]) -> Measured:
    """The row, measured in a process of its own with so many threads."""
    number = str(threads)
    environment = os.environ | {
        "TENON_THREADS": number, "OPENBLAS_NUM_THREADS": number, "OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number,
        "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.table", row, "--here", "--threads", number, "--seconds", str(seconds)]
    done = subprocess.run(command + (["--without", *without] if without else []), env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def measure(row: str, threads: int, seconds: float, without: list[str]) -> Measured:
    """The row in this process."""
    cores = sorted(os.sched_getaffinity(0))[:threads]       # before any library counts them
    os.sched_setaffinity(0, cores)
    from benchmarks.machine import fma_peak
    from benchmarks.models import WORKLOADS
    from benchmarks.timing import compare

    workload = WORKLOADS[row]
    runs = {"tenon": _tenon(workload)} | {name: run for name in PEERS if name not in without
                                          and (run := MAKE[name](workload)) is not None}
    first = {name: run() for name, run in runs.items()}
    scale = max(1.0, *map(abs, first.values()))
    disagreement = max(abs(value - first["tenon"]) / scale for value in first.values())
    times = compare(runs, seconds, least=3)
    return Measured(row, threads, times, multiply_adds(workload) / fma_peak(threads=threads), disagreement)


# ---------------------------------------------------------------- the libraries

def _tenon(workload: Any) -> Run:
    from benchmarks.models import tenon_run

    return tenon_run(workload)


def _torch(workload: Any) -> Run | None:
    """PyTorch eager, in the layout that suits it: channels last for pictures in colour."""
    from benchmarks.models import inputs, torch_run
    from benchmarks.timing import installed

    if not installed("torch"):
        return None
    shape = inputs(workload)[0].shape
    return torch_run(workload, channels_last=len(shape) == 4 and shape[1] == 3)


def _compiled(workload: Any) -> Run | None:
    from benchmarks.models import torch_run
    from benchmarks.timing import installed

    return torch_run(workload, compiled=True) if installed("torch") else None


def _jax(workload: Any) -> Run | None:
    from benchmarks.models import inputs, weights
    from benchmarks.timing import installed

    if not installed("jax"):
        return None
    from benchmarks.jax_nn import jax_run

    return jax_run(workload, weights(workload), inputs(workload))


def _onnxruntime(workload: Any) -> Run | None:
    """Inference only, of the network that PyTorch exports."""
    from benchmarks.models import inputs, torch_net
    from benchmarks.timing import installed

    if workload.optimizer is not None or not (installed("torch") and installed("onnx") and installed("onnxruntime")):
        return None
    import io

    import onnxruntime
    import torch

    file, x = io.BytesIO(), inputs(workload)[0]
    with warnings.catch_warnings(action="ignore"):       # the newer exporter needs a package more
        torch.onnx.export(torch_net(workload).eval(), (torch.from_numpy(x),), file, dynamo=False, input_names=["x"])
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(file.getvalue(), settings)
    return lambda: float(session.run(None, {"x": x})[0].sum())


MAKE: dict[str, Callable[[Any], Run | None]] = {
    "torch": _torch, "compiled": _compiled, "jax": _jax, "onnxruntime": _onnxruntime}


# ---------------------------------------------------------------- the limit

def multiply_adds(workload: Any) -> float:
    """The floating-point operations of all products in the graph, two a multiply-add."""
    from benchmarks.models import tenon_graph
    from tenon.debug.profile import operations
    from tenon.passes.expand import expand

    return sum(map(operations, expand(tenon_graph(workload)).nodes))


# ---------------------------------------------------------------- the chart

def draw(found: list[Measured], path: Path) -> None:
    """Bars of the speed of every library relative to the best peer, one group a row."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    threads = sorted({m.threads for m in found})
    figure, axes = plt.subplots(len(threads), 1, figsize=(11, 3.2 * len(threads)), squeeze=False, layout="constrained")
    for axis, count in zip(axes[:, 0], threads, strict=True):
        rows = [m for m in found if m.threads == count]
        names = list(dict.fromkeys(name for m in rows for name in m.seconds))
        for k, name in enumerate(names):
            at = [i + (k - len(names) / 2) * 0.8 / len(names) for i, m in enumerate(rows) if name in m.seconds]
            speeds = [m.best_peer[1] / m.seconds[name] for m in rows if name in m.seconds]
            axis.bar(at, speeds, 0.8 / len(names), label=name, align="edge")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(rows)), [m.row for m in rows])
        axis.set_ylabel("speed / best peer")
        axis.set_title(f"{count} thread{'s' * (count > 1)}")
    axes[0, 0].legend(ncols=len(PEERS) + 1)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
