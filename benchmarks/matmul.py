"""Products of f32 matrices: a compiled Tenon program beside NumPy's BLAS, in GFLOP/s and as fractions of the FMA peak.

    OPENBLAS_NUM_THREADS=1 TENON_THREADS=1 python -m benchmarks.matmul [--seconds 1] [--peers] [768 64x768x768 ...]

A size is n (a square), m x k x n, or batch x m x k x n; the FMA peak, of one thread, is measured in the same run.
With --peers PyTorch, ONNX Runtime (whose right side is a constant that it has packed) and JAX take turns with them, all
on one thread; so does x @ y without tn.jit.  A line ends with how many times as fast as the best of them Tenon is.
"""
import argparse
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.machine import fma_run
from benchmarks.timing import compare, installed, row, use_one_core

SIZES = ("16", "32", "64", "97", "128", "256", "512", "768", "1024", "2048", "64x768x768", "96x128x64x128",
         "1x4096x4096", "4x1024x1024", "97x389x211", "1000x1x1000", "1x1000x1", "3x4096x5")
OURS = "Tenon", "eager"
Run = Callable[[], object]


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sizes", nargs="*", default=SIZES)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--peers", action="store_true")
    given = options.parse_args(arguments)
    peers = [make for name, make in PEERS.items() if installed(name)] if given.peers else []
    if peers:
        use_one_core()
    random = np.random.default_rng(0)
    peak, most = fma_run()
    for size in given.sizes:
        *batch, m, k, n = sizes_of(size)
        a, b = (random.standard_normal((*batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
        x, y = tn.asarray(a), tn.asarray(b)
        product = tn.jit(lambda x, y: x @ y)
        np.testing.assert_allclose(product(x, y).numpy(), a @ b, rtol=1e-3, atol=1e-3)
        for _ in range(20):
            product(x, y)
        runs: dict[str, Run] = {"Tenon": lambda f=product, x=x, y=y: f(x, y), "NumPy": lambda a=a, b=b: a @ b}
        for make in peers:
            runs |= make(a, b)
        if peers:
            runs["eager"] = lambda x=x, y=y: x @ y
        times = compare({**runs, "peak": peak}, given.seconds)
        limit, operations = most / times.pop("peak"), 2 * math.prod((*batch, m, k, n))
        rates = [f"{operations / time / limit:.2f}" for time in times.values()]
        best = min((name for name in times if name not in OURS), key=times.__getitem__)
        print(row(f"matmul {size}", times) + f"   of the FMA peak {' / '.join(rates)}   "
              f"{operations / times['Tenon'] / 1e9:6.1f} GFLOP/s   {times[best] / times['Tenon']:.2f}x {best}",
              flush=True)


def torch(a: np.ndarray, b: np.ndarray) -> dict[str, Run]:
    """PyTorch's product."""
    library: Any = importlib.import_module("torch")
    library.set_num_threads(1)
    x, y = library.from_numpy(a), library.from_numpy(b)
    return {"PyTorch": lambda: library.matmul(x, y)}


def onnxruntime(a: np.ndarray, b: np.ndarray) -> dict[str, Run]:
    """A model that is one product with a constant."""
    library: Any = importlib.import_module("onnxruntime")
    onnx: Any = importlib.import_module("onnx")
    given, result = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                     for name, shape in (("x", a.shape), ("z", None)))
    node = onnx.helper.make_node("MatMul", ["x", "y"], ["z"])
    graph = onnx.helper.make_graph([node], "product", [given], [result], [onnx.numpy_helper.from_array(b, "y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    session = library.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {"ONNX Runtime": lambda: session.run(None, {"x": a})}


def jax(a: np.ndarray, b: np.ndarray) -> dict[str, Run]:
    """A compiled product."""
    library: Any = importlib.import_module("jax")
    x, y = library.numpy.asarray(a), library.numpy.asarray(b)
    product = library.jit(lambda x, y: x @ y)
    return {"JAX": lambda: product(x, y).block_until_ready()}


PEERS: dict[str, Callable[[np.ndarray, np.ndarray], dict[str, Run]]] = {
    "torch": torch, "onnxruntime": onnxruntime, "jax": jax}


def sizes_of(size: str) -> list[int]:
    """[m, k, n], after the batch if there is one."""
    found = [int(part) for part in str(size).split("x")]
    return found * 3 if len(found) == 1 else found


if __name__ == "__main__":
    main()
