"""What memory limits: norms and their gradients, softmax, reductions, permutes, scans, sorts, pools, scattered writes.

    python -m benchmarks.reductions [--seconds 0.5] [--only norm]

Every row is run in turn by Tenon, PyTorch and JAX, where these are installed, rows without gradients also by ONNX
Runtime and OpenVINO, of what PyTorch exports.  It says how many bytes a second Tenon moves: inputs read and results
written once each, beside a copy of 16 MB in the same run.  A library that returns something else than Tenon is told,
and its time is left out of the row; where all do, Tenon is taken to be wrong, and the run ends.  For one thread:

    XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" TENON_THREADS=1 python -m ...
"""
import argparse
import importlib
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenon as tn
from benchmarks import peers
from benchmarks.timing import compare, installed, row, use_one_core
from tenon.config import config

Function = Callable[..., Any]
ROWS, PICTURES = (4096, 1024), (32, 64, 32, 32)


@dataclass(frozen=True)
class Case:
    """A function in each library's words; with `gradient`, its result and the pullback of the last input."""

    name: str
    tenon: Function
    torch: Function
    jax: Function
    inputs: tuple[Any, ...]             # shapes, or arrays of integers
    gradient: bool = False
    exported: bool = True               # whether PyTorch has words of ONNX for it


def integers(most: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, most, shape)


def cases(torch: Any, jax: Any) -> list[Case]:
    """The rows; what a library that is missing would do is never called."""
    F, jnp, nn = (None if torch is None else torch.nn.functional), jax and jax.numpy, jax and jax.nn

    def jax_norm(axes: Any, centred: bool, shape: Any) -> Function:
        def norm(x: Any, w: Any, b: Any = None) -> Any:
            x = x - x.mean(axes, keepdims=True) if centred else x
            y = x * jax.lax.rsqrt((x * x).mean(axes, keepdims=True) + 1e-5) * w.reshape(shape)
            return y if b is None else y + b.reshape(shape)
        return norm

    return [
        Case("softmax(gelu(x*w+b))*s", lambda x, w, b, s: tn.softmax(tn.gelu(x * w + b), axis=-1) * s,
             lambda x, w, b, s: torch.softmax(F.gelu(x * w + b), -1) * s,
             lambda x, w, b, s: nn.softmax(nn.gelu(x * w + b, approximate=False), -1) * s,
             (ROWS, (1024,), (1024,), (1024,))),
        Case("layer norm, gradients", lambda x, w, b: tn.layer_norm(x, 1024, w, b),
             lambda x, w, b: F.layer_norm(x, (1024,), w, b), jax_norm(-1, True, (1, -1)),
             (ROWS, (1024,), (1024,)), True),
        Case("rms norm, gradients", lambda x, w: tn.rms_norm(x, 1024, w), lambda x, w: F.rms_norm(x, (1024,), w),
             jax_norm(-1, False, (1, -1)), (ROWS, (1024,)), True),
        Case("batch norm, gradients", lambda x, w, b: tn.batch_norm(x, None, None, w, b, training=True),
             lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
             jax_norm((0, 2, 3), True, (1, -1, 1, 1)), (PICTURES, (64,), (64,)), True),
        Case("softmax, gradient", lambda x: tn.softmax(x, axis=-1), lambda x: torch.softmax(x, -1),
             lambda x: nn.softmax(x, -1), (ROWS,), True),
        Case("sum of columns", lambda x: x.sum(axis=0), lambda x: x.sum(0), lambda x: x.sum(0), (ROWS,)),
        Case("max of rows", lambda x: x.max(axis=1), lambda x: x.amax(1), lambda x: x.max(1), (ROWS,)),
        Case("argmax of columns", lambda x: x.argmax(axis=0), lambda x: x.argmax(0), lambda x: x.argmax(0), (ROWS,)),
        Case("sum of a middle axis", lambda x: x.sum(axis=1), lambda x: x.sum(1), lambda x: x.sum(1),
             ((64, 256, 256),)),
        Case("transpose 2048 x 2048", lambda x: x.T * 1.5, lambda x: x.T.contiguous() * 1.5, lambda x: x.T * 1.5,
             ((2048, 2048),)),
        Case("channels last", lambda x: tn.permute_dims(x, (0, 2, 3, 1)) * 1.5,
             lambda x: (x.permute(0, 2, 3, 1) * 1.5).contiguous(), lambda x: x.transpose(0, 2, 3, 1) * 1.5,
             (PICTURES,)),
        Case("cumsum of rows", lambda x: tn.cumsum(x, axis=1), lambda x: x.cumsum(1), lambda x: x.cumsum(1), (ROWS,)),
        Case("cumsum of columns", lambda x: tn.cumsum(x, axis=0), lambda x: x.cumsum(0), lambda x: x.cumsum(0),
             (ROWS,)),
        Case("sort of a million", lambda x: tn.sort(x), lambda x: torch.sort(x, stable=True)[0], lambda x: jnp.sort(x),
             ((1_000_000,),), exported=False),
        Case("places of 1024 rows", lambda x: tn.argsort(x, axis=1),
             lambda x: torch.argsort(x, dim=1, stable=True), lambda x: jnp.argsort(x, axis=1), ((1024, 1024),),
             exported=False),
        Case("40 largest of 50,000", lambda x: tn.topk(x, 40)[0], lambda x: torch.topk(x, 40)[0],
             lambda x: jax.lax.top_k(x, 40)[0], ((64, 50_000),)),
        Case("a million searched for", lambda x, v: tn.searchsorted(tn.cumsum(x * x, axis=0), v),
             lambda x, v: torch.searchsorted((x * x).cumsum(0), v), lambda x, v: jnp.searchsorted(jnp.cumsum(x * x), v),
             ((1000,), (1_000_000,)), exported=False),
        Case("rows written to places", lambda x, u, at: tn.index_add(x, at, u), lambda x, u, at: x.index_add(0, at, u),
             lambda x, u, at: x.at[at].add(u), ((10000, 512), (4096, 512), integers(10000, 4096))),
        Case("max pool 3x3/2, gradient", lambda x: tn.max_pool(x, 3, 2, 1), lambda x: F.max_pool2d(x, 3, 2, 1),
             lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2),
                                             ((0, 0), (0, 0), (1, 1), (1, 1))), (PICTURES,), True),
        Case("mean pool 2x2, gradient", lambda x: tn.avg_pool(x, 2), lambda x: F.avg_pool2d(x, 2),
             lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4,
             (PICTURES,), True),
    ]


