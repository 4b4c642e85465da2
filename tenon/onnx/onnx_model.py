"""A verified model -> a function of tensors, compiled at the first call for each kind of input.

A model whose sizes depend on its data runs with graph breaks, as a function of `tn.jit` does; one that computes with
text or types that Tenon lacks runs at once, operator by operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tenon as tn
from tenon.capture.code_monitor import unwatched
from tenon.capture.jitted import Jitted
from tenon.errors import ArgumentError
from tenon.graph.ir import Graph
from tenon.graph.op import current
from tenon.onnx import operators  # noqa: F401    enters them in the table
from tenon.onnx.evaluate_plan import evaluate, fold, is_supported, within
from tenon.onnx.function_bodies import element_type
from tenon.onnx.graph_plan import GraphPlan, model_plan, steps_of
from tenon.onnx.known_values import REGULAR, Known, TooLargeError, as_tensor, most_bytes_of
from tenon.onnx.model_file import read_model
from tenon.onnx.onnx_package import onnx

TRUSTED, BOUNDED = 1 << 33, 1 << 26        # bytes of a value


def load(source: Any, *, compile: bool = True, time_limit: float | None = None,
         memory_limit: int | None = None) -> OnnxModel:
    """The model in an ONNX file, as a function.

    `source` is a path, the bytes of a file, or a ModelProto.  Inputs are given in the model's order or by name, as
    tensors or arrays (text, float8 and int4 as arrays); the result is a tensor, or a tuple where there are several.
    `compile=False` evaluates operator by operator.  `time_limit` is in seconds, for such a call and for loading; it
    turns compiling off, since a program that runs cannot be stopped.  No value may have more bytes than `memory_limit`:
    8 GB unless given, and 64 MB where there is a time limit.

    >>> import onnx
    >>> text = '<ir_version: 8, opset_import: ["": 17]> twice (float[N] x) => (float[N] y) { y = Add(x, x) }'
    >>> model = tn.onnx.load(onnx.parser.parse_model(text))
    >>> model(tn.tensor([1.0, 2.0]))
    tensor([2., 4.])

    Raises ModelError where the file is damaged or contradicts itself, UnsupportedError where it asks for what Tenon
    does not do.
    """
    with within(time_limit):
        return OnnxModel(read_model(source), compile and time_limit is None, time_limit, memory_limit)


def import_graph(source: Any, inputs: Any) -> Graph:
    """The graph that Tenon makes of a model for inputs like these (arrays, or tensors), before any pass.

    >>> import onnx
    >>> text = '<ir_version: 8, opset_import: ["": 17]> twice (float[N] x) => (float[N] y) { y = Add(x, x) }'
    >>> print(tn.onnx.import_graph(onnx.parser.parse_model(text), [tn.ones(2)]))
    def twice(x0: f32[2]):
        v0: f32[2] = add(x0, x0)  # ...
        return v0
    """
    return load(source).graph(*inputs)


class OnnxModel:
    """A function of an ONNX file.  `inputs` and `outputs` are names; `weights` are its initializers."""

    def __init__(self, model: Any, compile: bool, time_limit: float | None, memory_limit: int | None = None):
        self.plan = fold(model_plan(model))
        self.inputs, self.outputs = self.plan.inputs, self.plan.outputs
        self.time_limit = time_limit
        self.memory_limit = memory_limit or (TRUSTED if time_limit is None else BOUNDED)
        self.__name__ = self.plan.name if self.plan.name.isidentifier() else "model"
        compiled = compile and _returns_tensors(self.plan)
        self._compiled = Jitted(_function(self.plan, self.__name__)) if compiled else None

    def __repr__(self) -> str:
        count = sum(x.array.size for x in self.plan.constants.values())
        return (f"OnnxModel({self.__name__}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}; "
                f"{len(self.plan.steps)} nodes, {count:,} elements of weights)")

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The initializers, and what depends on them alone."""
        return {name: x.array for name, x in self.plan.constants.items()}

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The model's results for these inputs."""
        results = self.run(self.given(args, named))
        return results[0] if len(results) == 1 else results

    def run(self, values: list[Any]) -> tuple[Any, ...]:
        """The results for inputs in their order, always a tuple."""
        if self._compiled is not None and all(isinstance(x, tn.Tensor) for x in values):
            with most_bytes_of(self.memory_limit):
                found: tuple[Any, ...] = self._compiled(*values)
            return tuple(_by_row(x) if isinstance(x, dict) else x for x in found)
        with within(self.time_limit), tn.no_grad(), most_bytes_of(self.memory_limit):
            results = evaluate(self.plan, [x if isinstance(x, tn.Tensor) else _value(x) for x in values])
        return tuple(map(_result, results))

    def graph(self, *args: Any, **named: Any) -> Graph:
        """The graph for inputs like these, before any pass."""
        if self._compiled is None:
            raise ArgumentError("this model is not compiled, so it has no graph", hint="load it without a time limit")
        return self._compiled.graph(*self.given(args, named))

    def unsupported(self) -> list[str]:
        """Operators of the model that Tenon does not have, each with the node that asks for it."""
        return [f"{step.op_type} ({step.domain or 'ai.onnx'}), {step.label}" for step in steps_of(self.plan)
                if not is_supported(step)]

    def given(self, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """The inputs of a call in the model's order, checked."""
        if len(args) > len(self.inputs):
            raise ArgumentError(f"{self.__name__} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), and is "
                                f"given {len(args)}")
        given = dict(zip(self.inputs, args)) | named
        for name in named:
            if name not in self.inputs or name in self.inputs[:len(args)]:
                raise ArgumentError(f"{self.__name__} has no input {name!r} left",
                                    hint=f"its inputs are {', '.join(self.inputs)}")
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise ArgumentError(f"{self.__name__} is not given {', '.join(missing)}")
        return [_checked(given[name], self.plan.types.get(name), name) for name in self.inputs]


def _function(plan: GraphPlan, name: str) -> Any:
    refused: list[TooLargeError] = []

    def run(*inputs: Any) -> tuple[Any, ...]:
        if refused and current() is None:       # the capture came to that without taking memory
            raise refused.pop()
        with unwatched():
            try:
                return tuple(map(_as_tensors, evaluate(plan, inputs)))
            except TooLargeError as error:
                refused[:] = [error]
                raise
    run.__name__ = name
    return run


def _as_tensors(x: Any) -> Any:
    if isinstance(x, dict):
        return {label: as_tensor(column) for label, column in x.items()}
    return list(map(_as_tensors, x)) if isinstance(x, list) else as_tensor(x)


def _returns_tensors(plan: GraphPlan) -> bool:
    """Whether all results are declared as tensors, or sequences of them, of types that Tenon has."""
    for name in plan.outputs:
        type = plan.types[name]
        type = type.sequence_type.elem_type if type.WhichOneof("value") == "sequence_type" else type
        type = type.map_type.value_type if type.WhichOneof("value") == "map_type" else type
        number = type.tensor_type.elem_type
        if type.WhichOneof("value") not in (None, "tensor_type") or number == onnx.TensorProto.STRING:
            return False
        if number and onnx.helper.tensor_dtype_to_np_dtype(number) not in REGULAR:
            return False
    return True


def _checked(x: Any, type: Any, name: str) -> Any:
    """An input as a tensor where it may be one; its element type is the declared one."""
    if x is None or (isinstance(x, (list, tuple)) and type is not None and not type.HasField("tensor_type")):
        return None if x is None else [_checked(y, None, name) for y in x]
    if not isinstance(x, (tn.Tensor, np.ndarray)):
        x = np.asarray(x)
    found = element_type(x.dtype.numpy if isinstance(x, tn.Tensor) else x.dtype)
    declared = type.tensor_type.elem_type if type is not None and type.HasField("tensor_type") else 0
    if declared and declared != found:
        names = onnx.TensorProto.DataType.Name
        raise ArgumentError(f"the input {name!r} is {names(declared)}, and is given {names(found)}",
                            hint="cast it first")
    return tn.asarray(x) if isinstance(x, np.ndarray) and x.dtype in REGULAR else x


def _value(x: Any) -> Any:
    return [_value(y) for y in x] if isinstance(x, list) else x if x is None or isinstance(x, tn.Tensor) else Known(x)


def _result(x: Any) -> Any:
    """A value as the caller gets it."""
    if isinstance(x, list):
        return [_result(y) for y in x]
    if isinstance(x, dict):
        return _by_row({label: as_tensor(column) for label, column in x.items()})
    return x.array if isinstance(x, Known) and not x.is_regular else as_tensor(x)


def _by_row(columns: dict[Any, tn.Tensor]) -> list[dict[Any, float]]:
    """The numbers by label, row by row."""
    rows = zip(*[column.tolist() for column in columns.values()], strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]
