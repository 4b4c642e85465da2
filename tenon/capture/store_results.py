"""The results of a run -> the stores that make the state of them, all done at once, and what the function returned.

    result_stores = ResultStores(captured, leaves, captured.changes)
    at_once(result_stores.stores(results))
    return result_stores.value()

All that a call leaves is computed before any of it is stored, so nobody sees a part of it.  A program that writes in
the memory of tensors has changed them when it ends, so its stores are made before it runs and done where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from operator import call
from typing import Any

import numpy as np

from tenon.atomic import Store
from tenon.capture.captured import KEPT, Captured, Change, holder_of
from tenon.capture.convert.tensor_list import element
from tenon.capture.effects import STORES
from tenon.capture.output_effects import filled
from tenon.capture.parameter_sources import GradientOf, Held, Source
from tenon.capture.result_leaves import (
    FromArguments,
    FromContainers,
    FromGraph,
    FromOutside,
    FromSize,
    ListRows,
    OneOf,
    RowsOf,
    SharedLeaf,
    Written,
)
from tenon.devices import Device
from tenon.dims.element_count import size_of
from tenon.dims.size_assumptions import learn
from tenon.dims.symbolic_dim import Dim, evaluate
from tenon.eager.on_device import on
from tenon.eager.on_mesh import OnMesh
from tenon.eager.tape import RELEASED, ended
from tenon.errors import CaptureError
from tenon.ops.deferred_output import Heard
from tenon.sharding.sharded_array import ShardedArray
from tenon.tensor import Tensor
from tenon.tensor_state import TensorState, noted_change
from tenon.types import TensorType


class Stopped(Exception):
    """The function raised while it was captured, or its graph failed; nothing outside was changed.

    So it can be called, to do what it does before it raises, or where it deals with the error.  `broken`: there is no
    program of the graph, and never will be.
    """

    def __init__(self, error: BaseException, broken: bool = False):
        super().__init__(error)
        self.error, self.broken = error, broken


# ---------------------------------------------------------------- what a program returned

def in_words(raised: BaseException | str) -> str:
    """What a function raises, as it is told."""
    return raised if isinstance(raised, str) else f"{type(raised).__name__}: {raised}".removesuffix(": ")


def off_the_graph(captured: Captured) -> BaseException:
    """The error of a call that its graph does not hold: the function's own, where there is but one."""
    if len(captured.raising) == 1 and isinstance(captured.raising[0], BaseException):
        return captured.raising[0].with_traceback(None)
    known = [in_words(x) for x in captured.raising if x]
    return CaptureError("the call takes a way that its graph does not hold" + (
        f", such as where the function raises {' or '.join(known)}" if known else ""))


class RunResults:
    """The arrays that a program returned; a tensor is made of one only where somebody asks."""

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = arrays

    def __getitem__(self, k: int) -> Tensor:
        return self.detached(k)

    def payload(self, k: int) -> Any:
        """The array of a result."""
        return self.arrays[k]

    def state(self, k: int, requires_grad: bool = False, grad: Any = None, node: Any = None) -> TensorState:
        """A state that holds a result."""
        return TensorState(self.payload(k), requires_grad, grad, node)

    def detached(self, k: int) -> Tensor:
        """A tensor of its own that holds a result."""
        tensor: Tensor = object.__new__(Tensor)
        tensor.own = self.state(k)
        return tensor

    def changed(self, change: Change, holder: Any, requires_grad: bool, grad: Any) -> TensorState | None:
        """The next state of a tensor; None where it was updated in its own memory."""
        k, own = change.result, holder.own
        if k is None:
            return TensorState(own.payload, requires_grad, grad, own.node, own.index)
        payload = self.payload(k)
        if payload is own.payload and own.node is None and not change.marks:
            return None
        return TensorState(payload, requires_grad, grad)


class OnDevices(RunResults):
    """The same of a graph of several devices."""

    def __init__(self, arrays: Sequence[Any], devices: Sequence[Device]):
        super().__init__(arrays)
        self.devices = devices

    def payload(self, k: int) -> Any:
        return on(self.devices[k], self.arrays[k])


