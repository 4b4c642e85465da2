"""A network of `benchmarks.models` in each library: one call of the run is a training step, or an inference.

    run = network("jax", WORKLOADS["gpt"])      # None where the library is not installed, or cannot do it
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.models import Run, Workload, inputs, tenon_run, torch_net, torch_run, weights
from benchmarks.timing import installed
from tenon.config import config

LIBRARIES = ("tenon", "torch", "compiled", "jax", "tensorflow", "xla", "onnxruntime", "openvino")
PACKAGES = {"compiled": "torch", "xla": "tensorflow"}       # of libraries that are another's compiler


def network(library: str, workload: Workload) -> Run | None:
    """The run of a workload in a library."""
    return MAKE[library](workload) if able(library) else None


def able(library: str) -> bool:
    """Whether it is installed."""
    return library == "tenon" or installed(PACKAGES.get(library, library))


def _torch(workload: Workload) -> Run:
    """PyTorch eager, in the layout that suits it: channels last for pictures in colour."""
    shape = inputs(workload)[0].shape
    return torch_run(workload, channels_last=len(shape) == 4 and shape[1] == 3)


def _jax(workload: Workload) -> Run | None:
    if workload.narrow:
        return None
    from benchmarks.jax_nn import jax_run

    return jax_run(workload, weights(workload), inputs(workload))


def _tensorflow(workload: Workload, xla: bool = False) -> Run | None:
    """A `tf.function`, run by TensorFlow's own kernels, or compiled by its XLA."""
    if workload.narrow:
        return None
    from benchmarks.tensorflow_nn import tensorflow_run

    return tensorflow_run(workload, weights(workload), inputs(workload), xla)


def _exchanged(workload: Workload, runtime: Callable[..., Run]) -> Run | None:
    """Inference only, of the network that PyTorch exports."""
    file = exported(workload)
    if file is None:
        return None
    run = runtime(file, x=inputs(workload)[0])
    return lambda: float(run().sum())


def onnxruntime_run(file: bytes | str, **inputs: Any) -> Run:
    """The first output of a file of ONNX, its bytes or its path, for inputs by name."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = config().threads
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)[0]


def openvino_run(file: bytes, **inputs: Any) -> Run:
    """The same by OpenVINO, in float32 also where the processor has narrower products."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": config().threads, "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()
    request = core.compile_model(core.read_model(file), "CPU", settings).create_infer_request()
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[0]


def exported(workload: Workload) -> bytes | None:
    """The network as ONNX, None for what is no inference in float32, or where a package is missing."""
    if workload.optimizer is not None or workload.narrow or not all(map(installed, ("torch", "onnx"))):
        return None
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):       # the newer exporter needs a package more
        torch.onnx.export(torch_net(workload).eval(), (torch.from_numpy(inputs(workload)[0]),), file, dynamo=False,
                          input_names=["x"])
    return file.getvalue()


MAKE: dict[str, Callable[[Workload], Run | None]] = {
    "tenon": tenon_run, "torch": _torch, "compiled": partial(torch_run, compiled=True), "jax": _jax,
    "tensorflow": _tensorflow, "xla": partial(_tensorflow, xla=True),
    "onnxruntime": partial(_exchanged, runtime=onnxruntime_run), "openvino": partial(_exchanged, runtime=openvino_run)}
