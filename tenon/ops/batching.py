"""What an operator on a batch of inputs is, in operators on the whole batch: the families, and what rules are made of.

An operator's `batch` is `rule(op, arguments, **attrs) -> outputs`, with the batch axis first in every output;
NotImplemented leaves the call to the operator's definition in simpler operators, or to a loop over the examples.
Elementwise operators need no rule of their own.  These have names:

    "front"     the operator works on the last axes of its inputs and takes any number of axes in front
    "first"     it takes them in front of its first input alone, and parameters beside it
    "axis"      its attribute `axis` (or axes) counts from the front of all its inputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.dims.symbolic_dim import Dim, product
from tenon.graph.ir import Literal
from tenon.graph.op import Op
from tenon.ops.shape import broadcast_to, full_op, permute, reshape_op
from tenon.records import dataclass
from tenon.types import Shape

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Arguments:
    """The inputs of one call: tensors with the batch axis in front where `batched`, else as every example sees them."""

    size: Dim
    inputs: tuple[Any, ...]
    batched: tuple[bool, ...]
    level: Any = None               # the interpreter that asks (tenon.transforms.vmap_interpreter)

    def shape(self, k: int) -> Shape:
        """The shape of input k as an example sees it."""
        shape: Shape = self.inputs[k].shape
        return shape[1:] if self.batched[k] else shape

    def whole(self, k: int) -> Any:
        """Input k with a batch axis in front, repeated where it has none."""
        x = self.inputs[k]
        if self.batched[k] or x is None:
            return x
        return broadcast_to(as_tensor(x), shape=(self.size, *x.shape))

    def all_whole(self) -> list[Any]:
        """Every input with a batch axis in front."""
        return [self.whole(k) for k in range(len(self.inputs))]


def rule_of(op: Op) -> Rule | None:
    """How this operator is applied to a batch; None where nothing is known."""
    if op.batch is None:
        return elementwise if op.elementwise else None
    return FAMILIES[op.batch] if isinstance(op.batch, str) else op.batch


def as_tensor(x: Any) -> Any:
    """A literal as a scalar tensor."""
    return full_op(x, shape=()) if isinstance(x, Literal) else x


def elementwise(op: Op, a: Arguments, **attrs: Any) -> Any:
    """Inputs are aligned at their last axes, the batch axis in front of all."""
    rank = max(len(a.shape(k)) for k, x in enumerate(a.inputs) if x is not None)

    def aligned(k: int) -> Any:
        x, shape = a.inputs[k], a.shape(k) if a.inputs[k] is not None else ()
        if not a.batched[k] or len(shape) == rank:
            return x
        return reshape_op(x, shape=(a.size, *(1,) * (rank - len(shape)), *shape))
    return op(*map(aligned, range(len(a.inputs))), **attrs)


def unchanged(op: Op, a: Arguments, **attrs: Any) -> Any:
    """Operators that work on the last axes and take any number of axes in front."""
    return op(*a.all_whole(), **attrs)


def first_only(op: Op, a: Arguments, **attrs: Any) -> Any:
    """Operators that take any number of axes in front of their first input, and parameters beside it."""
    return NotImplemented if any(a.batched[1:]) else op(*a.inputs, **attrs)


def along_axis(op: Op, a: Arguments, axis: Any, **attrs: Any) -> Any:
    """Operators with an axis, or axes, of all their inputs: it is one further back."""
    shifted = tuple(k + 1 for k in axis) if isinstance(axis, tuple) else axis + 1
    return op(*a.all_whole(), axis=shifted, **attrs)


FAMILIES: dict[str, Rule] = {"front": unchanged, "first": first_only, "axis": along_axis}


def position_batch(op: Op, a: Arguments, axis: tuple[int, ...], keepdims: bool) -> Any:
    """argmax and argmin: over several axes they count in the flattened example."""
    if len(axis) == 1:
        return along_axis(op, a, axis, keepdims=keepdims)
    shape = a.shape(0)
    out = op(reshape_op(a.inputs[0], shape=(a.size, product(shape))), axis=(1,), keepdims=False)
    return reshape_op(out, shape=(a.size, *(1,) * len(shape))) if keepdims else out


def merge(x: Any, axis: int) -> Any:
    """[B, *shape] -> the batch axis in front of `axis` of an example, made one with it."""
    shape = x.shape[1:]
    moved = permute(x, axes=(*range(1, axis + 1), 0, *range(axis + 1, x.ndim)))
    return reshape_op(moved, shape=(*shape[:axis], x.shape[0] * shape[axis], *shape[axis + 1:]))


def split(x: Any, axis: int, size: Dim) -> Any:
    """Undo `merge`."""
    apart = reshape_op(x, shape=(*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1:]))
    return permute(apart, axes=(axis, *(k for k in range(apart.ndim) if k != axis)))
