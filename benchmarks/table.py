"""Every row of the table: Tenon and its peers side by side, with the ratio to the best peer and to the machine's limit.

    python -m benchmarks.table [ROW ...] [--threads 1 2] [--seconds 4] [--without compiled] [--json FILE] [--chart FILE]

Every library has a process of its own, pinned to as many cores as there are threads.  All start from the same numbers,
must agree, and work in turn.  On one core a time is processor time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bursts import Library

Run = Callable[[], float]
PEERS = ("torch", "compiled", "jax", "tensorflow", "xla", "onnxruntime", "openvino")
BURSTS = 6                      # of every library, for a row
TOLERANCE, NARROW_TOLERANCE = 2e-3, 2e-2    # of the numbers that libraries return; in bfloat16


@dataclass
class Measured:
    """One row on so many threads: seconds by library, and the least that the multiply-adds in it can take."""

    row: str
    threads: int
    seconds: dict[str, float]
    floor: float
    disagreement: float
    tolerance: float

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
                                                                if self.disagreement > self.tolerance else ""))


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*")
    options.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    options.add_argument("--seconds", type=float, default=4.0)
    options.add_argument("--without", nargs="*", default=[], choices=PEERS)
    options.add_argument("--json", type=Path)
    options.add_argument("--chart", type=Path)
    given = options.parse_args(arguments)
    from benchmarks.models import WORKLOADS

    found = []
    for threads in given.threads:
        for row in given.rows or WORKLOADS:
            found.append(measure(row, threads, given.seconds, given.without))
            print(found[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(m) for m in found], indent=1) + "\n")
    if given.chart:
        draw(found, given.chart)


def measure(row: str, threads: int, seconds: float, without: list[str]) -> Measured:
    """The row: all libraries in turn, a burst each, several times."""
    from benchmarks.models import WORKLOADS

    with ExitStack() as stack:
        libraries = {name: stack.enter_context(Library(name, row, threads)) for name in MAKE if name not in without}
        able = {name: library for name, library in libraries.items() if library.first is not None}
        found: dict[str, list[float]] = {name: [] for name in able}
        for _ in range(BURSTS):
            for name, library in able.items():
                found[name] += library.burst(seconds / BURSTS)
        floor = libraries["tenon"].ask("operations") / libraries["tenon"].ask("peak")
    first = {name: library.first or 0.0 for name, library in able.items()}
    scale = max(1.0, *map(abs, first.values()))
    disagreement = max(abs(value - first["tenon"]) / scale for value in first.values())
    seconds = {name: median(times) for name, times in found.items()}
    tolerance = NARROW_TOLERANCE if WORKLOADS[row].narrow else TOLERANCE
    return Measured(row, threads, seconds, floor, disagreement, tolerance)


# ---------------------------------------------------------------- the libraries

def _tenon(workload: Any) -> Run | None:
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

    if workload.narrow or not installed("jax"):
        return None
    from benchmarks.jax_nn import jax_run

    return jax_run(workload, weights(workload), inputs(workload))


def _tensorflow(workload: Any, xla: bool = False) -> Run | None:
    """A `tf.function`, run by TensorFlow's own kernels, or compiled by its XLA."""
    from benchmarks.models import inputs, weights
    from benchmarks.timing import installed

    if workload.narrow or not installed("tensorflow"):
        return None
    from benchmarks.tensorflow_nn import tensorflow_run

    return tensorflow_run(workload, weights(workload), inputs(workload), xla)


def _onnxruntime(workload: Any) -> Run | None:
    """Inference only, of the network that PyTorch exports."""
    file = _exported(workload, "onnxruntime")
    if file is None:
        return None
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = len(os.sched_getaffinity(0))
    session, x = onnxruntime.InferenceSession(file, settings), _first_input(workload)
    return lambda: float(session.run(None, {"x": x})[0].sum())


def _openvino(workload: Any) -> Run | None:
    """Inference only, of the same file, in float32 also where the processor has narrower products."""
    file = _exported(workload, "openvino")
    if file is None:
        return None
    import openvino

    settings = {"INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)), "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    request = core.compile_model(core.read_model(file), "CPU", settings).create_infer_request()
    x = _first_input(workload)
    return lambda: float(request.infer({"x": x}, share_inputs=True, share_outputs=True)[0].sum())


def _exported(workload: Any, runtime: str) -> bytes | None:
    """The network as ONNX, None for what is no inference in float32, or where a package is missing."""
    from benchmarks.models import torch_net
    from benchmarks.timing import installed

    if workload.optimizer is not None or workload.narrow or not all(map(installed, ("torch", "onnx", runtime))):
        return None
    import io

    import torch

    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):       # the newer exporter needs a package more
        torch.onnx.export(torch_net(workload).eval(), (torch.from_numpy(_first_input(workload)),), file, dynamo=False,
                          input_names=["x"])
    return file.getvalue()


def _first_input(workload: Any) -> Any:
    from benchmarks.models import inputs

    return inputs(workload)[0]


MAKE: dict[str, Callable[[Any], Run | None]] = {
    "tenon": _tenon, "torch": _torch, "compiled": _compiled, "jax": _jax, "tensorflow": _tensorflow,
    "xla": partial(_tensorflow, xla=True), "onnxruntime": _onnxruntime, "openvino": _openvino}


# ---------------------------------------------------------------- the limit

def multiply_adds(workload: Any) -> float:
    """The floating-point operations of all products in the graph, two a multiply-add."""
    from benchmarks.models import tenon_graph
    from tenon.debug.profile import operations
    from tenon.passes.expand import expand

    return sum(map(operations, expand(tenon_graph(workload)).nodes))


def _peak(_: Any) -> float:
    from benchmarks.machine import fma_peak
    from tenon.config import config

    return fma_peak(threads=config().threads)


NUMBERS: dict[str, Callable[[Any], float]] = {"operations": multiply_adds, "peak": _peak}


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
