"""Operator calls on tensors that lie on other devices than the first: where they are computed, and what is refused.

    x = tn.ones(3).to("cpu:1")
    x + x               # there
    x + tn.ones(3)      # DeviceError: x is on cpu:1, tn.ones(3) on cpu
    x + 1, x + np.ones(3, np.float32)       # there: numbers and arrays of NumPy lie nowhere

Such a tensor's payload is no array, so every fast path leaves it to the full call, which comes here.  A block
`with tn.device(...)` puts the same interpreter around calls that have no tensor among their inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tenon.array_conversion import copied
from tenon.context_values import during
from tenon.devices import HOST, PYTHON, Device, as_device, when_placing
from tenon.eager.dispatch import Eager, TensorInterpreter, eager, set_mover
from tenon.graph.build import Builder
from tenon.graph.op import Op, at_once, innermost, using_default
from tenon.graph.operand_names import refused_devices
from tenon.graph.structural_key import Exact
from tenon.locks import unforked
from tenon.ops.placing import MOVES
from tenon.ops.transfer import to_device
from tenon.program.backend_interface import Buffer, Executable
from tenon.runtime.launch_program import LaunchedProgram
from tenon.runtime.open_devices import brought, fetched, opened
from tenon.tensor import Tensor
from tenon.tensor_state import Elsewhere, Payload, in_memory
from tenon.types import DTYPE_OF, DType, TensorType


class OnDevice(Elsewhere):
    """The payload of a tensor on a device other than the first: a buffer of its memory."""

    __slots__ = ("buffer", "device", "dtype", "shape")
    device: Device

    def __init__(self, buffer: Buffer, device: Device):
        self.buffer, self.device = buffer, device
        self.shape: tuple[int, ...] = buffer.shape
        self.dtype: DType = DTYPE_OF[buffer.dtype]

    def elements(self) -> np.ndarray:
        """The elements in plain memory, which nobody changes."""
        return fetched(self.buffer, opened(self.device))

    @property
    def interpreter(self) -> TensorInterpreter:
        """Who evaluates operators on such tensors."""
        return placed(self.device)


class Placed(Eager):
    """Evaluates operators on a device; of calls that have no tensors among their inputs the results lie there."""

    at_once = True

    def __init__(self, device: Device):
        super().__init__()
        self.device = device

    def lift(self, x: Any) -> Any:
        """An array or number of NumPy comes to the device."""
        found = super().lift(x)
        return found if found is x or not isinstance(found, Tensor) else Tensor(moved(found, self.device))

    def apply(self, op: Op, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """The output tensors of `op`, where its inputs are."""
        here = place_of(op, inputs) or self.device
        if here is HOST and op not in MOVES:
            with using_default():
                return eager.apply(op, inputs, attrs)
        at = placed(here)
        with _innermost(at):
            return TensorInterpreter.apply(at, op, inputs, attrs)

    def evaluate(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        here = place_of(op, inputs) or self.device
        with using_default():
            if op in MOVES:
                return (moved(inputs[0], target_of(op, inputs, attrs)),)
            if here.type == "cpu" or op.effect or op.data_dependent:
                return tuple([on(here, array) for array in self.on_arrays(op, inputs, attrs)])
            return self._launched(here, op, inputs, attrs)

    def _launched(self, here: Device, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> tuple[Payload, ...]:
        """The outputs as a device with memory of its own computes them, by a program of this one operator."""
        given = tuple([x.type if isinstance(x, Tensor) else x for x in inputs])
        found = program_for(here.type, op, given, Exact(attrs))
        buffers = [at_hand(x.payload) for x in inputs if isinstance(x, Tensor)]
        return tuple([OnDevice(buffer, here) for buffer in LaunchedProgram(found, opened(here)).run(buffers)])


@cache
def placed(device: Device) -> Placed:
    """The interpreter of a device."""
    return Placed(device)


@lru_cache(maxsize=1024)
def program_for(backend: str, op: Op, inputs: tuple[Any, ...], attrs: Exact) -> Executable:
    """The program of a backend for one operator; of its inputs there are types, literals and None."""
    builder = Builder(op.name, rewriting=True)
    values = tuple([builder.parameter(x) if isinstance(x, TensorType) else x for x in inputs])
    out = builder.emit(op, builder.broadcast(values) if op.elementwise else values, attrs.values)
    with unforked:
        from tenon.pipeline import compile  # local: the compiler is loaded when something is first compiled
    return compile(builder.finish(out if isinstance(out, tuple) else (out,)), backend)


def on(device: Device, elements: Any) -> Any:
    """The payload of a tensor of these elements on a device: an array, or a buffer that is there."""
    if device is HOST:
        return elements
    there = elements if device.type == "cpu" or not isinstance(elements, np.ndarray) else \
        brought(elements, opened(device))
    return OnDevice(there, device)


def at_hand(payload: Any) -> Any:
    """What a program is given of a tensor: its array, or the buffer of the device that runs the program."""
    return payload.buffer if isinstance(payload, OnDevice) else in_memory(payload)


def moved(x: Tensor, device: Device) -> Payload:
    """The payload of a tensor with the elements of x, on a device; the same where it is there."""
    payload = x.payload
    if device_of(payload) is device:
        return payload
    if isinstance(payload, OnDevice) and payload.device.type == device.type != "cpu":
        there = opened(device).allocate(payload.shape, payload.dtype.numpy)
        opened(device).copy(payload.buffer, there).wait()
        return OnDevice(there, device)
    array = x._concrete("to_device")
    found: Payload = on(device, copied(array) if device.type == "cpu" else array)
    return found


def target_of(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Device:
    """Where a move leads: to the device it names, or to that of its second input."""
    return as_device(attrs["device"]) if op is to_device else device_of(inputs[1].payload)


def place_of(op: Op, inputs: tuple[Any, ...]) -> Device | None:
    """The device of the tensors among the inputs; None where there are none.  Raises DeviceError for several."""
    found: dict[Device, Any] = {}
    for x in inputs[:1] if op in MOVES else inputs:
        if isinstance(x, Tensor):
            found.setdefault(device_of(x.payload), x)
    if len(found) > 1:
        raise refused_devices(op.name, inputs, [device_of(x.payload) if isinstance(x, Tensor) else None
                                                for x in inputs])
    return next(iter(found), None)


def device_of(payload: Payload) -> Any:
    """Where the elements of an evaluated tensor are."""
    return payload.device if isinstance(payload, Elsewhere) else HOST


def _innermost(inner: Placed) -> AbstractContextManager[Any]:
    return during(innermost, inner)


def _enter(device: Device) -> Any:
    """A block begins: calls in it are asked about, unless somebody else decides what they mean."""
    before = innermost.get()
    if at_once() and device is not PYTHON:
        innermost.set(placed(device))
    return before


def _leave(before: Any) -> None:
    innermost.set(before)


set_mover(placed(HOST))
when_placing(_enter, _leave)
