"""A function run on fresh leaves -> its result, and the gradients of those leaves alone.

The leaves are forks: tensors with a place of their own on the tape, linked to the tensors they stand for.  A derivative
inside a derivative therefore never sees the other's leaves, and differentiating a derivative needs no further rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tenon.autodiff import backward
from tenon.capture.pytree import Structure, flatten, form
from tenon.eager.grad_mode import differentiating, enable_grad, is_grad_enabled
from tenon.eager.tape import TapeNode, carries, fork
from tenon.errors import ArgumentError, GradientError
from tenon.ops.creation import zeros_like
from tenon.records import dataclass
from tenon.tensor import Tensor, asarray

NUMBERS = (bool, int, float, complex, np.ndarray, np.generic)


@dataclass(frozen=True)
class LeafNest:
    """The leaves of a nest and the nest they form; leaves that have no derivative are kept as they are."""

    leaves: tuple[Any, ...]
    structure: Structure

    @staticmethod
    def of(tree: Any) -> LeafNest:
        """Numbers and arrays among the leaves become tensors."""
        leaves, structure = flatten(tree)
        return LeafNest(tuple(asarray(x) if isinstance(x, NUMBERS) else x for x in leaves), structure)

    @property
    def tensors(self) -> list[Tensor]:
        """The leaves with a derivative."""
        return [x for x in self.leaves if is_differentiable(x)]

    def replace(self, tensors: Iterable[Any]) -> Any:
        """The nest with other leaves for those that have a derivative."""
        given = iter(tensors)
        return self.structure.build(next(given) if is_differentiable(x) else x for x in self.leaves)

    def fill(self, tensors: Iterable[Any]) -> Any:
        """The nest with these leaves, and None for the leaves without a derivative."""
        given = iter(tensors)
        return self.structure.build(next(given) if is_differentiable(x) else None for x in self.leaves)

    def match(self, tree: Any, what: str) -> list[Tensor]:
        """The leaves of a nest of this form, one for each leaf with a derivative, of its shape and type."""
        leaves, structure = flatten(tree)
        if structure != self.structure:
            raise ArgumentError(f"{what}: a nest of the form {form(self.structure)} is needed, not {form(structure)}")
        found = []
        for leaf, like in zip(leaves, self.leaves, strict=True):
            if is_differentiable(like):
                tensor = zeros_like(like) if leaf is None else asarray(leaf) if isinstance(leaf, NUMBERS) else leaf
                if not isinstance(tensor, Tensor) or tensor.shape != like.shape:
                    shown = tensor.type if isinstance(tensor, Tensor) else type(tensor).__name__
                    raise ArgumentError(f"{what}: a tensor of type {like.type} is needed, not {shown}")
                found.append(tensor if tensor.dtype is like.dtype else tensor.astype(like.dtype))
        return found


def is_differentiable(x: Any) -> bool:
    """Whether a leaf is a tensor of floating or complex elements."""
    return isinstance(x, Tensor) and x.dtype.is_differentiable


class Followed:
    """One run of a function on forks of `tensors`.  `result` is what it returned, still linked to the forks."""

    def __init__(self, function: Callable[[list[Tensor]], Any], tensors: Sequence[Tensor]):
        forks = [fork(x) for x in tensors]
        self.tensors = list(tensors)
        self.slots = [x.slot for x in forks]
        self.first = min((node.number for node, _ in self.slots), default=0)
        try:
            with enable_grad():
                self.result = function(forks)
        finally:
            for node, _ in self.slots:
                node.active = False

    def pull(self, outputs: Sequence[Tensor], seeds: Sequence[Tensor], others: Sequence[Tensor] = ()) -> list[Tensor]:
        """The gradients of the leaves, and of `others` that the function read, given those of the outputs."""
        slots = [*self.slots, *(x.slot for x in others)]
        forks = {node for node, _ in self.slots}        # what a leaf stands for may be among the others
        nodes = [node for node in self.tape(outputs) if node not in forks]
        reached = depending(nodes, slots)
        gradients: dict[Any, Any] = {}
        with differentiating(is_grad_enabled() and any(map(carries, (*outputs, *seeds)))):
            for output, seed in zip(outputs, seeds, strict=True):
                gradients[output.slot] = gradients[output.slot] + seed if output.slot in gradients else seed
            backward(nodes, gradients, lambda x: isinstance(x, Tensor) and x.slot in reached)
            found = [gradients[slot] if slot in gradients else zeros_like(x)
                     for slot, x in zip(slots, (*self.tensors, *others), strict=True)]
        return list(map(settled, found))

    def tape(self, outputs: Iterable[Tensor]) -> list[TapeNode]:
        """What was recorded since the forks were made and leads to the outputs, in order."""
        found: set[TapeNode] = set()
        pending = [x.node for x in outputs if x.node is not None]
        while pending:
            node = pending.pop()
            if node.number < self.first or node in found:
                continue
            if node.released:
                raise GradientError("the function called backward(), which released a part of the tape that its result "
                                    "needs", hint="pass retain_graph=True to that backward()")
            found.add(node)
            pending.extend(x.node for x in node.inputs if isinstance(x, Tensor) and x.node is not None)
        return sorted(found, key=lambda node: node.number)


def depending(nodes: Iterable[TapeNode], slots: Iterable[Any]) -> set[Any]:
    """These slots and those of what depends on them."""
    found = set(slots)
    for node in nodes:
        if any(isinstance(x, Tensor) and x.slot in found for x in node.inputs):
            found.update(node.slots)
    return found


def settled(x: Any) -> Any:
    """A leaf of a result as the caller may see it: on the tape only if something outside may want its gradient."""
    if not isinstance(x, Tensor) or x.node is None or (is_grad_enabled() and carries(x)):
        return x
    return Tensor(x.payload)


def settle(tree: Any) -> Any:
    """A nest of results as the caller may see it."""
    leaves = LeafNest.of(tree)
    return leaves.structure.build(map(settled, leaves.leaves))
