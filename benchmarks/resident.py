"""By how much a process is larger while it holds a network in use: its resident size after some calls, over before.

    python -m benchmarks.resident [resnet50_1 bert_1 vit_1] [--libraries tenon onnxruntime torch] [--threads 1]

The network's weights lie in files, one of ONNX and one of safetensors, which are written first.  Every library has a
process of its own, imports itself, and then reads its file: that, the input and all that is made of them count.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import status
from benchmarks.models import WORKLOADS, Workload, inputs, weights
from benchmarks.peers import able, exported, onnxruntime_run
from benchmarks.processes import caches, module, number
from benchmarks.timing import installed

CALLS = 4


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("rows", nargs="*", default=["resnet50_1", "bert_1", "vit_1"])
    options.add_argument("--libraries", nargs="*", default=["tenon", "onnxruntime", "torch"])
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.child:
        print(growth(given.child[0], WORKLOADS[given.rows[0]], Path(given.child[1])))
        return
    for row in given.rows:
        print(line(row, measured(row, [name for name in given.libraries if able(name)], given.threads)), flush=True)


def line(row: str, found: dict[str, float]) -> str:
    """Of one row: megabytes of each library, and Tenon's relative to the others'."""
    cells = [f"{name} {size:.0f} MB" for name, size in found.items()]
    ours = found.get("tenon")
    cells += [f"tenon / {name}: {ours / size:.2f}" for name, size in found.items() if ours and name != "tenon"]
    return f"{row:12} " + "   ".join(cells)


def measured(row: str, libraries: list[str], threads: int) -> dict[str, float]:
    """Megabytes of each library, with its code on disk where it compiles."""
    from safetensors.numpy import save_file

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        save_file(weights(WORKLOADS[row]), Path(folder, "weights"))
        if "onnxruntime" in libraries and installed("torch"):
            Path(folder, "onnx").write_bytes(exported(WORKLOADS[row]) or b"")
        for name in libraries:
            command = module("resident", row, "--child", name, folder)
            found[name] = [number(command, threads, caches(folder)) for _ in range(2 if name == "tenon" else 1)][-1]
    return found


def growth(name: str, workload: Workload, folder: Path) -> float:
    """In this process, in megabytes."""
    for library in ("tenon.llvm.machine_code", "tenon.pipeline", name):
        importlib.import_module(library)
    x = inputs(workload)[0]
    before = status("VmRSS")
    run = RUNS[name](workload, folder, x)
    for _ in range(CALLS):
        run()
    gc.collect()
    return (status("VmRSS") - before) / 1e6


def _tenon(workload: Workload, folder: Path, x: Any) -> Callable[[], Any]:
    import tenon as tn
    from tenon import nn

    net, given = workload.network(nn).eval(), tn.tensor(x)
    net.load_state_dict(tn.load(folder / "weights"))

    @tn.jit
    def call(x: Any) -> Any:
        with tn.no_grad():
            return net(x)
    return lambda: call(given).numpy()


def _torch(workload: Workload, folder: Path, x: Any) -> Callable[[], Any]:
    import torch
    from safetensors.torch import load_file

    net, given = workload.network(torch.nn).eval(), torch.from_numpy(x)
    net.load_state_dict(load_file(folder / "weights"))

    def call() -> Any:
        with torch.no_grad():
            return net(given).numpy()
    return call


def _onnxruntime(workload: Workload, folder: Path, x: Any) -> Callable[[], Any]:
    return onnxruntime_run(str(folder / "onnx"), x=x)


RUNS = {"tenon": _tenon, "torch": _torch, "onnxruntime": _onnxruntime}

if __name__ == "__main__":
    main()
