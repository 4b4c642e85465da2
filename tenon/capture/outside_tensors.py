"""Tensors from outside a captured function -> parameters of its graph, and a state of each as the program sees it.

What the program assigns to such a tensor becomes a result of the graph.  The tensor itself stays untouched until the
graph has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakMethod

import numpy as np

from tenon.capture.captured_devices import CapturedDevices
from tenon.capture.parameter_sources import (
    Argument,
    GradientOf,
    Held,
    OutsideTensor,
    Source,
    array_at,
    type_of_state,
)
from tenon.eager.dispatch import TensorInterpreter
from tenon.graph.build import Builder
from tenon.graph.ir import Value
from tenon.tensor import Tensor
from tenon.tensor_state import Elsewhere, Payload, Recorder, TensorState
from tenon.types import TensorType

SMALL_CONSTANT_ELEMENTS = 64    # larger arrays are parameters of the graph


class OutsideTensors(TensorInterpreter):
    """Reads and writes of tensors from outside, as parameters and results of the graph that is built."""

    first = -1                  # the number of the last value that was there before
    around: Recorder | None = None      # the capture within which this is one

    def __init__(self, name: str):
        self.builder = self.whole = Builder(name)
        self.sources: list[Source] = []
        self.seen: dict[int, OutsideTensor] = {}
        self._arrays: dict[int, Value] = {}
        self.released: set[Value] = set()   # tensors from outside whose tapes backward() has been through
        self.flows: set[Value] = set()      # what a gradient can flow to, as far as the graph tells
        self.devices = CapturedDevices(WeakMethod(self._builders))     # a cycle would keep what was captured

    def argument(self, tensor: Tensor, position: int, type: TensorType, name: str) -> None:
        """Declare a tensor among the arguments of the call, of this type (sizes may be symbols)."""
        if id(tensor) not in self.seen:
            self._see(tensor, tensor.own, Argument(position), type, name)

    def state_of(self, tensor: Tensor) -> TensorState:
        """The state of a tensor; the first look at one from outside makes it a parameter of the graph."""
        own = tensor.own
        payload = own.payload
        if type(payload) is Value:          # what `owns` finds, in few steps
            if payload.number > self.first:
                return own
        elif type(payload) is not np.ndarray and self.owns(payload):
            return own
        seen = self.seen.get(id(tensor))
        if seen is None:
            own = self.outside(tensor)
            seen = self._see(tensor, own, Held(tensor), type_of_state(own), "")
        return seen.state

    def hold(self, tensor: Tensor, state: TensorState) -> None:
        """Give a tensor another state, in the captured program."""
        if self.owns(tensor.own.payload):
            tensor.own = state
        else:
            self.state_of(tensor)
            self.seen[id(tensor)].state = state

    def gradient(self, tensor: Tensor) -> Any:
        """The gradient of a tensor; the program depends on whether one from outside began with it."""
        state = self.state_of(tensor)
        if (seen := self.seen.get(id(tensor))) is not None and not seen.renewed:
            seen.asked = True
            if self.around is not None:
                self.around.gradient(tensor)
        return state.grad

    def renew_gradient(self, tensor: Tensor) -> None:
        """From here on it makes no difference which gradient a tensor had; under a condition it does."""
        self.state_of(tensor)
        seen = self.seen.get(id(tensor))
        if seen is None or seen.asked:
            return
        if self.around is None and self.builder is self.whole:
            seen.renewed = True
        else:
            self.gradient(tensor)

    def owns(self, payload: Payload) -> bool:
        """Whether a payload came into being in this capture."""
        return not isinstance(payload, (np.ndarray, Elsewhere))

    def outside(self, tensor: Tensor) -> TensorState:
        """The state of an outside tensor, as it is around the capture."""
        return tensor.own

    def _see(self, tensor: Tensor, own: TensorState, source: Argument | Held, type: TensorType,
             name: str) -> OutsideTensor:
        start = self._parameter(source, type, name)
        self.devices.enter(start, own.payload, self.around)
        if own.requires_grad:
            self.flows.add(start)
            if own.node is not None and own.node.released:
                self.released.add(start)
        grad = None
        if own.grad is not None:
            grad = Tensor(self._parameter(GradientOf(source), type, f"{start.name}_grad"))
            self.devices.enter(grad.own.payload, own.payload, self.around)
        state = TensorState(start, own.requires_grad, grad)
        self.seen[id(tensor)] = OutsideTensor(tensor, source, start, grad, state)
        return self.seen[id(tensor)]

    def array_of(self, param: Value, leaves: Sequence[Any]) -> Any:
        """What a parameter of the graph is in a call with these leaves."""
        return array_at(self.sources[self.builder.params.index(param)], leaves)

    def array(self, array: np.ndarray, own: bool = False) -> Value:
        """The parameter that is this NumPy array, whatever it holds at each call."""
        if id(array) not in self._arrays:
            made = self._arrays[id(array)] = self._parameter(Held(array, own), type_of_state(TensorState(array)), "")
            self.devices.enter_array(made)
        return self._arrays[id(array)]

    def constant(self, array: np.ndarray) -> Value:
        """A tensor made from data inside the function: a constant of the graph."""
        if array.size <= SMALL_CONSTANT_ELEMENTS:
            return self.builder.constant(array)
        return self.array(array.copy(), own=True)

    def _parameter(self, source: Source, type: TensorType, name: str) -> Value:
        self.sources.append(source)
        return self.builder.parameter(type, name or f"s{len(self.sources) - 1}")

    def _builders(self) -> list[Builder]:
        """Those that record now, the innermost first."""
        found: list[Builder] = [self.builder]
        while (outer := found[-1].outer) is not None:
            found.append(outer)
        return found

    def device_of(self, payload: Payload) -> Any:
        """Where the elements of a captured tensor will be."""
        return self.devices.of(payload)
