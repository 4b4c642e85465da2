"""Tenon as a backend of onnx's own test runner: `onnx.backend.test.BackendTest(tn.onnx.Backend, __name__)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tenon as tn
from tenon.onnx.function_bodies import type_of
from tenon.onnx.known_values import Known
from tenon.onnx.model_file import read_model
from tenon.onnx.onnx_model import OnnxModel
from tenon.onnx.onnx_package import onnx


class Prepared:
    """A model that is ready to run on arrays."""

    def __init__(self, model: OnnxModel):
        self.model = model

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """The results as arrays, and lists of arrays for sequences."""
        given = dict(zip(self.model.inputs, inputs)) if isinstance(inputs, (list, tuple)) else dict(inputs)
        values = self.model.given((), given)
        return tuple(map(_array, self.model.run(values)))


class Backend:
    """The interface of `onnx.backend.base.Backend`.  A node is evaluated at once, a model too unless `compile=True`."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", *, compile: bool = False, **options: Any) -> Prepared:
        """A model as something with `run(inputs)`."""
        return Prepared(OnnxModel(read_model(model), compile, None))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """The results of a model."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None,
                 **options: Any) -> tuple[Any, ...]:
        """The results of one node."""
        info = [onnx.ValueInfoProto(name=name, type=type_of(Known(x))) for name, x in zip(node.input, inputs) if name]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", info, results)
        return cls.run_model(onnx.helper.make_model(graph), [x for n, x in zip(node.input, inputs) if n], device)

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **options: Any) -> bool:
        """Whether Tenon has every operator of the model."""
        return not OnnxModel(read_model(model), False, None).unsupported()

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The processor is all there is."""
        return device.startswith("CPU")


def _array(x: Any) -> Any:
    if isinstance(x, list):
        return [_array(y) for y in x]
    return np.asarray(x.numpy()) if isinstance(x, tn.Tensor) else x
