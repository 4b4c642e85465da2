"""A call that a capture fits: `holds` compares them, `run` does what the function did.

That is its results, assignments, gradients and effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.autodiff import call
from tenon.capture.captured import Captured, holder_of
from tenon.capture.convert.several import element
from tenon.capture.donation import are_alone, move_to_lines
from tenon.capture.effects import STORES
from tenon.capture.guards import same_atom
from tenon.capture.leaves import (
    FromArguments,
    FromContainers,
    FromGraph,
    FromOutside,
    FromSize,
    OneOf,
    Rows,
    RowsOf,
    Shared,
)
from tenon.capture.residuals import recorded_call
from tenon.capture.trace import Argument, GradientOf, Held, Source
from tenon.config import ConfigError
from tenon.dataclasses import dataclass
from tenon.dims import Dim, evaluate
from tenon.eager.recording import is_grad_enabled
from tenon.eager.tape import RELEASED
from tenon.errors import CaptureError, CompilerDefect, TenonError
from tenon.graph.ir import Value
from tenon.sizes import learn
from tenon.state import TensorState, changed, changes
from tenon.tensor import Tensor
from tenon.types import TensorType


def holds(captured: Captured, leaves: Sequence[Any], containers: Sequence[Any]) -> bool:
    """Whether this capture is right for a call with these leaves in these containers."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    pairs = [(type, x.own.payload.shape) for type, x in zip(captured.types, tensors, strict=True)]
    return (all(same_atom(leaves[k], value) for k, value in captured.values)
            and all(fits(type, shape, sizes) for type, shape in pairs)
            and (not sizes or all(fits(type, shape, sizes) for type, shape in pairs))   # all symbols are known now
            and captured.assumptions.hold(sizes)
            and not any(id(x) in captured.outside for x in tensors)
            and all(leaves[k] is x for k, x in captured.same)
            and captured.apart.isdisjoint(map(id, containers))
            and captured.guards.hold()
            and (captured.checked == changes() or held_tensors_hold(captured, leaves)))


def held_tensors_hold(captured: Captured, leaves: Sequence[Any]) -> bool:
    """Whether the tensors held have the types and flags that they had; remembered until one of any changes."""
    now = changes()
    for x, requires_grad, without_grad, type in captured.held:
        own = x.own
        if own.requires_grad is not requires_grad or (own.grad is None) is not without_grad or \
                own.payload.dtype != type.dtype.numpy or own.payload.shape != type.shape:
            return False
    if not all(source_holds(s, p, leaves) for s, p in zip(captured.sources, captured.graph.params, strict=True)):
        return False
    if not any(isinstance(s, GradientOf) or isinstance(getattr(s, "holder", None), np.ndarray)
               for s in captured.sources):
        captured.checked = now
    return True


def fits(type: TensorType, shape: Sequence[Dim], sizes: dict[str, int]) -> bool:
    """Whether the shape matches the type, as far as can be told; `sizes` collects the symbols."""
    return all(dim == size if isinstance(dim, int) else learn(dim, int(size), sizes)
               for dim, size in zip(type.shape, shape, strict=True))


def sizes_of(types: Sequence[TensorType], leaves: Sequence[Any]) -> dict[str, int]:
    """The numbers behind the symbols, in a call that fits."""
    sizes: dict[str, int] = {}
    for type, x in zip(types, (x for x in leaves if isinstance(x, Tensor)), strict=True):
        fits(type, x.own.payload.shape, sizes)
    return sizes


def source_holds(source: Source, param: Value, leaves: Sequence[Any]) -> bool:
    """Whether a tensor held by the capture still has the type it had."""
    if isinstance(source, Argument):
        return True
    array = read(source, leaves)
    return array is not None and array.dtype == param.dtype.numpy and \
        (isinstance(source, GradientOf) or array.shape == param.shape)


def read(source: Source, leaves: Sequence[Any]) -> Any:
    """The array of a source now."""
    holder = holder_of(source, leaves)
    return holder.own.payload if isinstance(holder, Tensor) else holder


class Stopped(Exception):
    """The function raised while it was captured, or its graph failed; nothing outside was changed.

    So it can be called, to do what it does before it raises, or where it deals with the error.
    """

    def __init__(self, error: Exception):
        super().__init__(error)
        self.error = error


def run(captured: Captured, leaves: Sequence[Any], containers: Sequence[Any] = ()) -> Any:
    """Run the graph, then do what the function did: assignments, gradients, effects, the returned value.

    Raises Stopped where the graph fails, since the function may catch the error, or have done things before it.
    """
    holders = captured.inputs.holders(leaves)
    try:
        if captured.differentiable and is_grad_enabled():
            parts = captured.halves
            out = call(*holders, body=captured.graph) if parts is None else \
                recorded_call(captured.graph, parts, holders, captured.by_data)
            results: Any = out if isinstance(out, tuple) else (out,)
        else:
            arrays: Any = [x.own.payload for x in holders]
            given = captured.donations
            donated = given if given and are_alone(holders, arrays, given) else ()
            move_to_lines(holders, arrays, donated)
            results = Results(captured.program.run(arrays, donated))
    except (ConfigError, CompilerDefect):         # which have nothing to do with the function
        raise
    except TenonError as error:
        raise Stopped(error) from error
    return settle(captured, leaves, results, captured.assigned, containers)