class OnTape(RunResults):
    """The same of a call that is recorded: tensors."""

    def __init__(self, tensors: Sequence[Tensor]):
        super().__init__([x.own.payload for x in tensors])
        self.tensors = tensors

    def __getitem__(self, k: int) -> Tensor:
        return self.tensors[k]

    def changed(self, change: Change, holder: Any, requires_grad: bool, grad: Any) -> TensorState | None:
        if change.result is None or not change.carries:
            return super().changed(change, holder, requires_grad, grad)
        new = self.tensors[change.result].own
        return TensorState(new.payload, requires_grad, grad, new.node, new.index)


class OfMesh(RunResults):
    """The same of a graph that ran on a mesh: some are in parts."""

    def payload(self, k: int) -> Any:
        x = self.arrays[k]
        return OnMesh(x) if isinstance(x, ShardedArray) else x


# ---------------------------------------------------------------- what a call does with them

class ResultStores:
    """What one call does with the results of its graph; it keeps what the stores replace."""

    def __init__(self, captured: Captured, leaves: Sequence[Any], changes: Sequence[Change],
                 containers: Sequence[Any] = ()):
        self.captured, self.leaves, self.changes, self.containers = captured, leaves, changes, containers
        self.heard: Heard = []      # what the run said in its branches and loops

    def stores(self, results: RunResults) -> Iterator[Any] | None:
        """All that the call changes, to be done at once; nothing is changed yet.

        Raises Stopped where the graph does not hold the way of this call.
        """
        captured = self.captured
        if captured.failed is not None and results.arrays[captured.failed]:
            raise Stopped(off_the_graph(captured))
        if captured.output_effects is not None and captured.output_effects.raises():
            raise Stopped(CaptureError("a warning is an error, in the middle of the call"))
        self.fill = Fill(captured.types, self.leaves, results, self.containers)
        states = self._states(results)
        if not captured.effects and not (captured.gradients or captured.flags):
            return starmap(SET_STATE, states) if states else None
        self.rows = [*self._effects(), noted_change()]
        return chain(starmap(SET_STATE, states), starmap(call, self.rows))

    def value(self) -> Any:
        """What the function returned; asked for once, when the stores are done, which is when it says what it says."""
        captured = self.captured
        if captured.output_effects is not None:
            captured.output_effects.tell(self.fill, self.heard)
        if not captured.effects:
            return captured.output.build(self.fill)
        return self.returned if captured.split is None else captured.split[0].build(self.fill)

    def _states(self, results: RunResults) -> list[tuple[Tensor, TensorState]]:
        """The tensors from outside that change, and how."""
        self.replaced: list[TensorState] = []
        states = []
        for change in self.changes:
            source = change.source
            holder: Any = source.holder if type(source) is Held else holder_of(source, self.leaves)
            own = holder.own
            requires_grad, grad = self._marks(change, holder) if change.marks else (own.requires_grad, own.grad)
            state = results.changed(change, holder, requires_grad, grad)
            if state is not None:
                states.append((holder, state))
                self.replaced.append(own)
        return states

    def _marks(self, change: Change, holder: Tensor) -> tuple[bool, Tensor | None]:
        """Whether the tensor will require a gradient, and its gradient."""
        requires_grad, grad, fill = holder.own.requires_grad, holder.own.grad, self.fill
        if change.gradient is not KEPT:
            position: int | OneOf | None = change.gradient
            grad = fill(position) if isinstance(position, OneOf) else \
                None if position is None else fill.results.detached(position)
            fill.gradients[id(holder)] = grad
        return requires_grad if change.flag is None else change.flag, grad

    def _effects(self) -> Iterator[Store]:
        captured = self.captured
        if not captured.effects:
            return
        if captured.split is None:
            self.returned, *values = captured.output.build(self.fill)
        else:
            values = captured.split[1].build(self.fill)
        for (effect, number), value in zip(captured.effects, values, strict=True):
            holder = effect.holder if number is None else \
                self.containers[number] if number >= 0 else self.leaves[-1 - number]
            yield from STORES[effect.kind](holder, effect.key, value)


SET_STATE = vars(Tensor)["own"].__set__     # whatever a class makes of `setattr`


