"""Products of f32 matrices: a compiled Tenon program beside NumPy's BLAS, in GFLOP/s and as fractions of the FMA peak.

    OPENBLAS_NUM_THREADS=1 TENON_THREADS=1 python -m benchmarks.matmul [--seconds 1] [--peers] [768 64x768x768 ...]

A size is n (a square), m x k x n, or batch x m x k x n; the FMA peak, of one thread, is measured in the same run.
The right side of a product without a batch is a parameter of a network in use, which Tenon packs once, as ONNX Runtime
and OpenVINO do.  With --peers these, PyTorch and JAX take turns with them; so does x @ y without tn.jit.  A line ends
with how many times as fast as the best of them Tenon is.
"""
import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tenon as tn
from benchmarks.machine import fma_run
from benchmarks.peers import onnxruntime_run, openvino_run
from benchmarks.timing import compare, installed, row, use_one_core
from tenon import nn
from tenon.config import config

SIZES = ("16", "32", "64", "97", "128", "256", "512", "768", "1024", "2048", "64x768x768", "96x128x64x128",
         "1x4096x4096", "4x1024x1024", "97x389x211", "1000x1x1000", "1x1000x1", "3x4096x5")
OURS = "Tenon", "eager"
Run = Callable[[], Any]


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sizes", nargs="*", default=SIZES)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--peers", action="store_true")
    given = options.parse_args(arguments)
    peers = [name for name in MAKE if given.peers and name != "tenon" and installed(name)]
    if peers:
        use_one_core()
    random = np.random.default_rng(0)
    peak, most = fma_run()
    for size in given.sizes:
        *batch, m, k, n = sizes_of(size)
        a, b = (random.standard_normal((*batch, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
        x, y = tn.asarray(a), tn.asarray(b)
        product = MAKE["tenon"](a, b)
        np.testing.assert_allclose(product().numpy(), a @ b, rtol=1e-3, atol=1e-3)
        for _ in range(20):
            product()
        runs: dict[str, Run] = {"Tenon": product, "NumPy": lambda a=a, b=b: a @ b}
        runs |= {name: MAKE[name](a, b) for name in peers}
        if peers:
            runs["eager"] = lambda x=x, y=y: x @ y
        times = compare({**runs, "peak": peak}, given.seconds)
        limit, operations = most / times.pop("peak"), 2 * math.prod((*batch, m, k, n))
        rates = [f"{operations / time / limit:.2f}" for time in times.values()]
        best = min((name for name in times if name not in OURS), key=times.__getitem__)
        print(row(f"matmul {size}", times) + f"   of the FMA peak {' / '.join(rates)}   "
              f"{operations / times['Tenon'] / 1e9:6.1f} GFLOP/s   {times[best] / times['Tenon']:.2f}x {best}",
              flush=True)


class Times(nn.Module):
    """The product with a matrix."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__()
        self.matrix = nn.Parameter(tn.tensor(matrix))      # its own: who adopts memory packs nothing

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x @ self.matrix


def _tenon(a: np.ndarray, b: np.ndarray) -> Run:
    x, net = tn.asarray(a), Times(b).eval()

    @tn.jit
    def product(x: tn.Tensor) -> tn.Tensor:
        with tn.no_grad():
            return net(x)
    return lambda: product(x)


def _torch(a: np.ndarray, b: np.ndarray) -> Run:
    import torch

    torch.set_num_threads(config().threads)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: torch.matmul(x, y)


def _jax(a: np.ndarray, b: np.ndarray) -> Run:
    import jax

    x, y = jax.numpy.asarray(a), jax.numpy.asarray(b)
    product = jax.jit(lambda x, y: x @ y)
    return lambda: product(x, y).block_until_ready()


def _exchanged(runtime: Callable[..., Run]) -> Callable[[np.ndarray, np.ndarray], Run]:
    """A model that is one product with a constant, which the runtime packs once."""
    def make(a: np.ndarray, b: np.ndarray) -> Run:
        import onnx

        given, result = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
                         for name, shape in (("x", a.shape), ("z", None)))
        node = onnx.helper.make_node("MatMul", ["x", "y"], ["z"])
        graph = onnx.helper.make_graph([node], "product", [given], [result], [onnx.numpy_helper.from_array(b, "y")])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        return runtime(model.SerializeToString(), x=a)
    return make


MAKE: dict[str, Callable[[np.ndarray, np.ndarray], Run]] = {
    "tenon": _tenon, "torch": _torch, "jax": _jax, "onnxruntime": _exchanged(onnxruntime_run),
    "openvino": _exchanged(openvino_run)}


def sizes_of(size: str) -> list[int]:
    """[m, k, n], after the batch if there is one."""
    found = [int(part) for part in str(size).split("x")]
    return found * 3 if len(found) == 1 else found


if __name__ == "__main__":
    main()