def settle(captured: Captured, leaves: Sequence[Any], results: Any,
           assigned: Sequence[tuple[Source, int, bool]], containers: Sequence[Any] = ()) -> Any:
    """Do what the function did, given the results of its graph; returns what it returned."""
    if captured.failed is not None and results[captured.failed].own.payload:
        raise Stopped(CaptureError("the call takes a way that its graph does not hold"))

    fill = _Fill(captured, leaves, results, containers)
    given: list[tuple[Any, int, bool]] = [
        (source.holder if type(source) is Held else holder_of(source, leaves), k, carries)
        for source, k, carries in assigned]
    for source, position in captured.gradients:
        holder_of(source, leaves).own.grad = fill(position) if isinstance(position, OneOf) else \
            None if position is None else results[position].detach()
    for holder, k, carries in given:
        own = holder.own
        if carries:
            new = results[k].own
            holder.own = TensorState(new.payload, own.requires_grad, own.grad, new.node, new.index)
        else:
            array = results.arrays[k] if type(results) is Results else results[k].own.payload
            if array is not own.payload or own.node is not None:        # else it was updated in place
                holder.own = TensorState(array, own.requires_grad, own.grad)
    for source, flag in captured.flags:
        holder = holder_of(source, leaves)
        own = holder.own
        holder.own = TensorState(own.payload, flag, own.grad, own.node, own.index)
    if captured.gradients or captured.flags:
        changed()
    if not captured.effects:
        return captured.output.build(fill)
    result, *values = captured.output.build(fill)
    for (effect, number), value in zip(captured.effects, values, strict=True):
        holder = effect.holder if number is None else containers[number] if number >= 0 else leaves[-1 - number]
        STORES[effect.kind](holder, effect.key, value)
    return result


class _Fill:
    """Leaves of a nest -> what they stand for after a run.  An object, since a nested function that calls itself would
    keep the results until Python looks for cycles."""

    def __init__(self, captured: Captured, leaves: Sequence[Any], results: Any, containers: Sequence[Any]):
        self.captured, self.leaves, self.results, self.containers = captured, leaves, results, containers
        self.made: dict[int, Any] = {}

    def __call__(self, leaf: Any) -> Any:
        if isinstance(leaf, FromGraph):
            if leaf.name is None or leaf.name not in self.made:
                made = finished(self.results[leaf.index], leaf)
                if leaf.grad is not None:
                    made.grad = self(leaf.grad)
                if leaf.name is None:
                    return made
                self.made[leaf.name] = made
            return self.made[leaf.name]
        if isinstance(leaf, OneOf):
            return next(nest for p, nest in leaf.options if p is True or (p and self(p))).build(self)
        if isinstance(leaf, Shared):
            if leaf.name not in self.made:
                self.made[leaf.name] = leaf.nest.build(self)
            return self.made[leaf.name]
        if isinstance(leaf, RowsOf):
            count = self(leaf.count)
            rows = [self(x)[:count] for x in leaf.rows]
            return rows[0] if leaf.form is None else Rows(
                [element(leaf.form, iter(row)) for row in zip(*rows, strict=True)])
        if isinstance(leaf, FromSize):
            return evaluate(leaf.size, sizes_of(self.captured.types, self.leaves))
        if isinstance(leaf, FromArguments):
            return self.leaves[leaf.position]
        if isinstance(leaf, FromContainers):
            return self.containers[leaf.number]
        return holder_of(leaf.source, self.leaves) if isinstance(leaf, FromOutside) else leaf


@dataclass
class Results:
    """The arrays that a program returned; a tensor is made of one only where somebody asks."""

    arrays: Sequence[np.ndarray]

    def __getitem__(self, k: int) -> Tensor:
        return Tensor(self.arrays[k])


def finished(result: Tensor, leaf: FromGraph) -> Any:
    """A result of the graph as the function would have returned it."""
    if leaf.number:
        return result.item()
    if leaf.requires_grad and not (leaf.released or leaf.is_leaf) and result.node is not None:
        return result
    tensor: Any = Tensor(result.own.payload) if leaf.kind is None else object.__new__(leaf.kind)
    ends = leaf.requires_grad and (leaf.is_leaf or leaf.released)
    tensor.own = TensorState(result.own.payload, ends, None, RELEASED if leaf.released else None)
    return tensor


def why_not(captured: Captured, leaves: Sequence[Any]) -> str:
    """The first condition of a capture that a call does not meet, in words."""
    sizes: dict[str, int] = {}
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    for x, type in zip(tensors, captured.types, strict=True):
        if not fits(type, x.own.payload.shape, sizes):
            return f"an argument was {type} and is {x.type}"
    if not captured.assumptions.hold(sizes):
        return "a comparison of sizes came out differently"
    return captured.guards.failing() or "a tensor changed its type, or whether it requires a gradient"