class Fill:
    """Leaves of a nest -> what they stand for after a run.  An object, since a nested function that calls itself would
    keep the results until Python looks for cycles."""

    def __init__(self, types: Sequence[TensorType], leaves: Sequence[Any], results: RunResults,
                 containers: Sequence[Any]):
        self.types, self.leaves, self.results, self.containers = types, leaves, results, containers
        self.made: dict[int, Any] = {}
        self.gradients: dict[int, Any] = {}     # that tensors from outside will have, by the identities of these

    def __call__(self, leaf: Any) -> Any:
        if isinstance(leaf, FromGraph):
            if leaf.name is None:
                return self.finished(leaf)
            if leaf.name not in self.made:
                self.made[leaf.name] = self.finished(leaf)
            return self.made[leaf.name]
        if isinstance(leaf, OneOf):
            return next(nest for p, nest in leaf.options if p is True or (p and self(p))).build(self)
        if isinstance(leaf, SharedLeaf):
            if leaf.name not in self.made:
                self.made[leaf.name] = leaf.nest.build(self)
            return self.made[leaf.name]
        if isinstance(leaf, Written):
            return filled(leaf.form, [self(x) for x in leaf.leaves])
        if isinstance(leaf, RowsOf):
            count = self(leaf.count)
            rows = [self(x)[:count] for x in leaf.rows]
            return rows[0] if leaf.form is None else ListRows(
                [element(leaf.form, iter(row)) for row in zip(*rows, strict=True)])
        if isinstance(leaf, FromSize):
            sizes = sizes_of(self.types, self.leaves)
            return evaluate(leaf.size, sizes) if leaf.axes is None else size_of(
                tuple([evaluate(n, sizes) for n in leaf.axes]))
        if isinstance(leaf, FromArguments):
            return self.leaves[leaf.position]
        if isinstance(leaf, FromContainers):
            return self.containers[leaf.number]
        return self.outside(leaf.source) if isinstance(leaf, FromOutside) else leaf

    def outside(self, source: Source) -> Any:
        """A tensor from outside, or the gradient that it will have."""
        if isinstance(source, GradientOf):
            holder = holder_of(source.source, self.leaves)
            if id(holder) in self.gradients:
                return self.gradients[id(holder)]
        return holder_of(source, self.leaves)

    def finished(self, leaf: FromGraph) -> Any:
        """A result of the graph as the function would have returned it."""
        grad = None if leaf.grad is None else self(leaf.grad)
        if leaf.number:
            array = self.results.payload(leaf.index)
            return array.item() if type(array) is np.ndarray else self.results[leaf.index].item()
        if leaf.requires_grad and not (leaf.released or leaf.is_leaf):
            result = self.results[leaf.index]
            if result.own.node is not None:
                if grad is not None:
                    result.grad = grad
                return result
        tensor: Any = object.__new__(Tensor if leaf.kind is None else leaf.kind)
        ends = leaf.requires_grad and (leaf.is_leaf or leaf.released or leaf.within)
        node = RELEASED if leaf.released else ended(self.results.payload(leaf.index)) if leaf.within else None
        tensor.own = self.results.state(leaf.index, ends, grad, node)
        return tensor


# ---------------------------------------------------------------- sizes

def fits(type: TensorType, shape: Sequence[Dim], sizes: dict[str, int]) -> bool:
    """Whether the shape matches the type, as far as can be told; `sizes` collects the symbols."""
    return all(dim == size if isinstance(dim, int) else learn(dim, int(size), sizes)
               for dim, size in zip(type.shape, shape, strict=True))


ARRAYS = (Tensor, np.ndarray)       # fast calls leave numbers that change as arrays


def sizes_of(types: Sequence[TensorType], leaves: Sequence[Any]) -> dict[str, int]:
    """The numbers behind the symbols, in a call that fits."""
    sizes: dict[str, int] = {}
    for type, x in zip(types, (x for x in leaves if isinstance(x, ARRAYS)), strict=True):
        fits(type, x.own.payload.shape if isinstance(x, Tensor) else x.shape, sizes)
    return sizes