def run_of_tenon(case: Case, arrays: Sequence[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    def pulled(*inputs: Any) -> Any:
        result, pull = tn.vjp(case.tenon, *inputs)
        return result, pull(result)
    compiled, tensors = tn.jit(pulled if case.gradient else case.tenon), [tn.asarray(a) for a in arrays]
    return lambda: compiled(*tensors)


def run_of_torch(torch: Any, case: Case, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    tensors = [torch.from_numpy(a).requires_grad_(case.gradient) for a in arrays]

    def run() -> Any:
        result = case.torch(*tensors)
        return (result, torch.autograd.grad(result, tensors, result.detach())) if case.gradient else result
    return run


def run_of_jax(jax: Any, case: Case, arrays: Sequence[np.ndarray]) -> Callable[[], Any]:
    def pulled(*inputs: Any) -> Any:
        result, pull = jax.vjp(case.jax, *inputs)
        return result, pull(result)
    compiled, tensors = jax.jit(pulled if case.gradient else case.jax), [jax.numpy.asarray(a) for a in arrays]
    return lambda: jax.block_until_ready(compiled(*tensors))


def run(library: str, name: str) -> Callable[[], Any] | None:
    """The row of that name in one library; None where that has none."""
    module = importlib.import_module(library)
    known = cases(module if library == "torch" else None, module if library == "jax" else None)
    (case,) = [case for case in known if case.name == name]
    return MAKE[library](module, case, arrays_of(case))


def arrays_of(case: Case) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(i).astype(np.float32) if isinstance(i, tuple) else i for i in case.inputs]


def run_of_exchanged(runtime: str, case: Case, arrays: Sequence[np.ndarray]) -> Callable[[], Any] | None:
    """By ONNX Runtime or OpenVINO, of what PyTorch exports; None for gradients, and what ONNX has no words for."""
    torch: Any = importlib.import_module("torch")
    (case,) = [found for found in cases(torch, None) if found.name == case.name]

    class Net(torch.nn.Module):     # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            return case.torch(*inputs)
    file, names = io.BytesIO(), [f"x{k}" for k in range(len(arrays))]
    if case.gradient or not case.exported:
        return None
    with warnings.catch_warnings(action="ignore"):      # the newer exporter needs a package more
        try:
            torch.onnx.export(Net().eval(), tuple(map(torch.from_numpy, arrays)), file, dynamo=False, input_names=names)
        except torch.onnx.errors.OnnxExporterError:
            return None
    run: Callable[..., Callable[[], Any]] = getattr(peers, f"{runtime}_run")
    return run(file.getvalue(), **dict(zip(names, arrays, strict=True)))


MAKE: dict[str, Callable[[Any, Case, Sequence[np.ndarray]], Callable[[], Any] | None]] = {
    "tenon": lambda _, case, arrays: run_of_tenon(case, arrays), "torch": run_of_torch, "jax": run_of_jax,
    "onnxruntime": lambda _, case, arrays: run_of_exchanged("onnxruntime", case, arrays),
    "openvino": lambda _, case, arrays: run_of_exchanged("openvino", case, arrays)}
NAMES = {"tenon": "Tenon", "torch": "PyTorch", "jax": "JAX", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def leaves(found: Any) -> list[np.ndarray]:
    """The arrays of nested results."""
    if isinstance(found, (tuple, list)):
        return [x for part in found for x in leaves(part)]
    return [np.asarray(found.detach() if hasattr(found, "detach") else found)]


def agree(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    """Whether two libraries returned the same, but for what sums and functions round differently."""
    return all(a.shape == b.shape and np.allclose(a, b, rtol=1e-2, atol=1e-2, equal_nan=True)
               for a, b in zip(ours, theirs, strict=True))


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5)
    options.add_argument("--only", default="", help="part of the names of the rows to run")
    given = options.parse_args(arguments)
    use_one_core()
    modules = {name: importlib.import_module(name) for name in MAKE if installed(name)}
    if "torch" in modules:
        modules["torch"].set_num_threads(config().threads)
    random = np.random.default_rng(0)
    source = random.standard_normal(ROWS).astype(np.float32)
    copied = np.empty_like(source)
    for case in cases(modules.get("torch"), modules.get("jax")):
        if given.only not in case.name:
            continue
        arrays = [random.standard_normal(i).astype(np.float32) if isinstance(i, tuple) else i for i in case.inputs]
        made = {NAMES[name]: MAKE[name](module, case, arrays) for name, module in modules.items()}
        runs = {name: run for name, run in made.items() if run is not None}
        results = leaves(runs["Tenon"]())
        others = runs.keys() - {"Tenon"}
        wrong = [name for name in runs if name in others and not agree(results, leaves(runs[name]()))]
        for name in wrong:
            print(f"{case.name}: {name} returns something else: left out", flush=True)
            del runs[name]
        if wrong and len(wrong) == len(others):
            raise SystemExit(f"{case.name}: no library returns what Tenon does")
        times = compare({**runs, "copy": lambda: np.copyto(copied, source)}, given.seconds)
        copy = 2 * source.nbytes / times.pop("copy")
        rate = sum(x.nbytes for x in (*arrays, *results)) / times["Tenon"]
        print(f"{row(case.name, times)}   {rate / 1e9:.1f} GB/s of {copy / 1e9:.1f}", flush=True)


if __name__ == "__main__":
    main()
