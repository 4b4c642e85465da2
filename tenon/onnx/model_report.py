"""What `tenon onnx FILE` prints: the model, what of it is not supported, its results and its times."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tenon as tn
from tenon.errors import ArgumentError
from tenon.onnx.graph_plan import steps_of
from tenon.onnx.onnx_model import OnnxModel, load
from tenon.onnx.onnx_package import onnx

RUNS = 10


def report(path: str, inputs: Sequence[str], sizes: Mapping[str, int], seconds: float | None) -> Iterator[str]:
    """Lines about the model, then about a run on these inputs (files of arrays), or on random ones."""
    model = load(path, time_limit=seconds)
    yield repr(model)
    yield "opsets: " + ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in model.plan.opsets.items())
    yield from (f"input {name}: {declared(model, name)}" for name in model.inputs)
    counts = Counter(step.op_type for step in steps_of(model.plan))
    yield "operators: " + ", ".join(f"{name} {n}" for name, n in counts.most_common())
    missing = model.unsupported()
    if missing:
        yield from (f"not supported: {line}" for line in missing)
        return
    values = {name: random_input(model, name, sizes) for name in model.inputs} | _read(model, inputs)
    begin = time.perf_counter()
    results = model.run(model.given((), values))
    first = time.perf_counter() - begin
    yield from (f"result {name}: {_described(x)}" for name, x in zip(model.outputs, results))
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        model.run(model.given((), values))
        times.append(time.perf_counter() - begin)
    yield f"first call {first * 1e3:.1f} ms, then {min(times) * 1e3:.3f} ms"


def declared(model: OnnxModel, name: str) -> str:
    """The type that the model declares for an input."""
    type = model.plan.types[name]
    if not type.HasField("tensor_type"):
        return str(type.WhichOneof("value")).replace("_type", "")
    sizes = [d.dim_param or d.dim_value if d.WhichOneof("value") else "?" for d in type.tensor_type.shape.dim]
    return f"{onnx.TensorProto.DataType.Name(type.tensor_type.elem_type).lower()}{sizes}".replace("'", "")


def random_input(model: OnnxModel, name: str, sizes: Mapping[str, int]) -> Any:
    """An array of the declared type; sizes that are open are 1 unless they are given by name."""
    type = model.plan.types[name]
    if not type.HasField("tensor_type"):
        raise ArgumentError(f"the input {name!r} is no tensor, so there is no random one")
    shape = [sizes.get(d.dim_param, d.dim_value or 1) for d in type.tensor_type.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(type.tensor_type.elem_type)
    generator = np.random.default_rng(0)
    if dtype.kind == "O":
        return np.full(shape, "text", object)
    if dtype.kind in "iub":
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.random(shape).astype(dtype)


def _read(model: OnnxModel, inputs: Sequence[str]) -> dict[str, Any]:
    """Arrays of files, each `[NAME=]FILE.npy`."""
    found, names = {}, iter(model.inputs)
    for text in inputs:
        name, _, file = text.rpartition("=")
        if not Path(file).is_file():
            raise ArgumentError(f"there is no file {file!r}")
        found[name or next(names)] = np.load(file, allow_pickle=False)
    return found


def _described(x: Any) -> str:
    if isinstance(x, list):
        return f"sequence of {len(x)}"
    if isinstance(x, tn.Tensor):
        return f"{x.type}"
    return f"{x.dtype}{list(x.shape)}"
