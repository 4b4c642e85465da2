"""Networks from ONNX files: Tenon beside ONNX Runtime, the same file, one core.

    python -m benchmarks.onnx_files [--names resnet50 mobilenet bert] [--seconds 6]

The files are written by `tn.onnx.export`, with random weights.  For each: how long loading and the first run take, and
then a run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tenon as tn
from benchmarks import models
from benchmarks.timing import compare, installed, row, use_one_core
from tenon import nn

Make = Callable[[], tuple[Any, np.ndarray]]


def picture() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)


NETWORKS: dict[str, Make] = {
    "resnet50": lambda: (models.resnet50(nn).eval(), picture()),
    "mobilenet": lambda: (models.mobilenet(nn).eval(), picture()),
    "bert": lambda: (models.bert(nn).eval(), np.random.default_rng(0).integers(0, 1000, (1, 128))),
}


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--names", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    options.add_argument("--seconds", type=float, default=6.0)
    given = options.parse_args(arguments)
    use_one_core()
    with tempfile.TemporaryDirectory() as folder:
        for name in given.names:
            net, x = NETWORKS[name]()
            path = Path(folder) / f"{name}.onnx"
            tn.onnx.export(net, (tn.tensor(x),), path)
            del net
            print(row(name, compare(runs(path, x), given.seconds)), flush=True)


def runs(path: Path, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """A run of the file by each library; says how long the first one takes, with loading."""
    makers: dict[str, Callable[[], Callable[[], Any]]] = {"tenon": lambda: tenon_run(path, x)}
    if installed("onnxruntime"):
        makers["onnxruntime"] = lambda: onnxruntime_run(path, x)
    found, results = {}, []
    for library, make in makers.items():
        begin = time.perf_counter()
        run = make()
        results.append(run())
        print(f"  {path.stem}: {library} loads and runs once in {time.perf_counter() - begin:.2f} s", flush=True)
        found[library] = run
    for other in results[1:]:
        np.testing.assert_allclose(np.asarray(results[0]), np.asarray(other), rtol=1e-2, atol=1e-3)
    return found


def tenon_run(path: Path, x: np.ndarray) -> Callable[[], Any]:
    model, given = tn.onnx.load(path), tn.tensor(x)
    return lambda: model(given).numpy()


def onnxruntime_run(path: Path, x: np.ndarray) -> Callable[[], Any]:
    import onnxruntime  # local: an optional package
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})[0]


if __name__ == "__main__":
    main()
